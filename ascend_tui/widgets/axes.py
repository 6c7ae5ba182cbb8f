"""The axes of a curve as rows of cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ascend_tui.frozen import frozen
from ascend_tui.text import fit, tr, width
from ascend_tui.widgets.quiet import BLANK, Cell, cells
from ascend_tui.widgets.scale import LABEL_CELLS, step_label, ticks, time_label

GUTTER = LABEL_CELLS + 2
"""Cells at the left of the field: a label, a blank and the axis."""
UNICODE = {"axis": "│", "tick": "┤", "foot": "─", "corner": "┼", "mark": "┴", "full": "╌", "cursor": "┊"}
ASCII = {"axis": "|", "tick": "+", "foot": "-", "corner": "+", "mark": "+", "full": "-", "cursor": ":"}

ROUTINE = "eco"
"""What a training does by itself, most telling first: evaluation, checkpoint, slow step."""
MOST_ROUTINE = 4


def _importance(sign: str) -> tuple[int, str]:
    """Return the place of a sign among those of one cell, the lowest is drawn: alerts, people, commands."""
    if sign in "!m":
        return "!m".index(sign), sign
    return (3 + ROUTINE.index(sign) if sign in ROUTINE else 2), sign


def y_label(label: str | None, glyphs: Mapping[str, str]) -> list[Cell]:
    """Return the left end of one row."""
    text = fit(label or "", LABEL_CELLS).rjust(LABEL_CELLS)
    return cells([(f"{text} {glyphs['tick' if label else 'axis']}", "dim")], GUTTER)


@frozen
class XAxis:
    """The axis under a field of `across` cells, each `per_cell` wide, in steps or seconds."""

    origin: float
    per_cell: float
    across: int
    seconds: bool

    def cell(self, at: float) -> int:
        """Return the cell in which a value lies."""
        return math.floor((at - self.origin) / self.per_cell + 1e-6)

    def _chosen(self, marks: Iterable[tuple[float, str]]) -> dict[int, str]:
        """Return one sign for each cell that has any: the one that matters most there.

        What the training does all the time (evaluation, checkpoints) stands in every cell of a long run and
        tells nothing there: of such a sign only the newest cell is marked, until it is rare enough again.
        """
        cells_of: dict[str, set[int]] = {}
        for at, sign in marks:
            x = self.cell(at)
            if 0 <= x < self.across and width(sign) == 1:
                cells_of.setdefault(sign, set()).add(x)
        chosen: dict[int, str] = {}
        for sign in sorted(cells_of, key=_importance, reverse=True):
            found = cells_of[sign]
            if sign in ROUTINE and len(found) > max(MOST_ROUTINE, self.across // 8):
                found = {max(found)}
            chosen.update(dict.fromkeys(found, sign))
        return chosen

    def rows(
        self, columns: int, marks: Iterable[tuple[float, str]], glyphs: Mapping[str, str]
    ) -> list[list[Cell]]:
        """Return the line with ticks and marks, and the line with their numbers."""
        line = [(glyphs["foot"], "dim")] * self.across
        unit = fit(tr("time") if self.seconds else tr("step"), LABEL_CELLS)
        numbers = cells([(" " * (LABEL_CELLS - width(unit)) + unit, "dim")], columns)
        end = self.origin + self.across * self.per_cell
        label = time_label if self.seconds else step_label
        taken = 0
        for at, text in ticks(self.origin, end, self.across, label, self.seconds):
            x = self.cell(at)
            left = GUTTER + x - (0 if x == 0 else width(text) // 2)
            if not 0 <= x < self.across or left < taken or left + width(text) > columns:
                continue
            line[x] = (glyphs["mark"], "dim")
            numbers[left : left + width(text)] = cells([(text, "dim")], width(text))
            taken = left + width(text) + 1
        for x, sign in self._chosen(marks).items():
            line[x] = (sign, "bad" if sign == "!" else "bold")
        corner = cells([(" " * (LABEL_CELLS + 1) + glyphs["corner"], "dim")], GUTTER)
        return [corner + line + [BLANK] * (columns - GUTTER - self.across), numbers]
