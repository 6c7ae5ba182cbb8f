"""The wrapper around GradScaler.update: where a step is skipped, no optimizer's hook tells of it."""

from __future__ import annotations

import functools
import sys
from typing import Any, List, Optional, Tuple

from .process import raised_by_signal
from .steps import Steps


class ScalerHook:
    """The wrapper around GradScaler.update, which alone knows of a skipped step.

    torch has no hook there, so the method is replaced on its class and put back on detach.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps: Optional[Steps] = steps
        # A wrapped `update` may call another one, of its base class.
        self._inside = False
        self._wrapped: List[Tuple[Any, Any, Any]] = []

    def put_in(self) -> None:
        """Wrap the GradScaler classes that are loaded, define `update` and are not wrapped yet."""
        torch = sys.modules.get("torch")
        npu = getattr(sys.modules.get("torch_npu"), "npu", None)
        sharded = sys.modules.get("torch.distributed.fsdp.sharded_grad_scaler")
        for place, name in (
            (getattr(torch, "amp", None), "GradScaler"),
            (getattr(npu, "amp", None), "GradScaler"),
            (sharded, "ShardedGradScaler"),
        ):
            scaler = getattr(place, name, None)
            if isinstance(scaler, type) and "update" in vars(scaler):
                self._wrap(scaler)

    def stop(self) -> None:
        """Make the wrappers pass through; they stay until `take_out`."""
        self._steps = None

    def _wrap(self, scaler: Any) -> None:
        original = vars(scaler)["update"]
        if any(one[0] is scaler for one in self._wrapped):
            return
        cell = self

        @functools.wraps(original)
        def update(self: Any, *args: Any, **kwargs: Any) -> Any:
            steps = cell._steps
            if steps is None or cell._inside:
                return original(self, *args, **kwargs)
            # The update forgets which optimizers there were, so they are read before.
            attempted = attempts(self)
            cell._inside = True
            try:
                result = original(self, *args, **kwargs)
            finally:
                cell._inside = False
            if attempted:
                steps.on_scaler_update(attempted, self)
            return result

        scaler.update = update
        self._wrapped.append((scaler, original, update))

    def take_out(self) -> bool:
        """Put the original methods back; False when somebody wrapped ours meanwhile."""
        self._steps = None
        left = []
        for scaler, original, update in self._wrapped:
            if vars(scaler).get("update") is update:
                scaler.update = original
            else:
                left.append((scaler, original, update))
        self._wrapped = left
        return not left


def attempts(scaler: Any) -> List[int]:
    """Return the ids of the optimizers that a GradScaler stepped, or would have, since its last update."""
    try:
        states = scaler._per_optimizer_states
        return [
            identity for identity, state in states.items() if getattr(state["stage"], "name", "") == "STEPPED"
        ]
    except Exception as error:
        if raised_by_signal(error):
            raise
        return []  # a scaler of another make: its skips cannot be told
