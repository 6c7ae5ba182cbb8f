"""Where CANN writes its log of one process: by the variables that it was started with.

Every rule is that of CANN's own source, hicann/runtime `src/dfx/log/liblog/slog`:

* `plog/plog_file_mgr.c`: the root is ASCEND_PROCESS_LOG_PATH, else ASCEND_WORK_PATH/log, else the home of the
  user's passwd entry (`getpwuid`; the manual says $HOME, both are looked at) + `ascend/log`.  Below it
  {debug,run,security}/plog/plog-<pid>_<YYYYmmddHHMMSSmmm>.log and .../device-<id>/device-<pid>_<stamp>.log;
  at 20 MiB a new file begins and ASCEND_HOST_LOG_FILE_NUM (10) are kept.  A file is opened for each write, so
  that it is never among the open files of the process; <pid> is getpid(), that of its own namespace.
* `dlog_console.c`: ASCEND_LOG_PRINT_TO_STDOUT, else the older ASCEND_SLOG_PRINT_TO_STDOUT, at exactly "1"
  print to stdout, and nothing is written to files.
* `dlog_level_env.c`: ASCEND_GLOBAL_LOG_LEVEL 0 debug, 1 info, 2 warning, 3 error (what it is without),
  4 nothing; ASCEND_MODULE_LOG_LEVEL is `MODULE=level:MODULE=level`.

An older layout, without debug/ and run/ between the root and plog/, is looked at too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.target.paths import seen_from_here

from ..snapshot import SourceKind

SORTS = ("debug", "run", "security", "")
MOST_ENTRIES = 50_000
"""As many names of a folder are looked at; a plog folder keeps files of every process that ever ran."""
MOST_DEVICES = 64
MOST_FILES = 32
OLDER_S = 10.0
"""A file last written this long before the process began is of an earlier one with the same pid: those of
containers repeat.  The distance covers clocks that are not exactly one."""
FLOODS = ("0", "1")


@frozen
class CannFile:
    """One log file of CANN: `path` as the process has it, `through` from here; oldest first by `path`."""

    kind: SourceKind
    path: str
    through: str
    series: str


@frozen
class CannLog:
    """Where a process's log of CANN lies.

    `root` is where files belong, None where none can: then they are printed, by the variable `printed_by`.
    `denied` is a folder that this user may not list.
    """

    root: str | None
    files: tuple[CannFile, ...] = ()
    note: Message | None = None
    printed_by: str = ""
    denied: str = ""


def cann_log(
    pid: int, environment: Mapping[str, str], pid_inside: int, folders: Mapping[str, str], started_s: float
) -> CannLog | None:
    """Return the log of CANN of a process, or None where nothing says that it uses CANN.

    `folders` names its `cwd` and what may be its `home` (passwd) and `HOME`.  A script may set a variable
    itself, after the process was started, which cannot be seen from here: so roots that come later in the
    order are looked at where an earlier one has no file of this process.
    """
    printed_by = _printed_by(environment)
    roots, denied = tuple(dict.fromkeys(_roots(environment, folders))), ""
    for root in roots:
        try:
            files = tuple(_files(pid, root, pid_inside, started_s))
        except PermissionError as error:
            denied = denied or str(error.filename or root)
            continue
        if files:
            return CannLog(root, files, _note(environment))
    if not any(name.startswith("ASCEND_") and not name.startswith("ASCEND_TUI") for name in environment):
        return None
    return CannLog(
        None if printed_by else next(iter(roots), None), (), _note(environment), printed_by, denied
    )


def _printed_by(environment: Mapping[str, str]) -> str:
    for name in ("ASCEND_LOG_PRINT_TO_STDOUT", "ASCEND_SLOG_PRINT_TO_STDOUT"):
        if name in environment:
            return name if environment[name] == "1" else ""
    return ""


def _roots(environment: Mapping[str, str], folders: Mapping[str, str]) -> Iterator[str]:
    for value, below in (
        (environment.get("ASCEND_PROCESS_LOG_PATH", ""), ""),
        (environment.get("ASCEND_WORK_PATH", ""), "log"),
        (folders.get("home", ""), "ascend/log"),
        (folders.get("HOME", ""), "ascend/log"),
    ):
        path = os.path.normpath(os.path.join(folders.get("cwd", ""), value, below)) if value else ""
        if path.startswith("/"):
            yield path


def _note(environment: Mapping[str, str]) -> Message | None:
    level = environment.get("ASCEND_GLOBAL_LOG_LEVEL", "").strip()
    if level in FLOODS:
        return Message.of(
            "ASCEND_GLOBAL_LOG_LEVEL={level} writes very much and can slow the training; "
            "3 writes errors only",
            level=level,
        )
    if level == "4":
        return Message.of(
            "ASCEND_GLOBAL_LOG_LEVEL=4 switches the log of CANN off, errors too; 3 writes errors"
        )
    modules = environment.get("ASCEND_MODULE_LOG_LEVEL", "")
    if any(word.partition("=")[2].strip() in FLOODS for word in modules.split(":")):
        return Message.of(
            "ASCEND_MODULE_LOG_LEVEL={modules} writes very much and can slow the training",
            modules=modules[:80],
        )
    return None


def _files(pid: int, root: str, pid_inside: int, started_s: float) -> Iterator[CannFile]:
    for sort in SORTS:
        folder = os.path.join(root, sort) if sort else root
        yield from _of_folder(pid, folder, "plog", "plog", f"plog-{pid_inside}_", started_s)
        for name in _devices(pid, folder):
            yield from _of_folder(pid, folder, name, "device_log", f"device-{pid_inside}_", started_s)


def _devices(pid: int, folder: str) -> list[str]:
    """Return the folders of devices; the folder above them has a handful of entries."""
    names = (entry.name for entry in _entries(seen_from_here(pid, folder).as_posix()))
    return sorted(name for name in names if name.startswith("device-"))[:MOST_DEVICES]


def _of_folder(
    pid: int, folder: str, name: str, kind: SourceKind, prefix: str, started_s: float
) -> Iterator[CannFile]:
    inside = os.path.join(folder, name)
    here = seen_from_here(pid, inside).as_posix()
    found = sorted(
        entry.name
        for entry in _entries(here)
        if entry.name.startswith(prefix) and entry.name.endswith(".log")
    )
    for one in found[-MOST_FILES:]:
        through = os.path.join(here, one)
        try:
            written_s = os.stat(through).st_mtime
        except OSError:
            continue
        if written_s >= started_s - OLDER_S:
            yield CannFile(kind, os.path.join(inside, one), through, os.path.join(inside, f"{prefix}*.log"))


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Return what a folder holds, not endlessly; one that is not there, or cannot be, holds nothing.

    Raises PermissionError.
    """
    try:
        with os.scandir(folder) as entries:
            yield from islice(entries, MOST_ENTRIES)
    except PermissionError:
        raise
    except OSError:
        return
