"""How many bytes an operator moves, by the shapes and types that a profile wrote down."""

from __future__ import annotations

import math
import re

from .snapshot import Use

_BITS = re.compile(r"(?:b?float|complex|u?int|bf|fp)_?(\d+)", re.I)
_NAMED = {
    "bool": 1,
    "double": 8,
    "float": 4,
    "half": 2,
    "long": 8,
    "int": 4,
    "long int": 8,
    "short": 2,
    "char": 1,
    "byte": 1,
    "uchar": 1,
}
_LIST = re.compile(r"\[[\d\s,]*\]")
LONGEST = 20_000
"""A longer text of shapes is left out: it is that of an operator over hundreds of tensors."""


def item_bytes(dtype: str) -> float | None:
    """Return the size of one element, None for a type that is not known."""
    word = dtype.strip().strip("'\"").lower().rpartition(".")[2].rpartition("::")[2]
    word = word[len("dt_") :] if word.startswith("dt_") else word
    bits = _BITS.fullmatch(word)
    if bits:
        size = int(bits.group(1)) / 8
        return size if 0 < size <= 16 else None
    return _NAMED.get(word)


def elements(shapes: str) -> list[int] | None:
    """Return how many elements each tensor has: of "81920,4096;8192" and of "[[4, 8], [8]]"."""
    text = shapes.strip().strip('"')
    if not text or len(text) > LONGEST:
        return None
    parts = [one[1:-1] for one in _LIST.findall(text)] if "[" in text else text.split(";")
    found = []
    for part in parts:
        numbers = [one.strip() for one in part.split(",")]
        if not all(one.isascii() and one.isdigit() for one in numbers if one):
            return None
        found.append(math.prod(int(one) for one in numbers if one))
    return found or None


def moved_bytes(use: Use) -> float | None:
    """Return the bytes that a copy of these inputs reads and writes, None where that cannot be told."""
    sizes = elements(use.shapes)
    types = [item_bytes(one) for one in re.split(r"[;,]", use.dtypes) if one.strip()]
    if sizes is None or len(sizes) != len(types):
        return None
    total = 0.0
    for number, size in zip(sizes, types):
        if size is None:
            return None
        total += number * size
    return 2 * total
