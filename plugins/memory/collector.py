"""From records to the memory of each target: curves, verdict, who holds it, and the moment of an OOM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ascend_tui.judging.oom import OomNumbers, explain_oom
from ascend_tui.plugin import Alert, Collector, Event, Mark, Message, Record
from ascend_tui.target import TargetId
from ascend_tui.text import byte_size

from . import decode
from .cards import alarms, card_of
from .forecast import Facts
from .from_files import read
from .ours import Checks
from .readings import Readings, curves, is_off_at_launch
from .snapshot import Card, Holders, MemorySnapshot, Oom, Ours, Reuse, Revision, Segments, Verdict, Worker
from .verdict import Diagnosis, judge

MOST_NEW = 100
"""New samples after which the verdict is looked at again at the latest."""
AGAIN = 64
"""It is looked at again when there is this part more of samples, or MOST_NEW."""
SURE_AFTER = 2
"""A grave verdict has to be found so many times in a row before it is said."""
LEFT = {"empty_cache": "reserved", "malloc_trim": "rss", "caching_allocator_enable": "device_used"}
"""The quantity that the probe reads after each means gave memory back."""
GRAVE = ("leak", "host_leak", "external")
STARTS, ENDS = "{plugin}.{name} starts", "{plugin}.{name} ends"
"""How the core's marks of commands that slow the training are called."""
OWN_SERIES = "memory.reuse"
"""What this one moves begins anew; it is no window in a series."""

_WAITING = Message("waiting for the first sample")
_NO_STEPS = Message("a verdict needs steps: none has ended yet")

LABELS = {
    "checkpoint": Message("checkpoint"),
    "evaluation": Message("evaluation"),
    "training": Message("training again"),
    "slow step": Message("slow step"),
}
HEADLINES = {
    "leak": Message("memory leak: {rate} a step since step {step}"),
    "host_leak": Message("host memory leak: {rate} a step since step {step}"),
    "external": Message("memory outside torch grew by {rate} a step since step {step}"),
}


OOM_HEADLINES = {
    "capacity": Message("out of memory: the work does not fit"),
    "fragmentation": Message("out of memory: enough is free, but in pieces"),
    "external": Message("out of memory: others hold the card"),
    "leak": Message("out of memory: a leak has filled the card"),
}


class MemoryCollector(Collector):
    """Keep the memory of every target in bounded space, however long it runs."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        super().__init__(publish)
        self._targets: dict[TargetId, _Memory] = {}

    def on_record(self, target: TargetId, record: Record) -> None:
        """Take one record: a reading, or what one of the probe's commands found."""
        memory = self._targets.get(target)
        if memory is None:
            memory = self._targets[target] = _Memory(target, self.publish)
        memory.take(record)

    def on_event(self, event: Event) -> None:
        """Learn when a costly check runs in a target: what it adds is not the training's."""
        if isinstance(event, Mark) and event.target in self._targets:
            self._targets[event.target].take_check(event)

    def on_tick(self, now: float) -> None:
        """Look at the verdicts that have enough new samples."""
        for memory in self._targets.values():
            memory.look(now)

    def snapshot(self, target: TargetId) -> MemorySnapshot:
        """Return curves, present values, peaks and the verdict."""
        memory = self._targets.get(target)
        if memory is None:
            memory = _Memory(target, self.publish)
        return memory.snapshot()

    def read(self, path: Path) -> Any:
        """Return the diagnosis of a file: a series, a profile, a dump, npu-smi's text, or a log."""
        return read(path)


class _Memory:
    """One target."""

    def __init__(self, target: TargetId, publish: Callable[[Event], None]) -> None:
        self.target = target
        self.publish = publish
        self.readings = Readings()
        self.device = "cpu"
        self.reuse = Reuse("on")
        self.diagnosis = Diagnosis(Verdict("undecided", 0.0, None, _WAITING))
        self.revision: Revision | None = None
        self.holders: Holders | None = None
        self.segments: Segments | None = None
        self.workers: tuple[Worker, ...] = ()
        self.oom: Oom | None = None
        self.card: Card | None = None
        self.ours: Ours | None = None
        self._checks = Checks()
        self._alarms: set[Message] = set()
        self.host_free_bytes: int | None = None
        self._level_before = 0
        self._judged = 0
        self._found = ("", 0)
        self._alerted = ""

    @property
    def lead(self) -> str:
        if self.device == "cpu":
            return "rss"
        return "device_used" if self.reuse.at_launch else "allocated"

    # Records.

    def take(self, record: Record) -> None:
        kind, data = record.kind, record.data
        if kind in ("time", "step", "outside"):
            self._take_reading(record)
        elif kind == "host":
            self.readings.take_host(record)
            self.workers = decode.workers(data)
            self.host_free_bytes = decode.bytes_of(data, "available_bytes")
        elif kind == "reuse":
            self._take_reuse(record)
        elif kind == "holders":
            self.holders = decode.holders(data)
        elif kind == "segments":
            self.segments = decode.segments(data)
        elif kind == "machine":
            self._take_machine(record)
        elif kind == "oom":
            self._take_oom(record)
        elif kind == "mark":
            self._take_mark(record)

    def _take_reading(self, record: Record) -> None:
        self.device = decode.words(record.data.get("device", self.device))
        if is_off_at_launch(record.data):
            self.reuse = Reuse("off", at_launch=True)
        elif self.reuse.at_launch:
            self.reuse = Reuse("on")
        self.readings.take(record)

    def _take_reuse(self, record: Record) -> None:
        state = "off" if record.data.get("state") == "off" else "on"
        since = self.reuse.since_step
        if state != self.reuse.state and not self.reuse.at_launch:
            since = record.step
            self._level_before = self._held_bytes() or 0
            self.readings.forget_what_reuse_moves()
        self.reuse = Reuse(
            "off" if state == "off" else "on",
            decode.words(record.data.get("how", "")),
            decode.number(record.data.get("cost_us")),
            decode.number(record.data.get("slower")),
            since,
            every=max(1, decode.whole(record.data, "every")),
        )
        if state == "off":
            self.readings.take_left(record.data, LEFT.get(self.reuse.how, ""))

    def _held_bytes(self) -> int | None:
        track = self.readings.tracks.get("rss" if self.device == "cpu" else "reserved")
        return None if track is None else int(track.last)

    def _returned_bytes(self) -> int:
        held = self._held_bytes()
        return 0 if held is None else max(0, self._level_before - held)

    def _take_mark(self, record: Record) -> None:
        label = LABELS.get(str(record.data.get("label")))
        sign = str(record.data.get("sign", ""))[:1]
        if label is not None and sign.isprintable() and sign:
            self.publish(Mark(self.target, "memory", record.wall_s, sign, label, record.step))

    def take_check(self, mark: Mark) -> None:
        """Take a mark of the core that says where a command starts or ends."""
        if mark.step is None or mark.label.text not in (STARTS, ENDS):
            return
        params = dict(mark.label.params)
        command = f"{params.get('plugin')}.{params.get('name')}"
        if command == OWN_SERIES:
            return
        tell = self._checks.began if mark.label.text == STARTS else self._checks.ended
        tell(command, mark.step, mark.wall)

    def _take_machine(self, record: Record) -> None:
        if not self.device.startswith("npu"):
            return
        self.card = card_of(record.data, self.target.pid)
        alarms_now = alarms(self.card) if self.card else []
        for severity, said in alarms_now:
            if said not in self._alarms:
                self.publish(
                    Alert(self.target, "memory", record.wall_s, severity, "device", said, record.step)
                )
        self._alarms = {said for _, said in alarms_now}

    def _take_oom(self, record: Record) -> None:
        numbers = OomNumbers.of(record.data)
        leak = self.diagnosis.verdict.kind == "leak"
        kind, reason, advice = explain_oom(numbers, leak)
        self.oom = Oom(
            step=record.step,
            kind=kind,
            requested_bytes=numbers.requested_bytes,
            total_bytes=numbers.total_bytes,
            free_bytes=numbers.free_bytes,
            allocated_bytes=numbers.allocated_bytes,
            reserved_bytes=numbers.reserved_bytes,
            outside_bytes=numbers.outside_bytes,
            reason=reason,
            advice=advice,
        )
        said = OOM_HEADLINES[kind] if kind in OOM_HEADLINES else Message("out of memory")
        self.publish(Alert(self.target, "memory", record.wall_s, "error", "oom", said, record.step))

    # The verdict.

    def look(self, now: float) -> None:
        """Judge anew when enough samples are new."""
        seen = self.readings.samples
        if seen - self._judged < min(max(1, seen // AGAIN), MOST_NEW):
            return
        self._judged = seen
        tracks, self.ours = self._checks.apart(self.readings.tracks)
        found = judge(tracks, self._facts())
        kind = found.verdict.kind
        before = self.diagnosis.verdict.kind
        self._found = (kind, self._found[1] + 1 if self._found[0] == kind else 1)
        if kind != before and kind in GRAVE and self._found[1] < SURE_AFTER:
            self.diagnosis = dataclasses.replace(self.diagnosis, slope=found.slope)
            return
        if kind == "undecided" and before in GRAVE and self._is_new_series():
            # Reuse was switched: the verdict of before stands until its test has an answer.
            return
        if kind != before and before not in ("undecided", "steady"):
            self.revision = Revision(before, kind, int(self.readings.last_at))
        self.diagnosis = found
        self._alert(now)

    def _is_new_series(self) -> bool:
        return self.reuse.since_step is not None and not self.reuse.at_launch

    def _facts(self) -> Facts:
        readings, segments = self.readings, self.segments
        off = self.reuse.state == "off" and not self.reuse.at_launch
        trimmed_for = None
        if off and self.reuse.since_step is not None:
            trimmed_for = readings.last_at - self.reuse.since_step
        return Facts(
            lead=self.lead,
            now=readings.values(),
            peak=readings.peaks(),
            device=self.device,
            trimmed_for=trimmed_for,
            returned_bytes=self._returned_bytes() if off else 0,
            blind=self.reuse.at_launch,
            unit_s=readings.unit_s,
            unit_range_s=readings.unit_range_s,
            host_free_bytes=self.host_free_bytes,
            pinned_free_bytes=segments.pinned_bytes if segments else None,
            others_bytes=self.card.others_bytes if self.card else None,
            others=self.card.others if self.card else None,
        )

    def _alert(self, now: float) -> None:
        verdict = self.diagnosis.verdict
        headline = HEADLINES.get(verdict.kind)
        if headline is None:
            self._alerted = ""
        elif self._alerted != verdict.kind:
            self._alerted = verdict.kind
            slope, step = self.diagnosis.slope, verdict.since_step
            rate = byte_size(slope.bytes_per_step) if slope else "?"
            said = Message.of(headline.text, rate=rate, step="?" if step is None else step)
            self.publish(
                Alert(self.target, "memory", now, "warning", "oom", said, step, attribution="likely")
            )

    # What is shown.

    def snapshot(self) -> MemorySnapshot:
        readings = self.readings
        waiting = not readings.samples
        if not waiting and not self._judged:
            self.look(0.0)
        verdict = self.diagnosis.verdict
        if verdict.kind == "undecided" and not waiting and not readings.is_by_step:
            verdict = dataclasses.replace(verdict, settles=_NO_STEPS)
        slope = self.diagnosis.slope
        per_unit = slope.bytes_per_step if slope is not None and slope.quantity == self.lead else None
        by_step = readings.is_by_step
        return MemorySnapshot(
            state="waiting" if waiting else "live",
            device=self.device,
            lead=self.lead,
            current=readings.values(),
            peak=readings.peaks(),
            slope_bytes_per_step=per_unit if by_step else None,
            slope_bytes_per_s=self._per_s(per_unit),
            samples=readings.samples,
            verdict=verdict,
            reason=_WAITING if waiting else None,
            reuse=self._reuse(),
            slope=slope if by_step else None,
            forecast=self.diagnosis.forecast if by_step else None,
            revision=self.revision,
            holders=self.holders,
            segments=self.segments,
            workers=self.workers,
            oom=self.oom,
            card=self.card,
            ours=self.ours,
            time_curves=curves(readings.by_time),
            step_curves=curves(readings.by_step),
        )

    def _per_s(self, per_unit: float | None) -> float | None:
        unit_s = self.readings.unit_s
        return None if per_unit is None or not unit_s else per_unit / unit_s

    def _reuse(self) -> Reuse:
        """Return the switch; on the CPU there is no cache to be switched off, only trimming that is on."""
        if self.device == "cpu" and self.reuse.state == "on":
            return dataclasses.replace(self.reuse, state="none")
        return self.reuse
