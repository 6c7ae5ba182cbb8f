"""What finite inputs can lead to in an operator, by the sizes of its inputs alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Attribution, Message

from . import operators as of
from .flow import Flow
from .snapshot import Kind, Output
from .values import extent, figure, is_extreme, is_finite, is_nan, limit, smallest

_WEIGHT = 100.0
"""Weights whose values are not known are taken to be no larger than this."""
_UNKNOWN_LENGTH = 1e6

SUMMED = Message("{n} finite values up to {value} are added up in {dtype}")
LOGITS = Message("attention logits: the product of finite inputs leaves {dtype} before the softmax")
PRODUCT = Message("the product of finite inputs ({values}) leaves {dtype}")
ADDED = Message("the sum of finite inputs ({values}) leaves {dtype}")
EXPONENTIAL = Message("the exponential of {value} is more than {dtype} holds")
POWER = Message("a power of {value} is more than {dtype} holds")
UNWATCHED_DIVISOR = Message("a division by zero or by something tiny: what divides {values} was not watched")
UNWATCHED = Message(
    "{op} cannot make it of {values} alone: its other input, which was not watched, is bad or huge"
)


@frozen
class Cause:
    """What likely made the first bad output so.  `name` is for the choice of advice."""

    name: str
    source: Output | None
    reason: Message | None
    attribution: Attribution = "likely"
    kind: Kind | None = None
    also: tuple[Message, ...] = ()


def of_many(
    flow: Flow, first: Output, inputs: Sequence[Output], exact: bool, also: tuple[Message, ...]
) -> Cause | None:
    """Return that many values well within the limits add up beyond them: a sum, or attention logits."""
    name, most = of.plain(first.op), limit(first.dtype)
    if not exact or is_nan(first) or any(not is_finite(one) or is_extreme(one) for one in inputs):
        return None
    dtype, size = first.dtype or "float32", inputs[0].abs_max
    count = math.prod(inputs[0].shape) // max(1, math.prod(first.shape))
    if name in of.REDUCE and count * size > most:
        words = Message.of(SUMMED.text, n=f"{count:,}", value=figure(size), dtype=dtype)
        return Cause("reduction", first, words, "exact", also=also)
    logits = len(inputs) > 1 and (_leads_to_softmax(flow, first) or of.is_attention(first))
    if name in of.MATMUL and logits and product_bound(name, inputs) > most:
        return Cause("logits", first, Message.of(LOGITS.text, dtype=dtype), "exact", also=also)
    return None


def arithmetic(first: Output, inputs: Sequence[Output], exact: bool) -> Cause | None:
    """Return that finite inputs are enough to leave the type in this operator."""
    name, most = of.plain(first.op), limit(first.dtype)
    if not exact or is_nan(first) or not all(is_finite(one) for one in inputs):
        return None
    sizes = [one.abs_max for one in inputs]
    dtype, values = first.dtype or "float32", values_of(inputs)
    words: Message | None = None
    if name in of.MATMUL and product_bound(name, inputs) > most:
        # Of one factor alone only what weights usually are is known.
        attribution: Attribution = "exact" if len(inputs) > 1 else "likely"
        return Cause("product", first, Message.of(PRODUCT.text, values=values, dtype=dtype), attribution)
    if name in of.MULTIPLY and len(sizes) > 1 and math.prod(sizes) > most:
        words = Message.of(PRODUCT.text, values=values, dtype=dtype)
    elif name in of.ADD and len(sizes) > 1 and sum(sizes) > most:
        words = Message.of(ADDED.text, values=values, dtype=dtype)
    elif name in of.EXP and inputs[0].abs_max > math.log(most):
        words = Message.of(EXPONENTIAL.text, value=figure(inputs[0].high), dtype=dtype)
    elif name in of.POWER and sizes[0] > 1:
        words = Message.of(POWER.text, value=figure(sizes[0]), dtype=dtype)
    return None if words is None else Cause("product", first, words, "exact")


def product_bound(name: str, inputs: Sequence[Output]) -> float:
    """Return the largest value that a product of matrices can have."""
    lengths = [max(one.shape, default=0) for one in inputs]
    if name.startswith("conv"):
        lengths = [math.prod(one.shape[1:]) for one in inputs if one.shape]
    length = max(lengths, default=0) or _UNKNOWN_LENGTH
    sizes = [one.abs_max for one in inputs]
    return float(length) * (math.prod(sizes) if len(sizes) > 1 else sizes[0] * _WEIGHT)


def _leads_to_softmax(flow: Flow, row: Output) -> bool:
    later = [one for one in flow.rows if one.index > row.index]
    return any(of.is_softmax(one) for one in later[:3])


def other_input(first: Output, inputs: Sequence[Output]) -> Cause | None:
    """Return that the known one of two inputs is well: it must be the other, which nobody watched."""
    name = of.plain(first.op)
    if len(inputs) != 1 or not is_finite(inputs[0]) or name not in of.ADD | of.MULTIPLY | of.DIVIDE:
        return None
    words = UNWATCHED_DIVISOR if name in of.DIVIDE else UNWATCHED
    told = Message.of(words.text, op=name, values=values_of(inputs))
    return Cause("divide" if name in of.DIVIDE else "other_input", first, told)


def underflows(flow: Flow, row: Output) -> bool:
    """Tell whether this operator's inputs are so small that all its values had to become zero."""
    inputs = flow.inputs(row)
    if row.low != 0 or row.high != 0 or not flow.knows(row) or not inputs:
        return False
    sizes, name, least = [one.abs_max for one in inputs], of.plain(row.op), smallest(row.dtype) / 2
    if not all(0 < size < math.inf for size in sizes):
        return False
    if name in of.MULTIPLY and len(sizes) > 1:
        return math.prod(sizes) < least
    if name in of.CAST:
        return sizes[0] < least
    return name in of.EXP and inputs[0].high < math.log(least)


def values_of(inputs: Sequence[Output]) -> str:
    return "; ".join(extent(one) for one in inputs[:3]) or "?"
