"""Step traces: `step_trace_time.csv` of a rank and `cluster_step_trace_time.csv` of a job.

A step is computing, communication that nothing hides, and free time.  The bubble (waiting in a receive of the
pipeline) is a part of the communication, as the profiler adds it up; the stage is the step without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from ascend_tui.plugin import Message

from ..snapshot import ProfileResult, StepTrace
from .csv_rows import amount, header_of, walk, whole

MOST_STEPS = 5000

_COMPUTING = "computing"
_ALONE = "communication(not overlapped)"
_STAGE_ROW = Message("left out: {n} of the rows, which hold the largest values of a stage and are no rank")
_MORE = Message("only the first {n} rows are shown")


def is_steps(head: str, name: str) -> bool:
    """Tell whether a text begins like a step trace."""
    header = header_of(head)
    return header.has(_COMPUTING, "free") and (_ALONE in header or "communication" in header)


def read_steps(path: Path) -> ProfileResult:
    """Return the steps of a trace with their shares.  Raises OSError, and ValueError where it holds none."""
    found = _Found()
    reader = walk(path, found.take)
    if not found.steps:
        raise ValueError("no row with the times of a step in it")
    return ProfileResult(
        format="cluster_step_trace_time" if "index" in reader.header else "step_trace_time",
        total_time_us=found.total_us,
        read=reader.read - found.stages,
        skipped=reader.skipped,
        steps=tuple(_apart(found.steps)),
        files=(path.name,),
        notes=(*_notes(found), *reader.notes()),
    )


class _Found:
    """The steps so far."""

    def __init__(self) -> None:
        self.steps: list[StepTrace] = []
        self.stages = self.more = 0
        self.total_us = 0.0

    def take(self, row: Mapping[str, str]) -> bool:
        """Take one row; tell whether it could be understood."""
        kind = row.get("type", "").lower()
        if kind and kind != "rank":
            self.stages += 1
            return True
        step = _step(row, len(self.steps) + 1)
        if step is None:
            return False
        self.total_us += step.total_us
        if len(self.steps) < MOST_STEPS:
            self.steps.append(step)
        else:
            self.more += 1
        return True


def _notes(found: _Found) -> Iterator[Message]:
    if found.stages:
        yield Message.of(_STAGE_ROW.text, n=found.stages)
    if found.more:
        yield Message.of(_MORE.text, n=MOST_STEPS)


def _step(row: Mapping[str, str], number: int) -> StepTrace | None:
    computing, free = amount(row, _COMPUTING), amount(row, "free")
    together, overlapped = amount(row, "communication"), amount(row, "overlapped")
    alone = amount(row, _ALONE)
    if alone is None and together is not None and overlapped is not None:
        alone = max(0.0, together - overlapped)
    if overlapped is None and together is not None and alone is not None:
        overlapped = max(0.0, together - alone)
    parts = [part for part in (computing, alone, free) if part is not None]
    total = sum(parts)
    if len(parts) < 3:
        # Without one of the parts the sum is no step; the stage and its bubble are.
        stage = amount(row, "stage")
        total = total if stage is None else stage + (amount(row, "bubble") or 0.0)
    if computing is None and free is None:
        return None
    step, device = row.get("step", "")[:64], row.get("device id", "")[:64]
    rank = whole(row.get("index", row.get("rank", row.get("rank id", ""))))
    words = [f"rank {rank}"] if rank is not None else [f"device {device}"] if device else []
    words += [f"step {step}"] if step else []
    return StepTrace(
        name=" ".join(words) or f"row {number}",
        step=step,
        rank=rank,
        device_id=device,
        total_us=total,
        computing_us=computing,
        communication_us=together,
        communication_not_overlapped_us=alone,
        overlapped_us=overlapped,
        free_us=free,
        bubble_us=amount(row, "bubble"),
        preparing_us=amount(row, "preparing"),
        computing_share=_share(computing, total),
        communication_not_overlapped_share=_share(alone, total),
        free_share=_share(free, total),
    )


def _share(part: float | None, total: float) -> float | None:
    return None if part is None or total <= 0 else part / total


def _apart(steps: list[StepTrace]) -> list[StepTrace]:
    """Leave the device out of the names where there is only one and the step tells them apart."""
    if len({(one.rank, one.device_id) for one in steps}) > 1 or not all(one.step for one in steps):
        return steps
    return [dataclasses.replace(one, name=f"step {one.step}") for one in steps]
