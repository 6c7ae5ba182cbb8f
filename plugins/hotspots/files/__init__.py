"""The profiles that the hotspots plugin reads: a module for each kind of table, a file in and rows out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..snapshot import ProfileResult
from .api import is_api, read_api
from .chrome import is_chrome, read_chrome
from .communication import is_communication, read_communication
from .json_stream import GZIP, head_text
from .msopprof import is_msopprof, read_msopprof
from .operators import is_operators, read_operators
from .reader import text_of
from .statistic import is_statistic, read_statistic
from .steps import is_steps, read_steps
from .tasks import (
    is_kernel_details,
    is_op_summary,
    is_task_time,
    read_kernel_details,
    read_op_summary,
    read_task_time,
)

HEAD = 1 << 20
"""Bytes of a file that tell its kind."""

_KINDS: tuple[tuple[Callable[[str, str], bool], Callable[[Path], ProfileResult]], ...] = (
    (is_op_summary, read_op_summary),
    (is_kernel_details, read_kernel_details),
    (is_task_time, read_task_time),
    (is_statistic, read_statistic),
    (is_api, read_api),
    (is_operators, read_operators),
    (is_steps, read_steps),
    (is_msopprof, read_msopprof),
    (is_communication, read_communication),
    (is_chrome, read_chrome),
)


def sniff(head: bytes, name: str) -> str | None:
    """Return "profile" for a file that begins with these bytes and is one; None for others."""
    return "profile" if _reader_of(head, name) else None


def read(path: Path) -> ProfileResult:
    """Return what a profile tells.  Raises OSError, and ValueError for a file that is none."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    reader = _reader_of(head, path.name)
    if reader is None:
        raise ValueError(f"{path.name} is no profile that is known")
    return reader(path)


def _reader_of(head: bytes, name: str) -> Callable[[Path], ProfileResult] | None:
    text = head_text(head) if head.startswith(GZIP) else text_of(head)
    return next((read_it for is_it, read_it in _KINDS if is_it(text, name)), None)
