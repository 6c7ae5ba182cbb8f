"""What the logs pane says beside its tables: the mode, what is read, how far behind, and the next key."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Command
from ascend_tui.text import byte_size, count, fit, fold, tr, width
from ascend_tui.widgets.quiet import Line, Span

from ..snapshot import Digest, LogsSnapshot, Metric, Source
from .figures import (
    SOURCE_STATES,
    fit_end,
    grade,
    number,
    plain,
    right,
    sentence,
    severity_of,
    source_kind,
    source_name,
    worst,
)

BEHIND_S = 2.0
"""From this on the screen says at its top that it shows the past."""
_READS = ("reading", "ended", "deleted")
_GROUPED = ("plog", "device_log", "launcher")
_VALUE = 9
_MOST_SOURCES = 24


# The title.


def mode_words(snapshot: LogsSnapshot, table: str, cells: int) -> str:
    """Return how many incidents there are, which other table is shown, and how far behind it is."""
    every = len(snapshot.digest.incidents)
    words = [table] if table else []
    if every or snapshot.digest.lines:
        words.append(tr("1 incident") if every == 1 else tr("{n} incidents", n=count(every)))
    if snapshot.is_teed:
        words.append(tr("tee on"))
    if snapshot.behind_s > BEHIND_S:
        words.insert(0, behind_words(snapshot.behind_s))
    while len(words) > 1 and width(" · ".join(words)) > cells:
        words.pop()
    return " · ".join(words)


def behind_words(behind_s: float) -> str:
    """Return how old the oldest line is that waits."""
    if not behind_s > 0.05:
        return tr("0 behind")
    # A mean of days is no more exact than that.
    return tr("{seconds} s behind", seconds=f"{behind_s:.1f}" if behind_s < 100 else count(behind_s))


def summary_words(snapshot: LogsSnapshot) -> str:
    """Return the gravest incident; without one the line stays the same, so that it costs nothing."""
    bad = worst(snapshot.digest.incidents)
    if bad is None or bad.severity == "info":
        reads = sum(one.state in _READS for one in snapshot.sources)
        if reads:
            return tr("no incident; reading {n} sources", n=reads) if reads > 1 else tr("no incident")
        return _why_nothing(snapshot) or tr("no line has been read yet")
    sign, word, _ = severity_of(bad.severity)
    words = f"{sign} {word}  {fit(sentence(bad.headline), 90)}"
    words += f"  ×{count(bad.count)}" if bad.count > 1 else ""
    others = sum(grade(one.severity) > 0 for one in snapshot.digest.incidents) - 1
    return words + (f"   {tr('{n} more', n=count(others))}" if others > 0 else "")


def _why_nothing(snapshot: LogsSnapshot) -> str:
    """Return the first reason why nothing can be read; nothing while a source is still waited for."""
    if any(one.state == "waiting" for one in snapshot.sources):
        return ""
    for one in snapshot.sources:
        if one.why is not None:
            return tr(
                "nothing can be read; {source}: {reason}", source=source_name(one), reason=sentence(one.why)
            )
    return ""


# The last lines.


@frozen
class _Told:
    """A line to show: the heavier, the sooner it is given up; one that `follows` goes on with a sentence."""

    weight: int
    line: Sequence[Span]
    follows: bool = False


def closing_lines(
    snapshot: LogsSnapshot,
    cells: int,
    rows: int,
    can: Mapping[str, Command],
    hints: Sequence[tuple[str, str]] = (),
    *,
    zoomed: bool = False,
    fault: str = "",
    listed: bool = True,
) -> list[Line]:
    """Return at most `rows` lines: what to do, the newest numbers, what is read and what cannot be, the keys.

    `fault` is what is wrong with a filter; `listed` tells that the place of the list does not say it all.
    """
    told = _folded(fault, cells, -1, "warn", most=2)
    bad = worst(snapshot.digest.incidents)
    if not zoomed:
        if bad is not None and bad.severity != "info" and bad.advice:
            told += _folded(sentence(bad.advice[0]), cells, 2, "bold", most=2)
        numbers = numbers_line(snapshot.digest.metrics, cells)
        told += [_Told(4, numbers)] if numbers else []
    for note in snapshot.digest.notes[:3]:
        told += _folded(sentence(note), cells, 6, "dim", most=2)
    if snapshot.sources:
        told.append(_Told(0, sources_line(snapshot, cells)))
    if listed:
        told += _cannot(snapshot, cells)
    told += _tee(snapshot, cells, can)
    keys: list[Span] = []
    for key, word in hints:
        more: list[Span] = [("  " if keys else "", ""), (key, "key"), (f" {word}", "dim")]
        if sum(width(text) for text, _ in (*keys, *more)) <= cells:
            keys += more
    return _fitting([*told, *([_Told(5, keys)] if keys else [])], rows)


def _fitting(told: Sequence[_Told], rows: int) -> list[Line]:
    """Return as many lines as there are rows; a sentence that lost its end says so."""
    kept = sorted(sorted(range(len(told)), key=lambda at: (told[at].weight, at))[:rows])
    lines: list[Line] = []
    for at in kept:
        line = list(told[at].line)
        if at + 1 < len(told) and told[at + 1].follows and at + 1 not in kept:
            line = [*line, ("…", "dim")]
        lines.append(line)
    return lines


def sources_line(snapshot: LogsSnapshot, cells: int) -> list[Span]:
    """Return how many sources are read, which they are, and how far behind it is."""
    reads = [one for one in snapshot.sources if one.state in _READS]
    waits = sum(one.state == "waiting" for one in snapshot.sources)
    behind = behind_words(snapshot.behind_s)
    role = "warn" if snapshot.behind_s > BEHIND_S else "dim"
    if not reads:
        words = tr("no source is there yet") if waits else tr("nothing is read")
        return [(fit(words, cells), "dim" if waits else "warn")]
    if all(one.state == "ended" for one in reads):
        behind, role = tr("ended"), "dim"
    head = tr("sources {n}: ", n=len(reads))
    room = cells - width(head) - width(behind) - 3
    return [(f"{head}{fit(_names(reads), max(room, 1))}", ""), (f"   {behind}", role)]


def _names(sources: Sequence[Source]) -> str:
    """Return the sources' names; many of a sort under one, and one that waits to be read not at all."""
    grouped: dict[str, int] = {}
    for one in sources:
        name = source_kind(one.kind) if one.kind in _GROUPED else fit_end(source_name(one), 24)
        grouped[name] = grouped.get(name, 0) + 1
    return ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in grouped.items())


def _cannot(snapshot: LogsSnapshot, cells: int) -> list[_Told]:
    """Return the first source that cannot be read, with its reason."""
    bad = [one for one in snapshot.sources if one.state in ("unreadable", "nothing") and one.why is not None]
    if not bad:
        return []
    words = f"{source_name(bad[0])}: {sentence(bad[0].why) if bad[0].why else ''}"
    if len(bad) > 1:
        words += f" ({tr('{n} more', n=len(bad) - 1)})"
    return _folded(words, cells, 1, "warn", most=2)


def _tee(snapshot: LogsSnapshot, cells: int, can: Mapping[str, Command]) -> list[_Told]:
    """Return the key that lets Python's output be read, where it is written to no file."""
    command = can.get("tee")
    outputs = [one for one in snapshot.sources if one.kind in ("stdout", "stderr")]
    if command is None or snapshot.is_teed or all(one.state in _READS for one in outputs):
        return []
    key = command.hotkey or ""
    words = f"{tr(command.title)} ({tr(command.cost)})"
    parts = fold(words, max(cells - width(key) - 2, 8))
    told = [_Told(1, [(key, "key"), (f" {parts[0]}", "dim")])]
    indent = " " * (width(key) + 1)
    return told + [_Told(3, [(indent + one, "dim")], follows=True) for one in parts[1:2]]


def numbers_line(metrics: Sequence[Metric], cells: int) -> list[Span]:
    """Return the newest values, each in its own place; as many as fit."""
    line: list[Span] = []
    taken = 0
    for one in metrics[:12]:
        name, text = fit(plain(one.name), 14), number(one.value)
        gap = "  " if line else ""
        size = width(gap + name) + max(_VALUE, width(text)) + 1
        if taken + size > cells:
            break
        taken += size
        role = {"steady": "", "spike": "warn", "collapsing": "warn"}.get(one.trend, "bad")
        line += [(f"{gap}{name} ", "dim"), (right(text, _VALUE), role)]
    return line


def _folded(text: str, cells: int, weight: int, role: str, most: int = 3) -> list[_Told]:
    """Return a sentence on at most `most` lines, the last one cut; those after the first weigh more."""
    # One cell for the sign that there is more.
    parts = fold(text, max(cells - 1, 8)) if text else []
    if len(parts) > most:
        parts = [*parts[: most - 1], fit(" ".join(parts[most - 1 :]), cells)]
    return [_Told(weight + 2 * (row > 0), [(part, role)], row > 0) for row, part in enumerate(parts)]


# Where there is no incident.


def empty_lines(snapshot: LogsSnapshot, cells: int) -> list[Line]:
    """Say how much was read and where, what of it only looks alarming, and what cannot be read and why."""
    lines: list[Line] = [[(one, "")] for one in fold(read_words(snapshot), max(cells, 8))]
    if snapshot.digest.ignored:
        words = tr("{n} lines look alarming and are known to be harmless.", n=count(snapshot.digest.ignored))
        lines += [[(one, "dim")] for one in fold(words, max(cells, 8))]
    groups = _alike(snapshot.sources)
    for alike in groups[:_MOST_SOURCES]:
        lines += _source_lines(alike, cells)
    if len(groups) > _MOST_SOURCES:
        lines.append([(tr("{n} more", n=len(groups) - _MOST_SOURCES), "dim")])
    return lines


def _alike(sources: Sequence[Source]) -> list[list[Source]]:
    """Return the sources, those together of which the same is to be said."""
    groups: dict[Hashable, list[Source]] = {}
    for one in sources:
        name = "" if one.kind in _GROUPED and one.state in _READS else one.name
        groups.setdefault((one.kind, name, one.state, one.why), []).append(one)
    return list(groups.values())


def _source_lines(alike: Sequence[Source], cells: int) -> list[Line]:
    one = alike[0]
    sign, word, role = SOURCE_STATES.get(one.state, ("?", plain(one.state, 20), ""))
    name = source_name(one)
    if one.kind in _GROUPED:
        place = "" if one.state in _READS else f" {fit_end(plain(one.name), max(cells // 2, 8))}"
        name = f"{source_kind(one.kind)}{place}"
    name += f" ×{len(alike)}" if len(alike) > 1 else ""
    words = f"{name}  {tr(word)}"
    if one.state in _READS:
        words += f"  {byte_size(sum(max(other.read_bytes, 0) for other in alike))}"
    lines: list[Line] = [[(f"{sign} ", role), (fit(words, max(cells - 2, 8)), "")]]
    if one.why is not None:
        lines += [[(f"  {part}", "dim")] for part in fold(sentence(one.why), max(cells - 2, 8))]
    return lines


def read_words(snapshot: LogsSnapshot) -> str:
    """Return how many lines of how many sources had no incident."""
    digest: Digest = snapshot.digest
    reads = sum(one.state in _READS for one in snapshot.sources)
    if digest.lines and reads > 1:
        return tr("No incident in {n} lines of {sources} sources.", n=count(digest.lines), sources=reads)
    if digest.lines:
        return tr("No incident in {n} lines of one source.", n=count(digest.lines))
    if reads:
        return tr("The logs are empty so far.")
    if any(one.state == "waiting" for one in snapshot.sources):
        return tr("No log is there yet.")
    if snapshot.sources:
        return tr("Nothing can be read of what this process writes.")
    return tr("No line has been read yet.")
