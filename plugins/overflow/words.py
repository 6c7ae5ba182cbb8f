"""What the overflow pane says beside its stream: the mode, the numbers, the verdict and the next key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Command, Message
from ascend_tui.text import count, digits, fit, fold, msgid, tr, width
from ascend_tui.widgets.quiet import Line, Span

from .figures import right, sentence
from .filtering import steps_of
from .snapshot import Incident, Level, OverflowSnapshot
from .stream import GAP, SEVERITIES, second_line, source_words, title_of, worst
from .values import figure

CLAMPS = Message("this chip clamps: overflow shows as 65,504, not Inf")
LEVELS = {
    "loss": msgid("loss"),
    "gradients": msgid("gradients"),
    "modules": msgid("modules"),
    "ops": msgid("ops"),
}


# The title.


def mode_words(levels: Sequence[Level], ops_steps: int | None, thinning: int, cells: int) -> str:
    """Return what is watched and how often, and why less than was asked for, as far as there is room."""
    if not levels:
        return ""
    on = watched(levels)
    if any(level.name == "ops" for level in on):
        words = tr("ops: {n} steps", n=ops_steps) if ops_steps else tr("ops")
    else:
        words = tr("off") if not on else every_words([one for one in on if one.name != "loss"] or on)
    tries = [words]
    if on and thinning > 1:
        tries.insert(0, f"{words}, {tr('sampling 1/{n}: over budget', n=thinning)}")
    for level in levels:
        if level.why is not None and not level.on:
            name = level_name(level)
            tries.insert(
                0, f"{words} · {tr('{level} off: {reason}', level=name, reason=sentence(level.why))}"
            )
            tries.insert(1, f"{words} · {tr('{level} off', level=name)}")
            break
    return next((text for text in tries if width(text) <= cells), words)


def watched(levels: Sequence[Level]) -> list[Level]:
    """Return the levels that are on."""
    return [level for level in levels if level.on]


def every_words(levels: Sequence[Level]) -> str:
    """Return the levels with how often they look, once where that is the same for all."""
    rates = {level.every for level in levels}
    if len(rates) == 1:
        return " + ".join(level_name(level) for level in levels) + _ratio(levels[0])
    return " + ".join(level_name(level) + _ratio(level) for level in levels)


def each_words(levels: Sequence[Level]) -> str:
    """Return the levels for a sentence, each with how often it looks."""
    return ", ".join(level_name(level) + _ratio(level) for level in levels)


def _ratio(level: Level) -> str:
    return f" 1/{count(level.every)}" if level.every > 1 else ""


def level_name(level: Level) -> str:
    return tr(LEVELS.get(level.name, level.name))


# The numbers.

_FIGURES = 9


def numbers_line(snapshot: OverflowSnapshot, cells: int) -> Line:
    """Return loss, gradient norm, scale and skipped steps, each in its own place; as many as fit."""
    values = [
        (msgid("loss"), snapshot.loss),
        (msgid("grad norm"), snapshot.grad_norm),
        (msgid("scale"), snapshot.scale),
    ]
    parts: list[tuple[str, str, str]] = []
    for name, value in values:
        if value is not None:
            role = "bad" if value != value or value in (float("inf"), float("-inf")) else ""
            parts.append((tr(name), _steady(value), role))
    if snapshot.scale is not None or snapshot.skipped:
        parts.append((tr("skipped"), count(snapshot.skipped), ""))
    line: list[Span] = []
    taken = 0
    for name, text, role in parts:
        gap = GAP if line else ""
        size = width(gap + name) + max(_FIGURES, width(text) + 1)
        if taken + size > cells:
            break
        taken += size
        line += [(f"{gap}{name}", "dim"), (right(text, max(_FIGURES, width(text) + 1)), role)]
    return line


def _steady(value: float) -> str:
    """Return a number in as many digits each time, so that they do not jump about."""
    return digits(value) if 0.01 <= abs(value) < 1000 else figure(value)


# The last lines.


@frozen
class _Told:
    """A line to show: the heavier, the sooner it is given up; one that `follows` goes on with a sentence."""

    weight: int
    line: Sequence[Span]
    follows: bool = False


def closing_lines(
    snapshot: OverflowSnapshot, cells: int, rows: int, can: Mapping[str, Command], zoomed: bool = False
) -> list[Line]:
    """Return at most `rows` lines: the state, what it cannot see, and the next key at the very end.

    `zoomed` tells that the incident is told beside them, or the levels: nothing is said twice.
    """
    bad = worst(snapshot.incidents)
    told = _state(snapshot, bad, cells, can)
    if bad is not None and bad.severity != "info" and not zoomed and bad.advice:
        told += _folded(sentence(bad.advice[0]), cells, 3, "bold", most=2)
    for level in snapshot.levels:
        if level.why is not None and (snapshot.incidents or not zoomed):
            words = msgid("{level}: {reason}") if level.on else msgid("{level} cannot be watched: {reason}")
            told += _folded(
                tr(words, level=level_name(level), reason=sentence(level.why)), cells, 4, "warn", most=2
            )
    if snapshot.saturates and (snapshot.incidents or not zoomed):
        told += _folded(sentence(CLAMPS), cells, 4, "warn")
    for note in (*snapshot.notes, *snapshot.unseen):
        told += _folded(sentence(note), cells, 6, "dim", most=2)
    if snapshot.incidents or not any(level.on for level in snapshot.levels):
        told += _keys(snapshot, bad, cells, can)
    return _fitting(told, rows)


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


def _state(
    snapshot: OverflowSnapshot, bad: Incident | None, cells: int, can: Mapping[str, Command]
) -> list[_Told]:
    if bad is None or bad.severity == "info":
        if not snapshot.steps_watched:
            return _folded(tr("No step has been looked at yet."), cells, 0, "dim", most=2)
        words = tr("No overflow in {n} steps.", n=count(snapshot.steps_watched))
        on = watched(snapshot.levels)
        if bad is not None:
            return _folded(f"= {words}", cells, 0, "good", most=1)
        if on:
            words += " " + tr("Watching {what}.", what=each_words(on))
        modules = next((level for level in snapshot.levels if level.name == "modules"), None)
        if "modules" in can and (modules is None or not (modules.on or modules.why)):
            command = can["modules"]
            words += " " + tr(
                "Press {key} to watch modules ({cost}).", key=command.hotkey or "", cost=tr(command.cost)
            )
        return _folded(words, cells, 0, "")
    sign, _, role = SEVERITIES[bad.severity]
    first, last = steps_of(bad)
    when = tr("at step {step}", step=count(last))
    if first != last:
        when = tr("since step {step}", step=count(first))
    title = fit(f"{sign} {title_of(bad, cells - width(when) - 5)}", cells)
    source = source_words(bad, 80)
    source = f"   {source}" if source and width(f"{title}   {when}   {source}") <= cells else ""
    return [_Told(0, [(title, role), (f"   {when}", "dim"), (source, "")])]


def _keys(
    snapshot: OverflowSnapshot, bad: Incident | None, cells: int, can: Mapping[str, Command]
) -> list[_Told]:
    """Return the keys that do something now, each with what it does and costs, the most useful first.

    A cost that is too long for its line goes on in the next one: it is what a user has to know.
    """
    refused = {level.name for level in snapshot.levels if level.why is not None and not level.on}
    on = {level.name for level in watched(snapshot.levels)}
    serious = bad is not None and bad.severity != "info"
    order = ("ops", "modules") if serious or "modules" in on else ("modules", "ops")
    line: list[Span] = []
    more: list[_Told] = []
    taken = 0
    for name in order:
        command = can.get(name)
        if command is None or name in on or name in refused:
            continue
        key, gap = command.hotkey or "", GAP if line else ""
        words = f" {tr(command.title)} ({tr(command.cost)})"
        size = width(gap + key + words)
        if taken + size > cells:
            if line:
                continue
            first, *rest = _folded(words.strip(), cells - width(key) - 1, 1, "dim", most=2)
            line = [(key, "key"), (" ", ""), *first.line]
            more = [_Told(3, [(" " * (width(key) + 1), ""), *one.line], follows=True) for one in rest]
        else:
            line += [(gap, ""), (key, "key"), (words, "dim")]
        taken += size
    return [_Told(1, line), *more] if line else []


def _folded(text: str, cells: int, weight: int, role: str, most: int = 3) -> list[_Told]:
    """Return a sentence on at most `most` lines, the last one cut; those after the first weigh more."""
    # One cell for the sign that there is more.
    parts = fold(text, max(cells - 1, 8)) if text else []
    if len(parts) > most:
        parts = [*parts[: most - 1], fit(" ".join(parts[most - 1 :]), cells)]
    return [_Told(weight + 2 * (number > 0), [(part, role)], number > 0) for number, part in enumerate(parts)]


def summary_words(snapshot: OverflowSnapshot) -> str:
    """Return the snapshot in one line; without an incident it stays the same, so that it costs nothing."""
    bad = worst(snapshot.incidents)
    if bad is None or bad.severity == "info":
        if not snapshot.steps_watched:
            return tr("no step has been looked at yet")
        on = watched(snapshot.levels)
        return tr("no overflow; watching {what}", what=each_words(on)) if on else tr("no overflow so far")
    sign, word, _ = SEVERITIES[bad.severity]
    words = f"{sign} {tr(word)} {count(bad.step)}  {title_of(bad, 60)}"
    words += f"  ×{count(bad.count)}" if bad.count > 1 else ""
    return f"{words}   {second_line(bad, 80)}".rstrip()
