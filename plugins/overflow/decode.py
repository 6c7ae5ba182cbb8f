"""From what probes sent to outputs, pulses and evidence; what does not fit is left out.

A probe speaks through a socket that others may write to, so nothing is taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.text import clean

from .snapshot import Level, LevelName, Line, Output, Part, Phase, Point

MOST_ROWS = 200
"""A window, the chain of its sources and the rows near the limit are far fewer."""
MOST_POINTS = 128
MOST_HISTORIES = 64
MOST_LINES = 64
MOST_HOTTEST = 12
MOST_TEXT = 200
MOST_DIMENSIONS = 12
MOST_SOURCES = 16
LARGEST = 2**53
"""Beyond it a whole number is no longer exact as a float, and nothing here counts so far."""

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PARTS: frozenset[Part] = frozenset(get_args(Part))
_PHASES: frozenset[Phase] = frozenset(get_args(Phase))
_LEVELS: tuple[LevelName, ...] = get_args(LevelName)

SAVED = Message("the tensors of step {step} are in {path}, as the training sees its folders")
NOT_SAVED = Message("no tensors were saved: {why}")
UNSEEN = {
    "compiled": Message("{n} outputs inside compiled code were not seen"),
    "subclass": Message("{n} outputs of tensor subclasses were not looked at"),
    "capture": Message("{n} outputs during graph capture were not looked at"),
    "late": Message("{n} readings were let go: the device was too far behind"),
    "traced": Message("{n} outputs inside traced or transformed code were not looked at"),
}


@frozen
class History:
    """The largest absolute value of one output over the steps."""

    path: str
    part: Part = "output"
    op: str = ""
    points: tuple[Point, ...] = ()


@frozen
class Rows:
    """The evidence of one step: outputs around the first bad one, or the answer that none was bad.

    `first` and `near` are indices of outputs.  `why` is what made the probe look.  `of_weights`: the outputs
    are weights, all that hold bad values.
    """

    level: LevelName
    step: int = 0
    calm: bool = False
    first: int | None = None
    near: tuple[int, ...] = ()
    total: int = 0
    bad: int = 0
    outputs: tuple[Output, ...] = ()
    history: tuple[History, ...] = ()
    stack: tuple[Line, ...] = ()
    loss: float | None = None
    scale: float | None = None
    why: str = ""
    of_weights: bool = False


@frozen
class Pulse:
    """What about a second of watching saw; pairs are (step, value)."""

    losses: tuple[tuple[int, float], ...] = ()
    grads: tuple[tuple[int, float], ...] = ()
    scales: tuple[tuple[int, float], ...] = ()
    skips: tuple[int, ...] = ()
    skipped: int | None = None
    watched: int | None = None
    rank: int | None = None
    device: str = ""
    levels: tuple[Level, ...] | None = None
    saturates: bool | None = None
    register_step: int | None = None
    hottest: tuple[Output, ...] | None = None
    unseen: tuple[Message, ...] | None = None
    zero_grads: tuple[int, float] | None = None


def number(value: Any) -> float | None:
    """Return a number, not finite ones too, else None."""
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def whole(value: Any) -> int | None:
    """Return a whole number that is not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # A huge int is refused before it is made a float, NaN by the comparison.
    return int(value) if 0 <= value <= LARGEST else None


def words(value: Any) -> str:
    """Return foreign text, cut and safe to draw; what is no text is empty."""
    return clean(value[:MOST_TEXT]) if isinstance(value, str) else ""


def items(value: Any, most: int) -> list[Any]:
    """Return the first `most` members of a list, none of anything else."""
    return list(value[:most]) if isinstance(value, (list, tuple)) else []


def output(data: Any, is_bad: bool = False) -> Output | None:
    """Return one row, None where it has no place in the order or no values.

    `is_bad`: it is known to be bad, so that missing values are NaN.
    """
    index = whole(data.get("i")) if isinstance(data, Mapping) else None
    if index is None:
        return None
    low, high, bad = number(data.get("min")), number(data.get("max")), whole(data.get("bad"))
    if low is None or high is None:
        known = low if low is not None else high
        if known is None and not bad and not is_bad:
            return None
        low = high = math.nan if bad or known is None else known
    part, phase, sources = data.get("part"), data.get("phase"), data.get("from")
    path = words(data.get("path"))
    if not path and (place := whole(data.get("index"))) is not None:
        path = f"parameters[{place}]"
    return Output(
        index=index,
        path=path,
        part=_one_of(part, _PARTS, "output"),
        module_type=words(data.get("type")),
        op=words(data.get("op")),
        phase=_one_of(phase, _PHASES, "forward"),
        dtype=words(data.get("dtype")).rpartition(".")[2],
        shape=_wholes(data.get("shape"), MOST_DIMENSIONS),
        low=low,
        high=high,
        near_share=_share(data.get("near")),
        zero_share=_share(data.get("zero")),
        bad_count=bad,
        position=_wholes(data.get("position"), MOST_DIMENSIONS) or None,
        sources=_wholes(sources, MOST_SOURCES) if isinstance(sources, (list, tuple)) else None,
        intended=data.get("intended") is True,
    )


def outputs(value: Any, most: int = MOST_ROWS, first: int | None = None) -> tuple[Output, ...]:
    """Return the rows of a list in the order of execution, each index once; `first` is that of a bad one."""
    found: dict[int, Output] = {}
    for one in items(value, most):
        row = output(one, isinstance(one, Mapping) and first is not None and one.get("i") == first)
        if row is not None:
            found.setdefault(row.index, row)
    return tuple(found[index] for index in sorted(found))


def rows(data: Mapping[str, Any]) -> Rows | None:
    """Return a `rows` record, None where its level is unknown."""
    level = _level(data.get("level"))
    if level is None:
        return None
    first = whole(data.get("first"))
    return Rows(
        level=level,
        step=whole(data.get("step")) or 0,
        calm=data.get("calm") is True,
        first=first,
        near=_wholes(data.get("near"), MOST_ROWS),
        total=whole(data.get("total")) or 0,
        bad=whole(data.get("bad")) or 0,
        outputs=outputs(data.get("rows"), MOST_ROWS, first),
        history=tuple(_history(one) for one in items(data.get("history"), MOST_HISTORIES) if _is_object(one)),
        stack=_stack(data.get("stack")),
        loss=number(data.get("loss")),
        scale=number(data.get("scale")),
        why=words(data.get("why")),
        of_weights=data.get("level") == "parameters",
    )


def pulse(data: Mapping[str, Any]) -> Pulse:
    """Return a `pulse` record; None in a field means that nothing was said of it."""
    levels = data.get("levels")
    hottest = data.get("hottest")
    unseen = data.get("unseen")
    saturates = data.get("saturates")
    zero_grads = _pairs([data.get("fp16_zero_grads")], 1)
    register = data.get("register") is True
    return Pulse(
        losses=_pairs(data.get("losses"), MOST_POINTS),
        grads=_pairs(data.get("grads"), MOST_POINTS),
        scales=_pairs(data.get("scales"), MOST_POINTS),
        skips=_wholes([_single(one) for one in items(data.get("skips"), MOST_POINTS)], MOST_POINTS),
        skipped=whole(data.get("skipped")),
        watched=whole(data.get("watched")),
        rank=whole(data.get("rank")),
        device=words(data.get("device")).partition(":")[0],
        levels=_levels(levels) if isinstance(levels, (list, tuple)) else None,
        saturates=saturates if isinstance(saturates, bool) else None,
        register_step=(whole(data.get("register_step")) or 0) if register else None,
        hottest=outputs(hottest, MOST_HOTTEST) if isinstance(hottest, (list, tuple)) else None,
        unseen=_unseen(unseen) if isinstance(unseen, Mapping) else None,
        zero_grads=zero_grads[0] if zero_grads else None,
    )


def captured(data: Mapping[str, Any]) -> Message:
    """Return how the saving of tensors ended: where the file is, or why there is none."""
    path, why = words(data.get("path")), words(data.get("why"))
    if not path:
        return Message.of(NOT_SAVED.text, why=why or "?")
    return Message.of(SAVED.text, path=path, step=whole(data.get("step")) or 0)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _one_of(value: Any, known: frozenset[Any], otherwise: Any) -> Any:
    return value if isinstance(value, str) and value in known else otherwise


def _level(value: Any) -> LevelName | None:
    # A level that found bad weights is one more way of looking at gradients' owners.
    if value == "parameters":
        return "gradients"
    return next((name for name in _LEVELS if name == value), None)


def _wholes(value: Any, most: int) -> tuple[int, ...]:
    return tuple(one for one in map(whole, items(value, most)) if one is not None)


def _single(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _share(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and 0.0 <= found <= 1.0 else None


def _pairs(value: Any, most: int) -> tuple[tuple[int, float], ...]:
    found = []
    for one in items(value, most):
        if isinstance(one, (list, tuple)) and len(one) == 2:
            step, amount = whole(one[0]), number(one[1])
            if step is not None and amount is not None:
                found.append((step, amount))
    return tuple(found)


def _history(data: Mapping[str, Any]) -> History:
    points = _pairs(data.get("points"), MOST_POINTS)
    return History(
        path=words(data.get("path")),
        part=_one_of(data.get("part"), _PARTS, "output"),
        op=words(data.get("op")),
        points=tuple(Point(step, amount) for step, amount in points),
    )


def _stack(value: Any) -> tuple[Line, ...]:
    lines = value[-MOST_LINES:] if isinstance(value, (list, tuple)) else ()
    return tuple(
        Line(words(one[0]), whole(one[1]) or 0, words(one[2]))
        for one in lines
        if isinstance(one, (list, tuple)) and len(one) == 3
    )


def _levels(value: Iterable[Any]) -> tuple[Level, ...]:
    found: dict[LevelName, Level] = {}
    for one in items(value, 2 * len(_LEVELS)):
        name = _level(one.get("name")) if isinstance(one, Mapping) else None
        if name is not None:
            why = words(one.get("why"))
            found[name] = Level(
                name=name,
                on=one.get("on") is True,
                every=max(1, whole(one.get("every")) or 1),
                why=Message(why.replace("{", "{{").replace("}", "}}")) if why else None,
            )
    return tuple(found[name] for name in _LEVELS if name in found)


def _unseen(data: Mapping[Any, Any]) -> tuple[Message, ...]:
    found = []
    for name, said in UNSEEN.items():
        n = whole(data.get(name))
        if n:
            found.append(Message.of(said.text, n=n))
    return tuple(found)
