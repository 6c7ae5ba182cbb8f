"""Which files the output of a process is in, and why it is in none: found from its pid.

What launchers do, each by its source:

* torchrun (torch 2.13 `distributed/elastic/multiprocessing/api.py`): with --redirects or --tee a worker's
  stdout and stderr are <log dir>/<run>_<random>/attempt_<n>/<local rank>/{stdout,stderr}.log, and its
  variable TORCHELASTIC_ERROR_FILE names error.json beside them.  No variable names the log dir itself.
* DeepSpeed (`deepspeed/launcher/launch.py`, --enable_each_rank_log) and MindSpore's msrun
  (`parallel/cluster/process_entity/_api.py`, worker_<n>.log) open the file and give it as stdout and stderr.
* Ray (`ray/_private/ray_logging`, `workers/default_worker.py`): a worker puts
  session_latest/logs/worker-<worker>-<job>-<pid>.{out,err} in the place of its stdout and stderr.

So the open files tell nearly everything; the folders are looked at where the open files are none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.target.environment import read_environ
from ascend_tui.target.family import rank_in
from ascend_tui.target.paths import named_inside, seen_from_here, uid_in_map
from ascend_tui.target.proc import boot_time, read_bytes, read_link, read_stat, read_status

from ..snapshot import SourceKind, SourceState
from . import sources
from .places_cann import OLDER_S, CannLog, cann_log
from .places_found import base_of, is_log, matching

STREAMS: tuple[tuple[int, SourceKind], ...] = ((1, "stdout"), (2, "stderr"))
MOST_PLACES = 128


@frozen
class Place:
    """One file, or the reason why there is none.

    `path` is what the process calls it, `through` opens it from here, `beside` is its path from here, where
    its rotated files lie.  Places of one `series` follow each other: a log and its next file.
    """

    kind: SourceKind
    series: str
    path: str | None = None
    through: str | None = None
    state: SourceState = "reading"
    why: Message | None = None
    rank: int | None = None
    beside: str | None = None
    identity: sources.Identity | None = None
    size_bytes: int = 0


@frozen
class _Process:
    pid: int
    pid_inside: int
    environment: dict[str, str]
    cwd: str
    home: str
    started_s: float
    rank: int | None


def places(pid: int, globs: Sequence[str] = ()) -> tuple[Place, ...]:
    """Return where to read what a process prints and logs; () where there is no such process.

    Costs milliseconds and opens nothing that could wait.  A glob without a leading / is below the process's
    working folder.
    """
    process = _process(pid)
    if process is None:
        return ()
    found: list[Place] = []
    known: set[sources.Identity] = set()
    for place in _all(process, globs):
        if place.identity is not None and place.identity in known:
            continue
        if place.identity is not None:
            known.add(place.identity)
        found.append(place)
    return tuple(found[:MOST_PLACES])


def started_s(start_ticks: int) -> float:
    """Return when a process began, in unix seconds."""
    return boot_time() + start_ticks / os.sysconf("SC_CLK_TCK")


def _all(process: _Process, globs: Sequence[str]) -> Iterator[Place]:
    streams = tuple(_streams(process))
    yield from streams
    yield from _launched(process, streams)
    yield from _cann(process)
    yield from _open_files(process)
    yield from _globs(process, globs)


def _process(pid: int) -> _Process | None:
    found, status = read_stat(pid), read_status(pid)
    if found is None or status is None or found.state in ("Z", "X"):
        return None
    environment = read_environ(pid) or {}
    return _Process(
        pid,
        int(status.get("NSpid", str(pid)).split()[-1]),
        environment,
        named_inside(pid, read_link(f"/proc/{pid}/cwd") or ""),
        _home(pid, int(status.get("Uid", "0").split()[0])),
        started_s(found.start_ticks),
        rank_in(environment),
    )


def _home(pid: int, uid: int) -> str:
    """Return the home folder of the process's user, by its own passwd file; "" where that does not say."""
    if read_link(f"/proc/{pid}/ns/user") not in (None, read_link("/proc/self/ns/user")):
        mapped = read_bytes(f"/proc/{pid}/uid_map")
        uid = uid_in_map(uid, mapped.decode()) if mapped else uid
    for line in (read_bytes(seen_from_here(pid, "/etc/passwd").as_posix()) or b"").splitlines():
        words = line.split(b":")
        if len(words) > 5 and words[2] == b"%d" % uid:
            return os.fsdecode(words[5])
    return ""


def _streams(process: _Process) -> Iterator[Place]:
    for number, kind in STREAMS:
        try:
            one = sources.handle(process.pid, number)
        except PermissionError:
            yield Place(kind, kind, state="unreadable", why=_denied())
            return
        except OSError:
            return
        if one is None:
            yield Place(kind, kind, state="nothing", why=Message.of("It is closed"))
        elif one.kind == "file":
            yield _file_place(kind, kind, one, _own_rank(process, one))
        else:
            yield _no_file(process, kind, one)


def _denied() -> Message:
    return Message.of("This user may not look at its open files; its own user and root may")


def _file_place(
    kind: SourceKind, series: str, one: sources.Handle, rank: int | None = None, why: Message | None = None
) -> Place:
    if one.is_deleted:
        why = Message.of(
            "The file was deleted; it is read through process {pid}, as long as that runs", pid=one.pid
        )
    return Place(
        kind,
        series,
        one.name,
        one.through,
        "deleted" if one.is_deleted else "reading",
        why,
        rank,
        sources.beside(one),
        one.identity,
        one.size_bytes,
    )


def _own_rank(process: _Process, one: sources.Handle) -> int | None:
    """Return the rank whose output a file is; None where another rank may write to it as well."""
    return None if process.rank is None or sources.is_shared(one) else process.rank


def _no_file(process: _Process, kind: SourceKind, one: sources.Handle) -> Place:
    if one.kind == "pipe":
        reader = sources.reader_of(one)
        if reader is not None and reader.file is not None:
            why = Message.of(
                "Through a pipe to {program} ({pid}), which writes this file",
                program=reader.program,
                pid=reader.pid,
            )
            return _file_place(kind, kind, reader.file, why=why)
        if reader is not None:
            why = Message.of(
                "A pipe to {program} ({pid}): nothing can be read from it; "
                "W copies what Python prints from now on",
                program=reader.program,
                pid=reader.pid,
            )
        else:
            why = Message.of("A pipe: nothing can be read from it; W copies what Python prints from now on")
    elif one.kind == "terminal":
        why = Message.of("A terminal: nothing can be read from it; W copies what Python prints from now on")
    elif one.kind == "null":
        why = Message.of("It is thrown away (/dev/null); W copies what Python prints from now on")
    elif one.kind == "socket":
        why = Message.of("A socket: nothing can be read from it; W copies what Python prints from now on")
    else:
        why = Message.of("No file that could be read; W copies what Python prints from now on")
    return Place(kind, kind, one.name, state="nothing", why=why, identity=one.identity)


def _launched(process: _Process, streams: Sequence[Place]) -> Iterator[Place]:
    """Return what launchers keep of this process in files that its stdout and stderr are not."""
    errors = process.environment.get("TORCHELASTIC_ERROR_FILE", "")
    if errors.startswith("/"):
        for name in ("stdout.log", "stderr.log"):
            path = os.path.join(os.path.dirname(errors), name)
            yield from _named("launcher", path, seen_from_here(process.pid, path).as_posix(), process.rank)
    if all(place.state == "nothing" for place in streams) and _is_ray(process.pid):
        logs = f"/tmp/ray/session_latest/logs/worker-*-{process.pid_inside}"
        for ending in ("out", "err"):
            for path, here in matching(process.pid, f"{logs}.{ending}"):
                yield from _named("launcher", path, here)


def _is_ray(pid: int) -> bool:
    line = read_bytes(f"/proc/{pid}/cmdline") or b""
    return line.startswith(b"ray::") or b"default_worker.py" in line[:4096]


def _named(
    kind: SourceKind,
    path: str,
    here: str,
    rank: int | None = None,
    series: str = "",
    note: Message | None = None,
) -> Iterator[Place]:
    """Return a place for a path, where a file is there now."""
    try:
        seen = os.stat(here)
    except OSError:
        return
    if not stat.S_ISREG(seen.st_mode):
        return
    may = os.access(here, os.R_OK)
    why = note if may else Message.of("This user may not read it")
    state: SourceState = "reading" if may else "unreadable"
    yield Place(
        kind, series or path, path, here, state, why, rank, here, (seen.st_dev, seen.st_ino), seen.st_size
    )


def _cann(process: _Process) -> Iterator[Place]:
    folders = {
        "cwd": process.cwd,
        "home": process.home,
        "HOME": process.environment.get("HOME", ""),
    }
    log = cann_log(process.pid, process.environment, process.pid_inside, folders, process.started_s)
    if log is None:
        return
    if not log.files:
        yield _no_cann_file(process, log)
    for one in log.files:
        yield from _named(one.kind, one.path, one.through, process.rank, one.series, log.note)


def _no_cann_file(process: _Process, log: CannLog) -> Place:
    if log.denied:
        why = Message.of("This user may not look into {folder}", folder=log.denied)
        return Place("plog", "plog", log.denied, state="unreadable", why=why, rank=process.rank)
    if log.root is None:
        name = log.printed_by or "HOME"
        why = Message.of(
            "{name}=1: CANN prints its log to stdout and writes no file; without it, it writes one", name=name
        )
        return Place("plog", "plog", None, state="nothing", why=why, rank=process.rank)
    path = f"{log.root}/debug/plog/plog-{process.pid_inside}_*.log"
    waiting = Message.of(
        "Nothing yet: it begins with the first message "
        "(if the script sets another folder, name its files in log_globs)"
    )
    return Place("plog", path, path, state="waiting", why=log.note or waiting, rank=process.rank)


def _open_files(process: _Process) -> Iterator[Place]:
    for one in sources.handles(process.pid, 3, is_log):
        if sources.is_written(process.pid, one.number):
            yield _file_place("open_file", one.name, one)


def _globs(process: _Process, globs: Sequence[str]) -> Iterator[Place]:
    for pattern in globs:
        if "\0" in pattern:
            continue
        home = process.environment.get("HOME") or process.home
        whole = f"{home}{pattern[1:]}" if pattern.startswith("~/") else os.path.join(process.cwd, pattern)
        since_s = process.started_s - OLDER_S
        found = matching(process.pid, whole, since_s) if whole.startswith("/") else []
        if not found:
            why = Message.of("No file that matches was written since the process began")
            yield Place("glob", whole, whole, state="waiting", why=why)
        names = {path for path, _ in found}
        for path, here in found:
            folder, name = os.path.split(path)
            base = os.path.join(folder, base_of(name))
            # A rotated file is the past of the one beside it.
            if base == path or base not in names:
                yield from _named("glob", path, here)
