"""The numbers of the memory pane: which there are, how they are called, and as many as there is room for."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.text import byte_size, byte_unit, count, digits, msgid, tr, width
from ascend_tui.widgets.quiet import Span

from .snapshot import MemorySnapshot, MemoryValues

# Quantity, the word for it, and the name at the end of its curve.
QUANTITIES = (
    ("allocated", msgid("allocated"), msgid("alloc")),
    ("active", msgid("active"), ""),
    ("reserved", msgid("reserved"), msgid("res")),
    ("device_used", msgid("device"), msgid("device")),
    ("rss", msgid("host rss"), msgid("rss")),
)
# What lies between the curves, and what is not on the device.
_GAPS = (
    ("unused", msgid("cache")),
    ("inactive_split", msgid("in fragments")),
    ("outside", msgid("outside torch")),
    ("rss", msgid("host rss")),
    ("workers_rss", msgid("workers")),
    ("pinned", msgid("pinned")),
)
_OFTEN_NONE = ("workers_rss", "pinned")
_OTHER_WORDS = {"workers": msgid("workers"), "peak": msgid("peak"), **dict(_GAPS)}


def word(quantity: str) -> str:
    """Return the word for a quantity in the present language; a strange one is its own word."""
    for name, text, _ in QUANTITIES:
        if name == quantity:
            return tr(text)
    return tr(_OTHER_WORDS[quantity]) if quantity in _OTHER_WORDS else quantity


def known(values: MemoryValues) -> list[tuple[str, float]]:
    """Return the quantities that this device can tell, in their order."""
    found = [(name, getattr(values, f"{name}_bytes")) for name, *_ in QUANTITIES]
    return [(name, float(value)) for name, value in found if value is not None]


def first_row(
    snapshot: MemorySnapshot, at: tuple[str, Sequence[tuple[str, float]]] | None, cells: int, two_rows: bool
) -> list[Span]:
    """Return the quantities in one unit; `at` are those of a cursor with where it is."""
    where, values = at if at is not None else ("", known(snapshot.current))
    if two_rows and len(values) > 1:
        # The second row has the host's.
        values = [one for one in values if one[0] != "rss"]
    if not values:
        return [(where, "")]
    peak = getattr(snapshot.peak, f"{snapshot.lead}_bytes", None)
    if peak is not None and at is None:
        with_peak = _row(where, values, "  ", f"  {tr('peak')} {byte_size(peak)}")
        if _cells(with_peak) <= cells:
            return with_peak
    # Closer together before anything is left out; what a leak does not show in goes first.
    for kept in (values, values[:-1], [*values[:1], *values[2:]], values[:1]):
        for gap in ("  ", " "):
            spans = _row(where, kept, gap)
            if _cells(spans) <= cells:
                return spans
    return _row(where, values[:1], " ")


def second_row(snapshot: MemorySnapshot, cells: int) -> list[Span]:
    """Return the gaps between the curves and the host's memory, each in its unit, as many as fit."""
    line: list[Span] = []
    for name, text in _GAPS:
        value = getattr(snapshot.current, f"{name}_bytes")
        # On the cpu the first row is the host's already; most trainings have no workers at all.
        if value is None or (name == "rss" and snapshot.lead == "rss") or (not value and name in _OFTEN_NONE):
            continue
        more: list[Span] = [("  " if line else "", ""), (f"{tr(text)} ", "dim"), (byte_size(value), "")]
        if name == "workers_rss" and snapshot.workers:
            more.insert(1, (f"{count(len(snapshot.workers))} ", ""))
        if _cells([*line, *more]) <= cells:
            line += more
    return line


def _row(where: str, values: Sequence[tuple[str, float]], gap: str, end: str = "") -> list[Span]:
    divisor, unit = byte_unit(max(value for _, value in values))
    spans: list[Span] = [(where + gap, "bold")] if where else []
    for name, value in values:
        spans += [(f"{word(name)} ", "dim"), (f"{digits(value / divisor):>4}", ""), (gap, "")]
    return [*spans[:-1], (f" {unit}{end}", "dim")]


def _cells(spans: Sequence[Span]) -> int:
    return sum(width(text) for text, _ in spans)
