"""Why the first bad output is bad, as far as the outputs before it tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ascend_tui.plugin import Attribution, Message

from . import operators as of
from .arithmetic import Cause, arithmetic, of_many, other_input, product_bound, values_of
from .flow import Flow, is_inside
from .snapshot import Output
from .values import (
    figure,
    is_extreme,
    is_finite,
    is_float,
    is_nan,
    is_only_minus_inf,
    limit,
)

NEAR_RUN = Message("{place} reached {value}, {share} of what {dtype} holds: what follows leaves it")
HUGE_RUN = Message("{place} reached {value}: what follows leaves {dtype}")
JUMPED = Message("{place} is {times} times what it came from ({before} → {after})")
MASKED_ROW = Message("a row in which everything is masked: {place} has only -Inf to normalise")
MASKED_DIFFERENCE = Message("-Inf minus -Inf in a masked row, from {place}")
ZERO_TIMES_INF = Message("zero times the -Inf of {place} is NaN")
LOG_ZERO = Message("the logarithm of zero: {place} goes down to {value}")
ROUNDED = Message("{place} is never zero by itself: small values were rounded to zero")
LOG_NEGATIVE = Message("the logarithm of a negative number: {place} goes down to {value}")
ROOT_NEGATIVE = Message("the root of a negative number: {place} goes down to {value}")
DIVIDED_BY_ZERO = Message("a division by zero: {place} has values of {value}")
ROOT_ZERO = Message("the gradient of a root at zero: {place} goes down to {value}")
TINY = Message("a tiny denominator: 1/{value} is more than {dtype} holds ({place})")
CAST = Message("{value} of {place} does not fit into {dtype}")
BAD_WEIGHTS = Message("{name} holds bad values")
COUNTED_WEIGHTS = Message("{name} holds bad values: {count} of them, the first at {position}")
HUGE_WEIGHTS = Message("{name} holds values up to {value}")
EMBEDDED = Message("an embedding only copies rows of its weights: {place} holds bad ones")
WRITTEN = Message("{op} wrote it; what it wrote was not watched")
MEMORY = Message("{op} cannot make it of finite inputs ({values}): suspect the memory or the kernel")
WEIGHTS_OR_MEMORY = Message(
    "{place} cannot make it of its inputs ({values}): suspect its weights, else the memory or the kernel"
)
UNINITIALISED = Message("{place} was read before anything was written into it")
OUTSIDE = Message("it came in with what {place} was called with: the data, or the code that made them")
BETWEEN = Message("made between {before}, which is finite, and {after}, by code that is no module")
HERE = Message("its inputs are finite ({values}): {op} made it")


def cause(flow: Flow, first: Output, parameters: Sequence[Output] | None) -> Cause | None:
    """Return the cause of the first bad output, None where only the place is known.

    `parameters` are the weights that hold bad values, None where nobody looked at them.
    """
    inputs = flow.inputs(first)
    exact = bool(first.op) and flow.knows(first) and bool(inputs)
    return (
        _weights(first, inputs, parameters)
        or _uninitialised(inputs)
        or _masked(flow, first, inputs)
        or _domain(flow, first, inputs)
        or _cast(first, inputs, exact)
        or _written(first)
        or of_many(flow, first, inputs, exact, _climb_words(flow, first))
        or climbed(flow, first)
        or arithmetic(first, inputs, exact)
        or _impossible(flow, first, inputs, parameters, exact)
        or other_input(first, inputs)
        or _from_outside(flow, first)
        or _between(flow, first)
        or _made_here(first, inputs, exact)
    )


def place(row: Output) -> str:
    """Return where an output was made, in few words."""
    op = of.plain(row.op)
    return " ".join(part for part in (row.path, op) if part) or row.module_type or row.part


def climbed(flow: Flow, row: Output) -> Cause | None:
    """Return the earlier output near the limit, or that jumped, which led to this one."""
    start = flow.run_start(row)
    jump = flow.jump(start or row)
    source = jump[0] if jump else start
    if source is None:
        return None
    grown = _jump_words(*jump) if jump else None
    if start is None:
        return Cause("jump", source, grown)
    words = _near_words(start)
    also = (grown,) if grown else ()
    if jump and source is not start:
        return Cause("jump", source, grown, also=(words,))
    return Cause("near_run", source, words, also=also)


def _climb_words(flow: Flow, first: Output) -> tuple[Message, ...]:
    found = climbed(flow, first)
    return () if found is None or found.reason is None else (found.reason,)


def _near_words(row: Output) -> Message:
    most = limit(row.dtype)
    dtype = row.dtype or "float32"
    if most > 1e9:
        return Message.of(HUGE_RUN.text, place=place(row), value=figure(row.abs_max), dtype=dtype)
    part = f"{row.abs_max / most * 100:.0f} %"
    return Message.of(NEAR_RUN.text, place=place(row), value=figure(row.abs_max), share=part, dtype=dtype)


def _jump_words(row: Output, base: float) -> Message:
    times = figure(row.abs_max / base)
    return Message.of(
        JUMPED.text, place=place(row), times=times, before=figure(base), after=figure(row.abs_max)
    )


def _weights(first: Output, inputs: Sequence[Output], parameters: Sequence[Output] | None) -> Cause | None:
    bad = next((one for one in inputs if one.part == "parameter" and _is_bad_weight(one)), None)
    for one in parameters or ():
        owner = one.path.rpartition(".")[0]
        if bad is None and _is_bad_weight(one) and (owner == first.path or is_inside(one, first)):
            bad = one
    if bad is not None:
        if is_finite(bad):
            words = Message.of(HUGE_WEIGHTS.text, name=bad.path, value=figure(bad.abs_max))
            return Cause("weights", bad, words)
        words = Message.of(BAD_WEIGHTS.text, name=bad.path)
        if bad.position is not None and bad.bad_count is not None:
            position = ", ".join(map(str, bad.position))
            words = Message.of(
                COUNTED_WEIGHTS.text, name=bad.path, count=f"{bad.bad_count:,}", position=position
            )
        return Cause(
            "weights", bad, words, "exact" if bad.path.rpartition(".")[0] == first.path else "likely"
        )
    if (
        parameters is None
        and of.is_embedding(first)
        and not any(is_float(one.dtype) and one.dtype for one in inputs)
    ):
        return Cause("weights", first, Message.of(EMBEDDED.text, place=first.path or place(first)))
    return None


def _is_bad_weight(row: Output) -> bool:
    return not is_finite(row) or is_extreme(row)


def _uninitialised(inputs: Sequence[Output]) -> Cause | None:
    for one in inputs:
        if of.plain(one.op) in of.EMPTY and not is_finite(one):
            return Cause("uninitialised", one, Message.of(UNINITIALISED.text, place=place(one)), "exact")
    return None


def _masked(flow: Flow, first: Output, inputs: Sequence[Output]) -> Cause | None:
    if not is_nan(first):
        return None
    known = first.sources is not None
    near = list(inputs) if known else flow.before(first)[:3]
    masks = [one for one in near if is_only_minus_inf(one)]
    if not masks or any(one.high == math.inf or is_nan(one) for one in near):
        return None
    source = flow.mask_chain(masks[0])[-1]
    attribution: Attribution = "exact" if known else "likely"
    name = of.plain(first.op)
    if of.is_softmax(first) or (not name and of.is_attention(first)):
        words = Message.of(MASKED_ROW.text, place=place(first))
        return Cause("masked", source, words, attribution, "masked_row")
    if name in of.ADD:
        words = Message.of(MASKED_DIFFERENCE.text, place=place(source))
        return Cause("masked", source, words, attribution, "masked_row")
    if name in of.MULTIPLY or name in of.MATMUL:
        return Cause(
            "zero_times_inf", source, Message.of(ZERO_TIMES_INF.text, place=place(source)), attribution
        )
    return None


def _domain(flow: Flow, first: Output, inputs: Sequence[Output]) -> Cause | None:
    """Return the zero, negative or tiny input of an operator that cannot stand it."""
    name = of.plain(first.op)
    finite = [one for one in inputs if is_finite(one) and is_float(one.dtype)]
    if not finite:
        return None
    row, most = finite[-1], limit(first.dtype)
    if name in of.LOG:
        border = -1.0 if name == "log1p" else 0.0
        if row.low <= border:
            words = LOG_NEGATIVE if row.low < border else LOG_ZERO
            if row.low == border:
                row = _picked_from(flow, row)
            rounded = of.is_softmax(row) or of.plain(row.op) in of.ROUNDS_TO_ZERO
            also = (Message.of(ROUNDED.text, place=place(row)),) if row.low == 0 and rounded else ()
            return _at(words, row, "log", also=also)
    if name in of.ROOT | of.INVERSE_ROOT and row.low < 0:
        return _at(ROOT_NEGATIVE, row, "root")
    if name in of.INVERSE_ROOT and row.low == 0:
        return _at(DIVIDED_BY_ZERO, row, "divide")
    if name in of.INVERSE_ROOT and row.low > 0 and row.low**-0.5 > most:
        return _tiny(row, first)
    if name in of.POWER and row.low < 0 and is_nan(first):
        return _at(ROOT_NEGATIVE, row, "root")
    if name in of.POWER and _touches_zero(row) and row.abs_max <= 1:
        return _at(ROOT_ZERO if first.phase == "backward" else DIVIDED_BY_ZERO, row, "root_zero")
    if name in of.DIVIDE:
        if len(inputs) == 1 and name != "reciprocal":
            # Of x / y only one is known, and its zeros may be above the line.
            return None
        if _touches_zero(row):
            root = _zero_root(flow, row) if first.phase == "backward" else None
            if root is not None:
                return _at(ROOT_ZERO, root, "root_zero")
            return _at(DIVIDED_BY_ZERO, row, "divide")
        over = max((one.abs_max for one in finite[:-1]), default=1.0)
        least = min(abs(row.low), abs(row.high))
        if row.low * row.high > 0 and over / least > most:
            return _tiny(row, first)
    return None


def _at(
    words: Message,
    row: Output,
    name: str,
    attribution: Attribution = "exact",
    also: tuple[Message, ...] = (),
) -> Cause:
    told = Message.of(words.text, place=place(row), value=figure(row.low))
    return Cause(name, row, told, attribution, also=also)


def _tiny(row: Output, first: Output) -> Cause:
    least = min(abs(row.low), abs(row.high))
    dtype = first.dtype or "float32"
    words = Message.of(TINY.text, value=figure(least), dtype=dtype, place=place(row))
    return Cause("tiny", row, words, "exact")


def _touches_zero(row: Output) -> bool:
    return row.low == 0 or row.high == 0 or bool(row.zero_share)


def _zero_root(flow: Flow, row: Output) -> Output | None:
    """Return the root in the forward pass whose zeros are divided by in the backward pass."""
    at: Output | None = row
    while at is not None:
        name = of.plain(at.op)
        if name in of.ROOT or "norm" in name:
            return at
        at = next((one for one in flow.inputs(at) if _touches_zero(one)), None)
    return None


def _cast(first: Output, inputs: Sequence[Output], exact: bool) -> Cause | None:
    most = limit(first.dtype)
    over = [one for one in inputs if is_finite(one) and one.dtype != first.dtype and one.abs_max > most]
    if not over:
        return None
    row = max(over, key=lambda one: one.abs_max)
    words = Message.of(CAST.text, value=figure(row.abs_max), place=place(row), dtype=first.dtype)
    return Cause("cast", row, words, "exact" if exact else "likely")


def _impossible(
    flow: Flow, first: Output, inputs: Sequence[Output], parameters: Sequence[Output] | None, exact: bool
) -> Cause | None:
    """Return that finite inputs cannot have led to it: then the memory or the kernel is to blame."""
    name = of.plain(first.op)
    if first.part != "output" or not all(is_finite(one) for one in inputs):
        return None
    if exact and name in of.SAME | of.BOUNDED and is_float(inputs[0].dtype):
        return _memory(first, inputs)
    if exact and name in of.CAST and is_nan(first):
        return _memory(first, inputs)
    if not of.is_matmul(first) or first.phase != "forward":
        return None
    known = list(inputs) if first.sources is not None else flow.came_from(first)
    if not known or not all(is_finite(one) for one in known):
        return None
    if not is_nan(first) and product_bound(name or first.module_type.lower(), known) > limit(first.dtype):
        return None
    if (exact and len(known) > 1) or parameters is not None:
        return _memory(first, known)
    words = Message.of(WEIGHTS_OR_MEMORY.text, place=place(first), values=values_of(known))
    # It was made here, of finite values; whether by weights or by the kernel is not known.
    return Cause("weights_or_memory", first, words)


def _memory(first: Output, inputs: Sequence[Output]) -> Cause:
    # Async: what broke the values may be any operator before, the queue of tasks hides which.
    words = Message.of(MEMORY.text, op=of.plain(first.op) or place(first), values=values_of(inputs))
    return Cause("memory", None, words, "async")


def _picked_from(flow: Flow, row: Output) -> Output:
    """Return where a value that was only picked or moved comes from."""
    at = row
    while of.plain(at.op) in of.PICK | of.SAME:
        source = next((one for one in flow.inputs(at) if one.low == at.low and is_finite(one)), None)
        if source is None:
            break
        at = source
    return at


def _written(first: Output) -> Cause | None:
    name = of.plain(first.op)
    if name not in of.WRITE | of.MASKING or not is_nan(first):
        return None
    return Cause("written", first, Message.of(WRITTEN.text, op=name))


def _from_outside(flow: Flow, first: Output) -> Cause | None:
    """Return that it was bad already when the outermost module got it."""
    if first.part != "input" or first.sources or any(one.index < first.index for one in flow.rows):
        return None
    words = Message.of(OUTSIDE.text, place=first.path or first.module_type or "?")
    return Cause("data", first, words, "exact" if first.sources is not None else "likely")


def _between(flow: Flow, first: Output) -> Cause | None:
    """Return that code between two modules made it: the one returned it well, the other got it bad."""
    before = flow.came_from(first)
    if first.part != "input" or first.sources is not None or not before or not is_finite(before[0]):
        return None
    words = Message.of(BETWEEN.text, before=place(before[0]), after=first.path or place(first))
    return Cause("between", first, words)


def _made_here(first: Output, inputs: Sequence[Output], exact: bool) -> Cause | None:
    if not exact or not all(is_finite(one) for one in inputs):
        return None
    words = Message.of(HERE.text, op=of.plain(first.op), values=values_of(inputs))
    return Cause("here", first, words, "exact")
