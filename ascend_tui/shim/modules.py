"""What the module hooks need to know of torch: where they are registered, when not, and modules' names."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

from .modes import is_compile_in_use
from .steps import torch_module, undisturbed


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


class ModuleHooks:
    """The one pair of global module hooks: put in, and taken out again without harm."""

    def __init__(self, key: int, before: Callable[..., None], after: Callable[..., None]) -> None:
        self.registered = False
        self._key, self._before, self._after = key, before, after

    def put_in(self, from_afar: bool = False) -> None:
        """Register both; `from_afar` from another thread, at a moment when that is safe."""
        before, after = module_hooks()
        if after is None:
            return
        torch = sys.modules["torch"]
        compiler = getattr(torch, "compiler", None)
        is_traced = (
            getattr(compiler, "is_dynamo_compiling", None) or getattr(compiler, "is_compiling", None) or bool
        )
        ours = untraced(self._after, is_traced)
        # First, so that a KeyboardInterrupt in the next lines leaves nothing that nobody removes.
        self.registered = True
        if from_afar and len(after):
            register = functools.partial(after.__setitem__, self._key)
            if not undisturbed(is_at_a_modules_hooks, register, ours):
                self.registered = False
                return
        else:
            after[self._key] = ours
        before[self._key] = untraced(self._before, is_traced)
        if not self.registered:
            # The training thread dropped them between the two lines.
            before.pop(self._key, None)

    def drop(self, from_afar: bool = False) -> bool:
        """Unregister both; True when none is left.

        torch calls hooks from a copy, but where a forward raises it walks the live dictionary, and an
        entry of ours that vanishes there replaces the user's exception.  So another thread
        (`from_afar`) may remove them only while ours is the only entry or nobody is at that place.
        """
        before, after = module_hooks()
        if after is not None and self._key in after:
            if from_afar and len(after) > 1:
                if not undisturbed(is_at_a_modules_hooks, after.__delitem__, self._key):
                    return False
            else:
                after.pop(self._key, None)
        if before is not None:
            before.pop(self._key, None)
        self.registered = False
        return True


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

    def parameter_names(self) -> Dict[int, str]:
        """Return the names of the parameters below the known roots, the longer of two; on any thread."""
        names: Dict[int, str] = {}
        for reference in list(self._roots.values()):
            root = reference()
            if root is not None:
                for name, parameter in root.named_parameters():
                    if len(name) > len(names.get(id(parameter), "")):
                        names[id(parameter)] = name
        return names

    def path(self, module: Any) -> str:
        """Return the module's path, or its class name where it is not known."""
        reference, name = self._names.get(id(module), (None, ""))
        return name if name and reference() is module else type(module).__name__
