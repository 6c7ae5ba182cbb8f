"""What a process has open, and who reads the other end of its pipes: from /proc, nothing is opened.

All of it costs microseconds for each open file and never waits: pipes, terminals and devices are only asked
for their kind.  Reading `/proc/PID/fd` needs the process's user or root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.target.paths import named_inside, seen_from_here
from ascend_tui.target.proc import read_bytes, read_link, read_stat

Identity = tuple[int, int]
HandleKind = Literal["file", "pipe", "terminal", "null", "socket", "other"]
NULL = os.makedev(1, 3)
TERMINALS = (4, 5, *range(136, 144), 204)
"""Major numbers of consoles, of /dev/tty, of pseudo terminals and of serial lines (Linux: devices.txt)."""
MOST_HANDLES = 1024
"""Each costs a few microseconds; logs are opened early and so have low numbers."""
MOST_ANCESTORS = 8
MOST_RELATIVES = 512
MOST_THREADS = 64
MOST_HOPS = 3
"""As many programs are followed in `train | ts | tee`."""
DELETED = " (deleted)"


@frozen
class Handle:
    """One open file of a process: `name` as its own file system has it, `through` opens it from here."""

    pid: int
    number: int
    kind: HandleKind
    name: str
    through: str
    identity: Identity
    size_bytes: int = 0
    is_deleted: bool = False


@frozen
class Reader:
    """The process at the other end of a pipe, and the file it writes to, where it has one."""

    pid: int
    program: str
    file: Handle | None = None


def handle(pid: int, number: int) -> Handle | None:
    """Return what a descriptor is, or None where it is closed.

    Raises OSError where this user may not look.
    """
    through = f"/proc/{pid}/fd/{number}"
    try:
        name, seen = os.readlink(through), os.stat(through)
    except FileNotFoundError:
        return None
    # A file may be called "x (deleted)"; only one without a name left has no links.
    is_deleted = name.endswith(DELETED) and seen.st_nlink == 0
    return Handle(
        pid,
        number,
        _kind(seen),
        named_inside(pid, _plain(name) if is_deleted else name),
        through,
        (seen.st_dev, seen.st_ino),
        seen.st_size,
        is_deleted,
    )


def handles(pid: int, least: int = 0, is_wanted: Callable[[str], bool] | None = None) -> Iterator[Handle]:
    """Return the regular files a process has open, from descriptor `least` on; none where not allowed.

    `is_wanted` is asked of a name before anything else is: of a thousand open files few are logs.
    """
    for number in _numbers(pid):
        name = read_link(f"/proc/{pid}/fd/{number}") if number >= least else None
        if name is None or not name.startswith("/") or not (is_wanted is None or is_wanted(_plain(name))):
            continue
        try:
            found = handle(pid, number)
        except OSError:
            continue
        if found is not None and found.kind == "file":
            yield found


def _plain(name: str) -> str:
    return name[: -len(DELETED)] if name.endswith(DELETED) else name


def is_written(pid: int, number: int) -> bool:
    """Tell whether a descriptor was opened for writing."""
    for line in (read_bytes(f"/proc/{pid}/fdinfo/{number}") or b"").splitlines():
        name, _, value = line.partition(b":")
        if name == b"flags":
            digits = value.strip()
            return digits.isdigit() and int(digits, 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def reader_of(pipe: Handle) -> Reader | None:
    """Return who reads a pipe, looked for among the ancestors of its writer and their children.

    `train | tee log` in a shell or a script, and a launcher that reads its workers, are found so.  To look at
    every process of the machine would cost seconds.
    """
    wanted, relatives = pipe.name, list(_relatives(pipe.pid))
    reader: Reader | None = None
    for _ in range(MOST_HOPS):
        pid = next((one for one in relatives if read_link(f"/proc/{one}/fd/0") == wanted), None)
        if pid is None:
            break
        reader = Reader(pid, _program(pid), _output(pid))
        wanted = read_link(f"/proc/{pid}/fd/1") or ""
        if reader.file is not None or not wanted.startswith("pipe:"):
            return reader
    if reader is None:
        # One that reads its children and writes who knows what.
        reads = (one for one in _ancestors(pipe.pid) if _reads(one, wanted))
        reader = next((Reader(pid, _program(pid)) for pid in reads), None)
    return reader


def _program(pid: int) -> str:
    found = read_stat(pid)
    return found.comm if found is not None else "?"


def is_shared(one: Handle) -> bool:
    """Tell whether the parent or a sibling writes its stdout or stderr to the same file."""
    found = read_stat(one.pid)
    if found is None or found.ppid < 1:
        return False
    for pid in (found.ppid, *_children(found.ppid)):
        if pid != one.pid and one.identity in (identity_of(f"/proc/{pid}/fd/{number}") for number in (1, 2)):
            return True
    return False


def beside(one: Handle) -> str | None:
    """Return the path from here of an open file, where that leads to this very file."""
    path = str(seen_from_here(one.pid, one.name))
    return path if not one.is_deleted and identity_of(path) == one.identity else None


def _kind(seen: os.stat_result) -> HandleKind:
    if stat.S_ISREG(seen.st_mode):
        return "file"
    if stat.S_ISFIFO(seen.st_mode):
        return "pipe"
    if stat.S_ISSOCK(seen.st_mode):
        return "socket"
    if stat.S_ISCHR(seen.st_mode):
        if seen.st_rdev == NULL:
            return "null"
        return "terminal" if os.major(seen.st_rdev) in TERMINALS else "other"
    return "other"


def identity_of(path: str) -> Identity | None:
    """Return which file a path leads to, or None where it leads to none."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def _numbers(pid: int) -> list[int]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdigit())[:MOST_HANDLES]


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while len(found) < MOST_ANCESTORS:
        seen = read_stat(pid)
        if seen is None or seen.ppid < 1 or seen.ppid in found:
            break
        pid = seen.ppid
        found.append(pid)
    return found


def _children(pid: int) -> list[int]:
    """Return the children of a process: the kernel lists them by the thread that started them."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")[:MOST_THREADS]
    except OSError:
        return []
    raws = (read_bytes(f"/proc/{pid}/task/{thread}/children") or b"" for thread in threads)
    return [int(word) for raw in raws for word in raw.split()][:MOST_RELATIVES]


def _relatives(pid: int) -> Iterator[int]:
    left = MOST_RELATIVES
    for ancestor in _ancestors(pid):
        for one in (ancestor, *_children(ancestor)):
            left -= 1
            if left < 0:
                return
            yield one


def _reads(pid: int, pipe: str) -> bool:
    """Tell whether a process holds the reading end of a pipe."""
    for number in _numbers(pid):
        if read_link(f"/proc/{pid}/fd/{number}") == pipe and not is_written(pid, number):
            return True
    return False


def _output(pid: int) -> Handle | None:
    """Return the file that a filter writes: of `tee` the one it was told, of others their stdout."""
    written = (one for one in handles(pid, 1) if one.number != 2 and is_written(pid, one.number))
    if _program(pid) == "tee":
        return max(written, key=lambda one: one.number > 2, default=None)
    return next((one for one in written if one.number == 1), None)
