"""The readings of one target: present values, peaks, curves for the screen, tracks for the verdict."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from ascend_tui.plugin import Record
from ascend_tui.series import Curve, Series

from .decode import bytes_of, number
from .snapshot import MemoryValues
from .trend import Track, median

CURVES = {
    "allocated": "allocated_bytes",
    "active": "active_bytes",
    "reserved": "reserved_bytes",
    "device_used": "device_used_bytes",
    "rss": "rss_bytes",
}
PEAKS = {f"{name}_peak_bytes": f"{name}_bytes" for name in ("allocated", "active", "reserved", "rss")}
TRACKED = {
    "allocated": "allocated_bytes",
    "peak": "allocated_peak_bytes",
    "reserved": "reserved_bytes",
    "device_used": "device_used_bytes",
    "rss": "rss_bytes",
    "splits": "inactive_split_bytes",
}
HELD = (*CURVES.values(), "device_total_bytes", "inactive_split_bytes")
KNOWN = frozenset((*HELD, *PEAKS))
OF_STEPS = ("device_used_bytes", "device_total_bytes")
OF_HOST = ("workers_rss_bytes", "pinned_bytes")
FIRST_WIDTH_S = 0.1
FIRST_WIDTH_STEPS = 1.0
STEP_TIMES = 64
RESET_BY_REUSE = ("reserved", "device_used", "outside", "rss")
"""What falls when reuse is switched off, and rises when it comes back, begins anew then."""


class Readings:
    """Take readings in; bounded, and constant time for each."""

    def __init__(self) -> None:
        """Start empty."""
        self.samples = 0
        self.steps_seen = 0
        self.now: dict[str, int] = {}
        self.peak: dict[str, int] = {}
        self.by_time = {name: Series(name, FIRST_WIDTH_S) for name in CURVES}
        self.by_step = {name: Series(name, FIRST_WIDTH_STEPS) for name in CURVES}
        self.tracks: dict[str, Track] = {}
        self.start_s: float | None = None
        self.last_at = 0.0
        self.without_reuse = ""
        self._step_times: deque[float] = deque(maxlen=STEP_TIMES)
        self._last_step: tuple[int, float] | None = None

    @property
    def is_by_step(self) -> bool:
        """Tell whether the tracks are over steps; a process without steps has them over seconds."""
        return self.steps_seen > 1

    @property
    def unit_range_s(self) -> tuple[float, float] | None:
        """Return the seconds that nine in ten of the last units lie between; None while unknown."""
        times = sorted(self._step_times)
        if not self.is_by_step or len(times) < 20:
            return None
        return times[len(times) // 20], times[-1 - len(times) // 20]

    @property
    def unit_s(self) -> float | None:
        """Return the seconds of one unit of the tracks' axis, as they are lately."""
        if not self.is_by_step:
            return 1.0
        return median(self._step_times) if self._step_times else None

    def take_left(self, data: Mapping[str, Any], name: str) -> None:
        """Take what was left right after memory was given back: the quantity `name` without reuse.

        Where only each n-th step begins so, the readings of the other steps hold their cache again.
        """
        self.without_reuse = name
        if not name:
            return
        for one in data.get("left") or ():
            if isinstance(one, (list, tuple)) and len(one) == 2:
                at, value = number(one[0]), number(one[1])
                if at is not None and value is not None:
                    self._add(name, at, value)

    def take(self, record: Record) -> None:
        """Take a reading: `time` by the sampler, `step` after an optimizer step, `outside` without a shim."""
        data = record.data
        self.samples += 1
        if self.start_s is None:
            self.start_s = record.mono_s
        of_step = record.kind == "step"
        at = float(record.step) if of_step else record.mono_s - self.start_s
        axis = self.by_step if of_step else self.by_time
        if of_step:
            self._count_step(record)
        amounts = {field: value for field, value in data.items() if field in KNOWN and value.__class__ is int}
        if len(amounts) < len(data) - 1:
            amounts = checked(data)
        now, peak = self.now, self.peak
        for name, field in CURVES.items():
            value = amounts.get(field)
            if value is not None:
                axis[name].add(at, value)
                if value > peak.get(field, 0):
                    peak[field] = value
        for of_peak, field in PEAKS.items():
            value = amounts.get(of_peak)
            if value is not None and value > peak.get(field, 0):
                peak[field] = value
        for field in HELD:
            value = amounts.get(field)
            # The sampler's numbers are the newer ones; what it may not ask for comes with the steps.
            if value is not None and (not of_step or field in OF_STEPS or field not in now):
                now[field] = value
        if of_step or not self.is_by_step:
            self._track(at, amounts)

    def _count_step(self, record: Record) -> None:
        self.steps_seen += 1
        if self.steps_seen == 2:
            # From here on there are steps: what was tracked over seconds has another axis.
            self.tracks.clear()
        if self._last_step is not None and record.step > self._last_step[0]:
            steps = record.step - self._last_step[0]
            self._step_times.append((record.mono_s - self._last_step[1]) / steps)
        self._last_step = (record.step, record.mono_s)

    def _track(self, at: float, amounts: Mapping[str, int]) -> None:
        self.last_at = at
        for name, field in TRACKED.items():
            value = amounts.get(field)
            if value is not None and name != self.without_reuse:
                self._add(name, at, value)
        used, reserved = amounts.get("device_used_bytes"), amounts.get("reserved_bytes")
        if used is not None and reserved is not None:
            self._add("outside", at, used - reserved)
            self.now["outside_bytes"] = max(0, used - reserved)

    def take_host(self, record: Record) -> None:
        """Take what is told once a second: the workers' memory and the page-locked memory."""
        for name, field in zip(("workers", "pinned"), OF_HOST):
            value = bytes_of(record.data, field)
            if value is not None:
                self.now[field] = value
                if value > self.peak.get(field, 0):
                    self.peak[field] = value
                if value or name in self.tracks:
                    self._add(name, self.last_at, value)

    def _add(self, name: str, at: float, value: float) -> None:
        track = self.tracks.get(name)
        if track is None:
            track = self.tracks[name] = Track()
        track.add(at, value)

    def forget_what_reuse_moves(self) -> None:
        """Begin the tracks anew that switching reuse moves."""
        self.without_reuse = ""
        for name in RESET_BY_REUSE:
            self.tracks.pop(name, None)

    def values(self) -> MemoryValues:
        """Return the present."""
        return MemoryValues(**self.now)

    def peaks(self) -> MemoryValues:
        """Return the highest of each quantity."""
        return MemoryValues(**self.peak)


def curves(axis: Mapping[str, Series]) -> tuple[Curve, ...]:
    """Return the series that have samples, as they are now."""
    return tuple(series.curve() for series in axis.values() if series.start is not None)


def checked(data: Mapping[str, Any]) -> dict[str, int]:
    """Return the known amounts of a reading that holds something else as well."""
    found = {field: bytes_of(data, field) for field in KNOWN if field in data}
    return {field: value for field, value in found.items() if value is not None}


def is_off_at_launch(data: Mapping[str, Any]) -> bool:
    """Tell whether a reading says that the environment switched the cache off."""
    return data.get("reuse") == "off"
