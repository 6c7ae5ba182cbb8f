"""From the shapes of all quantities to one verdict, its slope and its forecast; live and for files alike.

What a leak is, is the field's rule: growth of what live tensors hold, or growth that is still there when
nothing is reused.  Growth of the allocator's reserve above what tensors need is cache, or fragmentation where
its free parts cannot be given back; growth with larger work inside a step is a buffer; growth outside torch
belongs to somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.text import byte_size, share

from .forecast import Facts, forecast
from .limits import (
    FOREIGN,
    FULL,
    IN_PIECES,
    LARGER_WORK,
    LATELY,
    LEAST_STEPS,
    MIB,
    MOSTLY,
    NEEDED,
    ON_DEVICE,
    OTHERS,
    WARM_UP,
    shape_of,
)
from .snapshot import Forecast, Slope, Verdict, VerdictKind
from .trend import Shape, Track


@frozen
class Diagnosis:
    """A verdict with the numbers that it rests on."""

    verdict: Verdict
    slope: Slope | None = None
    forecast: Forecast | None = None


def judge(tracks: Mapping[str, Track], facts: Facts) -> Diagnosis:
    """Return the diagnosis of these quantities.

    `tracks` are by quantity: allocated, peak, reserved, device_used, outside, rss, workers, pinned; what the
    device cannot tell is missing.
    """
    shapes = {
        name: shape_of(name, track, of_file=facts.of_file) for name, track in tracks.items() if track.count
    }
    return _Judge(shapes, facts).diagnosis()


class _Judge:
    def __init__(self, shapes: Mapping[str, Shape], facts: Facts) -> None:
        self.shapes = shapes
        self.facts = facts
        self.lead = shapes.get(facts.lead, Shape("short"))

    def diagnosis(self) -> Diagnosis:
        """Ask one question after the other, the gravest first."""
        grave = (self._leak, self._host_leak, self._external)
        for ask in (*grave, self._returned, self._reserve, self._capacity, self._buffers):
            found = ask()
            if found is not None:
                return found
        return Diagnosis(self._rest(), self._slope(self.facts.lead))

    # The questions.

    def _leak(self) -> Diagnosis | None:
        if self.lead.kind != "grows" or self._is_of_larger_work():
            return None
        facts, name, grows = self.facts, self.facts.lead, self.lead
        off = facts.trimmed_for is not None and facts.trimmed_for >= LEAST_STEPS / 2
        confidence = 0.6 + 0.15 * _tight(grows) + (0.15 if off else 0.0)
        rate = byte_size(grows.slope)
        if name == "allocated":
            reason = Message.of(
                "live tensors grow by {rate} a step, all the time: no cache does that", rate=rate
            )
            confidence += 0.1
        elif name == "rss":
            if off:
                reason = Message.of(
                    "host memory grows by {rate} a step although freed memory is given back", rate=rate
                )
            else:
                reason = Message.of("host memory grows by {rate} a step, all the time", rate=rate)
        elif facts.blind:
            reason = Message.of("with reuse off the card fills by {rate} a step", rate=rate)
        else:
            reason = Message.of("memory grows by {rate} a step, all the time", rate=rate)
            confidence -= 0.1 * (not facts.of_file)
        settles = Message.of("press {key}: which lines keep what they allocate", key="w")
        if not off and name == "rss":
            settles = Message.of("press {key}: only what still climbs then is a leak", key="r")
        return self._found("leak", confidence, grows.since, reason, name, None if facts.of_file else settles)

    def _is_of_larger_work(self) -> bool:
        """Tell whether the peak within a step rises by much more: then the work grows."""
        peak = self.shapes.get("peak")
        return peak is not None and peak.change > LARGER_WORK * max(self.lead.change, 0.0)

    def _is_of_device(self, grows: Shape) -> bool:
        """Tell whether host memory rises with the device's: where both are the same memory it must."""
        device = max((self.shapes[name].change for name in ON_DEVICE if name in self.shapes), default=0.0)
        return device > MOSTLY * grows.change

    def _host_leak(self) -> Diagnosis | None:
        for name in ("workers", "rss", "pinned"):
            grows = self.shapes.get(name)
            if name == self.facts.lead or grows is None or grows.kind != "grows":
                continue
            if name == "rss" and self._is_of_device(grows):
                continue
            rate = byte_size(grows.slope)
            reason = {
                "workers": Message.of(
                    "the processes that load data grow by {rate} a step, the training does not", rate=rate
                ),
                "rss": Message.of(
                    "host memory grows by {rate} a step, the device's live tensors do not", rate=rate
                ),
                "pinned": Message.of("page-locked host memory grows by {rate} a step", rate=rate),
            }[name]
            return self._found("host_leak", 0.65 + 0.2 * _tight(grows), grows.since, reason, name)
        return None

    def _external(self) -> Diagnosis | None:
        outside, now = self.shapes.get("outside"), self.facts.now
        if outside is None:
            return None
        if outside.kind in ("grows", "slows"):
            reason = Message.of(
                "memory on the card outside torch grows by {rate} a step, torch's own does not",
                rate=byte_size(outside.slope),
            )
            return self._found("external", 0.8, outside.since, reason, "outside", _LOOK_AT_CARD)
        if outside.kind == "jumped" and not self._is_warm_up(outside):
            reason = Message.of(
                "{size} on the card outside torch came at once, and it has been flat since",
                size=byte_size(outside.rise),
            )
            return self._found("external", 0.75, outside.since, reason, None, _LOOK_AT_CARD)
        held, total = now.outside_bytes, now.device_total_bytes
        others, theirs = self.facts.others, self.facts.others_bytes
        if others and theirs and total and theirs > OTHERS * total:
            reason = Message.of(
                "{count} other processes hold {size} of this card", count=others, size=byte_size(theirs)
            )
            return self._found("external", 0.85, None, reason, None, _LOOK_AT_CARD)
        if held is not None and total and held > FOREIGN * total and outside.kind != "short":
            reason = Message.of(
                "{size} of {total} are held outside torch's allocator, by others or by the driver",
                size=byte_size(held),
                total=byte_size(total),
            )
            return self._found("external", 0.6, None, reason, None, _LOOK_AT_CARD)
        return None

    def _returned(self) -> Diagnosis | None:
        """Tell cache by the proof: with reuse off the memory came back, and nothing has climbed since."""
        facts, size = self.facts, self.facts.returned_bytes
        if facts.trimmed_for is None or self.lead.kind not in ("flat", "jumped", "stopped"):
            return None
        level = self.lead.level if facts.lead == "rss" else float(facts.now.reserved_bytes or 0)
        if size <= max(16 * MIB, 0.02 * level):
            return None
        reason = Message.of("with reuse off {size} were given back and nothing climbs", size=byte_size(size))
        return self._found("cache", 0.9, None, reason, None)

    def _reserve(self) -> Diagnosis | None:
        """Tell cache and fragmentation: torch reserves more while its tensors need no more."""
        reserved, now = self.shapes.get("reserved"), self.facts.now
        if reserved is None:
            return None
        # At the same point of a step, where there are steps: within one these numbers swing.
        held = now.reserved_bytes or 0 if self.facts.of_file else int(reserved.level)
        unused = now.unused_bytes
        if "allocated" in self.shapes and not self.facts.of_file:
            unused = max(0, held - int(self.shapes["allocated"].level))
        rises = reserved.kind in ("grows", "slows", "jumped", "stopped", "noisy")
        rises = rises and reserved.rise > 0 and not self._is_warm_up(reserved)
        needed = self.shapes.get("peak") or self.shapes.get("allocated")
        needs_more = needed is not None and needed.change > NEEDED * reserved.change
        if self.facts.pinned_free_bytes and self.facts.pinned_free_bytes > 0.25 * held:
            return self._found(
                "fragmentation",
                0.85,
                reserved.since,
                Message.of(
                    "{size} are free in segments that small blocks keep from being given back",
                    size=byte_size(self.facts.pinned_free_bytes),
                ),
                None,
                _EXPANDABLE,
            )
        if unused is None or not held:
            return None
        splits = self.shapes["splits"].level if "splits" in self.shapes else now.inactive_split_bytes or 0
        if splits > MOSTLY * held and splits > 64 * MIB and reserved.kind != "short":
            return self._found(
                "fragmentation",
                0.7,
                reserved.since,
                Message.of(
                    "{size} of {reserved} reserved are free parts of segments that are in use",
                    size=byte_size(splits),
                    reserved=byte_size(held),
                ),
                None,
                _SEGMENTS,
            )
        if self.facts.of_file and unused > MOSTLY * held:
            reason = Message.of(
                "{reserved} reserved where live tensors hold {allocated}: torch keeps it to use it again",
                reserved=byte_size(held),
                allocated=byte_size(now.allocated_bytes or 0),
            )
            return self._found("cache", 0.7, reserved.since, reason, None, _EXPANDABLE)
        if not rises or needs_more:
            return None
        if splits > IN_PIECES * unused and unused > 0.25 * held:
            return self._found(
                "fragmentation",
                0.65,
                reserved.since,
                Message.of(
                    "reserved grew by {size}, live tensors did not: {pieces} are pieces of segments in use",
                    size=_up(reserved),
                    pieces=byte_size(splits),
                ),
                None,
                _SEGMENTS,
            )
        confidence = 0.7 + (0.2 if self.facts.trimmed_for is not None else 0.0)
        reason = Message.of(
            "reserved grew by {size}, live tensors did not: torch keeps it to use it again",
            size=_up(reserved),
        )
        return self._found("cache", confidence, reserved.since, reason, None, _EXPANDABLE)

    def _capacity(self) -> Diagnosis | None:
        total, peak = self.facts.now.device_total_bytes, self.facts.peak.allocated_bytes
        if not total or peak is None or peak < FULL * total:
            return None
        reason = Message.of(
            "live tensors need up to {peak} of {total} and do not grow: the work is too large for the card",
            peak=byte_size(peak),
            total=byte_size(total),
        )
        return self._found("capacity", 0.85, None, reason, None)

    def _buffers(self) -> Diagnosis | None:
        for name in dict.fromkeys((self.facts.lead, "peak", "reserved", "rss", "outside")):
            found = self.shapes.get(name)
            if found is None or found.rise <= 0 or self._is_warm_up(found):
                continue
            beside = name in ("rss", "outside") and name != self.facts.lead
            if beside and (found.rise < max(64 * MIB, 0.05 * found.level) or self._is_of_device(found)):
                # Host memory breathes by some megabytes; beside a device that is not worth a word.
                continue
            if found.kind in ("jumped", "stopped") and self._is_fresh(found):
                return self._not_yet(found)
            if found.kind in ("jumped", "stopped"):
                return self._once(name, found)
            if found.kind == "slows" or (found.kind == "grows" and name == "peak"):
                reason = Message.of(
                    "growth slows down, {size} so far: buffers or caches of shapes that are not all seen yet",
                    size=_up(found),
                )
                if found.kind == "grows":
                    reason = Message.of(
                        "what a step needs at most grows, {size} so far; what stays after it does not",
                        size=_up(found),
                    )
                return self._found("buffer_growth", 0.55, found.since, reason, name, _WAIT)
        return None

    def _is_fresh(self, found: Shape) -> bool:
        flat = found.flat_since if found.flat_since is not None else found.end
        since = found.since if found.since is not None else found.start
        return not self.facts.of_file and found.end - flat < LEAST_STEPS and found.end - since < LATELY

    def _not_yet(self, found: Shape) -> Diagnosis:
        reason = Message.of("grew by {size} lately: whether that goes on is not known yet", size=_up(found))
        return Diagnosis(Verdict("undecided", 0.0, None, reason, _WAIT), self._slope(self.facts.lead))

    def _once(self, name: str, found: Shape) -> Diagnosis:
        since = found.since if found.since is not None else found.start
        flat = found.flat_since if found.flat_since is not None else since
        if found.kind == "jumped" and flat <= since:
            reason = Message.of(
                "grew by {size} at once at step {step} and has been flat since",
                size=_up(found),
                step=_whole(since),
            )
        else:
            reason = Message.of(
                "grew by {size} and has been flat since step {step}", size=_up(found), step=_whole(flat)
            )
        at = since if found.kind == "jumped" else flat
        return self._found("buffer_growth", 0.75, at, reason, None)

    def _rest(self) -> Verdict:
        lead, facts = self.lead, self.facts
        if lead.kind == "short":
            reason = Message.of("{count} samples so far", count=lead.points)
            wait = Message.of("wait {count} steps", count=int(LEAST_STEPS))
            return Verdict("undecided", 0.0, None, reason, None if facts.of_file else wait)
        if lead.kind in ("flat", "stopped", "jumped"):
            peak = getattr(facts.peak, f"{facts.lead}_bytes", None)
            if facts.of_file and peak is not None and peak > 1.2 * lead.level:
                reason = Message.of(
                    "a peak of {peak}, then steady at {level}",
                    peak=byte_size(peak),
                    level=byte_size(lead.level),
                )
                return Verdict("steady", 0.7, None, reason)
            confidence = min(0.95, 0.6 + 0.1 * (lead.span / LEAST_STEPS / 4)) if not facts.of_file else 0.7
            since = lead.flat_since if lead.kind != "flat" else None
            reason = Message.of("flat within {share}", share=share(_swing(lead)))
            if facts.blind:
                reason = Message.of(
                    "the whole card is flat within {share}: without its cache torch counts nothing",
                    share=share(_swing(lead)),
                )
            return Verdict("steady", round(confidence, 2), None if since is None else _whole(since), reason)
        reason = Message.of("it swings by {size} and shows no direction yet", size=byte_size(lead.swing))
        return Verdict("undecided", 0.0, None, reason, None if facts.of_file else _WAIT)

    # The numbers.

    def _found(
        self,
        kind: VerdictKind,
        confidence: float,
        since: float | None,
        reason: Message,
        grows: str | None,
        settles: Message | None = None,
    ) -> Diagnosis:
        verdict = Verdict(
            kind,
            round(min(max(confidence, 0.05), 0.98), 2),
            None if since is None else _whole(since),
            reason,
            settles,
        )
        name = grows or self.facts.lead
        return Diagnosis(
            verdict, self._slope(name), forecast(name, self.shapes[name], self.facts) if grows else None
        )

    def _slope(self, name: str) -> Slope | None:
        found = self.shapes.get(name)
        if found is None or found.kind == "short":
            return None
        return Slope(name, found.slope, found.low, found.high)

    def _is_warm_up(self, found: Shape) -> bool:
        """Tell whether the growth lies at the very beginning of what was seen, and that is long past."""
        if self.facts.of_file or found.flat_since is None:
            return False
        return found.flat_since - found.start <= WARM_UP * (found.end - found.start)


_SEGMENTS = Message.of("press {key}: the segments and what keeps them", key="f")
_WAIT = Message.of("wait {count} steps", count=200)
_LOOK_AT_CARD = Message("npu-smi info names the processes on the card")
_EXPANDABLE = Message("expandable_segments:True, or lengths in a few buckets, keep it small")


def _tight(grows: Shape) -> float:
    """Return 1 for an interval of no width, 0 for one as wide as the slope itself."""
    width = (grows.high - grows.low) / grows.slope if grows.slope else 1.0
    return min(max(1.0 - width, 0.0), 1.0)


def _up(found: Shape) -> str:
    return byte_size(found.rise)


def _swing(found: Shape) -> float:
    return found.noise / abs(found.level) if found.level else 0.0


def _whole(at: float) -> int:
    return round(at)
