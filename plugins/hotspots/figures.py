"""Numbers, names and bars of the hotspots pane, as wide each time; `-` is what is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ascend_tui.plugin import Message
from ascend_tui.text import clean, count, digits, msgid, say, share, tr, width

from .snapshot import Row, Site

KINDS = {
    "compute": (msgid("compute"), ""),
    "movement": (msgid("move"), "third"),
    "communication": (msgid("comm"), "second"),
    "synchronisation": (msgid("sync"), "warn"),
    "host": (msgid("host"), "dim"),
    "other": (msgid("other"), "dim"),
}
"""The word of a kind in the table, and its role: what is not computing stands out."""
KIND_NAMES = {
    "compute": msgid("compute"),
    "movement": msgid("movement"),
    "communication": msgid("communication"),
    "synchronisation": msgid("synchronisation"),
    "host": msgid("host"),
    "other": msgid("other"),
}
PHASES = {
    "data": msgid("data wait"),
    "forward": msgid("forward"),
    "backward": msgid("backward"),
    "optimizer": msgid("optimizer"),
    "other": msgid("other"),
}
SEVERITIES = {
    "info": ("·", ""),
    "warning": ("▲", "warn"),
    "error": ("!", "bad"),
    "fatal": ("✕", "bad"),
}
UNKNOWN = "-"
CHANGED = 0.1
"""From this share on a change against the baseline has a glyph: under it a step differs from the next."""
_EVALUATES = "autograd::engine::evaluate_function: "
_BLOCKS = " ▁▂▃▄▅▆▇█"
_MOST, _MOST_STACK = 400, 8000
"""Characters of a foreign text that are looked at, and of a stack."""


def plain(text: str, most: int = _MOST) -> str:
    """Return a foreign text safe to draw, its middle left out where it is endless."""
    if len(text) > most:
        text = text[: most // 2] + "…" + text[-most // 2 :]
    return clean(text)


def sentence(message: Message) -> str:
    """Return a message in the present language, bounded: what it names may be endless."""
    return plain(say(message), 2 * _MOST)


def fit_middle(text: str, cells: int) -> str:
    """Return a text whose middle is left out where it is too wide: kernels differ at both ends."""
    if width(text) <= cells:
        return text
    if cells < 4:
        return text[: max(cells, 0)] if text.isascii() else ""
    head, tail = text[:cells], text[-cells:]
    of_tail = (cells - 1) * 2 // 5
    while width(tail) > of_tail:
        tail = tail[1:]
    while width(head) > cells - 1 - width(tail):
        head = head[:-1]
    return f"{head}…{tail}"


def fit_end(text: str, cells: int) -> str:
    """Return the end of a text, which tells more of a path than its beginning."""
    if width(text) <= cells:
        return text
    text = text[-max(cells, 1) :]
    while text and width(text) >= cells:
        text = text[1:]
    return "…" + text


def short_name(name: str) -> str:
    """Return an operator's name without what all of its sort have before it."""
    name = plain(name) or UNKNOWN
    if name.startswith(_EVALUATES):
        return "autograd " + name[len(_EVALUATES) :]
    return name[6:] if name.startswith("aten::") and len(name) > 6 else name


def names(rows: Sequence[Row], most: int) -> str:
    """Return the first operators with their shares, short enough for a line of many."""
    return ", ".join(f"{fit_middle(short_name(one.name), 24)} {per_cent(one.share)}" for one in rows[:most])


def is_amount(value: float | None) -> bool:
    """Tell whether a number can be shown as an amount."""
    return value is not None and math.isfinite(value) and value >= 0


def per_cent(value: float | None) -> str:
    """Return a share as per cent, `-` for what is not known."""
    return share(value) if value is not None and is_amount(value) else UNKNOWN


def micro(value: float | None) -> str:
    """Return microseconds without their unit in at most seven cells."""
    if value is None or not is_amount(value):
        return UNKNOWN
    if value < 99.95:
        return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"
    return count(value) if value < 999_999.5 else _power(value)


def signed_micro(value: float | None) -> str:
    """Return a difference in microseconds with its sign, in at most eight cells."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return ("-" if value < 0 else "+") + micro(abs(value))


def tally(value: float | None) -> str:
    """Return a number of calls in at most six cells; part of one where it is a mean."""
    if value is None or not is_amount(value):
        return UNKNOWN
    if value >= 99_999.5:
        return _power(value)
    return f"{value:.1f}" if value != int(value) and value < 100 else count(value)


def _power(value: float) -> str:
    """Return a number too long for its column by its power of ten: 1.2e6."""
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def span(micros: float | None) -> str:
    """Return a time in its own unit, in three digits."""
    if micros is None or not is_amount(micros):
        return UNKNOWN
    if micros < 999.5:
        return f"{digits(micros)} us"
    return f"{digits(micros / 1e3)} ms" if micros < 999_500 else f"{digits(micros / 1e6)} s"


def ratio_words(ratio: float | None) -> str:
    """Return how much more or less something is, as per cent with its sign."""
    if ratio is None or not math.isfinite(ratio) or ratio < 0:
        return UNKNOWN
    if ratio >= 10:
        return f"×{min(ratio, 9999.0):.0f}"
    return f"{(ratio - 1) * 100:+.0f} %"


def trend_of(row: Row) -> tuple[str, str]:
    """Return the glyph of a change against the baseline, and its role."""
    ratio = row.change.time_ratio if row.change is not None and row.change.sure else math.nan
    if ratio >= 1 + CHANGED:
        return "▲", "warn"
    return ("▼", "good") if ratio <= 1 - CHANGED else (" ", "")


def left(text: str, cells: int) -> str:
    """Return a text with blanks behind it up to `cells`."""
    return text + " " * (cells - width(text))


def right(text: str, cells: int) -> str:
    """Return a text with blanks before it up to `cells`."""
    return " " * (cells - width(text)) + text


def bar(part: float | None, cells: int) -> str:
    """Return a share as a bar; what is there at all is seen."""
    if part is None or not is_amount(part) or cells < 1:
        return ""
    full = min(round(part * cells), cells)
    return "█" * full if full or not part else "▏"


def spark(values: Sequence[float], cells: int) -> str:
    """Return the newest values as a curve from 0 up; from 0, so that a small change looks small."""
    newest = [one if is_amount(one) else 0.0 for one in values[-max(cells, 1) :]]
    most = max(newest, default=0.0)
    if not most:
        return ""
    return "".join(_BLOCKS[max(1, round(one / most * 8))] if one else " " for one in newest)


def place_of(site: Site | None) -> str:
    """Return file and line of a call without the folders; of a stack its innermost line."""
    if site is None:
        return ""
    if site.file:
        return f"{plain(site.file).rpartition('/')[2]}:{site.line or '?'}"
    stack = stack_of(site)
    return stack[0] if stack else plain(site.function)


def stack_of(site: Site) -> list[str]:
    """Return the calls of a stack, the innermost first; profiles set them apart by `;` or by lines."""
    calls = site.stack[:_MOST_STACK].replace("\r", "\n").replace(";", "\n").splitlines()
    return [plain(call.strip()) for call in calls if call.strip()]


def said_share(value: float, of_us: float) -> str:
    """Return a time with its share of another, where that is known."""
    if of_us > 0 and is_amount(value):
        return tr("{time} ({share})", time=span(value), share=per_cent(value / of_us))
    return span(value)
