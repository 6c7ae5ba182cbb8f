"""Put a shim into a running Python process: `inject` in layers, `launch` for one that is yet to start.

The names are loaded on first use: the helper process lives in this package too, and every module it does not
import makes an attach faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascend_tui.inject.api import METHODS, Injection, inject

__all__ = ["METHODS", "Injection", "inject"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from ascend_tui.inject import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
