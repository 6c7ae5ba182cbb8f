"""Places that a training passes once or twice a step: the root of a backward, a GradScaler's update.

torch has no hook at either.  While a probe listens, `torch.autograd.backward`, which `Tensor.backward` looks
up at each call, is a function of ours that looks and calls the original.
"""

from __future__ import annotations

import functools
import sys
from time import perf_counter_ns
from typing import Any, Callable, List, Optional, Tuple

from .modes import unseen
from .process import raised_by_signal
from .steps import Steps, torch_module

MOST_ROOTS = 4


class Tap:
    """A probe's callback at one of these places; off until it is switched on.

    Of the place "loss" `call(root, step)` gets each one-element tensor that a backward begins at, before it
    does.  Of "scaler" `call(scaler, skipped, step)` comes right after an update.  `step` is the number of the
    step that this belongs to.
    """

    def __init__(self, probe: Any, place: str, call: Callable[..., Any]) -> None:
        self.probe = probe
        self.place = place
        self.call = call
        self.on = False


class Taps:
    """Serve the taps of all probes.  What they cost is counted into the step."""

    def __init__(self, steps: Steps, board: Any, on_fault: Callable[[Any, str, Exception], None]) -> None:
        self._steps = steps
        self._board = board
        self._on_fault = on_fault
        self._loss: Tuple[Tap, ...] = ()
        self._scaler: Tuple[Tap, ...] = ()
        self._is_broken = False
        self._ours: Optional[Callable[..., Any]] = None
        self._original: Optional[Callable[..., Any]] = None

    def serve(self, taps: List[Tap]) -> None:
        """Listen for the taps that are on, and nowhere for none; on the shim's thread.

        Replacing one attribute is one step for the interpreter: a backward that runs has read it already.
        """
        on = [one for one in taps if one.on and one.probe.failed is None and not self._is_broken]
        self._loss = tuple(one for one in on if one.place == "loss")
        self._scaler = tuple(one for one in on if one.place == "scaler")
        self._steps.at_scaler = self._at_scaler if self._scaler else None
        if self._loss and self._ours is None:
            self._put_in()
        elif not self._loss:
            self.take_out()

    def _put_in(self) -> None:
        autograd = torch_module("torch.autograd", "backward")
        if autograd is None:
            return
        original, taps = autograd.backward, self

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if taps._loss:
                try:
                    taps._at_backward(args[0] if args else kwargs.get("tensors"))
                except Exception as error:
                    taps._fault(error)
            return original(*args, **kwargs)

        self._original, self._ours = original, backward
        autograd.backward = backward

    def _fault(self, error: Exception) -> None:
        # Our own code failed, not that of a probe: nothing is listened to any more.
        if raised_by_signal(error):
            raise error
        self._is_broken = True
        self._loss = ()
        self._on_fault(None, "taps", error)

    def take_out(self) -> bool:
        """Put the original back; False when somebody has wrapped ours, which then passes through."""
        self._loss = ()
        autograd = sys.modules.get("torch.autograd")
        if self._ours is None or autograd is None:
            return True
        if vars(autograd).get("backward") is not self._ours:
            return False
        autograd.backward = self._original  # type: ignore[attr-defined]
        self._ours = self._original = None
        return True

    def stop(self) -> bool:
        """Listen no more, for good; False when our function has to stay where it is."""
        self._scaler = ()
        self._steps.at_scaler = None
        return self.take_out()

    def _at_backward(self, tensors: Any) -> None:
        began = perf_counter_ns()
        core = sys.modules["torch"]._C
        roots = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
        # Within a backward it is a checkpoint's own, which begins at whatever the block returned.
        node = getattr(core, "_current_autograd_node", None)
        if node is None or node() is None:
            with unseen():
                self._show(roots[:MOST_ROOTS])
        self._steps.aside_ns += perf_counter_ns() - began

    def _show(self, roots: Any) -> None:
        tensor = sys.modules["torch"].Tensor
        for root in roots:
            if type(root) is tensor and root.numel() == 1:
                for tap in self._loss:
                    self._call(tap, root, self._steps.step + 1)

    def _at_scaler(self, scaler: Any, skipped: bool) -> None:
        for tap in self._scaler:
            self._call(tap, scaler, skipped, self._steps.step + skipped)

    def _call(self, tap: Tap, *args: Any) -> None:
        if not tap.on or tap.probe.failed is not None:
            return
        quiet, self._board.quiet = self._board.quiet, True
        try:
            tap.call(*args)
        except Exception as error:
            if raised_by_signal(error):
                raise
            tap.on = False
            self._on_fault(tap.probe, tap.place + " tap", error)
        finally:
            self._board.quiet = quiet
