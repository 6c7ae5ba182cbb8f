"""Call stacks of a profile: the line of the training that a call came from."""

from __future__ import annotations

import re

from ascend_tui.text import clean

from ..snapshot import Site

LONGEST = 2000
"""Characters of a stack that are kept."""

_FRAMES = (
    re.compile(r'File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9})(?:, in (?P<function>[^\s;,]{1,200}))?'),
    re.compile(r"(?P<file>[^\s;:()]{1,400})\((?P<line>\d{1,9})\)(?::\s*(?P<function>[^;\r\n]{1,200}))?"),
)
_LIBRARY = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|torch|torch_npu|lib/python[\d.]+)/|^<|^torch_npu"
)


def site_of(stack: str, calls: float, time_us: float) -> Site:
    """Return the innermost line that is in no library, of all of them where all are; and the whole stack."""
    for frame in _FRAMES:
        found = list(frame.finditer(stack))
        if found:
            own = next((one for one in found if not _LIBRARY.search(one["file"])), found[0])
            return Site(
                file=clean(own["file"]),
                line=int(own["line"]),
                function=clean((own["function"] or "").strip()),
                calls=calls,
                time_us=time_us,
                stack=_shown(stack),
            )
    return Site(calls=calls, time_us=time_us, stack=_shown(stack))


def _shown(stack: str) -> str:
    lines = (clean(line.strip()) for line in stack[:LONGEST].splitlines())
    return "\n".join(line for line in lines if line)
