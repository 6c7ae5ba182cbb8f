"""The stories of a metric, of a kind of line, and of a place where lines are read."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.text import byte_size, count, msgid, share, tr
from ascend_tui.widgets.quiet import Line

from ..snapshot import Metric, Source, Template
from . import curve_view
from .detail_view import labelled, listed, part, said
from .figures import (
    SEVERITIES,
    SOURCE_STATES,
    TRENDS,
    moment,
    number,
    plain,
    size_words,
    source_at,
    source_kind,
    source_name,
)

_MEANINGS = {
    "steady": msgid("nothing stands out"),
    "not_finite": msgid("it was NaN or infinite"),
    "missing": msgid("lines that had it came without it"),
    "spike": msgid("it jumped far beyond what was usual"),
    "collapsing": msgid("it fell again and again"),
    "zero": msgid("it was exactly 0, which some trainers print for NaN"),
}


def of_metric(metric: Metric, cells: int, can_draw: bool) -> list[Line]:
    """Return a metric's numbers and its curve over the steps."""
    sign, word, role = TRENDS.get(metric.trend, ("?", plain(metric.trend, 12), ""))
    unit = f" {plain(metric.unit, 20)}" if metric.unit else ""
    lines = said(f"{sign} {plain(metric.name)}  {number(metric.value)}{unit}", cells, role or "bold")
    trend = f"{tr(word)}: {tr(_MEANINGS[metric.trend])}" if metric.trend in _MEANINGS else ""
    pairs = [
        (tr("printed as"), plain(metric.printed) if metric.printed != metric.name else ""),
        (tr("trend"), trend),
        (tr("step"), "" if metric.step is None else count(metric.step)),
        (tr("low"), "" if metric.low is None else number(metric.low)),
        (tr("high"), "" if metric.high is None else number(metric.high)),
        (tr("values"), count(metric.count) if metric.count else ""),
        (tr("last"), moment(metric.last_wall_s)),
    ]
    lines += ["", *labelled(pairs, cells)]
    return lines + part(tr("Over the steps"), curve_view.lines_of(metric.points, cells, can_draw))


def of_template(template: Template, sources: Sequence[Source], cells: int, all_lines: int) -> list[Line]:
    """Return how often such lines came, from where to where, and one as it was written."""
    lines = said(plain(template.text, 800), cells, "bold")
    often = count(template.count)
    if all_lines >= template.count >= all_lines / 2000 > 0:
        often = tr("{n} ({share} of all lines)", n=often, share=share(template.count / all_lines))
    name = source_name(source_at(template.source, sources))
    where = tr("lines {first} to {last}", first=count(template.first_line), last=count(template.last_line))
    if template.first_line == template.last_line:
        where = tr("line {line}", line=count(template.first_line))
    known = template.level in SEVERITIES
    pairs = [
        (tr("seen"), often),
        (tr("in"), f"{name}, {where}" if name else where),
        (tr("level"), tr(SEVERITIES[template.level][1]) if known else plain(template.level, 20)),
        ("", ""),
    ]
    lines += ["", *labelled(pairs, cells)]
    if template.is_new:
        lines += said(tr("seen for the first time long after the beginning"), cells, "warn")
    return lines + part(tr("One of them"), said(plain(template.example, 2000), cells))


def of_source(source: Source, cells: int) -> list[Line]:
    """Return where lines come from, how much of it was read, and why not more."""
    sign, word, role = SOURCE_STATES.get(source.state, ("?", plain(source.state, 16), ""))
    lines = said(f"{sign} {source_kind(source.kind)}  {tr(word)}", cells, role or "bold")
    reads = source.state in ("reading", "ended", "deleted")
    pairs = [
        (tr("place"), plain(source.name, 1000) if source.name != source.kind else ""),
        (tr("rank"), "" if source.rank is None else str(source.rank)),
        (tr("read"), size_words(source) if reads else ""),
        (tr("lines"), count(source.lines) if reads else ""),
        (tr("behind"), byte_size(source.behind_bytes) if reads and source.behind_bytes > 0 else ""),
    ]
    lines += ["", *labelled(pairs, cells)]
    if source.skipped_bytes > 0:
        words = tr(
            "the first {size} were there before and are left out", size=byte_size(source.skipped_bytes)
        )
        lines += said(words, cells)
    return lines + part(tr("Why"), listed([source.why], cells) if source.why is not None else [])
