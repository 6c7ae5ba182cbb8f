"""Where a process lives: its namespaces, and whether a shim's socket has room in its /tmp."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from ascend_tui.commands.doctor.check import Check
from ascend_tui.target import Target, proc, socket_path, socket_path_inside
from ascend_tui.target.paths import FIRST, no_room

KINDS = {"pid": "pid", "mnt": "mount", "user": "user", "net": "net", "ipc": "ipc", "time": "time"}


def own_lodging() -> Iterator[Check]:
    """Check whether this process is in a container, and so sees a part of the machine only."""
    known = {kind: proc.read_link(f"/proc/self/ns/{kind}") for kind in FIRST}
    apart = " and ".join(kind for kind in FIRST if known[kind] not in (None, FIRST[kind]))
    if apart:
        found = f"this is a container ({apart} namespace of its own): what runs outside is not seen"
        yield Check("container", "ok", found, "as root on the host all containers are seen: ascend-tui ps")


def lodging(target: Target) -> Iterator[Check]:
    """Check where the target lives, seen from here."""
    theirs = {kind: proc.read_link(f"/proc/{target.id.pid}/ns/{kind}") for kind in KINDS}
    if None in (theirs["pid"], theirs["mnt"]):
        return
    other = [
        words
        for kind, words in KINDS.items()
        if theirs[kind] not in (None, proc.read_link(f"/proc/self/ns/{kind}"))
    ]
    root = proc.read_link(f"/proc/{target.id.pid}/root")
    chroot = root not in (None, "/", proc.read_link("/proc/self/root"))
    if other or chroot:
        words = [f"other namespaces: {', '.join(other)}"] if other else []
        words += [f"root directory {root}"] if chroot else []
        depth = len((proc.read_status(target.id.pid) or {}).get("NSpid", "").split()) - 1
        words += [f"process {target.ns_pid} in there, {depth} deep"] if depth > 0 else []
        yield Check("container", "ok", "; ".join(words))
    yield room(target, "socket")


def room(target: Target, name: str = "/tmp") -> Check:
    """Check whether a shim in `target` could put its socket into its /tmp."""
    refusal = no_room(target)
    if refusal is not None:
        values = dict(refusal.params)
        return Check(name, "error", refusal.why.format(**values), refusal.next_step.format(**values))
    tmp = socket_path(target).parent.parent
    try:
        full = not shutil.disk_usage(tmp).free
    except OSError:
        return Check(name, "ok", f"{socket_path_inside(target)}: whether it can be made cannot be seen")
    if full:
        found = "its file system is full: the socket of a shim may find no room"
        return Check(name, "warning", found, f"free some space in {tmp}")
    me = target.id.pid == os.getpid()
    return Check(name, "ok", "writable" if me else f"the shim's socket has room: {socket_path(target)}")
