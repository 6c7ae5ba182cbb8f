"""A dispatch mode that sits at the bottom of torch's mode stack.

On top it would be popped by the `with` of a mode that the user had open, which leaves theirs active
for ever.  A mode is thread-local: everything here runs on the training thread.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Callable, List, Optional, Tuple

recorded = False
"""Whether the operators of a step are recorded just now (recorder.py): ours are not to be among them."""


class unseen:
    """Let operators of ours run so that neither autograd nor a mode of the training's sees them."""

    def __enter__(self) -> None:
        core = sys.modules["torch"]._C
        self._recorded = recorded
        if recorded:
            core._autograd._enable_record_function(False)
        self._grad = core.is_grad_enabled()
        self._guards: Tuple[Any, ...] = ()
        if core._len_torch_function_stack() or core._len_torch_dispatch_stack():
            self._guards = (core.DisableTorchFunction(), core._DisableTorchDispatch())
        for guard in self._guards:
            guard.__enter__()
        core._set_grad_enabled(False)

    def __exit__(self, *_: Any) -> None:
        sys.modules["torch"]._C._set_grad_enabled(self._grad)
        for guard in reversed(self._guards):
            guard.__exit__(None, None, None)
        if self._recorded:
            sys.modules["torch"]._C._autograd._enable_record_function(True)


def _python_dispatch() -> Any:
    return sys.modules.get("torch.utils._python_dispatch")


def make_mode(is_live: Callable[[], bool], before: Callable[..., None], after: Callable[..., None]) -> Any:
    """Build the mode: the user's op runs outside our guards, whatever they do."""
    base = _python_dispatch().TorchDispatchMode

    class AscendTuiMode(base):  # type: ignore[misc, valid-type]
        # The default wraps __torch_dispatch__ so that its first call imports torch._dynamo: seconds.
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        # Otherwise a first compilation while we are in falls back to eager for good, or, with
        # fullgraph=True, raises in the training.
        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if not is_live():
                return func(*args, **kwargs)
            before(func, args, kwargs)
            result = func(*args, **kwargs)
            after(func, args, kwargs, result)
            return result

    return AscendTuiMode()


def is_compile_in_use() -> bool:
    """Tell whether torch.compile has compiled anything in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    # With fullgraph=True only the second one counts.
    return bool(counters.get("frames") or counters.get("stats"))


def refusal() -> Optional[str]:
    """Say why an op mode must not go in now, or None."""
    torch = sys.modules.get("torch")
    dispatch = _python_dispatch()
    if torch is None or dispatch is None:
        return "torch is not loaded"
    if is_compile_in_use():
        return "torch.compile is in use: the operators inside compiled code cannot be seen"
    keys = getattr(torch._C, "_TorchDispatchModeKey", None)
    for name in ("FAKE", "PROXY", "FUNCTIONAL"):
        key = getattr(keys, name, None)
        if key is not None and torch._C._get_dispatch_mode(key) is not None:
            return "torch is tracing (%s mode)" % name.lower()
    return None


class BottomMode:
    """Put one mode below all others of this thread, and take it out from wherever it is.

    It is pushed and popped without `with`: that would save torch's flags "a mode is open" as they
    are while the user's own mode is, and write them back after it is closed, when they would tell
    torch.compile for ever to fall back to eager.
    """

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self.thread: Optional[int] = None

    def put_in(self) -> None:
        """Insert the mode on the calling thread."""
        dispatch = _python_dispatch()
        above: List[Any] = []
        try:
            while dispatch._len_torch_dispatch_stack():
                above.append(dispatch._pop_mode())
            dispatch._push_mode(self.mode)
            self.thread = threading.get_ident()
        finally:
            _lower(dispatch, above)

    def take_out(self) -> bool:
        """Remove the mode; False on another thread, or inside one of its own calls, where torch holds it."""
        if self.thread is None:
            return True
        if self.thread != threading.get_ident():
            return False
        dispatch = _python_dispatch()
        if not any(one is self.mode for one in dispatch._get_current_dispatch_mode_stack()):
            return False
        above: List[Any] = []
        try:
            while self.thread is not None:
                top = dispatch._pop_mode()
                if top is self.mode:
                    self.thread = None
                else:
                    above.append(top)
        finally:
            _lower(dispatch, above)
        return True


def _lower(dispatch: Any, above: List[Any]) -> None:
    while above:
        dispatch._push_mode(above[-1])
        above.pop()
