"""What can be seen of a process's memory without anything inside it: the host's part."""

from __future__ import annotations

from collections.abc import Mapping

from ascend_tui.target.proc import read_status

_KIB = 1024


def outside(pid: int) -> Mapping[str, int] | None:
    """Return resident host memory and its peak in bytes; None when the process has given up its memory.

    The device's memory is the allocator's or the driver's to tell, and both are inside the process.
    """
    status = read_status(pid) or {}
    found = {}
    for name, field in (("rss_bytes", "VmRSS"), ("rss_peak_bytes", "VmHWM")):
        number = status.get(field, "").partition(" ")[0]
        if number.isdigit():
            found[name] = int(number) * _KIB
    return found or None
