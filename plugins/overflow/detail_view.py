"""The story of one incident: what, since when, where from, and what to do; the raw numbers at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

from ascend_tui.frame import as_json
from ascend_tui.plugin import Message
from ascend_tui.text import count, fit, fold, msgid, share, tr, width
from ascend_tui.widgets.quiet import Line, Span

from . import climb_view, window_view
from .figures import limit_share, op_word, phase_word, plain, sentence, shape_words, type_word
from .filtering import steps_of
from .snapshot import Incident, Output
from .snapshot import Line as Call
from .stream import SEVERITIES, climb_words, kind_words, ranks_words
from .values import figure

_SOURCE = {
    "exact": msgid("source"),
    "likely": msgid("likely source"),
    "async": msgid("possible source"),
}
_SURENESS = {
    "exact": msgid("exact: the values themselves say so"),
    "likely": msgid("likely: concluded from the values around it, not proven"),
    "async": msgid("unsure: the device works asynchronously, an earlier call may be to blame"),
}
_STACK_LINES, _CODE_LINES, _SENTENCES = 16, 12, 12
_RAW = 2000


def lines_of(incident: Incident, cells: int, limits: Sequence[Message] = ()) -> list[Line]:
    """Return the whole story for a width of `cells`; `limits` are what could not be seen of anything."""
    sign, word, role = SEVERITIES.get(incident.severity, ("?", incident.severity, ""))
    lines = _said(fit(f"{sign} {tr(word)}  {sentence(incident.headline)}", 3 * cells), cells, role)
    lines += _said(_when(incident), cells, "dim")
    lines += ["", *_places(incident, cells)]
    lines += _part(tr("The outputs around it, in order of execution"), window_view.lines_of(incident, cells))
    climb = climb_words(incident)
    lines += _part(climb, climb_view.lines_of(incident.climb, cells) if climb else [], keep=bool(climb))
    lines += _part(tr("Why we think so"), _list(incident.evidence, cells))
    lines += _part(tr("What to do"), _list(incident.advice, cells))
    lines += _part(tr("To keep it in fp32"), _code(incident.keep_fp32, cells))
    lines += _part(tr("Called here, innermost call first"), _stack(incident.stack, cells))
    lines += _part(tr("What to bear in mind"), _list(limits, cells))
    return lines + _part(tr("Raw"), _raw(incident, cells))


def _said(text: str, cells: int, role: str = "", indent: int = 0) -> list[Line]:
    """Return a sentence on as many lines as it needs, those after the first indented."""
    parts = fold(text, max(cells - indent, 8)) if text else []
    return [[(" " * (indent if number else 0) + part, role)] for number, part in enumerate(parts)]


def _part(title: str, lines: list[Line], keep: bool = False) -> list[Line]:
    """Return a part of the story under its title, and nothing of one that is empty."""
    return ["", [(title, "bold")], *lines] if lines or keep else []


def _when(incident: Incident) -> str:
    first, last = steps_of(incident)
    words = [tr("step {step}", step=count(last))]
    if first != last:
        words.append(tr("since step {step}", step=count(first)))
    if incident.count > 1:
        words.append(tr("seen {n} times", n=count(incident.count)))
    if incident.ranks:
        words.append(ranks_words(incident.ranks))
    if incident.wall_s > 0:
        # The day too: such a run lasts for weeks.
        words.append(time.strftime("%m-%d %H:%M:%S", time.localtime(min(incident.wall_s, 4e9))))
    return " · ".join(words)


def _places(incident: Incident, cells: int) -> list[Line]:
    """Return where it was first seen and what it likely came from, apart."""
    first, source = incident.first_seen, incident.source
    label = tr(_SOURCE.get(incident.attribution, _SOURCE["likely"]))
    indent = max(width(tr("first seen")), width(label)) + 2
    lines: list[Line] = []
    if first is not None:
        lines += _labelled(
            tr("first seen"),
            [_where(first), _facts(first), _badness(incident) or _size(first)],
            cells,
            indent,
        )
    reason = sentence(incident.source_reason) if incident.source_reason else ""
    if source is not None:
        sure = tr(_SURENESS.get(incident.attribution, _SURENESS["likely"]))
        here = first is not None and (first.index, first.path, first.op) == (
            source.index,
            source.path,
            source.op,
        )
        told = [tr("the same output")] if here else [_where(source), _facts(source), _size(source)]
        lines += _labelled(label, [*told, reason, sure], cells, indent)
    elif first is not None or reason:
        lines += _labelled(tr("source"), [reason or tr("not known")], cells, indent)
    return lines


def _labelled(label: str, texts: Iterable[str], cells: int, indent: int) -> list[Line]:
    lines: list[Line] = []
    for text in filter(None, texts):
        for part in fold(text, max(cells - indent, 8)):
            head = " " * indent if lines else label + " " * (indent - width(label))
            row: list[Span] = [(head, "dim"), (part, "" if lines else "bold")]
            lines.append(row)
    return lines


def _where(output: Output) -> str:
    path = plain(output.path)
    if output.part == "input" and path:
        return tr("input of {path}", path=path)
    return path or (tr("the loss") if output.part == "loss" else tr("no module"))


def _facts(output: Output) -> str:
    words = [plain(output.module_type, 60), op_word(output.op), type_word(output.dtype)]
    if output.shape:
        words.append(shape_words(output.shape))
    words.append(phase_word(output.phase))
    return " · ".join(word for word in words if word)


def _size(output: Output) -> str:
    part, most = limit_share(output), figure(output.abs_max)
    if part is not None and part >= 0.01:
        return tr("|x| max {value}, {share} of the limit", value=most, share=share(part))
    return tr("|x| max {value}", value=most)


def _badness(incident: Incident) -> str:
    """Return how many values are bad and where the first is."""
    output = incident.first_seen
    if output is None or (output.bad_count is None and output.position is None):
        return ""
    words = [kind_words(incident)]
    if output.bad_count is not None:
        words.append(tr("{n} values", n=count(output.bad_count)))
    if output.position is not None:
        words.append(tr("the first at {position}", position=shape_words(output.position)))
    return ", ".join(words)


def _list(messages: Sequence[Message], cells: int) -> list[Line]:
    lines: list[Line] = []
    for message in messages[:_SENTENCES]:
        lines += _said(f"· {sentence(message)}", cells, indent=2)
    return lines


def _code(code: str, cells: int) -> list[Line]:
    """Return code line by line as it is to be copied; one too long goes on below."""
    lines: list[Line] = []
    for line in code[:4000].splitlines()[:_CODE_LINES]:
        # At spaces a fold would lose the indentation.
        text = plain(line)
        while text:
            end = len(text)
            while width(text[:end]) > max(cells - 2, 8):
                end -= 1
            lines.append([("  " + text[:end], "first")])
            text = text[end:]
    return lines


def _stack(stack: tuple[Call, ...], cells: int) -> list[Line]:
    lines: list[Line] = []
    for call in reversed(stack[-_STACK_LINES:]):
        words = f"{plain(call.file)}:{call.line} {plain(call.function, 80)}"
        lines += [
            [(("  " if number else "") + part, "dim")] for number, part in enumerate(fold(words, cells - 2))
        ]
    if len(stack) > _STACK_LINES:
        lines.append([(tr("{n} calls further out", n=count(len(stack) - _STACK_LINES)), "dim")])
    return lines


def _raw(incident: Incident, cells: int) -> list[Line]:
    """Return the two outputs as `--json` has them."""
    lines: list[Line] = []
    for name in ("first_seen", "source"):
        output = getattr(incident, name)
        if output is not None:
            bare = {
                key: value for key, value in as_json(output).items() if value not in (None, "", [], False)
            }
            text = plain(f"{name} {json.dumps(bare, ensure_ascii=False)}", _RAW)
            lines += [[(part, "dim")] for part in fold(text, max(cells, 8))]
    return lines
