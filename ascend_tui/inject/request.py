"""What the helper is asked to do and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from ascend_tui.inject.area import Area


class Request(NamedTuple):
    """What to inject into whom; `payload` is Python source, `timeout_s` bounds the search for a thread."""

    pid: int
    start_ticks: int
    python: str | None
    method: str
    payload: bytes
    timeout_s: float


class Report(NamedTuple):
    """What was done; `rescued` counts the threads of dead injectors that were given back."""

    method: str
    reason: str
    tid: int
    is_main: bool
    stops_ms: tuple[float, ...]
    area: Area
    rescued: int


class Outlook(NamedTuple):
    """What would be done, found out without a stop or a write.

    `thread` and `pending` say why each of the two is possible or is not. `tid` is the thread that would be
    tried first, `waits_in` its system call, or empty for a thread that is taken wherever it is.
    `sizes` are the bytes that would be mapped, read-write and read-execute.
    """

    method: str
    reason: str
    can_thread: bool
    thread: str
    pending: str
    tid: int
    waits_in: str
    sizes: tuple[int, int]
