"""Lines that tell of a loss scale in words: a skipped step, a lowered scale, an update in spite of it."""

from __future__ import annotations

import re

from ascend_tui.frozen import frozen

LONGEST = 4096
"""Characters of a line that are looked at: these messages are short."""
_NUMBER = r"([-+]?(?:\d{1,24}(?:\.\d{0,24})?|\.\d{1,24})(?:e[-+]?\d{1,4})?|nan|inf)"
_SKIPPED = re.compile(
    r"(?:(?:\b|(?<=step))grad(?:ient)?s?[ _]overflow|overflow!|\boverflow detected|\bfound overflow)"
    r"[^\n]{0,48}?(?:skipping|skipped|\bskip\b|ignoring)"
    r"|\boverflow, drop\w*|\bAMP: overflow detected|\bfound inf or nan, current scale"
    r"|溢出[^\n]{0,16}?跳过|跳过[^\n]{0,16}?溢出",
    re.IGNORECASE,
)
_STILL = re.compile(
    r"\boverflow\b[^\n]{0,24}?\bstill update|溢出[^\n]{0,16}?(?:仍然?|继续)更新", re.IGNORECASE
)
_TO = r"[\s:=]{0,4}(?:to[\s:]{0,4}){0,2}"
_LOWERED = re.compile(
    r"\b(?:reduc|decreas|lower|halv)(?:ing|ed|e)\s(?:the\s)?(?:dynamic\s)?(?:(?:loss|grad)[ _-]?)?scale[rs]?"
    + _TO
    + _NUMBER
    + r"|\breducing to\s"
    + _NUMBER
    + r"|损失缩放(?:系数)?(?:降低|减小|下调|减半|降)[^\d\n]{0,6}"
    + _NUMBER,
    re.IGNORECASE,
)
_SET = re.compile(
    r"\b(?:setting|set|adjusting|adjusted)\s(?:the\s)?(?:(?:loss|grad)[ _-]?)?scale"
    + _TO
    + _NUMBER
    + r"|\b(?:loss|grad)[ _-]?scale\sadjust(?:ed)?"
    + _TO
    + _NUMBER
    + r"|\bAttempted loss scale:\s?"
    + _NUMBER
    + r"|损失缩放(?:系数)?调整[^\d\n]{0,6}"
    + _NUMBER,
    re.IGNORECASE,
)
_ATTEMPTED = re.compile(r"\bAttempted loss scale:\s?" + _NUMBER, re.IGNORECASE)
_MINIMUM = re.compile(r"\bloss scale already at (?:its )?minimum\b", re.IGNORECASE)
_ONE = re.compile(r"overflow|scale|溢出|损失缩放", re.IGNORECASE)


@frozen
class ScaleLine:
    """What one line tells: how many steps it says were skipped, and the scales that it names.

    `is_lowered` where the scale named is one that was made smaller; `is_still` where the optimizer updated
    all the same; `is_stuck` where it is lowered to what it was; `is_minimum` where it cannot fall any more.
    """

    number: int
    source: int
    text: str
    skips: int
    scales: tuple[float, ...] = ()
    is_lowered: bool = False
    is_still: bool = False
    is_stuck: bool = False
    is_minimum: bool = False
    rank: int | None = None
    wall_s: float | None = None


def is_scale_line(text: str) -> bool:
    """Tell whether a line speaks of a skipped step or of a loss scale that was changed."""
    text = text[:LONGEST]
    return _ONE.search(text) is not None and any(
        pattern.search(text) is not None for pattern in (_SKIPPED, _STILL, _LOWERED, _MINIMUM)
    )


def read_scale_line(
    text: str, number: int, source: int, rank: int | None = None, wall_s: float | None = None
) -> ScaleLine | None:
    """Return what a line tells of the loss scale; each message of several that are glued together counts."""
    text = text[:LONGEST]
    if not is_scale_line(text):
        return None
    lowered = _scales(_LOWERED, text)
    is_still = _STILL.search(text) is not None
    attempted = _scales(_ATTEMPTED, text)
    return ScaleLine(
        number,
        source,
        text,
        0 if is_still else sum(1 for _ in _SKIPPED.finditer(text)),
        lowered or _scales(_SET, text),
        bool(lowered),
        is_still,
        bool(lowered) and attempted == lowered,
        _MINIMUM.search(text) is not None,
        rank,
        wall_s,
    )


def _scales(pattern: re.Pattern[str], text: str) -> tuple[float, ...]:
    return tuple(float(value) for found in pattern.finditer(text) for value in found.groups() if value)
