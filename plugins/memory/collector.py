"""From readings to curves, peaks and slopes.  The full diagnosis comes with a later version."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ascend_tui.plugin import Collector, Event, Message, Record
from ascend_tui.series import Series
from ascend_tui.target import TargetId

from .snapshot import MemorySnapshot, MemoryValues, Verdict

CURVES = {
    "allocated": "allocated_bytes",
    "active": "active_bytes",
    "reserved": "reserved_bytes",
    "device_used": "device_used_bytes",
    "rss": "rss_bytes",
}
OF_STEPS = ("device_used_bytes", "device_total_bytes")
PEAKS = ("allocated_bytes", "active_bytes", "reserved_bytes", "rss_bytes")
FIRST_WIDTH_S = 0.1
FIRST_WIDTH_STEPS = 1.0
SLOPE_SAMPLES = 512
SLOPE_NEEDED = 8

_WAITING = Message("waiting for the first sample")
_THIN = Message("the slope is shown; this version does not judge it yet")
_WHOLE_CARD = Message("without its cache torch counts nothing: this is the whole card")


class MemoryCollector(Collector):
    """Keep the memory of every target in bounded space, however long it runs."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        super().__init__(publish)
        self._targets: dict[TargetId, _Memory] = {}

    def on_record(self, target: TargetId, record: Record) -> None:
        """Take a reading: `time` by the sampler, `step` after an optimizer step, `outside` without a shim."""
        self._targets.setdefault(target, _Memory()).add(record)

    def snapshot(self, target: TargetId) -> MemorySnapshot:
        """Return curves, present values, peaks and slopes."""
        return self._targets.get(target, _EMPTY).snapshot()


class _Memory:
    def __init__(self) -> None:
        self.samples = 0
        self.device = "cpu"
        self.reuse: Literal["on", "off"] = "on"
        self.now: dict[str, int] = {}
        self.peak: dict[str, int] = {}
        self.by_time = {name: Series(name, FIRST_WIDTH_S) for name in CURVES}
        self.by_step = {name: Series(name, FIRST_WIDTH_STEPS) for name in CURVES}
        self.start_s: float | None = None
        self.recent_steps: deque[tuple[float, float]] = deque(maxlen=SLOPE_SAMPLES)
        self.recent_times: deque[tuple[float, float]] = deque(maxlen=SLOPE_SAMPLES)

    @property
    def lead(self) -> str:
        if self.device == "cpu":
            return "rss"
        return "allocated" if self.reuse == "on" else "device_used"

    def add(self, record: Record) -> None:
        data = record.data
        self.samples += 1
        self.device = str(data.get("device", self.device))
        self.reuse = "off" if data.get("reuse") == "off" else "on"
        if self.start_s is None:
            self.start_s = record.mono_s
        of_step = record.kind == "step"
        axis = self.by_step if of_step else self.by_time
        at = float(record.step) if of_step else record.mono_s - self.start_s
        for name, field in CURVES.items():
            value = _bytes(data, field)
            if value is not None:
                axis[name].add(at, value)
                self.peak[field] = max(self.peak.get(field, 0), value)
        for field in PEAKS:
            value = _bytes(data, field.replace("_bytes", "_peak_bytes"))
            if value is not None:
                self.peak[field] = max(self.peak.get(field, 0), value)
        lead = _bytes(data, CURVES[self.lead])
        if lead is not None:
            (self.recent_steps if of_step else self.recent_times).append((at, lead))
        for field in (*CURVES.values(), "device_total_bytes"):
            value = _bytes(data, field)
            # The sampler's numbers are the newer ones; what it may not ask for comes with the steps.
            if value is not None and (not of_step or field in OF_STEPS or field not in self.now):
                self.now[field] = value

    def snapshot(self) -> MemorySnapshot:
        waiting = not self.samples
        thin = _THIN if self.lead != "device_used" else _WHOLE_CARD
        return MemorySnapshot(
            state="waiting" if waiting else "live",
            device=self.device,
            lead=self.lead,
            current=MemoryValues(**self.now),
            peak=MemoryValues(**self.peak),
            slope_bytes_per_step=slope(self.recent_steps),
            slope_bytes_per_s=slope(self.recent_times),
            samples=self.samples,
            verdict=Verdict("undecided", 0.0, None, _WAITING if waiting else thin),
            reason=_WAITING if waiting else None,
            reuse="none" if self.device == "cpu" else self.reuse,
            time_curves=_curves(self.by_time),
            step_curves=_curves(self.by_step),
        )


_EMPTY = _Memory()


def _curves(axis: Mapping[str, Series]) -> tuple[Any, ...]:
    return tuple(series.curve() for series in axis.values() if series.start is not None)


def _bytes(data: Mapping[str, Any], field: str) -> int | None:
    value = data.get(field)
    # A probe speaks through a socket that others may write to: only numbers count.
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value < 0
    ):
        return None
    return int(value)


def slope(points: deque[tuple[float, float]]) -> float | None:
    """Return the least-squares slope of (axis, bytes) points, or None while there are too few."""
    if len(points) < SLOPE_NEEDED:
        return None
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if spread <= 0:
        return None
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
