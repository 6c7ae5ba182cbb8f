"""What the module hooks need to know of torch: where they are registered, when not, and modules' names."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

from .modes import is_compile_in_use
from .steps import torch_module


def untraced(call: Callable[..., None], is_traced: Callable[..., Any]) -> Callable[..., None]:
    """Return a hook that calls `call`, and is nothing to torch.compile when it traces a module.

    Without it a compilation while the hooks are in breaks the graph at them for good, or, with
    fullgraph=True, raises in the training.
    """

    def ascend_tui_module(*args: Any) -> None:
        if not is_traced():
            call(*args)

    return ascend_tui_module


def module_hooks() -> Tuple[Any, Any]:
    """Return torch's dictionaries of global hooks that run before and after a module's forward."""
    module = torch_module("torch.nn.modules.module", "_global_forward_pre_hooks", "_global_forward_hooks")
    return getattr(module, "_global_forward_pre_hooks", None), getattr(module, "_global_forward_hooks", None)


def module_refusal() -> Optional[str]:
    """Say why module hooks must not go in now, or None."""
    # torch warns of global hooks when a compiled model is called; here that would raise.
    warnings = sys.modules.get("warnings")
    if is_compile_in_use() and any(one[0] == "error" for one in getattr(warnings, "filters", ())):
        return "torch.compile is in use and warnings are errors: torch warns of module hooks"
    return None


def is_at_a_modules_hooks(frame: Any) -> bool:
    """Tell whether a thread at `frame` may be where torch walks the live dictionary of module hooks."""
    callee = ""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_call_impl" and callee not in ("inner", "forward"):
            return True
        callee = code.co_name
        frame = frame.f_back
    return False


class ModulePaths:
    """Names of modules as the user wrote them, learnt from the outermost module of a call.

    Modules are known by their address, which another one may have later: hence the weak references.
    """

    def __init__(self) -> None:
        self.faults = 0
        self._names: Dict[int, Tuple[Any, str]] = {}
        self._roots: Dict[int, Any] = {}

    def learn(self, root: Any) -> None:
        """Read the names below `root`, once per root."""
        known = self._roots.get(id(root))
        if known is not None and known() is root:
            return
        if len(self._names) > 200000 or len(self._roots) > 10000:
            self._names.clear()
            self._roots.clear()
        self._roots[id(root)] = weakref.ref(root)
        for name, module in root.named_modules():
            # A checkpointed block that is recomputed comes as a root too: the longer name is the whole.
            present = self._names.get(id(module))
            if present is None or present[0]() is not module or len(name) > len(present[1]):
                self._names[id(module)] = (weakref.ref(module), name)

    def path(self, module: Any) -> str:
        """Return the module's path, or its class name where it is not known."""
        reference, name = self._names.get(id(module), (None, ""))
        return name if name and reference() is module else type(module).__name__
