"""The allocator's segments as a picture: what is in use, what waits for a stream, what is free."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.text import byte_size, count, fit, fold, share, tr, width
from ascend_tui.widgets.braille import terminal_can_draw
from ascend_tui.widgets.quiet import Line, Span

from .snapshot import Block, Segment, Segments

_PINNED_SHARE = 0.1
_SIZE, _SHARE = 9, 9
_LEAST_BAR, _MOST_BAR = 12, 120
# How much of a cell is in use, from a trace to all of it; then what waits, and the ends of a bar.
_UNICODE = ("▁▂▃▄▅▆▇█", "▒", "▏", "▕")
_ASCII = (".:-=+*%#", "~", "[", "]")


def lines_of(segments: Segments, cells: int, unicode: bool | None = None) -> list[Line]:
    """Return the numbers, then one bar per segment, the largest first, each on a scale of its own.

    A live block that is small beside a cell still shows as a trace in it: one such block pins a segment.
    """
    glyphs = _UNICODE if (terminal_can_draw() if unicode is None else unicode) else _ASCII
    lines: list[Line] = [[(part, "bold")] for part in fold(_head(segments), cells)]
    lines += [[(part, "")] for part in fold(_facts(segments), cells)]
    if not segments.shown:
        return lines
    words = {kind: width(text) for kind, text in _fates().items()}
    bar = cells - _SIZE - _SHARE - 5 - max(words.values())
    names = bar >= _LEAST_BAR
    bar = min(bar if names else cells - _SIZE - _SHARE - 4, _MOST_BAR)
    if bar >= 4:
        lines += _legend(glyphs, cells)
        lines += [_row(segment, bar, names, glyphs) for segment in segments.shown]
    left_out = segments.count - len(segments.shown)
    if left_out > 0:
        lines.append([(tr("{n} smaller segments are not drawn", n=count(left_out)), "dim")])
    return lines


def fate_of(segment: Segment) -> str:
    """Return "pinned", "free" or "" for a segment: whether so little holds so much, or nothing holds it."""
    if all(block.state == "free" for block in segment.blocks) and segment.active_bytes <= 0:
        return "free"
    return "pinned" if segment.active_bytes < segment.total_bytes * _PINNED_SHARE else ""


def _fates() -> dict[str, str]:
    return {"pinned": tr("pinned by little"), "free": tr("can go back"), "": ""}


def _head(segments: Segments) -> str:
    used = segments.active_bytes / segments.reserved_bytes if segments.reserved_bytes > 0 else 0.0
    return tr(
        "{n} segments at step {step}: {reserved} reserved, {share} of it in use",
        n=count(segments.count),
        step=count(segments.step),
        reserved=byte_size(segments.reserved_bytes),
        share=share(used),
    )


def _facts(segments: Segments) -> str:
    words = [
        tr("largest free block {size}", size=byte_size(segments.largest_free_bytes)),
        tr("empty_cache gives back {size}", size=byte_size(segments.releasable_bytes)),
        tr("{size} free between live blocks", size=byte_size(segments.inactive_split_bytes)),
    ]
    if segments.pinned:
        words.append(
            tr(
                "pinned by under a tenth in use: {n}, with {size} free",
                n=count(segments.pinned),
                size=byte_size(segments.pinned_bytes),
            )
        )
    return " · ".join(words)


def _legend(glyphs: tuple[str, str, str, str], cells: int) -> list[Line]:
    levels, pending, _, _ = glyphs
    entries = (
        (f"{levels[-1]} ", "first", tr("in use")),
        (f"{levels[0]} ", "first", tr("a little in use")),
        (f"{pending} ", "warn", tr("freed, a stream still uses it")),
        ("", "", tr("blank: free")),
    )
    lines: list[list[Span]] = [[]]
    for glyph, role, words in entries:
        if lines[-1] and sum(width(text) for text, _ in lines[-1]) + 2 + width(glyph + words) > cells:
            lines.append([])
        lines[-1] += [("  " if lines[-1] else "", ""), (glyph, role), (words, "dim")]
    return list(lines)


def _row(segment: Segment, bar: int, names: bool, glyphs: tuple[str, str, str, str]) -> Line:
    used = segment.active_bytes / segment.total_bytes if segment.total_bytes > 0 else 0.0
    fate = fate_of(segment)
    line: list[Span] = [
        (f"{fit(byte_size(segment.total_bytes), _SIZE):>{_SIZE}}", ""),
        (f"{share(used):>{_SHARE}} ", "dim"),
        (glyphs[2], "dim"),
        *_bar(segment.blocks, bar, glyphs),
        (glyphs[3], "dim"),
    ]
    if names and fate:
        line.append((f" {_fates()[fate]}", "warn" if fate == "pinned" else "dim"))
    return line


def _bar(blocks: Sequence[Block], cells: int, glyphs: tuple[str, str, str, str]) -> list[Span]:
    levels, waits, _, _ = glyphs
    active, pending = [0.0] * cells, [0.0] * cells
    total = sum(max(block.bytes, 0) for block in blocks)
    at = 0.0
    for block in blocks:
        size = max(block.bytes, 0) / total * cells if total else 0.0
        share_of = {"active": active, "pending": pending}.get(block.state)
        if share_of is not None and size > 0:
            _spread(share_of, at, at + size)
        at += size
    spans: list[Span] = []
    for used, waiting in zip(active, pending):
        if waiting > used:
            spans.append((waits, "warn"))
        elif used > 0:
            spans.append((levels[min(int(used * len(levels)), len(levels) - 1)], "first"))
        else:
            spans.append((" ", ""))
    return spans


def _spread(cells: list[float], start: float, end: float) -> None:
    """Add the stretch from `start` to `end` to the cells it lies in, each by its part."""
    for cell in range(min(int(start), len(cells) - 1), min(int(end), len(cells) - 1) + 1):
        cells[cell] += max(0.0, min(end, cell + 1) - max(start, cell))
