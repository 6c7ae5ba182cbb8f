"""The memory pane: the curve, the numbers of this moment, the verdict and the next step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual.widget import Widget

from ascend_tui.frame import TargetStatus
from ascend_tui.plugin import Command
from ascend_tui.series import Curve
from ascend_tui.text import byte_size, byte_unit, count, digits, msgid, say, share, tr, width
from ascend_tui.widgets.curve import CurveView, Picture, Plotted
from ascend_tui.widgets.pane import Pane
from ascend_tui.widgets.quiet import Line, Span
from ascend_tui.widgets.quiet_line import QuietLine

from .snapshot import MemorySnapshot, MemoryValues, Verdict

# Quantity, the word for it, the name at the end of its curve, and the role it is drawn in.
_QUANTITIES = (
    ("allocated", msgid("allocated"), msgid("alloc"), "first"),
    ("active", msgid("active"), "", ""),
    ("reserved", msgid("reserved"), msgid("res"), "second"),
    ("device_used", msgid("device"), msgid("device"), "first"),
    ("rss", msgid("host rss"), msgid("rss"), "first"),
)
_VERDICTS = {
    "steady": ("=", msgid("steady"), "good"),
    "leak": ("▲", msgid("leak"), "bad"),
    "cache": ("·", msgid("cache, not a leak"), ""),
    "fragmentation": ("▲", msgid("fragmentation"), "warn"),
    "buffer_growth": ("▲", msgid("growing buffers"), "warn"),
    "external": ("▲", msgid("another process grows"), "warn"),
    "host_leak": ("▲", msgid("host memory leak"), "bad"),
    "capacity": ("!", msgid("near capacity"), "bad"),
    "undecided": ("?", msgid("undecided"), "dim"),
}
_SURE, _LIKELY = 0.85, 0.5


class MemoryPane(Pane):
    """Draw a MemorySnapshot."""

    DEFAULT_CSS = """
    MemoryPane #words { height: 3; margin: 0 1; }
    MemoryPane #numbers { height: 1; margin: 0 1; }
    MemoryPane #tail { display: none; }
    MemoryPane.-zoomed #tail { display: block; }
    """

    def body(self) -> Iterable[Widget]:
        """Set the curve above the numbers and the words."""
        self.curve = CurveView(id="curve")
        self.tail = CurveView(id="tail")
        self.numbers = QuietLine(id="numbers")
        self.words = QuietLine(id="words")
        return (self.curve, self.tail, self.numbers, self.words)

    def draw(self, snapshot: MemorySnapshot, status: TargetStatus) -> None:
        """Bring curve, numbers and words up to this snapshot."""
        self.set_class(self.zoomed, "-zoomed")
        picture = self._picture(snapshot)
        self.curve.draw(picture)
        if self.zoomed:
            self.tail.draw(Picture(picture.curves, marks=picture.marks, seconds=picture.seconds, tail=True))
        self.numbers.say(self._numbers(snapshot, self.numbers.size.width))
        self.words.styles.height = 3 if self.size.height >= 11 else 1
        self.words.say(*self._words(snapshot))

    def mode(self, snapshot: MemorySnapshot) -> str:
        """Say whether the allocator reuses its blocks, where there is an allocator cache."""
        return {"on": tr("reuse on"), "off": tr("reuse off"), "none": ""}[snapshot.reuse]

    def summary(self, snapshot: MemorySnapshot) -> str:
        """Return the lead quantity and the verdict."""
        lead = getattr(snapshot.current, f"{snapshot.lead}_bytes", None)
        amount = "" if lead is None else f"{_word(snapshot.lead)} {byte_size(lead)}   "
        return amount + "".join(text for text, _ in _verdict(snapshot)).strip()

    def move_cursor(self, by: int) -> None:
        """Step along the curve; the numbers are those of the cursor."""
        self.curve.move_cursor(by)
        self._follow_cursor()

    def go_to(self, step: int | None) -> None:
        """Set the cursor to a step, where the axis has steps."""
        if not self.curve.picture.seconds:
            self.curve.put_cursor(None if step is None else float(step))
            self._follow_cursor()

    def _follow_cursor(self) -> None:
        self.tail.put_cursor(self.curve.cursor)
        if isinstance(self.snapshot, MemorySnapshot):
            self.numbers.say(self._numbers(self.snapshot, self.numbers.size.width))

    def _picture(self, snapshot: MemorySnapshot) -> Picture:
        # A run that has not made two steps yet has its history in time only.
        steps = max((len(curve.low) for curve in snapshot.step_curves), default=0) > 1
        chosen = snapshot.step_curves if steps else snapshot.time_curves
        by_name = {curve.name: curve for curve in chosen}
        wanted = ("reserved", "allocated") if snapshot.lead == "allocated" else (snapshot.lead,)
        names = {name: (tr(short), role) for name, _, short, role in _QUANTITIES}
        curves = tuple(Plotted(by_name[name], *names[name]) for name in wanted if name in by_name)
        total = snapshot.current.device_total_bytes
        return Picture(
            curves,
            capacity=None if total is None or snapshot.device == "cpu" else float(total),
            marks=self._marks(chosen, steps),
            seconds=not steps,
        )

    def _marks(self, chosen: tuple[Curve, ...], steps: bool) -> tuple[tuple[float, str], ...]:
        if steps:
            return tuple((float(one.step), one.sign) for one in self.view.moments if one.step is not None)
        now = max((curve.end for curve in chosen), default=0.0)
        return tuple((now - (self.view.wall_s - one.wall), one.sign) for one in self.view.moments)

    def _numbers(self, snapshot: MemorySnapshot, room: int) -> Line:
        """Return the quantities in one unit, as many as there is room for."""
        at = self.curve.cursor
        if at is not None:
            where = tr("at {seconds} s", seconds=f"{at:.0f}") if self.curve.picture.seconds else ""
            where = where or tr("at step {step}", step=count(at))
            values = list(self.curve.values_at_cursor().items())
        else:
            where, values = "", _known(snapshot.current)
        if not values:
            return where
        peak = getattr(snapshot.peak, f"{snapshot.lead}_bytes", None)
        if peak is not None and not where:
            with_peak = _row_of_numbers(where, values, "  ", f"  {tr('peak')} {byte_size(peak)}")
            if _cells(with_peak) <= room:
                return with_peak
        # Closer together before anything is left out; what a leak does not show in goes first.
        for kept in (values, values[:-1], values[:1] + values[2:], values[:1]):
            for gap in ("  ", " "):
                spans = _row_of_numbers(where, kept, gap)
                if _cells(spans) <= room:
                    return spans
        return _row_of_numbers(where, values[:1], " ")

    def _words(self, snapshot: MemorySnapshot) -> list[Line]:
        """Return the verdict, what it rests on, and the key that would settle it."""
        reason = say(snapshot.verdict.reason)
        if self.words.size.height == 1:
            return [[*_verdict(snapshot), (f"   {reason}", "dim")]]
        lines: list[Line] = [_verdict(snapshot), [(f"  {reason}", "")]]
        reuse = self._command("reuse")
        if reuse is not None and snapshot.reuse == "on" and snapshot.verdict.kind in ("leak", "undecided"):
            hint = tr("reuse on: press {key}, only what still climbs is a leak", key=reuse.hotkey or "")
            lines.append([("  " + hint, "dim")])
        return lines

    def _command(self, name: str) -> Command | None:
        plugin = self.loaded.plugin
        for command in plugin.commands if plugin else ():
            if command.name == name and command.hotkey:
                return command
        return None


def _known(values: MemoryValues) -> list[tuple[str, float]]:
    found: list[tuple[str, Any]] = [(name, getattr(values, f"{name}_bytes")) for name, *_ in _QUANTITIES]
    return [(name, float(value)) for name, value in found if value is not None]


def _row_of_numbers(where: str, values: list[tuple[str, float]], gap: str, end: str = "") -> list[Span]:
    divisor, unit = byte_unit(max(value for _, value in values))
    spans: list[Span] = [(where + gap, "bold")] if where else []
    for name, value in values:
        spans += [(f"{_word(name)} ", "dim"), (f"{digits(value / divisor):>4}", ""), (gap, "")]
    return [*spans[:-1], (f" {unit}{end}", "dim")]


def _cells(spans: list[Span]) -> int:
    return sum(width(text) for text, _ in spans)


def _word(name: str) -> str:
    return next((tr(word) for quantity, word, _, _ in _QUANTITIES if quantity == name), name)


def _verdict(snapshot: MemorySnapshot) -> list[Span]:
    verdict = snapshot.verdict
    sign, word, role = _VERDICTS[verdict.kind]
    sure = "" if verdict.kind == "undecided" else f", {_sureness(verdict)}"
    line: list[Span] = [(f"{sign} {tr(word)}{sure}", role)]
    slope = snapshot.slope_bytes_per_step
    if slope is not None and abs(slope) >= 1:
        rate = ("+" if slope > 0 else "-") + byte_size(abs(slope))
        line.append(("   " + tr("{rate}/step", rate=rate), ""))
        if verdict.since_step is not None:
            line.append((" " + tr("since step {step}", step=count(verdict.since_step)), "dim"))
    return line


def _sureness(verdict: Verdict) -> str:
    if verdict.confidence >= _SURE:
        return tr("sure ({share})", share=share(verdict.confidence))
    return tr("likely") if verdict.confidence >= _LIKELY else tr("possible")
