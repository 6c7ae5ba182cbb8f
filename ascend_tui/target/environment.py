"""What a process was started with and what it has loaded: from /proc, for advice and not for an attach."""

from __future__ import annotations

import re
from pathlib import Path

from ascend_tui.target import proc

# The path is the last column and may hold spaces; the version behind ".so" may be there or not.
_SHARED = re.compile(r"^\S+ \S+ \S+ \S+ \d+ +(/.*\.so[\w.]*?)(?: \(deleted\))?$", re.M)


def read_environ(pid: int) -> dict[str, str] | None:
    """Return the variables a process was started with, or None where this user may not look.

    What the program set itself since then is not there: the kernel shows the block that exec was given.
    """
    raw = proc.read_bytes(f"/proc/{pid}/environ")
    if raw is None:
        return None
    pairs = (one.partition("=") for one in raw.decode("utf-8", "surrogateescape").split("\0"))
    return {name: value for name, sign, value in pairs if sign}


def read_libraries(pid: int) -> tuple[Path, ...] | None:
    """Return the shared libraries a process has loaded, as it sees their paths; None where not allowed."""
    raw = proc.read_bytes(f"/proc/{pid}/maps")
    if raw is None:
        return None
    found = _SHARED.findall(raw.decode("utf-8", "surrogateescape"))
    return tuple(Path(one) for one in dict.fromkeys(found))
