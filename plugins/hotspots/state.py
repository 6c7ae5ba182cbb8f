"""One target's hotspots: samples come in, and what stands between them is kept; a snapshot goes out."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Alert, Event, Mark, Message, Record

from . import decode
from .compare import compare, noise
from .decode import Pulse, Sample
from .snapshot import Change, HotspotsSnapshot, Jitter, Outlier, Phase, Row, Sampling, Site, Sync

TREND = 24
"""Samples that a row's history holds."""
AVERAGED = 8
SMOOTH = 4
"""Samples that are compared as one: what a host does beside only adds to the times, so the least counts.

On a host's clock the two sets of them must not overlap either: by chance alone one in 70 such pairs does not.
"""
DELAYED = 0.05
"""A sample that waited longer for a processor, as a share of its step, is compared with nothing."""
MOST_SHAPES = 64
WAIT = "enumerate(DataLoader)#"
MOST_EVENTS = 256
MOST_OUTLIERS = 8
LATE_S = 1.5
"""A slow step is told of up to half a second after it, an event at the next tick."""

_NO_STEP = Message("no step can be recorded: {why}")
_NO_KERNELS = {
    "no library": Message(
        "kernels are not timed: libmspti.so is not in the process (CANN 9.0 and newer load it; before that, "
        "start the training with LD_PRELOAD=$ASCEND_HOME_PATH/lib64/libmspti.so)"
    ),
    "taken": Message("kernels are not timed: another profiler has subscribed to msPTI"),
    "strange": Message("kernels are not timed: this version of msPTI lays out its records in an unknown way"),
    "refused": Message("kernels are not timed: msPTI does not switch them on"),
}
_NONE_SEEN = Message("msPTI told of no kernel in the recorded step: the table is that of the host")
_KERNELS_WHY = Message("kernels are not timed: {why}")
_HOST_TIMES = Message("times are of the host: how long a call took there, not the kernel on the device")
_CUDA = Message("kernels of CUDA are not timed by the monitor: use torch.profiler for them")
_CAPTURE = Message("one step with kernels and AI Core counters: ascend-tui do PID hotspots.capture")
_MSPROF = Message(
    "a capture by msprof needs PROFILING_MODE=dynamic from the start, and switches torch_npu.profiler off"
)
_NO_SITES = Message("the lines of synchronising calls cannot be had: {why}")
_LAG = Message("the device lags behind the host: its kernels are those of a stretch as long as the step")
_DELAYED = Message(
    "in this step the training waited {ms} ms for a processor: that is in the times of its operators"
)
_NO_BASELINE = Message("nothing to compare with yet: in {n} samples the training waited for a processor")
_GC = Message("Python's garbage collector went through everything")


_Key = tuple[str, str]
"""Clock and name."""


@frozen
class _Happened:
    wall_s: float
    cause: Message


class State:
    """What is known of one target."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.pulse: Pulse | None = None
        self.sample: Sample | None = None
        self.wall_s = 0.0
        self.syncs: tuple[Sync, ...] = ()
        self.syncs_known = False
        self._history: dict[_Key, deque[tuple[int, Row]]] = {}
        """The newest rows of an operator, each with its step."""
        self._disturbed = 0
        self._since: dict[_Key, int] = {}
        """Since which step an operator has changed, longer than its history goes back."""
        self._shapes: dict[_Key, dict[str, None]] = {}
        self._parts: deque[tuple[Phase, ...]] = deque(maxlen=AVERAGED)
        self._seen: deque[Sample] = deque(maxlen=SMOOTH)
        self._baseline: tuple[Row, ...] = ()
        self._spread: dict[_Key, tuple[float, float]] = {}
        """Of the baseline's samples, the least and the most of one call."""
        self.baseline_step: int | None = None
        self._rows: tuple[Row, ...] = ()
        self._host_rows: tuple[Row, ...] = ()
        self._events: deque[_Happened] = deque(maxlen=MOST_EVENTS)
        self._outliers: dict[int, Outlier] = {}

    def on_record(self, record: Record) -> None:
        """Take one record."""
        if record.kind == "sample":
            self._on_sample(decode.sample(record.data, record.step), record.wall_s)
        elif record.kind == "pulse":
            self._on_pulse(decode.pulse(record.data), record.wall_s)
        elif record.kind == "sites":
            self.syncs, self.syncs_known = decode.syncs(record.data), True

    def on_event(self, event: Event) -> None:
        """Keep what happened, for steps that took long at that time."""
        # A mark "o" is another's word for a slow step, which is what is to be explained.
        if isinstance(event, Mark) and event.sign != "o":
            self._events.append(_Happened(event.wall, event.label))
        elif isinstance(event, Alert):
            self._events.append(_Happened(event.wall, event.headline))

    def _on_sample(self, sample: Sample, wall_s: float) -> None:
        self.sample, self.wall_s = sample, wall_s
        if sample.phases:
            self._parts.append(sample.phases)
        if sample.delay_us > DELAYED * sample.window_us:
            self._disturbed += 1
        elif not sample.shaped:
            self._seen.append(sample)
        for row in (*sample.rows, *sample.kernels):
            key = _key(row)
            self._history.setdefault(key, deque(maxlen=TREND)).append((sample.step, row))
            for use in row.uses:
                known = self._shapes.setdefault(key, {})
                if len(known) < MOST_SHAPES:
                    known[use.shapes] = None
        here = {_key(row) for row in (*sample.rows, *sample.kernels)}
        for key in [key for key, rows in self._history.items() if key not in here and len(rows) < 2]:
            # Of an operator that came once nothing is kept, or a changing model would grow it for ever.
            del self._history[key]
            self._shapes.pop(key, None)
            self._since.pop(key, None)
        if not self._baseline and len(self._seen) == SMOOTH:
            self._baseline, self._spread = self._smooth(), self._spreads()
            self.baseline_step = self._seen[0].step
        self._rows = self._judged(sample.kernels or sample.rows)
        self._host_rows = self._judged(sample.rows) if sample.kernels else ()

    def _smooth(self) -> tuple[Row, ...]:
        """Return rows whose times are the least of the newest samples."""
        found: dict[_Key, list[Row]] = {}
        for sample in self._seen:
            for row in (*sample.rows, *sample.kernels):
                found.setdefault(_key(row), []).append(row)
        return tuple(
            dataclasses.replace(
                rows[-1],
                self_time_us=min(one.self_time_us for one in rows),
                avg_us=min(one.avg_us for one in rows),
                calls=min(one.calls for one in rows),
            )
            for rows in found.values()
        )

    def _spreads(self) -> dict[_Key, tuple[float, float]]:
        found: dict[_Key, tuple[float, float]] = {}
        for sample in self._seen:
            for row in (*sample.rows, *sample.kernels):
                low, high = found.get(_key(row), (row.avg_us, row.avg_us))
                found[_key(row)] = (min(low, row.avg_us), max(high, row.avg_us))
        return found

    def _judged(self, rows: Iterable[Row]) -> tuple[Row, ...]:
        changed: dict[_Key, Change | None] = {}
        if self._baseline and self._seen and self._seen[0].step != self.baseline_step:
            now, _ = compare(self._smooth(), self._baseline, self.baseline_step)
            spread = self._spreads()
            changed = {_key(one): self._began(one, self._is_apart(one, spread)) for one in now}
        # A wait for data is no operator: it is a part of the step, with a rule of its own.
        return tuple(
            self._told(row, None if row.name.startswith(WAIT) else changed.get(_key(row))) for row in rows
        )

    def _is_apart(self, row: Row, now: Mapping[_Key, tuple[float, float]]) -> bool:
        key = _key(row)
        if row.clock == "device" or key not in now or key not in self._spread:
            return True
        return now[key][0] > self._spread[key][1] or now[key][1] < self._spread[key][0]

    def _told(self, row: Row, change: Change | None) -> Row:
        history = [one for _, one in self._history.get(_key(row), ())]
        # Not every sample takes shapes.
        shaped = next((one for one in reversed(history) if one.uses), row)
        seen = max(shaped.shapes_seen or 0, len(self._shapes.get(_key(row), ())))
        return dataclasses.replace(
            row,
            trend=tuple(one.self_time_us for one in history),
            change=change,
            uses=shaped.uses,
            shapes_seen=seen or None,
            sites=self._sites(row),
        )

    def _began(self, row: Row, sure: bool) -> Change | None:
        """Return the change of a row with the step since which all samples have it."""
        change = row.change
        if change is None:
            return None
        key, since = _key(row), change.since_step
        limit_us = change.baseline_avg_us * (1 + math.copysign(noise(row), change.avg_ratio - 1))
        for step, one in reversed(self._history.get(key, ())):
            if (one.avg_us > limit_us) != (change.avg_ratio > 1):
                break
            since = step
        else:
            # The history begins within the change.
            since = self._since.get(key, since)
        if since is not None:
            self._since[key] = since
        told = dataclasses.replace(change, since_step=since, sure=sure)
        if row.clock == "host":
            return told
        # How many kernels of a kind a stretch of the device holds differs: one of them is what is compared.
        return dataclasses.replace(told, time_ratio=change.avg_ratio)

    def _sites(self, row: Row) -> tuple[Site, ...]:
        return tuple(one.site for one in self.syncs if one.site and _SYNC_OF.get(row.name) == one.op)

    def _phases(self) -> tuple[Phase, ...]:
        """Return the parts of a step on the average of the newest samples."""
        number = len(self._parts)
        return tuple(
            Phase(
                parts[0].name,
                sum(one.time_us for one in parts) / number,
                sum(one.time_us for one in parts)
                / max(sum(one.time_us for all_of in self._parts for one in all_of), 1e-9),
            )
            for parts in zip(*self._parts)
        )

    def _syncs(self, sample: Sample) -> tuple[Sync, ...]:
        """Return the calls that wait with the times of the sample.

        The step in which the lines are looked for is slower on the host, so that the device has less to be
        waited for; its times tell only how the calls of one kind share theirs.
        """
        rows = {_SYNC_OF[row.name]: row for row in sample.rows if row.name in _SYNC_OF}
        found = []
        for one in self.syncs:
            same_us = sum(other.time_us for other in self.syncs if other.op == one.op)
            row = rows.get(one.op)
            took_us = row.self_time_us * one.time_us / same_us if row and same_us > 0 else 0.0
            # A copy among many that do not wait: only its own time tells.
            told = one.time_us if one.op in _AMONG_OTHERS else max(took_us, one.time_us)
            site = dataclasses.replace(one.site, time_us=told) if one.site else None
            found.append(dataclasses.replace(one, time_us=told, site=site))
        if self.syncs_known:
            found += self._without_line(rows)
        return tuple(sorted(found, key=lambda one: -one.time_us))

    def _without_line(self, rows: Mapping[str, Row]) -> Iterator[Sync]:
        """Yield the calls that were recorded and have no line: a tensor that is printed, for one."""
        for op, row in rows.items():
            if op in _AMONG_OTHERS:
                continue
            by_optimizer = sum(one.calls for one in row.places if one.phase == "optimizer")
            calls = row.calls - by_optimizer - sum(one.calls for one in self.syncs if one.op == op)
            if calls > 0:
                lined = any(one.op == op for one in self.syncs)
                yield Sync(op, calls, 0.0 if lined else row.self_time_us)

    def _on_pulse(self, pulse: Pulse, wall_s: float) -> None:
        self.pulse = pulse
        for step, at_s, duration_s in pulse.slow:
            if step not in self._outliers:
                ratio = duration_s / pulse.p50_s if pulse.p50_s > 0 else 0.0
                collected = pulse.collections > 0 and abs(wall_s - at_s) < LATE_S
                cause = _GC if collected else None
                self._outliers[step] = Outlier(step, at_s, duration_s, ratio, cause)
        for step in sorted(self._outliers)[:-64]:
            del self._outliers[step]

    def _cause(self, outlier: Outlier) -> Message | None:
        low = outlier.wall_s - outlier.duration_s - LATE_S
        near = [one for one in self._events if low <= one.wall_s <= outlier.wall_s + LATE_S]
        return near[0].cause if near else outlier.cause

    def jitter(self) -> Jitter | None:
        """Return how even the steps are, and why some were not, as far as that is known."""
        pulse = self.pulse
        if pulse is None or pulse.steps < 2 or pulse.p50_s <= 0:
            return None
        newest = [self._outliers[step] for step in sorted(self._outliers)[-MOST_OUTLIERS:]]
        told = tuple(dataclasses.replace(one, cause=self._cause(one)) for one in newest)
        return Jitter(pulse.steps, pulse.p50_s, pulse.p99_s, told)

    def snapshot(self) -> HotspotsSnapshot:
        """Return the present diagnosis, without findings."""
        pulse, sample = self.pulse or Pulse(), self.sample
        step_us = pulse.p50_s * 1e6 or (sample.window_us if sample else 0.0)
        share = pulse.cost_us / (pulse.every * step_us) if pulse.every and step_us else None
        sampling = Sampling(
            on=pulse.on,
            every=pulse.every,
            samples=pulse.samples,
            next_step=pulse.next_step,
            pause_us=pulse.pause_us,
            amortised_share=share if pulse.samples else None,
            why=Message.of(_NO_STEP.text, why=pulse.why) if pulse.why else None,
        )
        missing, notes = self._missing(), self._notes()
        if sample is None:
            return HotspotsSnapshot(
                state="degraded" if sampling.why else "waiting",
                reason=sampling.why,
                runs_on=pulse.runs_on,
                jitter=self.jitter(),
                sampling=sampling,
                missing=missing,
                notes=notes,
            )
        return HotspotsSnapshot(
            state="live",
            clock="device" if sample.kernels else "host",
            source="msPTI" if sample.kernels else "torch",
            runs_on=sample.runs_on or pulse.runs_on,
            step=sample.step,
            wall_s=self.wall_s,
            step_time_us=sample.window_us,
            outside_us=sample.outside_us,
            delay_us=sample.delay_us,
            rows=self._rows,
            rows_dropped=sample.kernels_dropped if sample.kernels else sample.dropped,
            host_rows=self._host_rows,
            phases=self._phases(),
            phases_of=len(self._parts),
            device=sample.device,
            syncs=self._syncs(sample),
            syncs_known=self.syncs_known,
            jitter=self.jitter(),
            sampling=sampling,
            baseline_step=self.baseline_step,
            missing=missing,
            notes=notes,
        )

    def _missing(self) -> tuple[Message, ...]:
        pulse = self.pulse or Pulse()
        runs_on = (self.sample.runs_on if self.sample else "") or pulse.runs_on
        found = []
        if runs_on == "npu" and pulse.kernels_why:
            why = pulse.kernels_why
            found += [_NO_KERNELS.get(why) or Message.of(_KERNELS_WHY.text, why=why), _CAPTURE, _MSPROF]
        elif self.sample and self.sample.kernels_timed and not self.sample.kernels:
            found.append(_NONE_SEEN)
        elif runs_on == "cuda":
            found.append(_CUDA)
        if pulse.sites_why:
            found.append(Message.of(_NO_SITES.text, why=pulse.sites_why))
        return tuple(found)

    def _notes(self) -> tuple[Message, ...]:
        sample = self.sample
        if sample is None:
            return ()
        found = []
        if sample.runs_on not in ("", "cpu"):
            found.append(_LAG if sample.kernels else _HOST_TIMES)
        if sample.delay_us > DELAYED * sample.window_us:
            waited = round(sample.delay_us / 1e3, 1)
            found.append(Message.of(_DELAYED.text, ms=waited))
        if not self._baseline and self._disturbed >= SMOOTH:
            found.append(Message.of(_NO_BASELINE.text, n=self._disturbed))
        return tuple(found)


def _key(row: Row) -> _Key:
    return row.clock, row.name


_SYNC_OF = {
    "aten::_local_scalar_dense": "item",
    "aten::nonzero": "nonzero",
    "aten::masked_select": "masked_select",
    "aten::_unique2": "unique",
    "aten::equal": "equal",
    "aten::copy_": "copy to the host",
    "aten::index": "index by a mask",
}
_AMONG_OTHERS = ("copy to the host", "index by a mask")
