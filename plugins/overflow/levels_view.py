"""What stands where no incident does: what is watched, what could be, and what is nearest to its limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ascend_tui.plugin import Command
from ascend_tui.text import count, fit, fold, share, tr, width
from ascend_tui.widgets.quiet import Line

from .figures import fit_end, limit_share, op_word, place_of, plain, right, sentence, type_word
from .snapshot import Output, OverflowSnapshot
from .stream import GAP
from .values import figure
from .words import level_name


def level_lines(snapshot: OverflowSnapshot, cells: int, can: Mapping[str, Command]) -> list[Line]:
    """Return what is watched and what could be, one level a line, with the key and the cost."""
    lines: list[Line] = [[(tr("what is watched"), "bold")]]
    names = max(width(level_name(level)) for level in snapshot.levels) if snapshot.levels else 0
    for level in snapshot.levels:
        start = f"{'●' if level.on else '✕' if level.why else '○'} {level_name(level)}"
        start += " " * (names + 2 - width(level_name(level)) + 2)
        if level.on:
            words = tr("every step") if level.every <= 1 else tr("one in {n} steps", n=count(level.every))
        else:
            words = tr("off")
        if level.why is not None:
            words += f": {sentence(level.why)}"
        command = can.get(level.name)
        if command is not None and not level.on and level.why is None:
            words += "   " + tr("press {key} ({cost})", key=command.hotkey or "", cost=tr(command.cost))
        for number, part in enumerate(fold(words, max(cells - width(start), 8))):
            head = start if not number else " " * width(start)
            lines.append([(head, "" if level.on else "dim"), (part, "warn" if level.why else "")])
    return lines


def hottest_lines(hottest: Sequence[Output], cells: int, rows: int) -> list[Line]:
    """Return the outputs nearest to the limit of their type, as many as there are rows for."""
    if not hottest or rows < 2:
        return []
    lines: list[Line] = [[(fit(tr("nearest to the limit of their type"), cells), "bold")]]
    for output in hottest[: rows - 1]:
        part = limit_share(output)
        ends = f"{GAP}{type_word(output.dtype)}{right(figure(output.abs_max), 11)}"
        ends += right("" if part is None else share(part), 9)
        room = max(cells - width(ends), 8)
        op = f" {op_word(output.op)}" if output.op else ""
        place = place_of(output, room)
        place += op if width(place + op) <= room else ""
        near = part is not None and part >= 0.5
        lines.append([(place + " " * (room - width(place)), ""), (ends, "warn" if near else "dim")])
    return lines


def nothing_fits(text: str, incidents: int, cells: int) -> list[Line]:
    """Say that a filter lets nothing through, and how to get rid of it."""
    words = tr("none of {n} incidents fits /{filter}", n=count(incidents), filter=plain(fit_end(text, 40)))
    words += "; " + tr("an empty filter shows all")
    return [[(part, "dim")] for part in fold(words, max(cells, 8))]
