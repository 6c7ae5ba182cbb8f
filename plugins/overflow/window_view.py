"""The outputs around the first bad one as a table in order of execution; the place gets what is left."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ascend_tui.text import fit, fold, share, tr, width
from ascend_tui.widgets.quiet import Line

from .figures import left, op_word, place_of, right, shape_words, type_word
from .snapshot import Incident, Output
from .values import figure

_LEAST_PLACE = 16
_MOST = {"op": 12, "shape": 18, "from": 8}
_GIVEN_UP = ("from", "shape", "near", "type", "order", "op")
"""The columns in which the table is poorer where it is too wide, the first one first."""
_ON_THE_RIGHT = ("order", "low", "high", "near")


def lines_of(incident: Incident, cells: int) -> list[Line]:
    """Return the table, its titles above and what its signs mean below; nothing of an empty window."""
    rows = incident.window
    if not rows:
        return []
    columns = _columns(rows)
    sizes = {
        name: min(max(width(text) for text in texts), _MOST.get(name, 12)) for name, texts in columns.items()
    }
    for name in _GIVEN_UP:
        if cells - 2 - sum(size + 2 for size in sizes.values()) >= _LEAST_PLACE:
            break
        sizes.pop(name, None)
    room = max(cells - 2 - sum(size + 2 for size in sizes.values()), 8)
    before = [name for name in ("order",) if name in sizes]
    after = [name for name in sizes if name not in before]
    lines: list[Line] = []
    for number in range(len(rows) + 1):
        output = rows[number - 1] if number else None
        sign, role = ("  ", "dim") if output is None else _sign(output, incident)
        place = fit(tr("place"), room) if output is None else place_of(output, room)
        texts = [_cell(columns[name][number], name, sizes[name]) for name in before]
        texts.append(left(place, room))
        texts += [_cell(columns[name][number], name, sizes[name]) for name in after]
        lines.append([(sign, "key" if role == "" else role), ("  ".join(texts).rstrip(), role)])
    return lines + [[(part, "dim")] for part in fold(_meanings(incident, sizes), max(cells, 8))]


def _columns(rows: Sequence[Output]) -> dict[str, list[str]]:
    """Return the texts of each column that any row has something for, its title first."""
    columns = {
        "order": ["#", *(str(row.index) for row in rows)],
        "op": [tr("op"), *(op_word(row.op) for row in rows)],
        "type": [tr("type"), *(type_word(row.dtype) for row in rows)],
        "shape": [tr("shape"), *(shape_words(row.shape) if row.shape else "" for row in rows)],
        "low": [tr("min"), *(figure(row.low) for row in rows)],
        "high": [tr("max"), *(figure(row.high) for row in rows)],
        "near": [tr("near"), *("" if row.near_share is None else share(row.near_share) for row in rows)],
        "from": [tr("from"), *(_from(row) for row in rows)],
    }
    return {name: texts for name, texts in columns.items() if any(texts[1:])}


def _from(row: Output) -> str:
    return ",".join(str(index) for index in (row.sources or ())[:4])


def _cell(text: str, name: str, size: int) -> str:
    text = fit(text, size)
    return right(text, size) if name in _ON_THE_RIGHT else left(text, size)


def _is(output: Output, other: Output | None) -> bool:
    return other is not None and (output.index, output.path, output.part) == (
        other.index,
        other.path,
        other.part,
    )


def _sign(output: Output, incident: Incident) -> tuple[str, str]:
    """Return what stands before a row, and its role: source, first bad one, infinity on purpose."""
    if _is(output, incident.first_seen):
        return "! ", "bad"
    if _is(output, incident.source):
        return "▸ ", "warn"
    return ("~ ", "dim") if output.intended else ("  ", "")


def _meanings(incident: Incident, columns: Container[str]) -> str:
    words = []
    if any(_is(row, incident.source) and not _is(row, incident.first_seen) for row in incident.window):
        words.append(f"▸ {tr('source')}")
    if any(_is(row, incident.first_seen) for row in incident.window):
        words.append(f"! {tr('first seen')}")
    if any(row.intended for row in incident.window):
        words.append(f"~ {tr('an infinity on purpose, such as a mask')}")
    if "near" in columns:
        words.append(f"{tr('near')}: {tr('share of values beyond 0.9 of the limit')}")
    return "   ".join(words)
