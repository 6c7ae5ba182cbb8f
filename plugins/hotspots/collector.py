"""The hotspots collector: records of recorded steps in, a table with its findings out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ascend_tui.plugin import Collector, Event, Record
from ascend_tui.target import TargetId

from . import advice, decode
from .captured import Captures
from .snapshot import HotspotsSnapshot
from .state import State


class HotspotsCollector(Collector):
    """Keep one State for each target."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        """Start with no target."""
        super().__init__(publish)
        self._targets: dict[TargetId, State] = {}
        self._told: dict[TargetId, HotspotsSnapshot] = {}
        self._captures: dict[TargetId, Captures] = {}

    def on_record(self, target: TargetId, record: Record) -> None:
        """Take one record of the probe."""
        self._targets.setdefault(target, State()).on_record(record)
        if record.kind == "captured":
            captures = self._captures.setdefault(target, Captures())
            captures.take(decode.captured(record.data, record.step), target.pid)
        self._told.pop(target, None)

    def on_tick(self, now: float) -> None:
        """Take the tables of captures that were read meanwhile."""
        for target, captures in self._captures.items():
            if captures.poll():
                self._told.pop(target, None)

    def on_event(self, event: Event) -> None:
        """Take what may be why a step took long."""
        state = self._targets.get(event.target)
        if state is not None and event.plugin != "hotspots":
            state.on_event(event)

    def snapshot(self, target: TargetId) -> HotspotsSnapshot:
        """Return the present table, and what it says."""
        told = self._told.get(target)
        if told is None:
            state = self._targets.get(target)
            told = state.snapshot() if state is not None else HotspotsSnapshot()
            if target in self._captures:
                told = self._captures[target].over(told)
            told = self._told[target] = dataclasses.replace(told, findings=advice.live(told))
        return told

    def read(self, path: Path) -> Any:
        """Return what a profile tells."""
        from .from_files import read

        return read(path)

    def compare(self, result: Any, baseline: Any) -> Any:
        """Return a profile beside an older one of the same kind."""
        from .from_files import compare

        return compare(result, baseline)
