"""torch's own record of the operators of one step: started and ended on the training thread.

Of torch's two recorders this is the one without kineto.  kineto is one for the process: it needs ten times as
long to start and to end, prints two lines of its own each time, and an operator that is open when it ends
writes into freed memory if it closes while the next one runs.  This one belongs to a thread, prints
nothing, and an operator that outlives it is no harm.

torch allows one profiler a thread.  Where the training begins its own while ours is on, ours ends first.
"""

from __future__ import annotations

import functools
import sys
import threading
from time import monotonic
from typing import Any, Callable, List, Optional, Tuple

from . import modes, shell
from .process import raised_by_signal

BEGINNINGS = (
    ("torch.autograd.profiler", ("_prepare_profiler", "_enable_profiler")),
    ("torch.autograd.profiler_legacy", ("_enable_profiler_legacy",)),
    ("torch_npu.profiler.profiler_interface", ("_init_profiler", "_warmup_profiler", "_start_profiler")),
)
"""The names by which a profiler of the training's own begins, looked up there at each call."""


class Recorder:
    """The record of one thread, off until `start`."""

    def __init__(self) -> None:
        self.until_mono = 0.0
        """From then on it is to end at the first chance, whoever started it."""
        self._thread: Optional[int] = None
        self._end: Optional[Callable[[], Any]] = None
        """What ends a record that is held in this one's place."""
        self._swapped: List[Tuple[Any, str, Any, Any]] = []

    @property
    def is_on(self) -> bool:
        """Tell whether it records."""
        return self._thread is not None

    def start(self, shapes: bool, seconds: float) -> Optional[str]:
        """Record the operators of this thread and of its backward; return why that cannot be, or None.

        It is ended by force after `seconds`: what it keeps grows with each operator.
        """
        torch = sys.modules.get("torch")
        core: Any = getattr(getattr(torch, "_C", None), "_autograd", None)
        if torch is None or not hasattr(core, "_enable_profiler_legacy"):
            return "this torch has no recorder of operators that ends without harm"
        if self.is_on:
            return "the operators are recorded already"
        why = self.refusal()
        if why is not None:
            return why
        config = torch.autograd.ProfilerConfig(
            torch.autograd.ProfilerState.CPU,
            shapes,
            False,
            False,
            False,
            False,
            torch._C._profiler._ExperimentalConfig(),
        )
        self._swap()
        try:
            core._enable_profiler_legacy(config)
        except Exception as error:
            self._swap_back()
            if raised_by_signal(error):
                raise
            return "torch does not record: %s" % (str(error)[:200],)
        self._put_on(seconds)
        return None

    def hold(self, end: Callable[[], Any], seconds: float) -> None:
        """Stand for another record of this thread, begun by a probe: `end()` is called where this one ends.

        That is where the training begins a profiler of its own, when the time is over, at a detach, after a
        fault of ours, at the end of the training.
        """
        self._swap()
        self._end = end
        self._put_on(seconds)

    def release(self) -> None:
        """Let go of a record that was held; on its thread."""
        if self._end is not None and self._thread == threading.get_ident():
            self._end = None
            self._put_off()

    def _put_on(self, seconds: float) -> None:
        # torch warns of one that is on when its thread's state goes.
        shell.watch_exit()
        self._thread = threading.get_ident()
        self.until_mono = monotonic() + seconds
        modes.recorded = True

    def _put_off(self) -> None:
        self._thread = None
        modes.recorded = False
        self._swap_back()

    def refusal(self) -> Optional[str]:
        """Say why operators of this thread are not to be touched now, or None."""
        core: Any = getattr(getattr(sys.modules.get("torch"), "_C", None), "_autograd", None)
        enabled = getattr(core, "_profiler_enabled", None)
        if not self.is_on and ((enabled is not None and enabled()) or _is_npu_profiler_on()):
            return "the training's own profiler is on: what we do would be in its trace, or end it"
        return None

    def stop(self) -> Optional[List[List[Any]]]:
        """End the record and return the events of each thread; None where there is none to end here."""
        if self._thread is None or self._thread != threading.get_ident():
            return None
        if self._end is not None:
            end = self._end
            self.release()
            end()
            return None
        core = sys.modules["torch"]._C._autograd
        self._put_off()
        # With both options it forgets the thread's state and returns what it has.
        found = core._disable_profiler_legacy(core._ProfilerDisableOptions(True, True))
        return [list(one) for one in found]

    def end_if_due(self) -> bool:
        """End a record that is past its time, on its own thread; True when none is left."""
        if self.is_on and monotonic() > self.until_mono:
            self.stop()
        return not self.is_on

    def is_due(self) -> bool:
        """Tell whether a record is past its time; on any thread."""
        return self._thread is not None and monotonic() > self.until_mono

    def expire(self) -> None:
        """Have it end at the first chance; from any thread."""
        self.until_mono = 0.0

    def after_fork_in_child(self) -> None:
        """Record nothing in a forked child, whose one thread has the state of the one that forked.

        Ending it would take locks that another thread may have held; not recording takes none.
        """
        if self._thread == threading.get_ident():
            sys.modules["torch"]._C._autograd._enable_record_function(False)

    # A profiler of the training's own.

    def _give_way(self) -> None:
        if self._thread == threading.get_ident():
            self.stop()
            # Off in a forked child; harmless elsewhere.
            sys.modules["torch"]._C._autograd._enable_record_function(True)

    def _swap(self) -> None:
        for module_name, names in BEGINNINGS:
            module = sys.modules.get(module_name)
            for name in names:
                original = vars(module).get(name) if module is not None else None
                if original is not None:
                    ours = self._ahead_of(original)
                    self._swapped.append((module, name, original, ours))
                    setattr(module, name, ours)

    def _ahead_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **kwargs: Any) -> Any:
            try:
                self._give_way()
            except Exception as error:
                # The training's own call comes next, and says itself what is wrong.
                if raised_by_signal(error):
                    raise
                self._thread = None
            return original(*args, **kwargs)

        return functools.update_wrapper(begin, original)

    def _swap_back(self) -> None:
        while self._swapped:
            module, name, original, ours = self._swapped.pop()
            # Whoever has wrapped it meanwhile keeps ours below: it passes through.
            if vars(module).get(name) is ours:
                setattr(module, name, original)


def _is_npu_profiler_on() -> bool:
    """Tell whether torch_npu's profiler records: it wraps the methods of events meanwhile."""
    event = getattr(getattr(sys.modules.get("torch_npu"), "npu", None), "Event", None)
    return hasattr(getattr(event, "record", None), "origin_func")
