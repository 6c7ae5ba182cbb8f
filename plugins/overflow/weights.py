"""Bad weights: are they the fault, or what a step with bad gradients has left?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decode import Rows
from .incidents import Fault, has_place
from .origin import Finding
from .snapshot import Output

FEW = 0.25
"""Bad weights that are no more than this share of the bad gradients are a fault of their own."""
OF_SPOILT = frozenset({"weights", "weights_or_memory", "unknown"})
"""Causes that a fault has where the weights are bad already."""


class Weights:
    """What is known of the weights of one target."""

    def __init__(self) -> None:
        """Start knowing nothing."""
        self.rows: Rows | None = None
        self.bad_gradients: dict[int, Any] = {}

    def of_step(self, step: int) -> tuple[Output, ...] | None:
        """Return the weights that hold bad values in a step, None where nobody looked."""
        rows = self.rows
        if rows is None or rows.step > step or (rows.step != step and not rows.outputs):
            return None
        return rows.outputs

    @staticmethod
    def may_explain(finding: Finding, rows: Rows, fault: Fault | None) -> bool:
        """Tell whether bad weights, which a step with bad gradients may have left, explain a finding."""
        if fault is None or fault.cause == "weights":
            return False
        of_weights = finding.kind == "parameter" or finding.cause == "weights"
        # Weights are read some time after the step that they are told of.
        later = rows.step > fault.incident.first_step or rows.of_weights
        return later and (of_weights or (finding.cause in OF_SPOILT and not has_place(fault.incident)))

    def explain(self, finding: Finding, rows: Rows, fault: Fault | None, skips: Mapping[int, None]) -> bool:
        """Tell whether the fault before has spoilt the weights, so that a finding is a consequence."""
        if fault is None or not self.may_explain(finding, rows, fault):
            return False
        began, weights = fault.incident.first_step, self.rows
        # A skipped step changes no weight.
        if began in skips:
            return False
        gradients = self.bad_gradients.get(began, 0)
        if weights is not None and weights.outputs and weights.step >= began and gradients:
            return len(weights.outputs) > FEW * float(gradients)
        return True
