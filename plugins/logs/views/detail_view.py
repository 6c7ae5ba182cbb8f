"""The story of one incident: what, since when, where, why we think so, what to do, and the raw lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ascend_tui.plugin import Message
from ascend_tui.text import clean, count, fit, fold, tr, width
from ascend_tui.widgets.quiet import Line

from ..snapshot import Incident, Source
from ..telling import SURENESS, code_words, fact_words, when_words
from . import context_view
from .figures import left, plain, sentence, severity_of, source_at, source_name

_SENTENCES, _MOST_RANKS = 12, 32


def lines_of(
    incident: Incident, sources: Sequence[Source], cells: int, world_size: int | None = None
) -> list[Line]:
    """Return the whole story for a width of `cells`."""
    sign, word, role = severity_of(incident.severity)
    lines = said(fit(f"{sign} {word}  {sentence(incident.headline)}", 4 * cells), cells, role)
    lines += said(" · ".join(when_words(incident, world_size)), cells, "dim")
    lines += ["", *labelled(_places(incident, sources), cells)]
    lines += part(tr("Details"), labelled(fact_words(incident.facts), cells))
    lines += part(tr("Who did what"), _by_rank(incident, cells))
    reasons = [incident.reason] if incident.reason is not None else []
    lines += part(tr("Why we think so"), listed([*reasons, *incident.evidence], cells))
    lines += part(tr("What to do"), listed(incident.advice, cells))
    return lines + part(tr("The lines around it"), context_view.lines_of(incident.context, sources, cells))


def said(text: str, cells: int, role: str = "", indent: int = 0) -> list[Line]:
    """Return a sentence on as many lines as it needs, those after the first indented."""
    parts = fold(text, max(cells - indent, 8)) if text else []
    return [[(" " * (indent if row else 0) + one, role)] for row, one in enumerate(parts)]


def part(title: str, lines: list[Line]) -> list[Line]:
    """Return a part of a story under its title, and nothing of one that is empty."""
    return ["", [(title, "bold")], *lines] if lines else []


def listed(messages: Sequence[Message], cells: int) -> list[Line]:
    """Return sentences below each other."""
    lines: list[Line] = []
    for message in messages[:_SENTENCES]:
        lines += said(f"· {sentence(message)}", cells, indent=2)
    return lines


def _places(incident: Incident, sources: Sequence[Source]) -> list[tuple[str, str]]:
    """Return the line that matters and where it stands, the program's own frame, code and sureness."""
    found = [(tr("line"), plain(incident.text, 600))]
    name = source_name(source_at(incident.source, sources))
    if incident.line > 0:
        # As editors and compilers write it.
        found.append((tr("in"), f"{name}:{incident.line}" if name else str(incident.line)))
    elif name:
        found.append((tr("in"), name))
    noticed = tr("noticed at") if incident.attribution == "async" else tr("called at")
    found.append((noticed, plain(incident.place)))
    found.append((tr("code"), code_words(incident.code)))
    found.append((tr("sureness"), tr(SURENESS.get(incident.attribution, incident.attribution))))
    return found


def _by_rank(incident: Incident, cells: int) -> list[Line]:
    shown = incident.by_rank[:_MOST_RANKS]
    lines = labelled([(tr("rank {ranks}", ranks=rank), plain(what)) for rank, what in shown], cells)
    if len(incident.by_rank) > _MOST_RANKS:
        more = tr("{n} more ranks", n=count(len(incident.by_rank) - _MOST_RANKS))
        lines.append([(more, "dim")])
    return lines


def labelled(pairs: Iterable[tuple[str, str]], cells: int) -> list[Line]:
    """Return names and values as a small table; what has no value is left out."""
    shown = [(name, value) for name, value in pairs if value]
    indent = max((width(name) for name, _ in shown), default=0) + 2
    lines: list[Line] = []
    for name, value in shown:
        for row, one in enumerate(fold(clean(value), max(cells - indent, 8))):
            lines.append([(" " * indent if row else left(name, indent), "dim"), (one, "")])
    return lines
