"""Where the shim's socket lies: as the target names it, and as this process can reach it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ascend_tui.target import proc
from ascend_tui.target.facts import Target


def socket_path_inside(target: Target) -> str:
    """Return the socket's path as the target sees it.

    Always under /tmp: the login's runtime directory vanishes at logout, and the target's own TMPDIR may be a
    directory per job, or longer than the 108 bytes a unix socket address can hold.
    """
    return f"/tmp/ascend-tui-{_uid_inside(target)}/{target.ns_pid}.sock"


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
        return Path(f"/proc/{pid}/root{path}")
    return Path(path)


def forget_socket(path: Path) -> None:
    """Remove the socket that a process left when it ended with a shim inside, and its folder when empty.

    `path` is `socket_path` from when the process lived. One seen through /proc went with the process.
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


def _uid_inside(target: Target) -> int:
    pid = target.id.pid
    theirs, ours = proc.read_link(f"/proc/{pid}/ns/user"), proc.read_link("/proc/self/ns/user")
    # In one and the same namespace uid_map speaks of the parent namespace: there is nothing to translate.
    if theirs is None or theirs == ours:
        return target.uid
    text = proc.read_bytes(f"/proc/{pid}/uid_map")
    return uid_in_map(target.uid, text.decode()) if text else target.uid
