"""A limit to how long a typed regular expression may take: some patterns need years for a short line."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlow(Exception):
    """The time was over before the work was."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooSlow inside the block once it took so long.

    Only an alarm ends a match of `re` that has begun: it holds all other threads up.  The alarm is the main
    thread's; in another one there is no limit, nor where somebody else's alarm is due sooner.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    others_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
    if 0 < others_s <= 2 * seconds:
        yield
        return
    begun_s = time.monotonic()
    is_over = False

    def ring(number: int, frame: FrameType | None) -> None:
        if not is_over:
            raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        # None: the handler was not set from Python, and cannot be put back.
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
        if others_s:
            left_s = others_s - (time.monotonic() - begun_s)
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001), interval_s)
