"""Where things lie and how they are counted: as the target names them, and as this process reaches them.

A target may have its own root directory, user ids, process ids and clock. Each function here is one
translation.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ascend_tui.target import proc
from ascend_tui.target.facts import Target
from ascend_tui.target.refusal import Refusal

CAP_DAC_OVERRIDE = 1 << 1
# Why a socket has no room: (why, next step).
SENTENCES = {
    "missing": (
        "it has no /tmp, where the socket of the shim belongs",
        "Mount a writable /tmp there (docker: `--tmpfs /tmp`)",
    ),
    "read_only": (
        "its /tmp is read-only, and the socket of the shim belongs there",
        "Mount a writable /tmp there (docker: `--tmpfs /tmp`)",
    ),
    "forbidden": (
        "its user may not write to its /tmp, and the socket of the shim belongs there",
        "Give its /tmp the usual rights: `chmod 1777 /tmp`",
    ),
    "taken": (
        "its {folder} is no directory of its own user with mode 0700",
        "Remove that, then attach again",
    ),
    "full": ("its /tmp has no room for one more file", "Remove some files there"),
}
FIRST = {"user": "user:[4026531837]", "pid": "pid:[4026531836]"}
"""What the machine's first namespaces are called: the kernel fixes their numbers."""
MOST_LINKS = 40
"""As many symbolic links as the kernel follows in one path."""


def socket_path_inside(target: Target) -> str:
    """Return the socket's path as the target sees it.

    Always under /tmp: the login's runtime directory vanishes at logout, and the target's own TMPDIR may be a
    directory per job, or longer than the 108 bytes a unix socket address can hold. Containers may share a
    /tmp: an id of another namespace than the first of the machine has that namespace's number behind it.
    """
    uid, pid = (_namespace(target.id.pid, kind) for kind in ("user", "pid"))
    return f"/tmp/ascend-tui-{_uid_inside(target)}{uid}/{target.ns_pid}{pid}.sock"


def socket_path(target: Target) -> Path:
    """Return the socket's path for this process: through /proc/PID/root when the target lives elsewhere."""
    return seen_from_here(target.id.pid, socket_path_inside(target))


def seen_from_here(pid: int, path: str) -> Path:
    """Return where this process finds what is at `path` for process `pid`.

    That is below /proc/PID/root when it lives in another mount namespace (container, systemd PrivateTmp) or
    has another root directory. What cannot be read (another user's process) counts as the same place.
    """
    theirs, ours = proc.read_link(f"/proc/{pid}/ns/mnt"), proc.read_link("/proc/self/ns/mnt")
    root = proc.read_link(f"/proc/{pid}/root")
    if (theirs is not None and theirs != ours) or root not in (None, proc.read_link("/proc/self/root")):
        return Path(_below(f"/proc/{pid}/root", path))
    return Path(path)


def named_inside(pid: int, path: str) -> str:
    """Return how process `pid` itself names a `path` that its /proc files show here.

    The kernel writes the paths of another's memory map from the reader's point of view: for a process in a
    chroot they begin with the folder that is its root.
    """
    root = proc.read_link(f"/proc/{pid}/root")
    if root in (None, "/") or root == proc.read_link("/proc/self/root"):
        return path
    return path[len(root) :] if path.startswith(f"{root}/") else path


def no_room(target: Target) -> Refusal | None:
    """Return why a shim in `target` could not put its socket there, or None when it can or cannot be known.

    Only what is certain counts: a shim that cannot open its socket is silent, but an attach that would have
    worked must not be refused.
    """
    path = socket_path(target)
    folder, tmp = path.parent, path.parent.parent
    try:
        mode, owner = tmp.stat().st_mode, tmp.stat().st_uid
        room = os.statvfs(tmp)
    except FileNotFoundError:
        # With a process that has ended meanwhile its root is gone too.
        return _no_room(target, "missing") if proc.read_link(f"/proc/{target.id.pid}/root") else None
    except OSError:
        return None
    if room.f_flag & os.ST_RDONLY:
        return _no_room(target, "read_only")
    try:
        seen = folder.lstat()
    except FileNotFoundError:
        if not _may_write(target, owner, mode):
            return _no_room(target, "forbidden")
    except OSError:
        return None
    else:
        private = stat.S_ISDIR(seen.st_mode) and not stat.S_IMODE(seen.st_mode) & 0o077
        if not private or seen.st_uid != target.uid:
            return _no_room(target, "taken")
    return _no_room(target, "full") if room.f_files and not room.f_favail else None


def forget_socket(path: Path) -> None:
    """Remove the socket that a process left when it ended with a shim inside, and its folder when empty.

    `path` is `socket_path` from when the process lived. One seen through /proc is out of reach with it.
    """
    if path.parts[:2] == ("/", "proc"):
        return
    with contextlib.suppress(OSError):
        path.unlink()
        path.parent.rmdir()


def uid_in_map(uid: int, uid_map: str) -> int:
    """Translate an outside user id to the inside one by the lines of a /proc/PID/uid_map.

    An id that is not mapped becomes 65534, as the kernel shows it to the process itself.
    """
    for line in uid_map.splitlines():
        inside, outside, count = (int(word) for word in line.split())
        if outside <= uid < outside + count:
            return inside + uid - outside
    return 65534


def started_then(target: Target, ticks_inside: object) -> bool:
    """Tell whether the target would give `ticks_inside` as its start time.

    In a time namespace the clock since boot is another one. Its distance need not be a whole number of
    ticks, so that there one tick more or less is the same moment.
    """
    if not isinstance(ticks_inside, int):
        return False
    distance_ns = _boot_clock_ahead_ns(target.id.pid)
    if not distance_ns:
        return ticks_inside == target.id.start_ticks
    expected = target.id.start_ticks + distance_ns * os.sysconf("SC_CLK_TCK") // 10**9
    return abs(ticks_inside - expected) <= 1


def _no_room(target: Target, key: str) -> Refusal:
    why, next_step = SENTENCES[key]
    values: dict[str, object] = {"pid": target.id.pid, "title": target.title}
    if "{folder}" in why:
        values["folder"] = os.path.dirname(socket_path_inside(target))
    what = "Cannot attach to process {pid} ({title})"
    return Refusal("no_room", what, why, next_step, tuple(values.items()))


def _may_write(target: Target, owner: int, mode: int) -> bool:
    """Tell whether the target may make something in a directory; True where groups or lists decide."""
    caps = int((proc.read_status(target.id.pid) or {}).get("CapEff", "0"), 16)
    if caps & CAP_DAC_OVERRIDE:
        return True
    return bool(mode & (stat.S_IWUSR if owner == target.uid else stat.S_IWGRP | stat.S_IWOTH))


def _below(root: str, path: str) -> str:
    """Follow the symbolic links in `path` as a process with this root would, and return the path from here.

    Given to the kernel as it is, a link to an absolute path (/tmp -> /scratch/tmp) would lead out of the
    container, into our own file system.
    """
    done: list[str] = []
    waiting = path.split("/")[::-1]
    links = 0
    while waiting:
        word = waiting.pop()
        if word in ("", "."):
            continue
        if word == "..":
            done = done[:-1]
            continue
        link = proc.read_link("/".join((root, *done, word))) if links < MOST_LINKS else None
        if link is None:
            done.append(word)
            continue
        links += 1
        if link.startswith("/"):
            done = []
        waiting += link.split("/")[::-1]
    return "/".join((root, *done))


def _boot_clock_ahead_ns(pid: int) -> int:
    """Return by how much the target's clock since boot is ahead of ours; 0 where that cannot be read."""
    theirs, ours = proc.read_link(f"/proc/{pid}/ns/time"), proc.read_link("/proc/self/ns/time")
    if theirs is None or theirs == ours:
        return 0
    return _boot_offset_ns(str(pid)) - _boot_offset_ns("self")


def _boot_offset_ns(name: str) -> int:
    for line in (proc.read_bytes(f"/proc/{name}/timens_offsets") or b"").splitlines():
        clock, seconds, nanoseconds = line.split()
        if clock == b"boottime":
            return int(seconds) * 10**9 + int(nanoseconds)
    return 0


def _namespace(pid: int, kind: str) -> str:
    """Return what a name has of a namespace; one that may not be looked at counts as our own."""
    link = proc.read_link(f"/proc/{pid}/ns/{kind}") or proc.read_link(f"/proc/self/ns/{kind}")
    return "" if link in (None, FIRST[kind]) else f"-{link.partition('[')[2][:-1]}"


def _uid_inside(target: Target) -> int:
    pid = target.id.pid
    theirs, ours = proc.read_link(f"/proc/{pid}/ns/user"), proc.read_link("/proc/self/ns/user")
    # In one and the same namespace uid_map speaks of the parent namespace: there is nothing to translate.
    if theirs is None or theirs == ours:
        return target.uid
    text = proc.read_bytes(f"/proc/{pid}/uid_map")
    return uid_in_map(target.uid, text.decode()) if text else target.uid
