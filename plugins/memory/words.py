"""What the memory pane says in words: the verdict, the forecast, the reason, and what would settle it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Command
from ascend_tui.text import (
    byte_size,
    byte_unit,
    count,
    digits,
    duration,
    fold,
    msgid,
    say,
    share,
    tr,
    width,
)
from ascend_tui.widgets.quiet import Line, Span

from .amounts import word
from .holders_view import first_site
from .snapshot import Forecast, MemorySnapshot, Oom, Ours, Reuse, Verdict
from .when import forecast_words, range_words, steps_words

_VERDICTS = {
    "steady": ("=", msgid("steady"), "good"),
    "leak": ("▲", msgid("leak"), "bad"),
    "cache": ("·", msgid("cache, not a leak"), ""),
    "fragmentation": ("▲", msgid("fragmentation"), "warn"),
    "buffer_growth": ("▲", msgid("growing buffers"), "warn"),
    "external": ("▲", msgid("another process grows"), "warn"),
    "host_leak": ("▲", msgid("host memory leak"), "bad"),
    "capacity": ("!", msgid("near capacity"), "bad"),
    "undecided": ("?", msgid("undecided"), "dim"),
}
_OOMS = {
    "capacity": msgid("the device is too small for this"),
    "fragmentation": msgid("fragmentation"),
    "external": msgid("others use the device"),
    "leak": msgid("a leak used it up"),
}
_OFF = {
    "empty_cache": msgid("reuse across steps off"),
    "malloc_trim": msgid("trimming each step"),
}
_SURE, _LIKELY = 0.85, 0.5
_UNSETTLED = ("leak", "host_leak", "undecided", "buffer_growth", "fragmentation")
"""Verdicts that reuse switched off makes surer."""
_LAST = 9


def lines_of(
    snapshot: MemorySnapshot, cells: int, rows: int, now: int | None, can: Mapping[str, Command]
) -> list[Line]:
    """Return at most `rows` lines for a width of `cells`, the most telling ones if not all fit.

    `now` is the present step; `can` holds the commands that a key would start now, by name.
    """
    reason = say(snapshot.verdict.reason)
    if rows == 1:
        head = _oom_head(snapshot.oom) if snapshot.oom else _short(snapshot)
        more = forecast_words(snapshot.forecast, now, cells - _cells(head) - 3) or reason
        return [[*head, (f"   {more}", "dim")]]
    # In the order of reading.
    told: list[_Told] = [] if snapshot.oom is None else _of_oom(snapshot.oom, cells)
    told.append(_Told(0, verdict_line(snapshot, cells)))
    told += _of_forecast(snapshot.forecast, now, cells)
    told += _folded(reason, cells, 3, "", rest=5)
    if snapshot.holders is not None and (site := first_site(snapshot.holders, cells - 2)):
        told.append(_Told(2, [("  ", ""), *site]))
    if snapshot.revision is not None:
        was = _VERDICTS[snapshot.revision.was][1]
        told.append(_Told(6, [("  " + _until(tr(was), snapshot.revision.step), "dim")]))
    if snapshot.ours is not None:
        told += _folded(_ours(snapshot.ours, snapshot.lead), cells, 6, "dim")
    for weight, hint in zip((4, 6, 7), _hints(snapshot, can)):
        told += _folded(hint, cells, weight, "dim")
    return _fitting(told, rows)


@frozen
class _Told:
    """A line to show: the heavier, the sooner it is given up; one that `follows` goes on with a sentence."""

    weight: int
    line: Line
    follows: bool = False


def _fitting(told: Sequence[_Told], rows: int) -> list[Line]:
    """Return as many lines as there are rows; a sentence that lost its end says so."""
    kept = sorted(range(len(told)), key=lambda at: (told[at].weight, at))[:rows]
    lines: list[Line] = []
    for at in sorted(kept):
        line = told[at].line
        if at + 1 < len(told) and told[at + 1].follows and at + 1 not in kept:
            line = [*line, ("…", "dim")] if not isinstance(line, str) else line + "…"
        lines.append(line)
    return lines


def verdict_line(snapshot: MemorySnapshot, cells: int) -> list[Span]:
    """Return verdict, slope with its interval, and since when: as much of it as fits."""
    head = _head(snapshot.verdict)
    since = snapshot.verdict.since_step
    when = "" if since is None else "  " + tr("since step {step}", step=count(since))
    # Since when is worth more than how exactly the slope is known.
    for tail in (when, ""):
        for rate in _rates(snapshot) or [""]:
            line = [head, (f"   {rate}" if rate else "", ""), (tail, "dim")]
            if _cells(line) <= cells:
                return line
    return [head]


def summary_words(snapshot: MemorySnapshot, now: int | None) -> str:
    """Return what the one line of a pane without room says of the verdict."""
    head = _oom_head(snapshot.oom) if snapshot.oom else _short(snapshot)
    words = "".join(text for text, _ in head).strip()
    forecast = forecast_words(snapshot.forecast, now, 24)
    return f"{words}   {forecast}" if forecast else words


def _of_forecast(forecast: Forecast | None, now: int | None, cells: int) -> list[_Told]:
    """Return the forecast in one line; where its step does not fit, that is a second one."""
    words = forecast_words(forecast, now, cells - 2)
    if forecast is None or not words:
        return []
    told = [_Told(2, [(f"  {words}", "")])]
    steps = steps_words(forecast, now)
    if steps not in words:
        told.append(_Told(7, [(f"  {tr('at step {step}', step=steps)}", "")]))
    return told


def reuse_words(reuse: Reuse, cells: int) -> str:
    """Return what is done about the allocator's reuse, by what means and at what cost; short if need be."""
    if reuse.state == "none":
        return ""
    if reuse.state == "on":
        return tr("reuse on")
    if reuse.at_launch:
        tries = [
            tr("reuse off at launch: counters blind, curve is the card"),
            tr("reuse off at launch"),
        ]
    else:
        name = tr(_OFF.get(reuse.how, msgid("reuse off")))
        if reuse.every > 1:
            name = tr("{mode} in one of {n} steps", mode=name, n=reuse.every)
        spent = "" if reuse.cost_us is None else tr("{time}/step", time=_micros(reuse.cost_us))
        if reuse.every > 1 and spent:
            spent = tr("{time} each time", time=_micros(reuse.cost_us or 0.0))
        slower = "" if reuse.slower is None else f"×{reuse.slower:.2f}"
        means = ", ".join(part for part in (reuse.how, spent, slower) if part)
        paid = ", ".join(part for part in (spent, slower) if part)
        tries = [f"{name}: {part}" for part in (means, paid, slower) if part] + [name]
    return next((text for text in tries if width(text) <= cells), tr("reuse off"))


def _head(verdict: Verdict) -> Span:
    sign, name, role = _VERDICTS[verdict.kind]
    sure = "" if verdict.kind == "undecided" else f", {_sureness(verdict)}"
    return f"{sign} {tr(name)}{sure}", role


def _short(snapshot: MemorySnapshot) -> list[Span]:
    rates = _rates(snapshot)
    return [_head(snapshot.verdict), *([(f"   {rates[-1]}", "")] if rates else [])]


def _sureness(verdict: Verdict) -> str:
    if verdict.confidence >= _SURE:
        return tr("sure ({share})", share=share(verdict.confidence))
    return tr("likely") if verdict.confidence >= _LIKELY else tr("possible")


def _rates(snapshot: MemorySnapshot) -> list[str]:
    """Return the slope in words, the longest first."""
    slope = snapshot.slope
    if slope is None:
        rate = snapshot.slope_bytes_per_step
        return [] if rate is None or not abs(rate) >= 1 else [tr("{rate}/step", rate=_signed(rate))]
    name = "" if slope.quantity == snapshot.lead else f"{word(slope.quantity)} "
    if snapshot.verdict.kind == "steady" and slope.low <= 0 <= slope.high:
        bound = max(-slope.low, slope.high)
        return [tr("flat within {rate}/step", rate=byte_size(bound))] if bound >= 1 else []
    if not abs(slope.bytes_per_step) >= 1:
        return []
    words = name + tr("{rate}/step", rate=_signed(slope.bytes_per_step))
    divisor, unit = byte_unit(slope.bytes_per_step)
    low, high = slope.low / divisor, slope.high / divisor
    apart = digits(max(slope.high - slope.bytes_per_step, slope.bytes_per_step - slope.low) / divisor)
    about = f"{_signed(slope.bytes_per_step).partition(' ')[0]} ±{apart} {unit}"
    ranged = f"{words} ({range_words(digits(low), digits(high))})"
    return [ranged, name + tr("{rate}/step", rate=about), words]


def _signed(rate: float) -> str:
    return ("+" if rate > 0 else "-") + byte_size(abs(rate))


def _micros(micros: float) -> str:
    if micros < 1000:
        return f"{micros:.0f} µs"
    return f"{micros / 1e3:.{1 if micros < 1e4 else 0}f} ms" if micros < 1e6 else duration(micros / 1e6)


def _ours(ours: Ours, lead: str) -> str:
    """Return what a check of ours has added, which is left out of the verdict."""
    name = "" if ours.quantity == lead else f"{word(ours.quantity)} "
    size = "+" + byte_size(ours.bytes)
    said = tr(
        "{size} while {command} ran at step {step}: not counted as growth",
        size=size,
        command=ours.command,
        step=count(ours.step),
    )
    return name + said


def _until(was: str, step: int | None) -> str:
    if step is None:
        return tr("was {verdict} before", verdict=was)
    return tr("was {verdict} until step {step}", verdict=was, step=count(step))


def _hints(snapshot: MemorySnapshot, can: Mapping[str, Command]) -> list[str]:
    """Return what would make the verdict surer or tell more, the best first; only keys that do something."""
    verdict, hints = snapshot.verdict, []
    keys = {command.hotkey for command in can.values()}
    # A table that is there needs no key any more.
    keys -= {can[name].hotkey for name in ("holders", "segments") if name in can and getattr(snapshot, name)}
    asked = None if verdict.settles is None else dict(verdict.settles.params).get("key")
    if verdict.settles is not None and (asked is None or asked in keys):
        hints.append(say(verdict.settles))
    reuse = can.get("reuse")
    if reuse and snapshot.reuse.state != "off" and verdict.kind in _UNSETTLED and asked != reuse.hotkey:
        hint = msgid("reuse on: press {key}, only what still climbs is a leak")
        if snapshot.device == "cpu":
            hint = msgid("press {key}: only what still climbs then is a leak")
        hints.append(tr(hint, key=reuse.hotkey or ""))
    holders = can.get("holders")
    if holders and holders.hotkey in keys - {asked} and verdict.kind in ("leak", "host_leak"):
        hints.append(tr("press {key}: who holds it", key=holders.hotkey or ""))
    return hints


def _oom_head(oom: Oom) -> list[Span]:
    words = "! " + tr("out of memory")
    if oom.step is not None:
        words += " " + tr("at step {step}", step=count(oom.step))
    if oom.kind in _OOMS:
        words += f": {tr(_OOMS[oom.kind])}"
    return [(words, "bad")]


def _of_oom(oom: Oom, cells: int) -> list[_Told]:
    """Return the moment of the error: its cause, its numbers, and what to do about it."""
    told = [_Told(1, _oom_head(oom))]
    told += _folded(say(oom.reason), cells, 1, "", rest=4)
    numbers = [
        (msgid("asked for"), oom.requested_bytes),
        (msgid("free"), oom.free_bytes),
        (msgid("allocated"), oom.allocated_bytes),
        (msgid("reserved"), oom.reserved_bytes),
        (msgid("outside torch"), oom.outside_bytes),
        (msgid("in all"), oom.total_bytes),
    ]
    rows = [""]
    for number in (f"{tr(name)} {byte_size(value)}" for name, value in numbers if value is not None):
        if rows[-1] and width(rows[-1]) + 4 + width(number) > cells:
            rows.append("")
        rows[-1] += f"  {number}"
    told += [_Told(6, [(row, "dim")]) for row in rows if row]
    if oom.advice is not None:
        told += _folded(say(oom.advice), cells, 2, "bold", rest=4)
    return told


def _folded(text: str, cells: int, weight: int, role: str, rest: int = _LAST) -> list[_Told]:
    """Return a sentence on as many lines as it needs; those after the first have the weight `rest`."""
    # One cell for the indentation's second, one for the sign that there is more.
    parts = fold(text, max(cells - 3, 8)) if text else []
    return [
        _Told(rest if number else weight, [(f"  {part}", role)], follows=number > 0)
        for number, part in enumerate(parts)
    ]


def _cells(spans: Sequence[Span]) -> int:
    return sum(width(text) for text, _ in spans)
