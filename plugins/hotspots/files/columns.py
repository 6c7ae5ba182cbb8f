"""The columns of a profile's table, found by their names: order, letter case, blanks and units may differ."""

from __future__ import annotations

import re
from collections.abc import Sequence

BLANK = frozenset(("", "n/a", "na", "nan", "none", "null", "-", "--"))
MOST_US = 1e15
"""No task runs for thirty years: a longer time is no time."""

_UNIT = re.compile(r"\s*\(\s*(us|μs|µs|ms|ns|s|%)\s*\)\s*$", re.IGNORECASE)
_SCALES = {"us": 1.0, "μs": 1.0, "µs": 1.0, "ms": 1e3, "ns": 1e-3, "s": 1e6, "%": 0.01}
_PLACES = {1e-3: 0, 1.0: 3, 1e3: 6, 1e6: 9}
_APART = re.compile(r"[\s_]+")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


class Header:
    """The names of a table: `task duration` for `Task Duration(us)`, `aic mac ratio` for `aic_mac_ratio`."""

    def __init__(self, cells: Sequence[str]) -> None:
        """Take the cells of the first line; of two columns with one name the first counts."""
        names, self.scales = [], []
        for cell in cells:
            text = cell.strip().strip('"').strip().lower()
            unit = _UNIT.search(text)
            names.append(_APART.sub(" ", text[: unit.start()] if unit else text).strip())
            self.scales.append(_SCALES[unit[1].lower()] if unit else 1.0)
        while names and not names[-1]:
            names.pop()
        self.names = tuple(names)
        self.cells = tuple(cell.strip() for cell in cells[: len(names)])
        self._at = {name: at for at, name in reversed(list(enumerate(names))) if name}

    def __len__(self) -> int:
        """Return how many columns there are."""
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        """Tell whether there is a column of this name."""
        return name in self._at

    def at(self, *names: str) -> int:
        """Return the place of the first of these names that there is, -1 where there is none."""
        return next((self._at[name] for name in names if name in self._at), -1)

    def has(self, *names: str) -> bool:
        """Tell whether there are columns of all of these names."""
        return all(name in self._at for name in names)


def number(cell: str) -> float | None:
    """Return a finite number; None for N/A, for a blank and for what is none."""
    if cell == "N/A":
        return None
    try:
        value = float(cell)
    except ValueError:
        text = cell.strip()
        return float(text.replace(",", "")) if _THOUSANDS.fullmatch(text) else None
    # Python alone takes 1_000 for a number; infinity minus itself is none.
    return value if value - value == 0.0 and "_" not in cell else None


def time_us(cell: str, scale: float = 1.0) -> float | None:
    """Return a time in microseconds; None for what is none."""
    value = number(cell)
    return None if value is None or not 0.0 <= value * scale <= MOST_US else value * scale


def count(cell: str) -> int | None:
    """Return a number of calls; None for what is none."""
    value = number(cell)
    return int(value) if value is not None and 0 <= value <= MOST_US and value == int(value) else None


def nanoseconds(cell: str, scale: float = 1.0) -> int | None:
    """Return a time stamp as whole nanoseconds: a float has no room for the last digits of today's date."""
    whole, _, part = cell.strip().partition(".")
    if len(part) == 3 and scale == 1.0:
        text = whole + part
        return int(text) if whole and len(text) <= 22 and text.isascii() and text.isdigit() else None
    if not (whole.isascii() and whole.isdigit()) or len(whole) > 19 or (part and not part.isascii()):
        return None
    if part and not part.isdigit():
        return None
    places = _PLACES.get(scale, 3)
    return int(whole + "0" * places) + int((part[:places] + "0" * places)[:places] or "0")


def word(cell: str) -> str:
    """Return a cell without blanks and the quotes of a quoted quote; empty for N/A."""
    text = cell.strip().strip('"').strip()
    return "" if text.lower() in BLANK else text
