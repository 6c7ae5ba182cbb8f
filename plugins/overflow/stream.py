"""An incident in a line or two: severity, step, place, kind, and what it came from."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.text import count, fit, msgid, tr, width
from ascend_tui.widgets.quiet import Line, Span

from .figures import bad_value, op_word, place_of, right, sentence, type_word
from .snapshot import Incident
from .values import figure

SEVERITIES = {
    "info": ("·", msgid("info"), "dim"),
    "warning": ("▲", msgid("warn"), "warn"),
    "error": ("!", msgid("error"), "bad"),
    "fatal": ("✕", msgid("fatal"), "bad"),
}
KINDS = {
    "nan": "{value}",
    "inf": "{value}",
    "near_limit": msgid("near limit"),
    "huge": msgid("huge"),
    "underflow": msgid("underflow to 0"),
    "saturated": msgid("clamped"),
    "loss": msgid("loss {value}"),
    "gradient": msgid("gradient {value}"),
    "parameter": msgid("parameter {value}"),
    "masked_row": msgid("fully masked row"),
}
"""Kinds that are of one place; of the others the headline says it all."""
SOURCES = {
    "exact": msgid("source, exact: {place}"),
    "likely": msgid("source, likely: {place}"),
    "async": msgid("source, unsure: {place}"),
}
_ORDER = ("info", "warning", "error", "fatal")
GAP = "  "


def step_cells(incidents: Sequence[Incident]) -> int:
    """Return the cells of the column of steps, wide enough that it does not grow every day."""
    return max([7, *(len(count(one.step)) for one in incidents)])


def entry_lines(incident: Incident, cells: int, of_step: int, rank: int | None) -> tuple[Line, ...]:
    """Return an incident in one line, and in a second one its source or its climb, where either is known."""
    sign, word, role = SEVERITIES.get(incident.severity, ("?", incident.severity, ""))
    of_word = max(width(tr(name)) for _, name, _ in SEVERITIES.values())
    step = right(count(incident.step), of_step)
    word = tr(word)
    start: list[Span] = [(f"{sign} {word}", role), (" " * (of_word - width(word)) + f" {step}{GAP}", "")]
    indent = sum(width(text) for text, _ in start)
    line = [*start, *_what(incident, cells - indent, rank)]
    under = second_line(incident, cells - of_word - 3)
    return (line, [(" " * (of_word + 3) + under, "dim")]) if under else (line,)


def _what(incident: Incident, cells: int, rank: int | None) -> list[Span]:
    """Return place, kind, type and how often; the place gives way first."""
    ends = f"{GAP}×{count(incident.count)}" if incident.count > 1 else ""
    if incident.ranks and incident.ranks != (rank,):
        ends += GAP + ranks_words(incident.ranks)
    output = incident.first_seen or incident.source
    if incident.kind not in KINDS or output is None:
        return [(fit(sentence(incident.headline), max(cells - width(ends), 8)), ""), (ends, "bold")]
    kind = kind_words(incident)
    dtype = GAP + type_word(output.dtype) if output.dtype else ""
    room = cells - width(GAP + kind + dtype + ends)
    place = place_of(output, max(room, 8))
    op = f" {op_word(output.op)}" if output.op else ""
    op = op if width(place + op) <= room else ""
    return [(place, "bold"), (op, "dim"), (f"{GAP}{kind}{dtype}", ""), (ends, "bold")]


def kind_words(incident: Incident) -> str:
    """Return the kind of an incident that is of one place, with the bad value where one is known."""
    value = bad_value(incident.first_seen, "Inf" if incident.kind == "inf" else "NaN")
    if incident.kind in ("gradient", "parameter", "loss") and incident.first_seen is not None:
        value = bad_value(incident.first_seen, figure(incident.first_seen.abs_max))
    return tr(KINDS.get(incident.kind, incident.kind), value=value)


def second_line(incident: Incident, cells: int) -> str:
    """Return what an incident came from, or how it climbed, or in which operator it was."""
    climb = climb_words(incident)
    if incident.kind == "near_limit" and climb:
        return fit(climb, cells)
    if incident.source is not None and incident.kind != "near_limit":
        return source_words(incident, cells)
    if climb:
        return fit(climb, cells)
    if incident.kind in KINDS and incident.source_reason is not None:
        return fit(tr("source not known: {reason}", reason=sentence(incident.source_reason)), cells)
    return ""


def source_words(incident: Incident, cells: int) -> str:
    """Return the likely source with its largest value, and how exactly it is known."""
    source, first = incident.source, incident.first_seen
    if source is None:
        return ""
    words = SOURCES.get(incident.attribution, SOURCES["likely"])
    if first is not None and (first.index, first.path, first.op) == (source.index, source.path, source.op):
        why = sentence(incident.source_reason) if incident.source_reason else ""
        here = tr(words, place=tr("here"))
        return fit(f"{here}; {why}" if why else here, cells)
    op = f" {op_word(source.op)}" if source.op else ""
    value = f" {figure(source.abs_max)}"
    room = cells - width(tr(words, place="") + value)
    place = place_of(source, room)
    return fit(tr(words, place=place + (op if width(place + op) <= room else "") + value), cells)


def climb_words(incident: Incident) -> str:
    """Return from where to where the largest value went, in how many steps."""
    climb = incident.climb
    if len(climb) < 2:
        return ""
    return tr(
        "|x| max {low} → {high} over {n} steps",
        low=figure(climb[0].abs_max),
        high=figure(climb[-1].abs_max),
        n=count(climb[-1].step - climb[0].step),
    )


def ranks_words(ranks: Sequence[int]) -> str:
    """Return on which ranks something was seen, neighbours as one range."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    each = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    words = ",".join(each[:6]) + ("…" if len(each) > 6 else "")
    return tr("rank {ranks}", ranks=words) if len(set(ranks)) == 1 else tr("ranks {ranks}", ranks=words)


def title_of(incident: Incident, cells: int) -> str:
    """Return an incident in a few words: what it is and where."""
    output = incident.first_seen or incident.source
    if incident.kind not in KINDS or output is None:
        return fit(sentence(incident.headline), cells)
    kind = kind_words(incident)
    return f"{kind}: {place_of(output, cells - width(kind) - 2)}"


def worst(incidents: Sequence[Incident]) -> Incident | None:
    """Return the gravest incident, of several the newest."""
    found: Incident | None = None
    for incident in incidents:
        if found is None or _grade(incident) >= _grade(found):
            found = incident
    return found


def _grade(incident: Incident) -> int:
    return _ORDER.index(incident.severity) if incident.severity in _ORDER else 0
