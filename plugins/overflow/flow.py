"""From what to what values went: by the known inputs of operators, else by the order of time."""

from __future__ import annotations

from collections.abc import Sequence

from .operators import MASKING, is_matmul, is_norm, plain
from .snapshot import Output
from .values import JUMP, NEAR, is_big, is_extreme, is_finite, is_mask, is_only_minus_inf

WINDOW = 10
"""So many outputs back is looked for a source where inputs are not known."""
_GAP = 3
"""A run near the limit may have so many other outputs in it: parallel branches come between."""
_SHRINKS = 0.1
"""What is made so much smaller on its way has not led to what is large later."""


class Flow:
    """The outputs of one step, in order."""

    def __init__(self, rows: Sequence[Output], near: float = NEAR) -> None:
        """Index the rows; `near` is the share of the limit from which on an output is near it."""
        self.rows = sorted(rows, key=lambda row: row.index)
        self.near = near
        self._by_index = {row.index: row for row in self.rows}
        self._masking: dict[int, bool] = {}

    def knows(self, row: Output) -> bool:
        """Tell whether all that was watched of this output's inputs is here."""
        return row.sources is not None and all(index in self._by_index for index in row.sources)

    def inputs(self, row: Output) -> list[Output]:
        """Return the outputs that this one was made of, as far as they are known."""
        found = (self._by_index.get(index) for index in row.sources or ())
        # What claims to come from the future would be walked for ever.
        return [one for one in found if one is not None and one.index < row.index]

    def before(self, row: Output) -> list[Output]:
        """Return up to ten outputs before this one, the nearest first; weights and losses aside."""
        earlier = [
            one
            for one in self.rows
            if one.index < row.index and one.part in ("output", "input") and not is_inside(one, row)
        ]
        inside = [one for one in self.rows if one.index < row.index and is_inside(one, row)]
        found = sorted([*earlier[-WINDOW:], *inside[-WINDOW:]], key=lambda one: -one.index)
        return found[:WINDOW]

    def came_from(self, row: Output) -> list[Output]:
        """Return what a row was most likely made of; without known inputs, the output before it."""
        if row.sources is not None:
            return self.inputs(row)
        outside = [one for one in self.before(row) if not is_inside(one, row)]
        own = [one for one in outside[:2] if one.part == "input" and one.path == row.path]
        return own or outside[:1]

    def run_start(self, row: Output) -> Output | None:
        """Return the earliest link of the unbroken run of outputs near the limit that led to `row`."""
        if row.sources is None:
            return self._run_start_by_time(row)
        at = row
        while True:
            near = [one for one in self.inputs(at) if is_extreme(one, self.near)]
            if not near:
                return None if at is row else at
            at = max(near, key=lambda one: one.abs_max)

    def _run_start_by_time(self, row: Output) -> Output | None:
        found, gap, blocked = None, 0, False
        rejoins = any(is_inside(one, row) for one in self.rows) or row.part == "input"
        for one in self.before(row):
            if one.phase != row.phase:
                break
            if is_extreme(one, self.near) and (not blocked or (rejoins and _depth(one) <= _depth(row))):
                found, gap = one, 0
                continue
            gap += 1
            # What goes into a normalisation comes out small; only a residual leads around it.
            blocked = blocked or is_norm(one)
            if found is not None and gap > _GAP:
                break
        return found

    def jump(self, row: Output) -> tuple[Output, float] | None:
        """Return the earliest output of an unbroken chain of jumps up to `row`, and what it came from.

        Only a chain that reaches values large for their type counts: every layer makes some jumps.
        """
        at, found, reached = row, None, False
        # Strictly back, so that no record can make this endless.
        for _ in range(len(self.rows)):
            sources = [one for one in self.came_from(at) if is_finite(one) and not is_mask(one)]
            if not sources:
                break
            # Of a product of matrices the first is what flows, the other the weights.
            source = sources[0] if is_matmul(at) else max(sources, key=lambda one: one.abs_max)
            base = source.abs_max
            if is_finite(at) and not is_mask(at):
                if is_norm(at) or at.abs_max < _SHRINKS * base:
                    break
                if base > 0 and at.abs_max >= JUMP * base:
                    found, reached = (at, base), reached or is_big(at)
                elif found is not None and at.sources is None:
                    break
            at = source
        return found if reached else None

    def mask_chain(self, row: Output) -> list[Output]:
        """Return the outputs through which a mask's -Inf came to `row`, where it was written last."""
        chain = [row]
        while not chain[-1].intended:
            sources = [one for one in self.inputs(chain[-1]) if is_only_minus_inf(one)]
            if not sources:
                break
            chain.append(sources[0])
        return chain

    def is_masking(self, row: Output) -> bool:
        """Tell whether the -Inf in this output is one that a mask put there."""
        # Remembered: a record in which everything comes from everything would take for ever.
        if row.index not in self._masking:
            self._masking[row.index] = row.intended or self._hands_a_mask_on(row)
        return self._masking[row.index]

    def _hands_a_mask_on(self, row: Output) -> bool:
        if not is_only_minus_inf(row):
            return False
        name = plain(row.op)
        if name in MASKING:
            return True
        if name:
            bad = [one for one in self.inputs(row) if not is_finite(one)]
            return bool(bad) and all(self.is_masking(one) for one in bad)
        named = any(word in f"{row.path}.{row.module_type}".lower() for word in ("mask", "alibi"))
        return named or row.part == "input" or row.high in (0.0, row.low)


def is_inside(row: Output, other: Output) -> bool:
    """Tell whether `row` was made inside the module that made `other`."""
    if row.path == other.path or not row.path:
        return False
    return not other.path or row.path.startswith(other.path + ".")


def _depth(row: Output) -> int:
    return row.path.count(".") if row.path else -1
