"""The story of one operator: how much, since when, with which shapes, from where, and what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ascend_tui.frame import as_json
from ascend_tui.text import count, fit, msgid, tr, width
from ascend_tui.widgets.quiet import Line, Span

from .figures import (
    KIND_NAMES,
    PHASES,
    bar,
    fit_end,
    fit_middle,
    is_amount,
    left,
    micro,
    per_cent,
    plain,
    ratio_words,
    right,
    span,
    spark,
    stack_of,
    tally,
    trend_of,
)
from .snapshot import Finding, HotspotsSnapshot, Row, Units
from .step_view import listed, part, site_words
from .table_view import folded
from .words import CLOCKS, headline_of

_MOST_LINES, _MOST_CALLS, _RAW, _BAR, _HISTORY = 6, 8, 2000, 20, 48
_UNITS = (
    ("cube_ratio", "cube"),
    ("vector_ratio", "vector"),
    ("scalar_ratio", "scalar"),
    ("mte1_ratio", "mte1"),
    ("mte2_ratio", "mte2"),
    ("mte3_ratio", "mte3"),
    ("fixpipe_ratio", "fixpipe"),
)
_BOUNDS = {
    "cube": msgid("bound by the cube unit: it computes matrices most of the time"),
    "vector": msgid("bound by the vector unit"),
    "scalar": msgid("bound by the scalar unit: addresses and control take the time"),
    "mte1": msgid("bound by moving data inside the core (mte1)"),
    "mte2": msgid("bound by reading memory (mte2)"),
    "mte3": msgid("bound by writing memory (mte3)"),
    "fixpipe": msgid("bound by fixpipe, which moves results out of the cube unit"),
    "latency": msgid("bound by latency: no unit is busy for long"),
}


def lines_of(row: Row, snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
    """Return the whole story for a width of `cells`."""
    lines = folded(plain(row.name), cells, "bold")[:4]
    facts = [tr(KIND_NAMES.get(row.kind, row.kind)), tr(CLOCKS[row.clock])]
    facts += [fit(plain(one), 30) for one in (row.core, row.level) if one]
    if snapshot.step is not None:
        facts.append(tr("step {step}", step=count(snapshot.step)))
    lines += folded(" · ".join(facts), cells, "dim")
    lines += ["", *_amounts(row, cells)]
    lines += _change(row, cells)
    lines += _history(row, cells)
    about = [one for one in snapshot.findings if row.name in one.ops][:_MOST_LINES]
    for number, one in enumerate(about):
        lines += [] if number else [""]
        lines += folded(headline_of(one), cells, "warn" if one.severity != "info" else "bold", indent=2)
    lines += part(tr("Shapes"), _uses(row, cells))
    lines += part(tr("Where in the model"), _places(row, cells))
    lines += part(tr("Called here"), _sites(row, cells))
    lines += part(tr("Units of the AI Core"), _units(row.units, cells))
    lines += _reasons(about, cells)
    return lines + part(tr("Raw"), _raw(row, cells))


def _amounts(row: Row, cells: int) -> list[Line]:
    """Return its numbers, each with its name; what was not measured is a dash."""
    of_call = tr("{avg} on average", avg=micro(row.avg_us if row.calls else None))
    if row.min_us is not None or row.max_us is not None:
        of_call += ", " + tr("{low} to {high}", low=micro(row.min_us), high=micro(row.max_us))
    own = tr("{time}, {share} of all operators", time=span(row.self_time_us), share=per_cent(row.share))
    pairs = [(tr("self time"), own)]
    if row.total_time_us is not None:
        pairs.append((tr("with what it calls"), span(row.total_time_us)))
    pairs += [(tr("calls"), tally(row.calls)), (tr("us of a call"), of_call)]
    if row.wait_us is not None:
        pairs.append((tr("waited before it"), span(row.wait_us)))
    most = max(width(name) for name, _ in pairs)
    return [
        [(left(name, most + 2), "dim"), (fit(text, max(cells - most - 2, 8)), "")] for name, text in pairs
    ]


def _change(row: Row, cells: int) -> list[Line]:
    change = row.change
    if change is None:
        return []
    sign, role = trend_of(row)
    since = "" if change.since_step is None else tr("since step {step}", step=count(change.since_step))
    words = tr("{change} against the baseline", change=ratio_words(change.time_ratio))
    first = " ".join(filter(None, [sign.strip() or "=", words, since]))
    text = tr(
        "in all {before} → {now}; a call {call_before} → {call_now} us ({ratio})",
        before=span(change.baseline_time_us),
        now=span(row.self_time_us),
        call_before=micro(change.baseline_avg_us),
        call_now=micro(row.avg_us if row.calls else None),
        ratio=ratio_words(change.avg_ratio),
    )
    return [*folded(first, cells, role or "bold"), *folded(text, cells, "dim")]


def _history(row: Row, cells: int) -> list[Line]:
    """Return the newest samples as a curve from 0 up."""
    size = min(_HISTORY, max(cells - 2, 8))
    newest = [one for one in row.trend if is_amount(one)][-size:]
    if len(newest) < 2:
        return []
    words = tr(
        "the last {n} samples: {low} to {high}, now {now}",
        n=count(len(newest)),
        low=span(min(newest)),
        high=span(max(newest)),
        now=span(newest[-1]),
    )
    return ["", [(spark(newest, size), "first")], *folded(words, cells, "dim")]


def _reasons(about: Sequence[Finding], cells: int) -> list[Line]:
    """Return what speaks for the findings that name this operator, and what to do, as in every story."""
    why = [message for one in about for message in one.evidence]
    advice = [message for one in about for message in one.advice]
    lines = part(tr("Why we think so"), listed(list(dict.fromkeys(why)), cells))
    return lines + part(tr("What to do"), listed(list(dict.fromkeys(advice)), cells))


def _uses(row: Row, cells: int) -> list[Line]:
    if not row.uses:
        return []
    lines: list[Line] = [[(right(tr("calls"), 8) + right(tr("time"), 10) + "  " + tr("shape"), "dim")]]
    for one in row.uses[:_MOST_LINES]:
        start = right(tally(one.calls), 8) + right(span(one.self_time_us), 10) + "  "
        text = " ".join(filter(None, [plain(one.shapes).rstrip(";"), plain(one.dtypes, 80).rstrip(";")]))
        lines.append([(start, ""), (fit_middle(text, max(cells - width(start), 8)), "")])
    more = max(row.shapes_seen or 0, len(row.uses)) - min(len(row.uses), _MOST_LINES)
    return [*lines, [(tr("{n} more sets of shapes", n=count(more)), "dim")]] if more > 0 else lines


def _places(row: Row, cells: int) -> list[Line]:
    lines: list[Line] = []
    for one in row.places[:_MOST_LINES]:
        of_all = one.self_time_us / row.self_time_us if row.self_time_us > 0 else None
        phase = tr(PHASES.get(one.phase, one.phase))
        start = (
            f"{right(per_cent(of_all), 8)}{right(span(one.self_time_us), 10)}{right(tally(one.calls), 8)}  "
        )
        path = plain(one.path) or tr("no module")
        end = f"  {phase}"
        lines.append([(start, ""), (fit_end(path, max(cells - width(start + end), 8)), "bold"), (end, "dim")])
    return lines + _left_out(len(row.places))


def _sites(row: Row, cells: int) -> list[Line]:
    lines: list[Line] = []
    for one in row.sites[:_MOST_LINES]:
        start = f"{right(tally(one.calls), 8)}{right(span(one.time_us) if one.time_us > 0 else '-', 10)}  "
        lines.append([(start, ""), (site_words(one, cells - width(start)), "bold")])
        calls = stack_of(one)[0 if one.file else 1 :][:_MOST_CALLS]
        lines += [[(f"    {fit_end(call, max(cells - 4, 8))}", "dim")] for call in calls]
    return lines + _left_out(len(row.sites))


def _left_out(have: int) -> list[Line]:
    return [[(tr("{n} more", n=count(have - _MOST_LINES)), "dim")]] if have > _MOST_LINES else []


def _units(units: Units | None, cells: int) -> list[Line]:
    """Return how busy each unit was as bars, and which one bounds the operator."""
    if units is None:
        return []
    lines: list[Line] = []
    size = max(min(_BAR, cells - 20), 0)
    for field, name in _UNITS:
        value = getattr(units, field)
        if value is not None:
            role = "warn" if units.bound == name else "first"
            line: list[Span] = [
                (left(name, 9) + right(per_cent(value), 8) + "  ", ""),
                (bar(value, size), role),
            ]
            lines.append(line)
    more = []
    if units.memory_bound is not None:
        more.append(tr("mte2 over the larger of cube and vector: {ratio}", ratio=f"{units.memory_bound:.2f}"))
    if units.cube_utilization is not None:
        more.append(tr("cube utilisation {share}", share=per_cent(units.cube_utilization)))
    if units.icache_miss_rate is not None:
        more.append(tr("instruction cache misses {share}", share=per_cent(units.icache_miss_rate)))
    if units.block_num is not None:
        more.append(tr("blocks {n}", n=tally(units.block_num)))
    lines += folded(" · ".join(more), cells, "dim")
    words = tr(_BOUNDS[units.bound]) if units.bound else tr("the numbers do not tell what bounds it")
    return [*lines, *folded(words, cells, "bold" if units.bound else "dim")]


def _raw(row: Row, cells: int) -> list[Line]:
    """Return the row as `--json` has it, without what is empty."""
    bare = {key: value for key, value in as_json(row).items() if value not in (None, "", [])}
    bare["name"] = plain(row.name)
    text = plain(json.dumps(bare, ensure_ascii=False), _RAW)
    return folded(text, cells, "dim")
