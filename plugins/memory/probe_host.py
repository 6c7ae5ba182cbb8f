"""Memory of the host outside this process, pinned memory, and bursts of writing like a checkpoint's.

Read on the shim's thread from what the kernel and torch keep anyway; how often follows from what it costs.
"""

import collections
import operator
import os
import sys
import threading
import time

MOST_WORKERS = 32
"""In one record, the largest first; the sum counts all."""
MOST_PROCESSES = 4096
DEEPEST = 4
REST_PER_COST = 2000
"""A reading of n milliseconds is followed by the next after 2 n seconds: 0.05 % of one core."""

AVAILABLE_EVERY_S = 10.0

WRITES_HZ = 2
MANY_BYTES = 4 << 20
MANY_TIMES = 4
"""A burst is so many times what busy seconds of the last two minutes write, and 4 MiB at least."""
WINDOW_S = 3.0
LEARNT_S = 3
USUAL_S = 120
LONG_BURST_S = 60.0
"""What goes on for longer is no burst: it is what this training usually writes."""
APART_S = 10.0
"""Between two marks: a training that saves all the time has no moment worth one."""

GROUPS = {
    "": (("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),),
    "memory": (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ),
}
"""By what the kernel names a hierarchy: where it is, and its words for limit, use and what can be dropped."""

PAGE = os.sysconf("SC_PAGE_SIZE")


def setup(api):
    """Register the two readings."""
    family = Family()
    # The long history keeps the extremes of the first, and of the second the oldest and the newest.
    api.sample(1, Host(api, family).read, kind="host", key="workers_rss_bytes")
    api.sample(WRITES_HZ, Checkpoints(family).look, kind="mark", key="order")


class Host:
    """Read what the host's memory holds for this training besides the process itself."""

    def __init__(self, api, family):
        self.api = api
        self.family = family
        self.due_s = 0.0
        self.has_pinned = True
        self.limits = limits()
        self.available_due_s = 0.0
        self.available_bytes: object = None

    def read(self):
        """Return one record, or None where the readings are thinned because they cost too much."""
        if time.monotonic() < self.due_s:
            return None
        began_ns = time.thread_time_ns()
        workers = self.family.read()
        record = {
            "workers_count": len(workers),
            "workers_rss_bytes": sum(one["rss_bytes"] for one in workers),
            "workers": sorted(workers, key=operator.itemgetter("rss_bytes"), reverse=True)[:MOST_WORKERS],
        }
        for name, value in (
            ("written_bytes", written_bytes("self")),
            ("pinned_bytes", self.pinned()),
            ("available_bytes", self.available()),
        ):
            if value is not None:
                record[name] = value
        # The processor's time, not the clock's: that is mostly a wait for the interpreter.
        cost_s = (time.thread_time_ns() - began_ns) / 1e9
        self.due_s = time.monotonic() + (REST_PER_COST * cost_s if cost_s > 1.0 / REST_PER_COST else 0.0)
        return record

    def available(self):
        """Return how much is left for this process; the kernel counts that from all its zones (150 us)."""
        now = time.monotonic()
        if now >= self.available_due_s:
            self.available_due_s = now + AVAILABLE_EVERY_S
            self.available_bytes = available_bytes(self.limits)
        return self.available_bytes

    def pinned(self):
        """Return the page-locked host memory of torch's own allocator, None where torch does not tell.

        It is asked only where the training has started the device; the call starts none, and it takes the
        host allocator's lock only.
        """
        kind = self.api.device.kind
        core = getattr(sys.modules.get({"npu": "torch_npu", "cuda": "torch"}.get(kind, "")), "_C", None)
        ask = getattr(core, "_%s_hostMemoryStats" % kind, None)
        if ask is None or not self.has_pinned:
            return None
        try:
            found = dict(ask()).get("allocated_bytes")
        except RuntimeError:
            self.has_pinned = False  # An allocator of another make that counts nothing.
            return None
        current = found.get("current") if isinstance(found, dict) else None
        return int(current) if isinstance(current, int) else None


class Family:
    """The processes that this one started, and theirs: their memory, and what they wrote to storage.

    The kernel lists the children of a thread; only threads that run Python are asked, because others start
    no workers.  A kernel without these lists (CONFIG_PROC_CHILDREN) is asked about every process.
    """

    def __init__(self):
        self.wrote_bytes = 0
        self.has_lists = True
        self._wrote = {}

    def read(self):
        """Return [{pid, name, rss_bytes}, …] of those that run."""
        stats = self._listed() if self.has_lists else None
        stats = self._scanned() if stats is None else stats
        found, wrote = [], {}
        for pid, (name, _, state, rss_bytes) in stats.items():
            if state in "ZX":
                continue
            found.append({"pid": pid, "name": name, "rss_bytes": rss_bytes})
            wrote[pid] = stored_bytes(pid)
            if self._wrote.get(pid) is not None and wrote[pid] is not None:
                self.wrote_bytes += max(0, wrote[pid] - self._wrote[pid])
        self._wrote = wrote
        return found

    def has_lost_one(self):
        """Tell, once for each, whether one of the processes last read has ended meanwhile."""
        gone = [pid for pid in self._wrote if not os.path.exists("/proc/%d" % pid)]
        for pid in gone:
            del self._wrote[pid]
        return bool(gone)

    def _listed(self):
        stats: dict[int, object] = {}
        asked = {os.getpid()} | {
            getattr(one, "_native_id", None) for one in dict(getattr(threading, "_active", {})).values()
        }
        lists = [text_of("/proc/self/task/%s/children" % tid, 1 << 16) for tid in asked if tid is not None]
        if all(one is None for one in lists):
            self.has_lists = False
            return None
        for _ in range(DEEPEST):
            pids = [int(pid) for one in lists if one for pid in one.split()]
            for pid in pids[: MOST_PROCESSES - len(stats)]:
                stat = stat_of(pid)
                if stat is not None:
                    stats[pid] = stat
            lists = [
                text_of("/proc/%d/task/%d/children" % (pid, pid), 1 << 16) for pid in pids if pid in stats
            ]
        return stats

    @staticmethod
    def _scanned():
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
        every = {int(pid): stat_of(pid) for pid in numbers[-MOST_PROCESSES:]}
        found, parents = {}, {os.getpid()}
        for _ in range(DEEPEST):
            level = {pid: stat for pid, stat in every.items() if stat is not None and stat[1] in parents}
            found.update(level)
            parents = set(level)
        return found


class Checkpoints:
    """Notice where this process, or one that it started, begins to write much."""

    def __init__(self, family):
        self.family = family
        self.own, self.others = Writes(), Writes()
        self.wrote_before: object = None
        self.ignored_bytes = 0
        self.marked_s = -APART_S

    def look(self):
        """Return a mark, or None."""
        now, wrote = time.monotonic(), written_bytes("self")
        burst = self.others.add(now, self.family.wrote_bytes)
        if wrote is not None:
            before, self.wrote_before = self.wrote_before, wrote
            if before is not None and wrote - before > MANY_BYTES // 8 and self.family.has_lost_one():
                # The kernel adds an ended child to its parent's account, its pipes too: no writing of now.
                self.ignored_bytes += wrote - before
            burst = self.own.add(now, wrote - self.ignored_bytes) or burst
        if not burst or now - self.marked_s < APART_S:
            return None
        self.marked_s = now
        return {"sign": "c", "label": "checkpoint", "order": now}


class Writes:
    """Learn how much is usually written in a second and tell where a burst begins."""

    def __init__(self):
        self.last_s: float = 0.0
        self.last_bytes: object = None
        self.recent: collections.deque[tuple[float, float, int]] = collections.deque()
        self.usual: collections.deque[float] = collections.deque(maxlen=USUAL_S)
        self.second_s = 0.0
        self.second_bytes = 0
        self.burst_s: object = None
        self.busy_bytes = 0.0

    def add(self, now, total_bytes):
        """Take a growing total; return whether a burst began."""
        before, self.last_bytes = self.last_bytes, total_bytes
        span_s, self.last_s = now - self.last_s, now
        if before is None:
            self.second_s = now
            return False
        amount = max(0, total_bytes - before)
        self.recent.append((now, span_s, amount))
        while self.recent and now - self.recent[0][0] > WINDOW_S:
            self.recent.popleft()
        # A reading may come late: a save can hold the interpreter.
        limit = max(MANY_BYTES, MANY_TIMES * self.busy_bytes * sum(one[1] for one in self.recent))
        lately = sum(one[2] for one in self.recent)
        began = self.burst_s is None and lately >= limit and len(self.usual) >= LEARNT_S
        if began:
            self.burst_s = now
        elif self.burst_s is not None and lately < limit / 2:
            self.burst_s = None
        self.second_bytes += amount
        if now - self.second_s >= 1.0:
            if self.burst_s is None or now - self.burst_s > LONG_BURST_S:
                self.usual.append(self.second_bytes / (now - self.second_s))
                self.busy_bytes = sorted(self.usual)[len(self.usual) * 9 // 10]
            self.second_s, self.second_bytes = now, 0
        return began


def limits():
    """Return the control groups of this process that limit its memory, as their files' names.

    Each is (limit, use, the account that tells what of the use is cache that can be dropped, its name there).
    """
    found = []
    for line in (text_of("/proc/self/cgroup", 1 << 14) or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for root, limit, use, dropped in GROUPS.get(controllers, ()):
            parts = path.strip("/").split("/")
            for depth in range(len(parts) + 1):
                folder = "/".join([root, *parts[:depth]]).rstrip("/") + "/"
                if number_of(text_of(folder + limit)) is not None:
                    found.append((folder + limit, folder + use, folder + "memory.stat", dropped))
    return list(dict.fromkeys(found))


def available_bytes(groups):
    """Return how much memory this process can still take from the machine and from what limits it."""
    found = []
    for line in (text_of("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    for limit_file, use_file, stat_file, dropped in groups:
        limit, use = number_of(text_of(limit_file)), number_of(text_of(use_file))
        if limit is None or use is None:
            continue
        for line in (text_of(stat_file, 1 << 14) or "").splitlines():
            name, _, value = line.partition(" ")
            if name == dropped and value.isdigit():
                use -= int(value)
        found.append(max(0, limit - use))
    return min(found, default=None)


def number_of(text):
    """Return the number in a file of one, None where it says "max" or the kernel's word for no limit."""
    number = int(text) if text and text.strip().isdigit() else None
    return number if number is not None and number < 1 << 60 else None


def written_bytes(pid):
    """Return what a process has handed to write calls or dirtied of storage, whichever is more."""
    both = io_of(pid)
    return None if both is None else max(both)


def stored_bytes(pid):
    """Return what a process has written to storage: what goes through pipes is not in it."""
    both = io_of(pid)
    return None if both is None else both[1]


def io_of(pid):
    """Return what a process handed to write calls and what it wrote to storage, None where not told."""
    words = (text_of("/proc/%s/io" % pid) or "").split()
    if "wchar:" not in words or "write_bytes:" not in words:
        return None
    return int(words[words.index("wchar:") + 1]), int(words[words.index("write_bytes:") + 1])


def stat_of(pid):
    """Return (name, parent, state, resident bytes) of a process, None when it is gone."""
    head, _, rest = (text_of("/proc/%s/stat" % pid) or "").rpartition(")")
    fields = rest.split()
    if len(fields) < 22:
        return None
    return head.partition("(")[2], int(fields[1]), fields[0], int(fields[21]) * PAGE


def text_of(path, most_bytes=1024):
    """Return a file of the kernel's, None where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(file, most_bytes).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(file)
