"""Stacks probe: while steps end, how long ago one did; when none does, where every Python thread stands.

Nothing is read of the training's stacks while it steps.  Reading them holds the interpreter for one C
call per thread; no frame is kept, so that no variable of the training lives longer for it.
"""

import json
import os
import sys
import threading
import time
from collections import deque
from itertools import accumulate, repeat
from operator import attrgetter

READINGS_HZ = 1.25
"""Three readings, which show that the main thread stands still, are within two ticks of the screen."""
PATIENCE_S = 5.0
PATIENCE_STEPS = 10
MOST_THREADS = 64
MOST_FRAMES = 40
MOST_BYTES = 64 << 10
"""Of frames in one record; the history takes no record over 128 KiB."""
MOST_NATIVE = 256
FILE_CHARACTERS, NAME_CHARACTERS = 160, 80

PLACE = attrgetter("f_code", "f_lineno", "f_lasti")
UNMARKED = ("CALL_FUNCTION", "CALL_FUNCTION_KW")
"""Before Python 3.11: calls of which nothing marks the callable."""


def setup(api):
    """Register the reading."""
    api.sample(READINGS_HZ, Reader(api).read, kind="stacks")


class Reader:
    """Read the steps' clock and, when it stands, the stacks.  On the shim's thread only."""

    def __init__(self, api):
        self.api = api
        self.began_s = time.monotonic()
        self.main_before: object = None
        # By thread id: (seconds it ran, when that was read).
        self.ran = {}
        self.called_at: object = None
        self.called_name: object = None
        self.names = {}

    def read(self):
        """Return one record."""
        began_ns = time.perf_counter_ns()
        since_s, step_s = self.api.since_step_s, self.api.step_s
        record = {"since_step_s": since_s, "step_s": step_s, "attached_s": time.monotonic() - self.began_s}
        if since_s is not None and since_s <= max(PATIENCE_S, PATIENCE_STEPS * (step_s or 0.0)):
            self.main_before = None
            self.ran = {}
        else:
            self.add_stacks(record)
            record["reading_us"] = (time.perf_counter_ns() - began_ns) // 1000
        return record

    def add_stacks(self, record):
        """Add every Python thread's place and, when the main one stands still, what the kernel says.

        A main thread that moves may run Python: each file read now would take the interpreter from it.
        """
        stacks, left_out = stacks_of_all()
        # Read without its lock, which a thread of the training may hold for ever.
        known = dict(getattr(threading, "_active", {}))
        main = main_ident()
        ran, self.ran = self.ran, {}
        table, threads, tasks = Table(), [], []
        stands = False
        for ident, places in stacks:
            facts = vars(known[ident]) if ident in known else {}
            tid, is_main = facts.get("_native_id"), ident == main
            if is_main:
                at = [(code.co_filename, code.co_name, line) for code, line, _ in places]
                stands, self.main_before = at == self.main_before, at
                tasks = os.listdir("/proc/self/task") if stands else []
                if tid != os.getpid() and str(tid) not in tasks:
                    tid = os.getpid()  # After a fork the number may be that of the parent's thread.
            thread = {
                "name": cut(facts.get("_name", ""), NAME_CHARACTERS),
                "tid": tid,
                "main": is_main,
                "daemon": bool(facts.get("_daemonic", False)),
                "stack": table.add(places[:MOST_FRAMES]),
            }
            thread["is_cut"] = len(places) > len(thread["stack"])
            if tid is not None and (stands or is_main):
                thread.update(self.asked(tid, ran.get(tid), stands))
            if is_main and stands:
                thread["called"] = self.called(*places[0])
            threads.append(thread)
        record["threads"], record["threads_left_out"], record["frames"] = threads, left_out, table.rows
        if stands:
            record["machine"] = os.uname().machine
            taken = {str(one["tid"]) for one in threads} | {str(threading.get_native_id())}
            record["native"] = self.native([one for one in tasks if one not in taken])

    def asked(self, tid, before, with_wait):
        """Return what the kernel says of one thread: the share of the time it ran, its state, its wait."""
        found = {}
        ran_s, now = cpu_seconds(tid), time.monotonic()
        if ran_s is not None:
            self.ran[tid] = (ran_s, now)
            if before is not None and now > before[1]:
                found["cpu_share"] = (ran_s - before[0]) / (now - before[1])
        if not with_wait:
            return found
        folder = "/proc/self/task/%d/" % tid
        fields = text_of(folder + "stat").rpartition(")")[2].split()
        found["state"] = fields[0] if fields else ""
        if found["state"] != "R":
            found["wchan"] = text_of(folder + "wchan")[:NAME_CHARACTERS]
            number = text_of(folder + "syscall").partition(" ")[0]
            if number.isdigit():
                found["syscall"] = int(number)
        return found

    def native(self, tasks):
        """Return how many threads without Python code there are by name, and how many were not asked."""
        self.names = {one: self.names.get(one) for one in tasks[:MOST_NATIVE]}
        counts: dict[str, int] = {}
        for task, name in self.names.items():
            if name is None:
                name = self.names[task] = text_of("/proc/self/task/%s/comm" % task).strip()
            counts[name] = counts.get(name, 0) + 1
        return {"names": counts, "left_out": len(tasks) - len(self.names)}

    def called(self, code, line, offset):
        """Return the name of what the innermost frame called: a C function has no frame of its own."""
        where = (code.co_filename, code.co_name, offset)
        if self.called_at != where:
            self.called_at, self.called_name = where, name_called(code, offset)
        return self.called_name


def main_ident():
    """Return the identity of the main thread."""
    return getattr(getattr(threading, "_main_thread", None), "_ident", None)


def stacks_of_all():
    """Return [(thread, [(code, line, offset), …])], innermost first, and how many threads are left out.

    One call of a C function walks a stack, and a thread switch can come only between two bytecodes: the
    walk sees one moment, and it holds no frame while another thread runs on.  Ours is not among them.
    """
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    main = main_ident()
    # The interpreter lists the newest thread first; the newest are left out, and never the main one.
    idents = sorted(frames, key=lambda ident: ident == main)[-MOST_THREADS:]
    left_out = len(frames) - len(idents)
    found = []
    for ident in reversed(idents):
        places: deque[object] = deque()
        try:
            walk = accumulate(repeat("f_back", MOST_FRAMES), getattr, initial=frames.pop(ident))
            places.extend(map(PLACE, walk))
        except AttributeError:
            walk = None  # The end of the stack: no caller has no caller.
        walk = None
        found.append((ident, list(places)))
    frames.clear()
    return found, left_out


class Table:
    """The distinct frames of one record; threads of a pool share theirs."""

    def __init__(self):
        self.rows = []
        self.left_bytes = MOST_BYTES
        self._index = {}

    def add(self, places):
        """Return the rows of a stack, as many as the record has room for."""
        found = []
        for code, line, _ in places:
            key = (code.co_filename, getattr(code, "co_qualname", code.co_name), line)
            at = self._index.get(key)
            if at is None:
                row = [cut(key[0], FILE_CHARACTERS, at_end=False), cut(key[1], NAME_CHARACTERS), line]
                self.left_bytes -= len(json.dumps(row)) + 1
                if self.left_bytes < 0:
                    break
                at = self._index[key] = len(self.rows)
                self.rows.append(row)
            found.append(at)
        return found


def name_called(code, offset):
    """Return the name that the call at `offset` has loaded, `with` for a block's entry, else None.

    Each call takes one callable that was loaded before it, so the calls in between are paired off.
    Before Python 3.11 only methods are told apart from other loads.
    """
    dis = sys.modules.get("dis")
    if dis is None:
        return None  # torch has loaded it; we load nothing that the training does not have.
    done = [one for one in dis.get_instructions(code) if one.offset <= offset]
    if not done or done[-1].offset != offset:
        return None
    call = done.pop().opname
    if call in ("BEFORE_WITH", "SETUP_WITH"):
        return "with"
    if not is_call(call) or call in UNMARKED:
        return None
    calls_between = 0
    for place in range(len(done) - 1, -1, -1):
        one = done[place]
        if one.opname in UNMARKED:
            return None
        if is_call(one.opname):
            calls_between += 1
            continue
        name = callable_at(done, place)
        if name is not None and not calls_between:
            return cut(name, NAME_CHARACTERS)
        calls_between -= name is not None
    return None


def is_call(name):
    """Tell whether an instruction calls."""
    return name.startswith("CALL") and not name.startswith("CALL_INTRINSIC")


def callable_at(done, place):
    """Return the name of the callable that the instruction there loads, None where it loads none."""
    one = done[place]
    if one.opname == "LOAD_SPECIAL":
        return "with"
    if one.opname in ("LOAD_METHOD", "LOAD_SUPER_ATTR"):
        return str(one.argval)
    marked = "NULL" in one.argrepr
    if one.opname == "LOAD_ATTR" and marked:
        return str(one.argval)
    if one.opname == "PUSH_NULL" and sys.version_info >= (3, 13):
        return str(done[place - 1].argval)
    if one.opname != "PUSH_NULL" and not (one.opname == "LOAD_GLOBAL" and marked):
        return None
    # What is called is a name, and what is taken from it.
    name = str(one.argval) if marked else None
    for after in done[place + 1 :]:
        if name is not None and after.opname != "LOAD_ATTR":
            break
        name = str(after.argval)
    return name


def cpu_seconds(tid):
    """Return how long a thread has run, None when it is gone.

    The number of a thread's clock holds its kernel id (the kernel's include/linux/posix-timers.h), so
    that, other than with `time.pthread_getcpuclockid`, a thread that has ended is an error and no crash.
    """
    try:
        return time.clock_gettime(~tid << 3 | 6)
    except OSError:
        return None


def text_of(path):
    """Return a small file of the kernel's, nothing where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(file, 1024).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)


def cut(text, characters, at_end=True):
    """Return a text of at most so many characters, without its end or without its beginning."""
    if type(text) is not str:
        return ""
    return text if len(text) <= characters else (text[:characters] if at_end else text[-characters:])
