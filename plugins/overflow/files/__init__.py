"""The files that the overflow plugin reads: dumps and analyses of msprobe, and bare metric lines."""

from __future__ import annotations

from .sniff import FileKind, kind_of, sniff

__all__ = ["FileKind", "kind_of", "sniff"]
