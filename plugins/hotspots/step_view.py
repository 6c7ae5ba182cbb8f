"""The story of the whole step: its parts, the device, synchronising calls, uneven steps, every finding."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ascend_tui.plugin import Message
from ascend_tui.text import count, fit, tr, width
from ascend_tui.widgets.quiet import Line

from .figures import (
    PHASES,
    SEVERITIES,
    bar,
    fit_end,
    fit_middle,
    left,
    per_cent,
    place_of,
    plain,
    right,
    said_share,
    sentence,
    short_name,
    span,
    tally,
)
from .snapshot import Finding, HotspotsSnapshot, Site
from .table_view import folded
from .words import CLOCKS, jitter_words

_BAR = 24
_MOST_SYNCS, _MOST_OUTLIERS, _MOST_FINDINGS, _SENTENCES = 12, 8, 12, 8


def lines_of(snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
    """Return the whole story for a width of `cells`."""
    step = "" if snapshot.step is None else f" {count(snapshot.step)}"
    lines = folded(tr("The whole step") + step, cells, "bold")
    lines += folded(" · ".join(_facts(snapshot)), cells, "dim")
    lines += part(tr("Where its time goes"), _phases(snapshot, cells) + _outside(snapshot, cells))
    lines += part(tr("The device"), _device(snapshot, cells))
    lines += part(tr("Calls that wait for the device"), _syncs(snapshot, cells))
    lines += part(tr("How even the steps are"), _jitter(snapshot, cells))
    lines += part(tr("What is worth knowing"), findings_lines(snapshot.findings, cells))
    lines += part(tr("What cannot be seen"), listed(snapshot.missing, cells))
    return lines + part(tr("What to bear in mind"), _limits(snapshot, cells))


def part(title: str, lines: Sequence[Line]) -> list[Line]:
    """Return a part of a story under its title, and nothing of one that is empty."""
    return ["", [(title, "bold")], *lines] if lines else []


def listed(messages: Sequence[Message], cells: int) -> list[Line]:
    """Return sentences, each with a dot before it."""
    lines: list[Line] = []
    for message in messages[:_SENTENCES]:
        lines += folded(f"· {sentence(message)}", cells, indent=2)
    return lines


def site_words(site: Site | None, cells: int) -> str:
    """Return file, line and function of a call, the end of them where they are too long."""
    if site is None:
        return tr("line not known")
    function = fit_middle(plain(site.function), 40)
    where = place_of(site)
    return fit_end(f"{where} {function}" if function and function != where else where, max(cells, 8))


def findings_lines(findings: Sequence[Finding], cells: int) -> list[Line]:
    """Return findings with what they rest on and what can be done, the gravest first."""
    order = list(SEVERITIES)
    ranked = sorted(findings, key=lambda one: -order.index(one.severity) if one.severity in order else 0)
    lines: list[Line] = []
    for one in ranked[:_MOST_FINDINGS]:
        sign, role = SEVERITIES.get(one.severity, ("?", ""))
        lines += folded(f"{sign} {sentence(one.headline)}", cells, role or "bold", indent=2)
        for message in one.evidence[:_SENTENCES]:
            lines += [_shifted(line) for line in folded(message, cells - 2, "dim", indent=2)]
        for message in one.advice[:_SENTENCES]:
            lines += [_shifted(line) for line in folded(f"→ {sentence(message)}", cells - 2, "", indent=2)]
    if len(ranked) > _MOST_FINDINGS:
        lines.append([(tr("{n} more", n=count(len(ranked) - _MOST_FINDINGS)), "dim")])
    return lines


def _shifted(line: Line) -> Line:
    return [("  ", ""), *([(line, "")] if isinstance(line, str) else line)]


def _facts(snapshot: HotspotsSnapshot) -> list[str]:
    words = []
    if snapshot.step_time_us > 0:
        words.append(tr("{time} long", time=span(snapshot.step_time_us)))
    if snapshot.rows:
        words.append(tr(CLOCKS[snapshot.clock]))
    if snapshot.source:
        words.append(tr("taken by {source}", source=fit(plain(snapshot.source), 40)))
    if snapshot.wall_s > 0:
        words.append(time.strftime("%m-%d %H:%M:%S", time.localtime(min(snapshot.wall_s, 4e9))))
    if snapshot.baseline_step is not None:
        words.append(tr("compared with step {step}", step=count(snapshot.baseline_step)))
    return words


def _phases(snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
    """Return the parts of the step as bars under each other."""
    phases = snapshot.phases
    if not phases:
        return []
    titles = [tr(PHASES.get(one.name, one.name)) for one in phases]
    most = max(width(title) for title in titles)
    size = max(min(_BAR, cells - most - 22), 0)
    lines: list[Line] = []
    if snapshot.phases_of > 1:
        lines += folded(tr("on average of the newest {n} samples", n=snapshot.phases_of), cells, "dim")
    for title, one in zip(titles, phases):
        text = f"{left(title, most)}{right(per_cent(one.share), 9)}{right(span(one.time_us), 9)}  "
        lines.append([(text, ""), (bar(one.share, size), "first")])
    return lines


def _outside(snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
    if not snapshot.outside_us > 0:
        return []
    time_of = said_share(snapshot.outside_us, snapshot.step_time_us)
    words = tr("in no operator at all: {time}, that is Python or waiting for data", time=time_of)
    return folded(words, cells, "dim")


def _device(snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
    device = snapshot.device
    if device is None:
        return []
    whole = device.busy_us + device.idle_us
    lines: list[Line] = []
    words = [
        tr("busy {time}", time=said_share(device.busy_us, whole)),
        tr("idle {time}", time=said_share(device.idle_us, whole)),
    ]
    if device.communication_us > 0:
        words.append(tr("communication {time}", time=said_share(device.communication_us, whole)))
    if device.kernels:
        words.append(tr("{n} kernels", n=count(device.kernels)))
    lines += folded(" · ".join(words), cells)
    if device.host_bound_share is not None:
        text = tr(
            "host-bound {share}: idle while the host neither waited for data nor for the device",
            share=per_cent(device.host_bound_share),
        )
        lines += folded(text, cells, "bold")
    more = []
    if device.longest_idle_us > 0:
        more.append(tr("longest gap {time}", time=span(device.longest_idle_us)))
    if device.short_waits:
        more.append(tr("{n} gaps under 0.1 ms that a synchronising call ended", n=count(device.short_waits)))
    return lines + folded(" · ".join(more), cells, "dim")


def _syncs(snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
    if not snapshot.syncs:
        if snapshot.runs_on == "cpu":
            return []
        return folded(tr("none in this step"), cells, "dim") if snapshot.syncs_known else []
    lines: list[Line] = []
    for one in snapshot.syncs[:_MOST_SYNCS]:
        numbers = f"{right(tr('{n}/step', n=tally(one.calls)), 11)}{right(span(one.time_us), 9)}  "
        op = left(fit_middle(short_name(one.op), 18), 18)
        place = site_words(one.site, cells - width(op + numbers))
        lines.append([(op, ""), (numbers, ""), (place, "bold" if one.site else "dim")])
    if len(snapshot.syncs) > _MOST_SYNCS:
        lines.append([(tr("{n} more", n=count(len(snapshot.syncs) - _MOST_SYNCS)), "dim")])
    return lines


def _jitter(snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
    jitter = snapshot.jitter
    if jitter is None or jitter.steps < 1:
        return []
    lines = folded(jitter_words(snapshot), cells)
    for one in jitter.outliers[-_MOST_OUTLIERS:]:
        words = tr(
            "step {step}: {time}, {ratio} of the median",
            step=count(one.step),
            time=span(one.duration_s * 1e6),
            ratio=f"×{one.ratio:.1f}",
        )
        cause = sentence(one.cause) if one.cause is not None else tr("cause not known")
        lines += folded(f"· {words}: {cause}", cells, "", indent=2)
    return lines


def _limits(snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
    sampling = snapshot.sampling
    lines: list[Line] = []
    if sampling.why is not None:
        lines += folded(
            tr("no step can be looked at: {reason}", reason=sentence(sampling.why)), cells, "warn"
        )
    if sampling.samples:
        share = sampling.amortised_share
        cost = tr("not measured yet") if share is None else f"{share * 100:.2f} %"
        words = tr(
            "steps looked at: {n}; their cost over all steps: {cost}", n=count(sampling.samples), cost=cost
        )
        if sampling.pause_us > 0:
            words += "; " + tr("the last one held the training up by {time}", time=span(sampling.pause_us))
        lines += folded(f"· {words}", cells, indent=2)
    has_device = snapshot.device is not None or snapshot.runs_on not in ("", "cpu")
    if snapshot.rows and snapshot.clock == "host" and has_device:
        text = tr("times are those of the host inside each call, not those of the kernels")
        lines += folded(f"· {text}", cells, indent=2)
    return lines + listed(snapshot.notes, cells)
