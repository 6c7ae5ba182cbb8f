"""Who holds it: the allocation sites as a table, and the first of them as one line."""

from __future__ import annotations

from ascend_tui.text import byte_size, clean, count, fit, fold, msgid, say, tr, width
from ascend_tui.widgets.quiet import Line, Span

from .snapshot import Holders, Site

_HOW = {
    "allocator history": msgid("by the allocator's history"),
    "weak references": msgid("by weak references"),
}
_RATE, _LIVE, _COUNT, _AGE = 12, 10, 8, 11
_PLACE_SHARE = 0.6
_WIDE, _MIDDLE = 90, 60
_STACK_LINES = 8
_INDENT = "  "


def lines_of(holders: Holders, cells: int) -> list[Line]:
    """Return the table, its head above it and the stack of the first site below it."""
    lines = _said(_head(holders), cells, "bold")
    if holders.phase == "done" and holders.why is not None:
        lines += _said(say(holders.why), cells, "dim")
    if not holders.sites:
        if holders.phase == "done":
            lines += _said(tr("nothing that these steps allocated is still held"), cells, "dim")
        return lines
    lines.append(_titles(cells))
    for site in holders.sites:
        lines.append(_row(site, cells))
        if site.cause is not None:
            lines += _said(f"↳ {say(site.cause)}", cells, "warn", _INDENT)
        if site.held_by:
            lines += _said(f"↳ {tr('held by {what}', what=clean(site.held_by))}", cells, "dim", _INDENT)
    if holders.others_bytes > 0:
        lines += _said(
            tr("all other sites: {size} alive", size=byte_size(holders.others_bytes)), cells, "dim"
        )
    stack = holders.sites[0].stack[:_STACK_LINES]
    if len(stack) > 1:
        lines += _said(tr("the first is allocated here, innermost call first:"), cells, "dim")
        lines += [[(_INDENT + fit_end(clean(frame), cells - 2), "dim")] for frame in stack]
    return lines


def _said(text: str, cells: int, role: str, indent: str = "") -> list[Line]:
    return [[(indent + part, role)] for part in fold(text, max(cells - width(indent), 8))]


def first_site(holders: Holders, cells: int) -> list[Span]:
    """Return where the most is kept, in one line; while that is not known, what is done about it."""
    if holders.phase == "refused":
        return [(fit(_head(holders), cells), "warn")]
    if not holders.sites or not holders.sites[0].bytes_per_step > 0:
        return [(fit(_head(holders), cells), "dim")] if holders.phase == "collecting" else []
    site = holders.sites[0]
    rate = f"  {_rate(site)}"
    return [(fit_end(place_of(site), max(cells - width(rate), 8)), "bold"), (rate, "")]


def place_of(site: Site) -> str:
    """Return file, line and function of a site, without the folders."""
    if not site.file:
        return clean(site.function)
    where = f"{clean(site.file).rpartition('/')[2]}:{site.line}"
    return f"{where} {clean(site.function)}" if site.function else where


def fit_end(text: str, cells: int) -> str:
    """Return the end of a text, which tells more of a path than its beginning."""
    if width(text) <= cells:
        return text
    text = text[-max(cells, 1) :]
    while text and width(text) >= cells:
        text = text[1:]
    return "…" + text


def _head(holders: Holders) -> str:
    if holders.phase == "refused":
        return tr("who holds it: {reason}", reason=say(holders.why) if holders.why else tr("refused"))
    if holders.phase == "collecting":
        return tr("who holds it: looking at {n} steps", n=count(holders.steps))
    how = _HOW.get(holders.how)
    return tr(
        "who holds what the {n} steps up to step {step} allocated, {how}",
        n=count(holders.steps),
        step=count(holders.step),
        how=tr(how) if how else holders.how,
    )


def _rate(site: Site) -> str:
    sign = "-" if site.bytes_per_step < 0 else "+"
    return tr("{rate}/step", rate=sign + byte_size(abs(site.bytes_per_step)))


def _columns(cells: int) -> tuple[int, int, bool, bool]:
    """Return the cells of place and function, and whether live and the counts are shown."""
    wide, middle = cells >= _WIDE, cells >= _MIDDLE
    rest = cells - _RATE - 2 - (_LIVE if middle else 0) - (_COUNT + _AGE if wide else 0)
    place = int(rest * _PLACE_SHARE) if middle else rest
    return max(place, 4), max(rest - place - 1, 0), middle, wide


def _titles(cells: int) -> Line:
    words = (tr("site"), tr("function"), tr("a step"), tr("alive"), tr("blocks"), tr("age, steps"))
    return [(_laid(words, cells), "dim")]


def _row(site: Site, cells: int) -> Line:
    sign = "-" if site.bytes_per_step < 0 else "+"
    place = fit_end(f"{clean(site.file)}:{site.line}" if site.file else "?", _columns(cells)[0])
    rate = sign + byte_size(abs(site.bytes_per_step))
    numbers = (byte_size(site.live_bytes), count(site.live_count), count(site.age_steps))
    return _laid((place, clean(site.function), rate, *numbers), cells)


def _laid(words: tuple[str, str, str, str, str, str], cells: int) -> str:
    place, function, middle, wide = _columns(cells)
    text = _left(words[0], place)
    if middle:
        text += " " + _left(words[1], function)
    text += _right(words[2], _RATE)
    if middle:
        text += _right(words[3], _LIVE)
    if wide:
        text += _right(words[4], _COUNT) + _right(words[5], _AGE)
    return text


def _left(text: str, cells: int) -> str:
    text = fit(text, cells)
    return text + " " * (cells - width(text))


def _right(text: str, cells: int) -> str:
    text = fit(text, cells - 1)
    return " " * (cells - width(text)) + text
