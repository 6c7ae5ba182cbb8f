"""Dots to characters: two by four dots per cell, and the same picture in plain ASCII."""

from __future__ import annotations

import sys

# The bit of each dot, by column and by row from the top.
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
DOTS_ACROSS, DOTS_DOWN = 2, 4
_UPPER = 0x01 | 0x02 | 0x08 | 0x10


def can_draw(encoding: str | None) -> bool:
    """Tell whether braille and box drawing survive this encoding."""
    try:
        "⠿┤╌●".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def terminal_can_draw() -> bool:
    """Tell it for the stream that the screen is written to."""
    return can_draw(getattr(sys.__stderr__, "encoding", None) or "utf-8")


class Canvas:
    """A field of dots; y counts from the top."""

    def __init__(self, columns: int, rows: int) -> None:
        """Start empty with that many cells."""
        self.columns, self.rows = columns, rows
        self.bits = [bytearray(columns) for _ in range(rows)]

    def column(self, x: int, top: int, bottom: int) -> list[tuple[int, int]]:
        """Set the dots of one dot column from `top` to `bottom`; return the cells touched."""
        cell, bits = x // DOTS_ACROSS, _BITS[x % DOTS_ACROSS]
        if not 0 <= cell < self.columns:
            return []
        touched: list[tuple[int, int]] = []
        for y in range(max(top, 0), min(bottom, self.rows * DOTS_DOWN - 1) + 1):
            self.bits[y // DOTS_DOWN][cell] |= bits[y % DOTS_DOWN]
            if not touched or touched[-1] != (cell, y // DOTS_DOWN):
                touched.append((cell, y // DOTS_DOWN))
        return touched

    def character(self, column: int, row: int, unicode: bool) -> str:
        """Return what to draw in one cell; a blank where no dot is set."""
        bits = self.bits[row][column]
        if not bits:
            return " "
        if unicode:
            return chr(0x2800 + bits)
        upper, lower = bits & _UPPER, bits & ~_UPPER & 0xFF
        return ":" if upper and lower else "'" if upper else "."
