"""The times that lines carry, in the ways that loggers write them; all of the machine's own zone."""

from __future__ import annotations

import re
import time
from functools import lru_cache

_FRACTION = r"(?:[.,:](?P<ms>\d{3})(?:[.,]?(?P<us>\d{3}))?\d*)?"
_CLOCK = rf"(?P<hour>[0-2]\d):(?P<minute>[0-5]\d):(?P<second>[0-6]\d){_FRACTION}"
STAMP = re.compile(
    rf"(?P<year>20\d\d)[-/.](?P<month>[01]?\d)[-/.](?P<day>[0-3]?\d)[-T _]{{1,2}}{_CLOCK}"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
"""2025-04-29-18:46:11, 2024-09-16 04:11:55,001, 2026-06-09-10:08:04.123.676, 2025-07-01T17:05:16.123Z."""
SHORT = re.compile(rf"(?P<month>[01]\d)[-/](?P<day>[0-3]\d) {_CLOCK}")
"""03-25 06:14:02, as vLLM writes it: without a year."""
GLOG = re.compile(rf"(?P<level>[IWEFD])(?P<date>\d{{3,4}}) {_CLOCK}")
"""E324 13:00:25.428029551 and E0324 13:00:25.428: month and day in three or four digits, no year."""
_DAY_S = 86400.0


def wall_of(found: re.Match[str], year: int | None) -> float | None:
    """Return Unix seconds of a match of the above; None where it is no date, or no year is known."""
    groups = found.groupdict()
    if "date" in groups:
        # Three digits are month and two of the day, but for the last quarter of a year.
        date = groups["date"]
        month, day = int(date[:-2]), int(date[-2:])
    else:
        month, day = int(groups["month"]), int(groups["day"])
    named = groups.get("year")
    if named is None and year is None:
        return None
    base = _day(int(named) if named else year or 0, month, day, groups.get("zone") or "")
    if base is None:
        return None
    micros = int((groups["ms"] or "0").ljust(3, "0")) * 1000 + int(groups["us"] or 0)
    clock = int(groups["hour"]) * 3600 + int(groups["minute"]) * 60 + int(groups["second"])
    return base + clock + micros / 1e6


@lru_cache(maxsize=64)
def _day(year: int, month: int, day: int, zone: str) -> float | None:
    """Return the Unix seconds of a day's beginning; where its clock changes, later times are an hour off."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if zone:
        away = 0 if zone == "Z" else int(zone[:3]) * 3600 + int(zone[0] + zone[-2:]) * 60
        return float(_days(year, month, day)) * _DAY_S - away
    try:
        return time.mktime((year, month, day, 0, 0, 0, 0, 0, -1))
    except (OverflowError, ValueError):
        return None


def _days(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a day of the Gregorian calendar."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
