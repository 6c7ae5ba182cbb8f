"""First attaches, one after the other: each stops a thread of a rank, and one slow rank slows all.

Of those that are asked for together the first that is refused stops those behind it: what is wrong with one
rank is likely wrong with the job, and the user should look before more of it is touched.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from ascend_tui.target import Refusal, RefusedError, Target

Job = Callable[["Exception | None"], bool]
"""Carry out one attach, or give it up for the reason handed over; tell whether those behind it may go on."""


class Convoy:
    """A queue of groups of attaches, and the thread that works it off and ends when it is empty."""

    def __init__(self) -> None:
        self._groups: deque[Sequence[tuple[Target, Job]]] = deque()
        self._lock = threading.Lock()
        self._at_work = False

    def join(self, group: Sequence[tuple[Target, Job]]) -> None:
        """Line up; the jobs are called on the convoy's thread."""
        with self._lock:
            self._groups.append(group)
            if self._at_work:
                return
            self._at_work = True
        threading.Thread(target=self._work, name="attach", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._groups:
                    self._at_work = False
                    return
                group = self._groups.popleft()
            stopped_by: Target | None = None
            for target, job in group:
                given_up = None if stopped_by is None else RefusedError(_not_tried(target, stopped_by))
                if not job(given_up) and stopped_by is None:
                    stopped_by = target


def _not_tried(target: Target, before: Target) -> Refusal:
    return Refusal(
        "not_tried",
        "process {pid} ({title}) was not attached to",
        "the attach to process {before} before it was refused",
        "See why that one was refused, then attach again; those that are attached stay so",
        (("pid", target.id.pid), ("title", target.title), ("before", before.id.pid)),
    )
