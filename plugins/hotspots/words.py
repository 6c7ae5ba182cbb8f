"""What the hotspots pane says beside its table: the mode, the verdict, what is missing, and the next key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Command
from ascend_tui.text import count, fit, fold, msgid, tr, width
from ascend_tui.widgets.quiet import Line, Span

from .figures import (
    SEVERITIES,
    fit_middle,
    names,
    per_cent,
    place_of,
    plain,
    sentence,
    short_name,
    span,
    tally,
)
from .snapshot import Clock, Finding, HotspotsSnapshot, Sync
from .table_view import folded

CLOCKS: dict[Clock, str] = {"host": msgid("host times"), "device": msgid("device times")}
_ORDER = ("info", "warning", "error", "fatal")
_APART = "   "
_CROWDED = 5
"""Under so many rows each line has to say two things."""


# The title.


def mode_words(snapshot: HotspotsSnapshot, clock: Clock, thinning: int, cells: int) -> str:
    """Return of which step the table is, how often one is looked at, and by which clock; as much as fits."""
    sampling = snapshot.sampling
    step = "" if snapshot.step is None else tr("step {step}", step=count(snapshot.step))
    every = f"1/{count(sampling.every)}" if sampling.on and sampling.every else ""
    if every and not step:
        every = tr("sampling {every}", every=every)
    if not sampling.on and is_heard(snapshot):
        every = tr("sampling off")
    if every and thinning > 1 and sampling.on:
        every += ", " + tr("over budget")
    times = tr(CLOCKS[clock]) if snapshot.rows else ""
    for parts in ((step, every, times), (step, times), (times,), (step,)):
        words = " · ".join(filter(None, parts))
        if width(words) <= cells:
            return words
    return ""


# One line.


def summary_words(snapshot: HotspotsSnapshot, cells: int) -> str:
    """Return the first operators and the verdict, for where there is no room for the pane."""
    verdict = ""
    device = snapshot.device
    if device is not None and device.host_bound_share is not None:
        verdict = tr("host-bound {share}", share=per_cent(device.host_bound_share))
    elif device is not None:
        verdict = tr("device idle {share}", share=per_cent(device.idle_share))
    elif (finding := strongest(snapshot.findings)) is not None:
        verdict = headline_of(finding)
    if not snapshot.rows:
        return verdict or tr("no step has been looked at yet")
    for most in (3, 2, 1):
        words = names(snapshot.rows, most)
        if snapshot.clock == "host":
            words += f" ({tr(CLOCKS['host'])})"
        if most == 1 or width(words + verdict) + len(_APART) <= cells:
            return f"{words}{_APART}{verdict}" if verdict else words
    return verdict


def strongest(findings: Sequence[Finding]) -> Finding | None:
    """Return the gravest finding, the first of several."""
    return max(findings, key=lambda one: _grave(one.severity), default=None)


def _grave(severity: str) -> int:
    return _ORDER.index(severity) if severity in _ORDER else 0


def headline_of(finding: Finding) -> str:
    """Return a finding in one line, its glyph before it."""
    return f"{SEVERITIES.get(finding.severity, ('?', ''))[0]} {sentence(finding.headline)}"


# The last lines.


@frozen
class _Told:
    """A line to show: the heavier, the sooner it is given up; `goes_on` with the sentence before it.

    `alone` is what it says where the line that goes on has no room.
    """

    weight: int
    line: Line
    goes_on: bool = False
    alone: Line = ""


def closing_lines(
    snapshot: HotspotsSnapshot,
    cells: int,
    rows: int,
    can: Mapping[str, Command],
    hints: Sequence[tuple[str, str]] = (),
    zoomed: bool = False,
) -> list[Line]:
    """Return at most `rows` lines: the state, the strongest finding, what is missing; the next key last.

    `zoomed` tells that the whole step is told beside them: nothing is said twice.
    """
    told: list[_Told] = []
    if not zoomed:
        told += _state(snapshot, cells, rows)
        if (finding := strongest(snapshot.findings)) is not None:
            role = SEVERITIES.get(finding.severity, ("?", ""))[1]
            lines = folded(headline_of(finding), cells, role or "bold", indent=2)
            lines = _cut(lines, 2, cells)
            told += [_Told(5 if number else 1, line, number > 0) for number, line in enumerate(lines)]
        if snapshot.missing:
            lines = folded(sentence(snapshot.missing[0]), cells, "dim")
            lines = _cut(lines, 2, cells)
            told += [_Told(6, line, number > 0) for number, line in enumerate(lines)]
    told += _keys(cells, can, hints)
    return _fitting(told, rows)


def _fitting(told: Sequence[_Told], rows: int) -> list[Line]:
    """Return as many lines as there are rows; a sentence that lost its end says so."""
    kept = sorted(sorted(range(len(told)), key=lambda at: (told[at].weight, at))[:rows])
    lines: list[Line] = []
    for at in kept:
        follows = at + 1 < len(told) and told[at + 1].goes_on and at + 1 not in kept
        lines.append((told[at].alone or [*told[at].line, ("…", "dim")]) if follows else told[at].line)
    return lines


def _cut(lines: list[Line], most: int, cells: int) -> list[Line]:
    """Return the first lines; the last one says where more was cut off."""
    if len(lines) <= most:
        return lines
    text, role = next(iter(lines[most - 1]))
    return [
        *lines[: most - 1],
        [(fit(f"{text} …", cells) if width(text) + 2 <= cells else fit(text + "…", cells), role)],
    ]


def _state(snapshot: HotspotsSnapshot, cells: int, rows: int) -> list[_Told]:
    """Return where the step went beside the operators, and how even the steps are."""
    parts: list[Span] = []
    device = snapshot.device
    if device is not None and device.host_bound_share is not None:
        parts.append((tr("host-bound {share}", share=per_cent(device.host_bound_share)), "bold"))
    if device is not None:
        parts.append((tr("device idle {share}", share=per_cent(device.idle_share)), ""))
    data = next((one for one in snapshot.phases if one.name == "data"), None)
    if data is not None:
        parts.append((tr("data wait {share}", share=per_cent(data.share)), ""))
    if device is None and snapshot.outside_us > 0 and snapshot.step_time_us > 0:
        share = per_cent(snapshot.outside_us / snapshot.step_time_us)
        parts.append((tr("in no operator {share}", share=share), ""))
    sync: list[Span] = []
    if snapshot.syncs:
        sync = [(sync_words(snapshot.syncs[0], len(snapshot.syncs) - 1, cells), "")]
    if sync and parts and rows < _CROWDED:
        # The first word and the first call say more in one line than each alone.
        short = _sync_tries(snapshot.syncs[0], len(snapshot.syncs) - 1)[-1]
        parts, sync = (
            (parts[:1], [(short, "")]) if _size(parts[:1]) + width(short) + 3 <= cells else (parts, sync)
        )
    line = _joined(parts, cells)
    told: list[_Told] = []
    if line and sync and _size([*line, *sync]) + len(_APART) <= cells:
        told.append(_Told(2, [*line, (_APART, ""), *sync]))
    else:
        told += [_Told(2, line)] if line else []
        told += [_Told(3, sync)] if sync else []
    if snapshot.jitter is not None and snapshot.jitter.steps > 0:
        told.append(_Told(4, [(fit(jitter_words(snapshot), cells), "")]))
    return told


def _joined(parts: Sequence[Span], cells: int) -> list[Span]:
    line: list[Span] = []
    for part in parts:
        more = [(_APART, ""), part] if line else [part]
        if _size([*line, *more]) > cells:
            break
        line += more
    return line


def _size(line: Sequence[Span]) -> int:
    return sum(width(text) for text, _ in line)


def sync_words(sync: Sync, others: int, cells: int) -> str:
    """Return the costliest synchronising call with its line, and how many more there are; cut at `cells`."""
    tries = _sync_tries(sync, others)
    return next((words for words in tries if width(words) <= cells), fit(tries[-1], cells))


def _sync_tries(sync: Sync, others: int) -> list[str]:
    """Return the same call in ever fewer words."""
    place = place_of(sync.site) or tr("line not known")
    often = tr("{n}/step", n=tally(sync.calls))
    bare = tr("sync: {place} {op} {often}", place=place, op=fit_middle(short_name(sync.op), 24), often=often)
    more = f"  +{count(others)}" if others > 0 else ""
    return [f"{bare}  {span(sync.time_us)}{more}", f"{bare}{more}", bare]


def jitter_words(snapshot: HotspotsSnapshot) -> str:
    """Return how even the steps are."""
    jitter = snapshot.jitter
    if jitter is None:
        return ""
    words = tr(
        "steps p50 {p50}  p99 {p99} (of {n})",
        p50=span(jitter.p50_s * 1e6),
        p99=span(jitter.p99_s * 1e6),
        n=count(jitter.steps),
    )
    return words + ("  " + tr("outliers: {n}", n=count(len(jitter.outliers))) if jitter.outliers else "")


def _keys(cells: int, can: Mapping[str, Command], hints: Sequence[tuple[str, str]]) -> list[_Told]:
    """Return the keys that do something now; what a key costs goes on in the next line."""
    told: list[_Told] = []
    for command in can.values():
        words = f"{tr(command.title)} ({tr(command.cost)})"
        key = command.hotkey or ""
        parts = fold(words, max(cells - width(key) - 1, 8))
        alone = fit(f" {words}", max(cells - width(key), 8))
        told.append(_Told(0, [(key, "key"), (f" {parts[0]}", "dim")], alone=[(key, "key"), (alone, "dim")]))
        if len(parts) > 1:
            rest = parts[1] + ("…" if len(parts) > 2 else "")
            told.append(_Told(8, [(" " * (width(key) + 1) + rest, "dim")], goes_on=True))
    line: list[Span] = []
    for key, word in hints:
        more: list[Span] = [("  " if line else "", ""), (key, "key"), (f" {word}", "dim")]
        if _size([*line, *more]) <= cells:
            line += more
    return [*told, _Told(7, line)] if line else told


# Where there is no table.


def empty_lines(snapshot: HotspotsSnapshot, cells: int, can: Mapping[str, Command], pid: int) -> list[Line]:
    """Say that no step was looked at yet, when the next one will be, and which key does not wait for it."""
    sampling = snapshot.sampling
    lines = folded(tr("No step has been looked at yet."), cells, "bold")
    if sampling.why is not None:
        if sampling.why != snapshot.reason:
            lines += folded(tr("None can be: {reason}", reason=sentence(sampling.why)), cells, "warn")
    elif not sampling.on and not is_heard(snapshot):
        lines += folded(tr("waiting for data"), cells, "dim")
    elif not sampling.on:
        command = f"`ascend-tui do {pid} hotspots.sample on`"
        lines += folded(tr("Sampling is off; {command} begins it.", command=command), cells)
    else:
        words = tr("One step in {n} is looked at.", n=count(sampling.every)) if sampling.every else ""
        if sampling.next_step is not None:
            words += " " + tr("The next one is step {step}.", step=count(sampling.next_step))
        lines += folded(words.strip(), cells)
    if "profile" in can and sampling.why is None:
        key = can["profile"].hotkey or ""
        lines += folded(tr("Press {key} to look at the next step.", key=key), cells)
    for message in snapshot.missing:
        lines += folded(message, cells, "dim", indent=2)
    return lines


def is_heard(snapshot: HotspotsSnapshot) -> bool:
    """Tell whether anything has come from the training yet; before that nothing is off, it is not known."""
    return snapshot.state != "waiting" or bool(snapshot.runs_on or snapshot.jitter or snapshot.sampling.on)


def plain_words(text: str) -> str:
    """Return a filter as the title shows it."""
    return plain(text, 80)
