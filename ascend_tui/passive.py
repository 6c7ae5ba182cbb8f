"""A target that is only looked at from outside: nothing is put into it, and it is not stopped for a moment.

For what refuses an attach, and for whoever does not want one. It has the form of a `link.Link`, so that a
session carries both alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ascend_tui.controls import Done, Outcome
from ascend_tui.frame import TargetState, TargetStatus
from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message, Record
from ascend_tui.target import Exit, ExitWatch, Target, TargetGone, rank_of, torch_versions
from ascend_tui.target.proc import read_stat

LOOK_S = 1.0
NEEDS_SHIM = Message("nothing is put into this process (--passive); attach without it to do that")
Look = Callable[[int], "Mapping[str, Any] | None"]
"""What a plugin reads of a pid from outside; None is "not to be had"."""


@frozen
class _Reading:
    """What the process has used up at one moment: CPU seconds, and the monotonic clock."""

    cpu_s: float
    mono_s: float


class PassiveLink:
    """Look at one process once a second: its state, its CPU time, and what plugins can read of it."""

    def __init__(self, target: Target, looks: Sequence[tuple[str, Look]]) -> None:
        self.target = target
        self._looks = list(looks)
        self._state: TargetState = "passive"
        self._faults: dict[str, str] = {}
        self._seq = 0
        self._next_look = 0.0
        self._last: _Reading | None = None
        self._last_wall: float | None = None
        self._reason: Message | None = None
        self._rank = rank_of(target.id.pid)
        self._versions = torch_versions(target.id.pid)
        try:
            self._watch: ExitWatch | None = ExitWatch(target)
        except TargetGone:
            self._watch = None
            self._over(Exit(None, None))

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more will come of this target."""
        return self._state == "exited"

    @property
    def news(self) -> tuple[TargetState, bool]:
        """What a frame is due for at once when it changes: the state, and whether a record has come."""
        return self._state, self._last_wall is not None

    @property
    def probe_faults(self) -> Mapping[str, str]:
        """The plugins whose look from outside failed, with the reason."""
        return self._faults

    def descriptors(self) -> Iterable[int]:
        """Return what wakes the session up."""
        if self._watch is not None and self._watch.fileno() >= 0 and not self.is_over:
            yield self._watch.fileno()

    def pump(self, now_mono: float) -> list[Record]:
        """Look again when it is time, notice the end, and return the records."""
        ended = self._watch.poll() if self._watch is not None else None
        if ended is not None:
            self._over(ended)
        if self.is_over or now_mono < self._next_look:
            return []
        self._next_look = now_mono + LOOK_S
        self._look_at_process(now_mono)
        return [record for name, look in self._looks for record in self._look(name, look, now_mono)]

    def _look_at_process(self, now_mono: float) -> None:
        stat = read_stat(self.target.id.pid)
        if stat is None:
            return
        reading = _Reading(stat.cpu_ticks / os.sysconf("SC_CLK_TCK"), now_mono)
        last, self._last = self._last, reading
        if last is not None and reading.mono_s > last.mono_s:
            percent = 100 * (reading.cpu_s - last.cpu_s) / (reading.mono_s - last.mono_s)
            self._reason = Message.of(
                "looked at from outside only; state {state}, CPU {percent} %, {threads} threads",
                state=stat.state,
                percent=f"{percent:.0f}",
                threads=stat.threads,
            )

    def _look(self, name: str, look: Look, now_mono: float) -> list[Record]:
        try:
            data = look(self.target.id.pid)
        except Exception as error:  # noqa: BLE001 - a plugin's fault costs its own pane only
            self._faults[name] = f"{type(error).__name__}: {error}"
            return []
        if not data:
            return []
        self._seq += 1
        self._last_wall = time.time()
        return [Record(self._seq, name, "outside", 0, self._last_wall, now_mono, data)]

    def status(self, now: float) -> TargetStatus:
        """Return what is known at `now` (Unix seconds): no step, no cost, for nothing is inside."""
        target = self.target
        return TargetStatus(
            id=target.id,
            title=target.title,
            state=self._state,
            reason=self._reason,
            rank=self._rank,
            device="npu" if target.npu_loaded else "cuda" if target.cuda_loaded else "",
            python=target.python or "",
            torch=self._versions.get("torch", ""),
            torch_npu=self._versions.get("torch_npu", ""),
            method="passive",
            sample_age_s=None if self._last_wall is None else max(0.0, now - self._last_wall),
        )

    def ask(self, operation: str, fields: Mapping[str, Any], done: Done) -> None:
        """Answer that nothing can be asked, except to leave, for which there is nothing to do."""
        done(Outcome(operation == "release", NEEDS_SHIM))

    def fail(self, error: Exception) -> None:
        """Name a fault of our own in place of the newest reading."""
        self._reason = Message.of("{why}", why=f"{type(error).__name__}: {error}")

    def retire(self, reason: Message) -> None:
        """Have nothing to end: no shim was put in."""

    def close(self) -> None:
        """Give the descriptor back."""
        if self._watch is not None:
            self._watch.close()

    def _over(self, ended: Exit) -> None:
        self._state, self._reason = "exited", how_it_ended(ended)


def how_it_ended(ended: Exit) -> Message:
    """Say how a process ended, as far as anybody can tell."""
    if ended.signal is not None:
        return Message.of("target exited (signal {signal})", signal=ended.signal)
    if ended.code is not None:
        return Message.of("target exited (code {code})", code=ended.code)
    return Message("target exited (how is unknown)")
