"""Entries of a dump as outputs in the order of execution, each with what it was made of.

A dump does not say where a tensor came from.  One with the same largest, smallest and mean value, the same
norm and as many elements as an earlier output is taken for that output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ascend_tui.frozen import frozen

from .files.msprobe import Entry, Tensor, is_optimizer, module_of, owner_of, tensors, words
from .operators import EMPTY, MASKING, plain
from .snapshot import Output, Phase
from .values import is_extreme, is_finite

MOST_GRADIENTS = 200

_WEIGHTS = {
    "linear": 1,
    "embedding": 1,
    "conv1d": 1,
    "conv2d": 1,
    "conv3d": 1,
    "layer_norm": 2,
    "group_norm": 2,
    "rms_norm": 2,
    "batch_norm": 3,
}
"""Where the weight of an API stands among its arguments; its bias is the next one."""

Key = tuple[str, str, str, str, int]


@frozen
class Rows:
    """The outputs of a dump.

    `names` are the entries' names by index; `parameters` the weights with bad values, None where the dump
    holds none; `matched` the indices of outputs whose inputs were found by their statistics.
    """

    outputs: tuple[Output, ...]
    names: Mapping[int, str]
    parameters: tuple[Output, ...] | None
    matched: frozenset[int]


def look(name: str, outputs: Sequence[Tensor]) -> Literal["", "near", "bad"]:
    """Tell whether outputs hold NaN or +Inf, which no mask is made of, or are near their limit."""
    if plain(name) in EMPTY | MASKING:
        return ""
    for one in outputs:
        if one.high != one.high or one.low != one.low or one.high == math.inf:
            return "bad"
    if ".backward" not in name and any(
        is_extreme(Output(0, "", dtype=one.dtype, low=one.low, high=one.high)) for one in outputs
    ):
        return "near"
    return ""


def rows_of(entries: Iterable[Entry], parents: Mapping[str, str]) -> Rows:
    """Return the outputs of entries that are in the order of execution."""
    builder = _Builder(parents)
    for entry in entries:
        builder.take(entry)
    return builder.result()


class _Builder:
    def __init__(self, parents: Mapping[str, str]) -> None:
        self.parents = parents
        self.outputs: list[Output] = []
        self.names: dict[int, str] = {}
        self.seen: dict[Key, int] = {}
        self.gradients: list[tuple[str, str, Tensor]] = []
        self.parameters: list[Output] | None = None
        self.matched: set[int] = set()

    def take(self, entry: Entry) -> None:
        module = module_of(entry.name)
        parts = entry.name.split(".")
        if "parameters_grad" in parts[-2:]:
            self._take_gradients(entry, module[0] if module else "")
            return
        phase: Phase = "backward" if "backward" in parts[-2:] else "forward"
        if is_optimizer(entry.name, self.parents):
            phase = "optimizer"
        path, kind = module or owner_of(entry.name, self.parents)
        op = "" if module else words(entry.name)
        self._take_parameters(entry, path)
        sources, matched = self._sources(entry, path, op, phase)
        for one in tensors(entry.data.get("output")):
            if module and self._is_inner(one, path):
                continue
            index = self._add(
                one, entry.name, path, kind, op, phase, None if phase == "backward" else sources
            )
            if matched:
                self.matched.add(index)
            self.seen.setdefault(_key(one), index)

    def result(self) -> Rows:
        # The judge expects them as an optimizer has them: the last layer, where backward begins, last.
        for name, path, one in reversed(self.gradients):
            index = len(self.outputs)
            self.names[index] = name
            row = _row(index, one, path, "", "", "backward")
            self.outputs.append(_as(row, "gradient"))
        parameters = None if self.parameters is None else tuple(self.parameters)
        return Rows(tuple(self.outputs), self.names, parameters, frozenset(self.matched))

    def _sources(self, entry: Entry, path: str, op: str, phase: Phase) -> tuple[tuple[int, ...], bool]:
        """Return the indices of what went in; what no earlier output was gets a row of its own."""
        found: list[int] = []
        matched = False
        data = entry.data
        inputs = [data.get(name) for name in ("input_args", "input_kwargs", "input")]
        weight = _WEIGHTS.get(plain(op)) if op else None
        for place, value in enumerate(_arguments(inputs)):
            for one in tensors(value):
                known = self.seen.get(_key(one))
                if known is not None and (phase != "backward" or self.outputs[known].phase == "backward"):
                    found.append(known)
                    matched = True
                    continue
                is_weight = weight is not None and 0 <= place - weight <= 1 and one.needs_grad
                owner = path or ".".join(op.split(".")[:-1])
                index = self._add(one, entry.name, owner, "", "", phase, ())
                if is_weight:
                    name = ("weight", "bias")[place - (weight or 0)]
                    self.outputs[index] = _as(self.outputs[index], "parameter", f"{owner}.{name}")
                else:
                    self.outputs[index] = _as(self.outputs[index], "input")
                self.seen.setdefault(_key(one), index)
                found.append(index)
        return tuple(found), matched

    def _take_gradients(self, entry: Entry, path: str) -> None:
        for name, value in entry.data.items():
            for one in tensors(value):
                if not _is_fine(one) and len(self.gradients) < MOST_GRADIENTS:
                    self.gradients.append((entry.name, words(f"{path}.{name}"), one))

    def _take_parameters(self, entry: Entry, path: str) -> None:
        told = entry.data.get("parameters")
        if not isinstance(told, Mapping):
            return
        self.parameters = [] if self.parameters is None else self.parameters
        for name, value in told.items():
            for one in tensors(value):
                if not _is_fine(one) and len(self.parameters) < MOST_GRADIENTS:
                    row = _row(0, one, words(f"{path}.{name}"), "", "", "forward")
                    self.parameters.append(_as(row, "parameter"))

    def _is_inner(self, one: Tensor, path: str) -> bool:
        """Tell whether a module only hands on what an API in it has put out, as the row before says."""
        for row in reversed(self.outputs[-8:]):
            inside = row.path == path or row.path.startswith(path + ".")
            if (
                row.op
                and inside
                and (_text(row.low, row.high), row.shape) == (_text(one.low, one.high), one.shape)
            ):
                return True
        return False

    def _add(
        self,
        one: Tensor,
        name: str,
        path: str,
        kind: str,
        op: str,
        phase: Phase,
        sources: tuple[int, ...] | None,
    ) -> int:
        index = len(self.outputs)
        self.outputs.append(_row(index, one, path, kind, op, phase, sources))
        self.names[index] = name
        return index


def _arguments(inputs: Iterable[object]) -> list[object]:
    """Return the arguments one by one: a weight is known by its place among them."""
    found: list[object] = []
    for value in inputs:
        found += (
            value.values()
            if isinstance(value, Mapping) and "dtype" not in value
            else (value if isinstance(value, list) else [value])
        )
    return found


def _row(
    index: int,
    one: Tensor,
    path: str,
    kind: str,
    op: str,
    phase: Phase,
    sources: tuple[int, ...] | None = None,
) -> Output:
    return Output(
        index=index,
        path=path,
        module_type=kind,
        op=op,
        phase=phase,
        dtype=one.dtype,
        shape=one.shape,
        low=math.nan if one.high != one.high else one.low,
        high=math.nan if one.low != one.low else one.high,
        sources=sources,
    )


def _as(row: Output, part: str, path: str | None = None) -> Output:
    fields = {name: getattr(row, name) for name in Output.__dataclass_fields__}
    return Output(**{**fields, "part": part, "path": row.path if path is None else words(path)})


def _text(low: float, high: float) -> str:
    # NaN is not equal to itself, its text is.
    return f"{low!r} {high!r}"


def _is_fine(one: Tensor) -> bool:
    return is_finite(Output(0, "", low=one.low, high=one.high))


def _key(one: Tensor) -> Key:
    return repr(one.high), repr(one.low), repr(one.mean), repr(one.norm), math.prod(one.shape)
