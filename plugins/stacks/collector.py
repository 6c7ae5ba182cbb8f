"""From readings of the stacks to one word: do steps end, does main move, or does it stand still?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from ascend_tui.plugin import Alert, Collector, Event, Message, Record
from ascend_tui.target import TargetId

from .doing import doing, place_of
from .kernel import does
from .snapshot import NativeThreads, StackFrame, StacksSnapshot, Stuck, ThreadStack

STILL_READINGS = 3
"""Readings in which the main thread is at the same place and hardly runs, until it is said to stand still."""
LATER_READINGS = 8
"""As many where steps were seen, or a standstill that was none: batches of a validation may take seconds."""
HARDLY_RUNS = 0.005
"""Share of the time; a loop that looks ten times a second whether it may go on takes a fifth of that."""
RUNS_ALWAYS = 0.9
STILL_RUNNING_S = 60.0
"""A main thread that always runs at one place computes, or waits in a loop of C: after so long it is said."""
ALERT_S = 30.0
ALERT_STEPS = 20
ALERT_RUNNING_S = 300.0
MOST_THREADS, MOST_FRAMES, MOST_NAMES = 64, 64, 64
MOST_CHARACTERS = 200

_WAITING = Message("waiting for the first reading")


class StacksCollector(Collector):
    """Follow the readings of every target."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        super().__init__(publish)
        self._targets: dict[TargetId, _Stacks] = {}

    def on_record(self, target: TargetId, record: Record) -> None:
        """Take a reading; tell once per episode when a training that stepped stands still for long."""
        stacks = self._targets.setdefault(target, _Stacks())
        stacks.take(record)
        if stacks.is_alert_due():
            stacks.has_told = True
            words = Message.of(
                "no step has ended for {seconds} s: the main thread stands still in {place}",
                seconds=round(stacks.snapshot.since_step_s or 0.0),
                place=place_of(stacks.snapshot.threads[0].frames),
            )
            self.publish(
                Alert(
                    target,
                    "stacks",
                    record.wall_s,
                    "warning",
                    "timeout",
                    words,
                    record.step or None,
                    attribution="likely",
                )
            )

    def snapshot(self, target: TargetId) -> StacksSnapshot:
        """Return the newest reading and what it means."""
        stacks = self._targets.get(target)
        return stacks.snapshot if stacks else StacksSnapshot("waiting", reason=_WAITING)


class _Stacks:
    def __init__(self) -> None:
        self.snapshot = StacksSnapshot("waiting", reason=_WAITING)
        self.has_told = False
        self._step = 0
        self._place: tuple[StackFrame, ...] | None = None
        # In how many readings and since when the main thread hardly ran at one place, or ran there always.
        self._quiet = 0
        self._quiet_since_s = self._runs_since_s = 0.0
        # Whether it went on after it was said to stand still.
        self._went_on = False

    def take(self, record: Record) -> None:
        """Bring the snapshot up to a reading."""
        data = record.data
        threads = _threads(data)
        if record.step != self._step or not threads:
            self._step, self._place, self.has_told = record.step, None, False
        since_step_s = _number(data, "since_step_s")
        now = StacksSnapshot(
            "live",
            "unknown" if since_step_s is None else "moving",
            since_step_s=since_step_s,
            since_attach_s=_number(data, "attached_s"),
            step_s=_number(data, "step_s"),
            reading_us=_number(data, "reading_us"),
        )
        if not threads:
            self._went_on = False
        self.snapshot = self._with_stacks(now, threads, record) if threads else now

    def _with_stacks(self, now: StacksSnapshot, threads: list[ThreadStack], record: Record) -> StacksSnapshot:
        stuck, still_s = self._follow(threads[0], record.mono_s, now.since_step_s is not None)
        words, cause = doing(threads[0], stuck == "still")
        native = record.data.get("native")
        names, left_out = (
            (native.get("names"), native.get("left_out")) if isinstance(native, dict) else (None, 0)
        )
        return dataclasses.replace(
            now,
            stuck=stuck,
            still_s=still_s if stuck == "still" else None,
            doing=words,
            cause=cause,
            threads=tuple(threads),
            threads_left_out=_count(record.data.get("threads_left_out")),
            native_threads=_native(names),
            native_left_out=_count(left_out),
        )

    def _follow(self, main: ThreadStack, now_s: float, has_stepped: bool) -> tuple[Stuck, float]:
        """Return whether the main thread stands still, and since when it has."""
        share = main.cpu_share
        is_same = main.frames == self._place
        self._place = main.frames
        if is_same and (share is None or share <= HARDLY_RUNS):
            self._quiet += 1
        else:
            self._quiet, self._quiet_since_s = 1, now_s
        if not is_same or share is None or share < RUNS_ALWAYS:
            self._runs_since_s = now_s
        if self._quiet >= (LATER_READINGS if has_stepped or self._went_on else STILL_READINGS):
            return "still", now_s - self._quiet_since_s
        if now_s - self._runs_since_s >= STILL_RUNNING_S:
            return "still", now_s - self._runs_since_s
        self._went_on = self._went_on or self.snapshot.stuck == "still"
        return "busy", 0.0

    def is_alert_due(self) -> bool:
        """Tell whether a training that stepped has stood still for long, and nobody was told yet."""
        now = self.snapshot
        if self.has_told or now.stuck != "still" or now.since_step_s is None or not now.threads:
            return False
        wait_s = ALERT_RUNNING_S if self._quiet < STILL_READINGS or now.threads[0].does == "disk" else ALERT_S
        return min(now.since_step_s, now.still_s or 0.0) >= max(wait_s, ALERT_STEPS * (now.step_s or 0.0))


# A probe speaks through a socket that others may write to: what is of the wrong kind is left out.


def _threads(data: Mapping[str, Any]) -> list[ThreadStack]:
    raw, table = data.get("threads"), data.get("frames")
    rows = [_frame(one) for one in table] if isinstance(table, list) else []
    machine = _text(data.get("machine"))
    found = [_thread(one, rows, machine) for one in (raw if isinstance(raw, list) else [])[:MOST_THREADS]]
    known = [one for one in found if one is not None]
    return sorted(known, key=lambda one: not one.is_main)


def _thread(raw: Any, rows: list[StackFrame | None], machine: str) -> ThreadStack | None:
    if not isinstance(raw, dict):
        return None
    stack = raw.get("stack")
    places = [_count(one, -1) for one in stack] if isinstance(stack, list) else []
    frames = [rows[one] for one in places[:MOST_FRAMES] if 0 <= one < len(rows)]
    state, call = _text(raw.get("state")), raw.get("syscall")
    tid = raw.get("tid")
    return ThreadStack(
        name=_text(raw.get("name")),
        native_id=tid if isinstance(tid, int) else None,
        is_main=raw.get("main") is True,
        is_daemon=raw.get("daemon") is True,
        frames=tuple(one for one in frames if one is not None),
        is_cut=raw.get("is_cut") is True,
        does=does(state, _text(raw.get("wchan")), call if isinstance(call, int) else None, machine)
        if state
        else None,
        cpu_share=_number(raw, "cpu_share"),
        called=_text(raw.get("called")),
    )


def _frame(raw: Any) -> StackFrame | None:
    if not isinstance(raw, list) or len(raw) != 3:
        return None
    file, function, line = raw
    return StackFrame(_text(function), _text(file), line if isinstance(line, int) else None)


def _native(names: Any) -> tuple[NativeThreads, ...]:
    pairs = list(names.items())[:MOST_NAMES] if isinstance(names, dict) else []
    found = [NativeThreads(_text(name), _count(number)) for name, number in pairs]
    return tuple(sorted(found, key=lambda one: (-one.count, one.name)))


def _text(value: Any) -> str:
    return value[:MOST_CHARACTERS] if isinstance(value, str) else ""


def _count(value: Any, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def _number(data: Mapping[str, Any], name: str) -> float | None:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
