"""What the kernel shows of us in a target: counted by kind, so that a leftover has a name."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ascend_tui.inject import area, memory
from ascend_tui.target import Target, TargetGone, socket_path

STATES = {area.PREPARED: "prepared", area.BORROWED: "borrowed", area.ABANDONED: "abandoned"}


@dataclass(frozen=True)
class View:
    """One look; `areas` are the mappings of injectors by their state, apart from all other `code` pages."""

    threads: int
    descriptors: tuple[tuple[str, int], ...]
    sockets: int
    path: bool
    code: int
    areas: tuple[tuple[str, int], ...]
    area_kib: int
    mappings: int
    anonymous_kib: int
    rss_kib: int

    @property
    def shape(self) -> tuple[object, ...]:
        """What is the same in the middle of every epoch of an undisturbed training."""
        return (self.threads, self.descriptors, self.sockets, self.path, self.code)

    def more_than(self, before: View) -> dict[str, int]:
        """Return what there is more than in `before`, by kind; areas and memory are not among it."""
        more = {
            "threads": self.threads - before.threads,
            "sockets of ours": self.sockets,
            "path of the socket": int(self.path),
            "pages with code": self.code - before.code,
        }
        known = dict(before.descriptors)
        for kind, count in self.descriptors:
            more[f"descriptors: {kind}"] = count - known.get(kind, 0)
        return {kind: count for kind, count in more.items() if count > 0}


def look(target: Target) -> View:
    """Look at a target now. Raises OSError when it has gone."""
    pid = target.id.pid
    path = socket_path(target)
    maps = memory.read_maps(pid)
    areas = area.shapes(maps)
    states = dict.fromkeys(areas, "without a header")
    reader = memory.Memory(pid)
    try:
        for one, header in area.leftovers(reader, maps):
            states[one] = STATES.get(header.state, str(header.state))
    finally:
        reader.close()
    ours = {one.rw for one in areas} | {one.rx for one in areas}
    anonymous = [one for one in maps if not one.path and one.start not in ours]
    links = [_link(pid, number) for number in os.listdir(f"/proc/{pid}/fd")]
    lines = Path(f"/proc/{pid}/net/unix").read_text().splitlines()
    inodes = {f"socket:[{line.split()[6]}]" for line in lines if line.endswith(" " + str(path))}
    return View(
        threads=len(os.listdir(f"/proc/{pid}/task")),
        descriptors=tuple(sorted(Counter(map(_kind, links)).items())),
        sockets=sum(link in inodes for link in links),
        path=os.path.exists(path),
        code=sum("x" in one.perms for one in anonymous),
        areas=tuple(sorted(Counter(states.values()).items())),
        area_kib=sum(one.rw_size + one.rx_size for one in areas) // 1024,
        mappings=len(maps),
        anonymous_kib=sum(one.end - one.start for one in anonymous if "w" in one.perms) // 1024,
        rss_kib=resident_kib(pid),
    )


def resident_kib(pid: int) -> int:
    """Return how much memory of a process is resident. Raises OSError when it has gone."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def usual(target: Target, looks: int = 40) -> View:
    """Return what there is in a target most of the time; a training's workers come and go."""
    seen = []
    for _ in range(looks):
        seen.append(look(target))
        time.sleep(0.02)
    shape = Counter(one.shape for one in seen).most_common(1)[0][0]
    return next(one for one in reversed(seen) if one.shape == shape)


def look_until_as(before: View, target: Target, timeout_s: float) -> View | None:
    """Look until it is as before, or the time is over; None when the target has gone."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            view = look(target)
        except (OSError, TargetGone):
            return None
        if view.shape == before.shape or time.monotonic() > end:
            return view
        time.sleep(0.01)


def _link(pid: int, number: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return "closed meanwhile"


def _kind(link: str) -> str:
    return link.partition(":")[0] if not link.startswith("/") else "file"
