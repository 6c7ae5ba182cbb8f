"""The one seam of the injector: every ptrace request, memory write and wait passes through `stage`.

The injector promises that its own death at any instruction leaves the target unharmed. A promise like that is
only worth what its test is worth, so the test must be able to stop at each boundary: it sets `hook`.
"""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None


def stage(name: str) -> None:
    """Mark a boundary; does nothing unless a test has set `hook`."""
    if hook is not None:
        hook(name)
