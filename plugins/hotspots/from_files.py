"""What `inspect` gets from the hotspots plugin: a profile in, its table and its findings out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from ascend_tui.plugin import Message

from . import advice, files
from .compare import compare as compare_rows
from .snapshot import ProfileResult, StepTrace

_STEPS = Message(
    "a step takes {now:.3f} ms on average, {before:.3f} ms in the baseline ({change:+.1f} %):"
    " computing {computing}, communication not overlapped {alone}, free {free}"
)
_CHANGE = "{before:.1f} -> {now:.1f} %"


def read(path: Path) -> ProfileResult:
    """Return what a profile says.  Raises OSError, and ValueError where nothing in it can be read."""
    result = files.read(path)
    names = result.files or (path.name,)
    return dataclasses.replace(result, files=names, findings=advice.profile(result))


def compare(result: ProfileResult, baseline: ProfileResult) -> ProfileResult | None:
    """Return a result beside its baseline: rows with their change, rows that are gone.

    None where the two cannot be compared: tables of another kind count other things, and times of another
    clock are other times.
    """
    if result.format != baseline.format:
        return None
    if result.rows and baseline.rows:
        if result.clock != baseline.clock:
            return None
        rows, gone = compare_rows(result.rows, baseline.rows)
        if all(row.change is None for row in rows):
            return None
        result = dataclasses.replace(result, rows=rows, gone=gone)
    elif not (result.steps and baseline.steps):
        return None
    name = baseline.files[0] if baseline.files else baseline.format
    notes = (*result.notes, *_of_steps(result.steps, baseline.steps))
    compared = dataclasses.replace(result, baseline=name, notes=notes)
    return dataclasses.replace(compared, findings=advice.profile(compared))


def _of_steps(steps: Sequence[StepTrace], before: Sequence[StepTrace]) -> Iterator[Message]:
    if not steps or not before:
        return
    now_us, then_us = _mean(steps), _mean(before)
    if now_us <= 0 or then_us <= 0:
        return
    yield Message.of(
        _STEPS.text,
        now=now_us / 1000,
        before=then_us / 1000,
        change=100 * (now_us / then_us - 1),
        computing=_shares(steps, before, "computing_us"),
        alone=_shares(steps, before, "communication_not_overlapped_us"),
        free=_shares(steps, before, "free_us"),
    )


def _mean(steps: Sequence[StepTrace]) -> float:
    return sum(one.total_us for one in steps) / len(steps)


def _shares(steps: Sequence[StepTrace], before: Sequence[StepTrace], part: str) -> str:
    shares = [
        100 * sum(known) / sum(one.total_us for one in found)
        for found in (steps, before)
        if (known := [value for one in found if (value := getattr(one, part)) is not None])
    ]
    return _CHANGE.format(now=shares[0], before=shares[1]) if len(shares) == 2 else "-"
