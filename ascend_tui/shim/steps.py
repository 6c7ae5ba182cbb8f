"""Where a training step ends, told by one permanent optimizer hook.

The hook is a trampoline that reads a slot: only the slot changes afterwards, because adding or
removing an optimizer hook while torch iterates over them kills the training.  A step ends at the
first optimizer call of an iteration, or where a GradScaler skipped the optimizer (scaler.py), or,
in a process without an optimizer, where the module hooks (hooks.py) see the outermost call return.
"""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import threading
import weakref
from collections import deque
from time import perf_counter_ns
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from .process import raised_by_signal

SAMPLES = 256
MOST_OPTIMIZERS = 256
NEVER = float("inf")
_RESUMED = 0x20 | 0x80 | 0x200
"""Code flags of generators and coroutines, whose caller can change while their frame stays."""


def torch_module(name: str, *needs: str) -> Any:
    """Return a module of torch that is loaded and has the names in `needs`, else None.

    While torch is being imported its modules stand in sys.modules half filled.
    """
    torch = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return None
    module = sys.modules.get(name)
    return module if module is not None and all(hasattr(module, one) for one in needs) else None


def undisturbed(is_inside: Callable[[Any], bool], act: Callable[[Any], Any], argument: Any) -> bool:
    """Call `act(argument)` at a moment when `is_inside(frame)` holds for no thread; False if there was none.

    A thread switch can come only between two bytecodes.  So the stacks are read, and then one single
    call into C both compares every thread's present frame with the one read and acts: a frame that
    still runs has the callers it had.  `act` must be a C function for the same reason.
    """
    frames = sys._current_frames()
    frame: Any = None
    try:
        for frame in frames.values():
            if frame.f_code.co_flags & _RESUMED or is_inside(frame):
                return False
        unchanged = map(functools.partial(operator.eq, frames), iter(sys._current_frames, None))
        return bool(list(map(act, itertools.compress((argument,), unchanged))))
    finally:
        # One of the frames is our own: the cycle would keep every thread's variables, tensors too.
        frame = None
        frames.clear()


def is_inside_optimizer_step(frame: Any) -> bool:
    """Tell whether a thread at `frame` is inside torch's wrapper of an optimizer's step."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "wrapper" and code.co_filename.endswith("optimizer.py"):
            return True
        frame = frame.f_back
    return False


def trampoline(cell: List[Any]) -> Callable[[Any, Any, Any], None]:
    """Return the hook that stays: it calls what is in `cell[0]`, and nothing when that is None."""

    def ascend_tui_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        slot = cell[0]
        if slot is not None:
            try:
                slot(optimizer)
            except Exception as error:
                # The slot guards itself; this holds even when the guard is what failed.
                if raised_by_signal(error):
                    raise
                cell[0] = None

    return ascend_tui_step


class Steps:
    """Count steps, time them, and call `at_boundary` on the training thread where one ends.

    `step` counts attempts and `skipped` those a GradScaler skipped.  Optimizers that step one after
    the other (GAN, one per parameter) belong to one step: a new one begins when an optimizer comes
    that has already been in the present one.

    While `is_calm()` holds nothing of ours waits for a boundary, and a training with one optimizer pays
    for a clock and a note that the shim's thread reads later.
    """

    def __init__(
        self,
        at_boundary: Callable[[], None],
        on_fault: Callable[[str], None],
        is_calm: Callable[[], bool] = bool,
    ) -> None:
        self.step = 0
        self.skipped = 0
        self.source = ""
        # (nanoseconds, whether hooks were armed in it, its number), newest last.
        self.durations: Deque[Tuple[int, bool, int]] = deque(maxlen=SAMPLES)
        self.in_hook_ns: Deque[int] = deque(maxlen=SAMPLES)
        self.armed = False
        self.last_boundary_ns = 0
        self._at_boundary = at_boundary
        self._on_fault = on_fault
        self._is_calm = is_calm
        # The only optimizer of a calm training by its id, else 0.
        self._calm = 0
        self.calm_until = NEVER
        """The step in whose boundary something is due, however calm it is until then."""
        self.at_optimizer: Optional[Callable[[Any], None]] = None
        """What wants to see each optimizer that steps, or would have; swapped at a boundary."""
        self.at_scaler: Optional[Callable[[Any, bool], None]] = None
        """What wants to see a GradScaler right after its update, and whether that step was skipped."""
        self.aside_ns = 0
        """Our time in this step outside its boundary: see taps.py."""
        self._optimizers: Dict[int, Any] = {}
        # (nanoseconds of the step, nanoseconds of them in here, its number) since the last `settle`.
        self._plain: Deque[Tuple[int, int, int]] = deque(maxlen=SAMPLES)
        self._seen: Set[int] = set()
        self._stepped: Set[int] = set()
        self._scaler_known = False
        # Two threads may step at once; the second goes on without a boundary and never waits.
        self._at_one = threading.Lock()

    def on_optimizer(self, optimizer: Any) -> None:
        """Take the end of one optimizer's step; runs in the training, so it never raises our faults."""
        began = perf_counter_ns()
        try:
            identity = id(optimizer)
            if identity == self._calm and self.step + 1 < self.calm_until:
                last, self.last_boundary_ns = self.last_boundary_ns, began
                self.step += 1
                aside, self.aside_ns = self.aside_ns, 0
                self._plain.append((began - last, perf_counter_ns() - began + aside, self.step))
                return
            if identity not in self._optimizers:
                self._know(optimizer)
            if self._scaler_known:
                self._stepped.add(identity)
            look = self.at_optimizer
            if look is not None:
                look(optimizer)
            if len(self._seen) == 1 and identity in self._seen:
                self.end_step("optimizer", began)
                self._calm = 0 if self._scaler_known or not self._is_calm() else identity
            else:
                self._calm = 0
                self._attempt(identity, began)
        except Exception as error:
            if raised_by_signal(error):
                raise
            self._on_fault("step hook: %r" % (error,))

    def _know(self, optimizer: Any) -> None:
        # A GradScaler tells only the id of an optimizer that it did not let step.
        if len(self._optimizers) >= MOST_OPTIMIZERS:
            self._optimizers.clear()
        self._optimizers[id(optimizer)] = weakref.ref(optimizer)

    def wake(self) -> None:
        """Have the next step end with a boundary; from any thread."""
        self._calm = 0

    def settle(self) -> List[Tuple[int, int]]:
        """Take over the steps of the calm time and return their times and ours in them (shim thread)."""
        settled: List[Tuple[int, int, int]] = []
        while self._plain:
            settled.append(self._plain.popleft())
        self.durations.extend((duration_ns, False, step) for duration_ns, _, step in settled)
        self.in_hook_ns.extend(hook_ns for _, hook_ns, _ in settled)
        return [(duration_ns, hook_ns) for duration_ns, hook_ns, _ in settled]

    def on_scaler_update(self, attempted: List[int], scaler: Any = None) -> None:
        """Take a GradScaler's update; `attempted` are the optimizers that it was to step since the last."""
        began = perf_counter_ns()
        try:
            # The first update after an attach may close an iteration of which we saw only the end.
            if self._scaler_known:
                skipped = [one for one in attempted if one not in self._stepped]
                whole = bool(skipped) and len(skipped) == len(attempted)
                if whole:
                    self.skipped += 1
                look = self.at_scaler
                if look is not None and scaler is not None:
                    look(scaler, whole)
                for identity in skipped:
                    self._look_at_skipped(identity)
                    self._attempt(identity, began)
            self._scaler_known = True
            self._calm = 0
            self._stepped.difference_update(attempted)
        except Exception as error:
            if raised_by_signal(error):
                raise
            self._on_fault("scaler hook: %r" % (error,))

    def _look_at_skipped(self, identity: int) -> None:
        look, known = self.at_optimizer, self._optimizers.get(identity)
        optimizer = known() if known is not None else None
        if look is not None and optimizer is not None:
            look(optimizer)

    def _attempt(self, identity: int, began_ns: int) -> None:
        seen = self._seen
        if seen and identity not in seen:
            seen.add(identity)
            return
        if len(seen) != 1:
            seen.clear()
            seen.add(identity)
        self.end_step("optimizer", began_ns)

    def end_step(self, source: str, began_ns: int) -> None:
        """End the present step; `began_ns` is when our code started to run."""
        if not self._at_one.acquire(False):
            return
        try:
            last = self.last_boundary_ns
            if last:
                self.durations.append((began_ns - last, self.armed, self.step + 1))
            self.last_boundary_ns = began_ns
            self.step += 1
            self.source = source
            self._at_boundary()
            aside, self.aside_ns = self.aside_ns, 0
            self.in_hook_ns.append(perf_counter_ns() - began_ns + aside)
        finally:
            self._at_one.release()


class OptimizerHook:
    """The one global optimizer hook of torch: put in, taken out, and what is left when it cannot be.

    Putting it in is exact when no hook is registered: torch's loop over an empty dictionary ends
    before any Python code can run, so that no loop can see the change.  Otherwise, and for taking it
    out, no thread may be inside torch's wrapper of `step`.  The key is our own: torch's handle counts
    its keys without a lock, and the training counts at the same time.
    """

    def __init__(self, cell: List[Any]) -> None:
        self.cell = cell
        self.key: Optional[int] = None
        self._hook = trampoline(cell)

    @staticmethod
    def _hooks() -> Any:
        module = torch_module("torch.optim.optimizer", "register_optimizer_step_post_hook")
        return getattr(module, "_global_optimizer_post_hooks", None)

    def is_ready(self) -> bool:
        """Tell whether torch is loaded far enough."""
        return self._hooks() is not None

    def put_in_if_empty(self) -> bool:
        """Register when no other global hook exists; any thread may call this."""
        hooks = self._hooks()
        if hooks is None or len(hooks):
            return False
        hooks[-id(self)] = self._hook
        self.key = -id(self)
        return True

    def put_in(self) -> bool:
        """Register unless a thread is inside an optimizer step; any thread may call this, again and again."""
        hooks = self._hooks()
        if self.key is not None or hooks is None:
            return self.key is not None
        register = functools.partial(hooks.__setitem__, -id(self))
        if not undisturbed(is_inside_optimizer_step, register, self._hook):
            return False
        self.key = -id(self)
        return True

    def take_out_from_inside(self) -> bool:
        """Remove the hook from inside its own call, which is exact while it is the last one.

        An OrderedDict iterator looks for changes only when it has a next item to give.  Another
        thread's iterator may stand before our item, so none may be inside a step.
        """
        hooks = self._hooks()
        if hooks is None or self.key is None or next(reversed(hooks)) != self.key:
            return False
        me = threading.get_ident()
        others = [frame for thread, frame in sys._current_frames().items() if thread != me]
        if len(hooks) > 1 and any(map(is_inside_optimizer_step, others)):
            return False
        del hooks[self.key]
        self.key = None
        return True

    def take_out(self) -> bool:
        """Remove the hook unless a thread is inside an optimizer step; any thread may call this."""
        hooks = self._hooks()
        if hooks is None or self.key is None or self.key not in hooks:
            self.key = None
            return True
        if not undisturbed(is_inside_optimizer_step, hooks.__delitem__, self.key):
            return False
        self.key = None
        return True
