"""Words, numbers and moments of the logs pane, as wide each time; `-` is what is not known."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from ascend_tui.plugin import Message
from ascend_tui.text import byte_size, clean, count, digits, msgid, say, tr, width

from ..snapshot import Incident, Source

SEVERITIES = {
    "info": ("·", msgid("info"), "dim"),
    "warning": ("▲", msgid("warn"), "warn"),
    "error": ("!", msgid("error"), "bad"),
    "fatal": ("✕", msgid("fatal"), "bad"),
}
"""Glyph, word and role of a severity, the gravest last."""
CATEGORIES = {
    "oom": msgid("out of memory"),
    "memory_access": msgid("memory access"),
    "numeric": msgid("numbers"),
    "timeout": msgid("timeout"),
    "communication": msgid("communication"),
    "device": msgid("device"),
    "compile": msgid("compiling"),
    "configuration": msgid("configuration"),
    "usage": msgid("usage"),
    "crash": msgid("crash"),
    "other": msgid("other"),
}
TRENDS = {
    "steady": ("=", msgid("steady"), "dim"),
    "not_finite": ("!", msgid("not finite"), "bad"),
    "missing": ("!", msgid("missing"), "bad"),
    "spike": ("▲", msgid("spike"), "warn"),
    "collapsing": ("▲", msgid("collapsing"), "warn"),
    "zero": ("!", msgid("exactly 0"), "bad"),
}
SOURCE_KINDS = {
    "stdout": "stdout",
    "stderr": "stderr",
    "plog": "plog",
    "device_log": msgid("device log"),
    "launcher": msgid("launcher"),
    "open_file": msgid("open file"),
    "glob": msgid("configured"),
    "tee": msgid("tee"),
    "file": msgid("file"),
}
SOURCE_STATES = {
    "reading": ("●", msgid("reading"), "good"),
    "waiting": ("○", msgid("not there yet"), "dim"),
    "ended": ("=", msgid("ended"), "dim"),
    "deleted": ("●", msgid("deleted, still read"), "warn"),
    "unreadable": ("✕", msgid("cannot be read"), "bad"),
    "nothing": ("✕", msgid("nothing to read"), "warn"),
}
UNKNOWN = "-"
BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.:-=+*#"
_MOST = 400
"""Characters of a foreign text that are looked at."""
_DAY_S = 86_400.0


def plain(text: str, most: int = _MOST) -> str:
    """Return a foreign text safe to draw, its middle left out where it is endless."""
    if len(text) > most:
        text = text[: most // 2] + "…" + text[-most // 2 :]
    return clean(text)


def sentence(message: Message) -> str:
    """Return a message in the present language, bounded: what it names may be endless."""
    return plain(say(message), 2 * _MOST)


def fit_end(text: str, cells: int) -> str:
    """Return the end of a text, which tells more of a path than its beginning."""
    if width(text) <= cells:
        return text
    text = text[-max(cells, 1) :]
    while text and width(text) >= cells:
        text = text[1:]
    return "…" + text


def left(text: str, cells: int) -> str:
    """Return a text with blanks behind it up to `cells`."""
    return text + " " * (cells - width(text))


def right(text: str, cells: int) -> str:
    """Return a text with blanks before it up to `cells`."""
    return " " * (cells - width(text)) + text


def severity_of(severity: str) -> tuple[str, str, str]:
    """Return glyph, word in the present language, and role of a severity."""
    sign, word, role = SEVERITIES.get(severity, ("?", plain(severity, 20), ""))
    return sign, tr(word), role


def grade(severity: str) -> int:
    """Return how grave a severity is, 0 for the least and for one that is not known."""
    return list(SEVERITIES).index(severity) if severity in SEVERITIES else 0


def category_word(category: str) -> str:
    """Return the word of a category in the present language."""
    return tr(CATEGORIES[category]) if category in CATEGORIES else plain(category, 20)


def worst(incidents: Sequence[Incident]) -> Incident | None:
    """Return the gravest incident, of several the newest."""
    found: Incident | None = None
    for one in incidents:
        if found is None or (grade(one.severity), when_of(one)) >= (grade(found.severity), when_of(found)):
            found = one
    return found


def when_of(incident: Incident) -> float:
    """Return when an incident was last told of, in Unix seconds; one without a time is the oldest."""
    return incident.last_wall_s if _is_time(incident.last_wall_s) else -math.inf  # type: ignore[return-value]


def _is_time(wall_s: float | None) -> bool:
    return wall_s is not None and math.isfinite(wall_s) and 0 < wall_s < 4e9


def tally(value: float) -> str:
    """Return how often something was, in at most five cells; a step in at most six."""
    return count(value) if abs(value) < 10_000 else _short(value)


def _short(value: float) -> str:
    for unit, name in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if abs(value) < 999.5 * unit:
            return (
                f"{digits(value / unit)}{name}" if abs(value) < 99.95 * unit else f"{value / unit:.0f}{name}"
            )
    return ">999G" if value > 0 else UNKNOWN


def number(value: float | None) -> str:
    """Return a metric's value in few digits, in at most nine cells."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return "NaN" if value != value else "Inf" if value > 0 else "-Inf"
    size = abs(value)
    if value == 0 or 0.01 <= size < 1000:
        return digits(value) if size >= 1 or value == 0 else f"{value:.3g}"
    if 1000 <= size < 999_999.5:
        return count(value)
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def ranks_of(ranks: Sequence[int], world_size: int | None = None, most: int = 4) -> str:
    """Return ranks, neighbours as one range; `all` where they are all there are."""
    each = sorted(set(ranks))
    if world_size is not None and world_size > 1 and len(each) >= world_size:
        return tr("all")
    runs: list[list[int]] = []
    for rank in each:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ",".join(words[:most]) + ("…" if len(words) > most else "")


def ranks_words(ranks: Sequence[int], world_size: int | None = None) -> str:
    """Return on which ranks something was, as words."""
    text = ranks_of(ranks, world_size, 12)
    return tr("rank {ranks}", ranks=text) if len(set(ranks)) == 1 else tr("ranks {ranks}", ranks=text)


def clock(wall_s: float | None, now_s: float = 0.0) -> str:
    """Return a moment in five cells: the time, or the day where it is not of the last 24 hours."""
    if wall_s is None or not _is_time(wall_s):
        return UNKNOWN
    is_near = not now_s or abs(now_s - wall_s) < _DAY_S
    return time.strftime("%H:%M" if is_near else "%m-%d", time.localtime(wall_s))


def moment(wall_s: float | None) -> str:
    """Return a moment with its day: such a run lasts for weeks."""
    if wall_s is None or not _is_time(wall_s):
        return ""
    return time.strftime("%m-%d %H:%M:%S", time.localtime(wall_s))


def last_of(incident: Incident, now_s: float = 0.0) -> str:
    """Return when an incident was last told of: by its lines' clock, else its step, else about when read."""
    step = incident.last_step if incident.last_step is not None else incident.step
    if incident.is_clock_known or step is None:
        at = clock(incident.last_wall_s, now_s)
        return at if incident.is_clock_known or at == UNKNOWN else f"~{at}"
    return count(step) if abs(step) < 100_000 else _short(step)


def spark(values: Sequence[float], cells: int, unicode: bool = True) -> str:
    """Return the newest values as a line of blocks between their extremes; what is not finite is a `!`."""
    newest = list(values[-max(cells, 1) :]) if cells > 0 else []
    drawn = [one for one in newest if math.isfinite(one)]
    low, high = min(drawn, default=0.0), max(drawn, default=0.0)
    blocks = BLOCKS if unicode else _ASCII_BLOCKS
    span = high - low
    text = ""
    for one in newest:
        if not math.isfinite(one):
            text += "!"
        else:
            # The difference of two huge values can be too large for a float.
            part = (one - low) / span if span > 0 and math.isfinite(span) else 0.0
            text += blocks[min(int(part * len(blocks)), len(blocks) - 1)]
    return text


def source_kind(kind: str) -> str:
    """Return what kind of place lines come from, in the present language."""
    return tr(SOURCE_KINDS[kind]) if kind in SOURCE_KINDS else plain(kind, 20)


def source_name(source: Source | None) -> str:
    """Return what a source is called without its folders; standard output and error by their own names."""
    if source is None:
        return ""
    if source.kind in ("stdout", "stderr", "tee"):
        return source_kind(source.kind)
    return plain(source.name).rstrip("/").rpartition("/")[2] or source_kind(source.kind)


def source_at(index: int, sources: Sequence[Source]) -> Source | None:
    """Return the source of a line; None where it is not known any more."""
    return sources[index] if 0 <= index < len(sources) else None


def size_words(source: Source) -> str:
    """Return how much of a source was read, and of how much where more is known to be there."""
    read = byte_size(max(source.read_bytes, 0))
    if source.size_bytes is None or source.size_bytes <= source.read_bytes:
        return read
    return f"{read} / {byte_size(source.size_bytes)}"
