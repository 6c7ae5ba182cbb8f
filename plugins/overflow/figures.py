"""Numbers, types and places of outputs, as short as a line of the stream wants them."""

from __future__ import annotations

import math

from ascend_tui.plugin import Message
from ascend_tui.text import clean, fit, msgid, say, tr, width

from .snapshot import Output
from .values import LIMITS, figure

_TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
_PHASES = {"forward": msgid("forward"), "backward": msgid("backward"), "optimizer": msgid("optimizer")}
_MOST = 400
"""Characters of a foreign text that are looked at."""


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


def bad_value(output: Output | None, otherwise: str) -> str:
    """Return which value is bad: NaN, Inf, -Inf or both infinities; `otherwise` where none is."""
    if output is None:
        return otherwise
    low, high = output.low, output.high
    if low != low or high != high:
        return "NaN"
    if math.isinf(low) and math.isinf(high) and low != high:
        return "±Inf"
    return figure(high) if math.isinf(high) else figure(low) if math.isinf(low) else otherwise


def type_word(dtype: str) -> str:
    """Return the short name of a type."""
    dtype = dtype.rpartition(".")[2]
    return _TYPES.get(dtype) or fit(plain(dtype, 24), 12)


def op_word(op: str) -> str:
    """Return an operator without torch's own name space."""
    op = plain(op, 80)
    return op[6:] if op.startswith("aten::") else op


def shape_words(shape: tuple[int, ...]) -> str:
    """Return a shape as Python writes it, of endless ones the beginning."""
    return "[" + ", ".join(str(size) for size in shape[:8]) + (", …]" if len(shape) > 8 else "]")


def phase_word(phase: str) -> str:
    """Return when in a step an output was made."""
    return tr(_PHASES[phase]) if phase in _PHASES else plain(phase, 24)


def limit_share(output: Output) -> float | None:
    """Return the largest absolute value as a share of what its type can hold, where that is known."""
    limit = LIMITS.get(output.dtype.rpartition(".")[2])
    return abs(output.abs_max) / limit if limit and math.isfinite(output.abs_max) else None


def place_of(output: Output, cells: int) -> str:
    """Return where an output was made, the end of it where it is too long."""
    path = plain(output.path)
    if not path:
        if output.part == "loss":
            return tr("the loss")
        return plain(output.module_type, 60) or op_word(output.op) or tr("no module")
    if output.part == "input":
        around = width(tr("input of {path}", path=""))
        return tr("input of {path}", path=fit_end(path, max(cells - around, 4)))
    return fit_end(path, max(cells, 4))


def left(text: str, cells: int) -> str:
    """Return a text with blanks behind it up to `cells`."""
    return text + " " * (cells - width(text))


def right(text: str, cells: int) -> str:
    """Return a text with blanks before it up to `cells`."""
    return " " * (cells - width(text)) + text
