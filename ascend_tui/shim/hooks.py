"""The one module hook, the one dispatch mode and the calls at a step, shared by all probes.

Off means unregistered.  What is live is chosen at each step boundary for the step that follows.  A hook
past its lease passes through and removes itself at its next entry, also when no step ever ends again.
"""

from __future__ import annotations

import sys
from time import monotonic, perf_counter_ns
from typing import Any, Callable, Dict, List, Optional, Tuple

from .governor import Governor
from .hook import Hook
from .modes import BottomMode, make_mode, refusal
from .modules import ModuleHooks, ModulePaths, module_refusal
from .process import raised_by_signal
from .recorder import Recorder
from .steps import NEVER, Steps

NO_OPTIMIZER_S = 3.0
SURELY_NO_OPTIMIZER_S = 30.0


class Switchboard:
    """Register, call and remove the shared hooks.

    `on_fault(probe, where, error)` is told of every exception of a callback; the callback's probe
    must then be disabled.  A fault of our own (probe None) switches all hooks off for good.
    Methods are called on the training thread unless they say otherwise.
    """

    def __init__(
        self, steps: Steps, governor: Governor, on_fault: Callable[[Any, str, Exception], None]
    ) -> None:
        self.hooks: List[Hook] = []
        self.quiet = False
        """Code of ours runs on the training thread: its operators are not the training's."""
        self.broken: Optional[str] = None
        self.paths = ModulePaths()
        self._steps = steps
        self._governor = governor
        self._on_fault = on_fault
        self._modules: Tuple[Hook, ...] = ()
        self._ops: Tuple[Hook, ...] = ()
        self._op_befores: Tuple[Hook, ...] = ()
        self._at_steps: Tuple[Hook, ...] = ()
        self._at_optimizers: Tuple[Hook, ...] = ()
        self._module_hooks = ModuleHooks(-id(self), self._before_module, self._after_module)
        self._chosen = False
        self._mode: Optional[BottomMode] = None
        self.recorder = Recorder()
        self._deadline = NEVER
        self._outer = 0
        self._wanted_since = 0.0
        self._spent_ns = 0

    # Choosing.

    def at_boundary(self, hook_ns: int) -> None:
        """Account for the step that ended, choose what is live in the next one, and call what is to begin it.

        `hook_ns` is what this function and the rest of us took where the step that ended began.
        """
        steps = self._steps
        self._outer = 0
        if steps.durations:
            duration, armed, _ = steps.durations[-1]
            governed = armed and any(one.live and one.is_governed for one in self.hooks)
            self._governor.observe(duration, armed, self._spent_ns + hook_ns, governed)
        self._spent_ns = 0
        self._finish(self._modules + self._ops + self._at_optimizers)
        if self.is_wanted():
            self._switch_steps(self._choose())
            self._guard_mode()

    def in_capture(self) -> None:
        """Take a boundary at which the training records a graph: nothing is switched, and nothing begins.

        What a step hook would do then (give memory back, change the allocator) breaks the capture.
        """
        for hook in self.hooks:
            if hook.armed and hook.kind == "step" and hook.until_step is None:
                hook.refuse("the training records a graph just now; ask again when it has")

    def is_wanted(self) -> bool:
        """Tell whether the next boundary has something to switch."""
        if self._module_hooks.registered or self._mode is not None or any(hook.live for hook in self.hooks):
            return True
        armed = [hook for hook in self.hooks if hook.armed]
        if not armed:
            return self._chosen
        # Between two steps in which a check runs nothing has to be switched.
        return (
            any(hook.until_step is None for hook in armed) or self._steps.step + 1 >= self._steps.calm_until
        )

    def _choose(self) -> List[Hook]:
        """Choose what is live in the step that begins; return the step hooks that were, and are not now."""
        step, now = self._steps.step, monotonic()
        chosen: Dict[str, List[Hook]] = {"module": [], "op": [], "step": [], "optimizer": []}
        rested: List[Hook] = []
        armed = False
        due: float = NEVER
        plain = self._governor.wants_plain_step()
        for hook in self.hooks:
            if hook.armed and self.broken is not None:
                hook.refuse(self.broken)
            if hook.armed and hook.until_step is None:
                hook.until_step = step + hook.steps
            if hook.armed and (step >= (hook.until_step or 0) or now > hook.until_mono):
                hook.armed = False
            hook.pace = hook.every * (self._governor.thinning if hook.is_governed else 1)
            was_live = hook.live
            hook.live = hook.armed and step % hook.pace == 0 and not (hook.is_governed and plain)
            armed = armed or hook.armed
            if hook.armed:
                due = min(due, hook.until_step or 0, step - step % hook.pace + hook.pace)
            if hook.live:
                chosen[hook.kind].append(hook)
            elif was_live and hook.rest is not None and not hook.retired:
                rested.append(hook)
        self._steps.calm_until = due
        self._modules, self._ops, self._at_steps, self._at_optimizers = map(tuple, chosen.values())
        self._op_befores = tuple(one for one in self._ops if one.before is not None)
        self._steps.at_optimizer = self.at_optimizer if self._at_optimizers else None
        # Without an optimizer the module hooks also tell where a step ends, so they stay while armed.
        watched = armed and any(one.armed and one.kind != "optimizer" for one in self.hooks)
        self._switch_modules(bool(self._modules) or (watched and self._steps.source != "optimizer"))
        self._switch_ops(bool(self._ops))
        self._deadline = min([one.until_mono for one in self._modules + self._ops] or [NEVER])
        self._steps.armed = any(chosen.values())
        self._chosen = armed
        if not armed:
            self._governor.rest()
        return rested

    def _switch_steps(self, rested: List[Hook]) -> None:
        step = self._steps.step
        self.quiet = True
        try:
            for hook in rested:
                if hook.rest is not None:
                    self._call(hook, hook.rest, step)
            for hook in self._at_steps:
                # Disarmed from another thread meanwhile, it is not begun any more.
                if hook.armed:
                    self._call(hook, hook.after, step)
        finally:
            self.quiet = False

    def _finish(self, hooks: Tuple[Hook, ...]) -> None:
        """Tell the hooks that ran in the step that it has ended."""
        self.quiet = True
        try:
            for hook in hooks:
                if hook.done is not None and hook.live and not hook.retired:
                    self._call(hook, hook.done, self._steps.step)
        finally:
            self.quiet = False

    def at_optimizer(self, optimizer: Any) -> None:
        """Show an optimizer that stepped, or was kept from it, to the hooks that are live."""
        began = perf_counter_ns()
        self.quiet = True
        try:
            for hook in self._at_optimizers:
                if hook.armed:
                    self._call(hook, hook.after, optimizer)
        finally:
            self.quiet = False
            self._spent_ns += perf_counter_ns() - began

    def _switch_modules(self, on: bool) -> None:
        if on and not self._module_hooks.registered:
            why = module_refusal()
            if why is not None:
                for hook in self._modules:
                    hook.refuse(why)
                    hook.live = False
                self._modules = ()
                return
            self._module_hooks.put_in()
        elif not on and self._module_hooks.registered:
            self.drop_module_hooks()

    def drop_module_hooks(self, from_afar: bool = False) -> bool:
        """Unregister the module hooks; True when none is left."""
        return self._module_hooks.drop(from_afar)

    def _switch_ops(self, on: bool) -> None:
        if on and self._mode is None:
            why = refusal() or self.recorder.refusal()
            if why is not None:
                for hook in self._ops:
                    hook.refuse(why)
                    hook.live = False
                self._ops = ()
                return
            bottom = BottomMode(make_mode(self._is_op_live, self._before_op, self._after_op))
            self._mode = bottom
            bottom.put_in()
        elif not on:
            self.take_out_mode()

    def _guard_mode(self) -> None:
        """Have the mode go where the training begins to profile: each operator would be in it twice."""
        if self._mode is not None and not self.recorder.is_on:
            self.recorder.hold(self._give_way, max(self._deadline - monotonic(), 1.0))

    def _give_way(self) -> None:
        for hook in self._ops:
            hook.refuse("the training's own profiler began")
        self._ops = ()
        self.take_out_mode()

    # Running.

    def _call(self, hook: Hook, call: Callable[..., Any], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            if raised_by_signal(error):
                raise
            self._on_fault(hook.probe, hook.kind + " hook", error)

    def _fault(self, where: str, error: Exception) -> None:
        # Our own code failed: the training's exception it is not, so it ends here, and so do the hooks.
        if raised_by_signal(error):
            raise error
        if self.broken is None:
            self._on_fault(None, where, error)
        self.break_off("the hooks are off after a fault of the shim")

    def break_off(self, why: str) -> None:
        """Switch all hooks off for good; commands end with the reason."""
        self.broken = self.broken or why
        for hook in self.hooks:
            if hook.armed:
                hook.refuse(self.broken)
        self._modules = self._ops = self._at_steps = self._at_optimizers = ()
        self.drop_module_hooks()

    def _before_module(self, module: Any, inputs: Any) -> None:
        began = perf_counter_ns()
        try:
            # A forward that raised left no return: the same module coming again is the outermost one anew.
            if not self._outer or id(module) == self._outer:
                self._enter(module)
            if monotonic() > self._deadline or not self._modules:
                self._expire_here()
            self.quiet = True
            for hook in self._modules:
                if hook.armed and hook.before is not None:
                    self._call(hook, hook.before, module, inputs)
        except Exception as error:
            self._fault("module hook", error)
        finally:
            self.quiet = False
            self._spent_ns += perf_counter_ns() - began

    def _enter(self, module: Any) -> None:
        self._outer = id(module)
        if not self._modules:
            return
        if type(module).__name__ == "OptimizedModule":
            for hook in self._modules:
                hook.refuse("the whole model is compiled (torch.compile): its modules cannot be seen")
            self._expire_here()
            return
        try:
            self.paths.learn(module)
        except Exception as error:
            if raised_by_signal(error):
                raise
            # A named_modules of the user's own that fails costs the names, not the check.
            self.paths.faults += 1

    def _after_module(self, module: Any, inputs: Any, output: Any) -> None:
        began = perf_counter_ns()
        try:
            if monotonic() > self._deadline:
                self._expire_here()
            self.quiet = True
            for hook in self._modules:
                if hook.armed:
                    self._call(hook, hook.after, module, inputs, output)
            self._spent_ns += perf_counter_ns() - began
            if id(module) == self._outer:
                self._outer = 0
                if self._steps.source != "optimizer" and self._is_step_without_optimizer():
                    self._steps.end_step("module", began)
        except Exception as error:
            self._fault("module hook", error)
        finally:
            self.quiet = False

    def _is_op_live(self) -> bool:
        return bool(self._ops) and not self.quiet

    def _before_op(self, func: Any, args: Any, kwargs: Any) -> None:
        if not self._op_befores:
            return
        began = perf_counter_ns()
        try:
            for hook in self._op_befores:
                if hook.armed and hook.before is not None and monotonic() <= self._deadline:
                    self._call(hook, hook.before, func, args, kwargs)
        except Exception as error:
            self._fault("op hook", error)
        finally:
            self._spent_ns += perf_counter_ns() - began

    def _after_op(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        began = perf_counter_ns()
        try:
            if monotonic() > self._deadline:
                self._expire_here()
            for hook in self._ops:
                if hook.armed:
                    self._call(hook, hook.after, func, args, kwargs, result)
        except Exception as error:
            self._fault("op hook", error)
        finally:
            self._spent_ns += perf_counter_ns() - began

    # Ending without a boundary.

    def _expire_here(self) -> None:
        """Switch off, on the training thread, what is past its lease."""
        self._end_leases()
        self._modules = tuple(one for one in self._modules if one.armed)
        self._ops = tuple(one for one in self._ops if one.armed)
        self._deadline = min([one.until_mono for one in self._modules + self._ops] or [NEVER])
        if not any(one.armed for one in self.hooks):
            self.drop_module_hooks()

    def _end_leases(self) -> None:
        now = monotonic()
        for hook in self.hooks:
            if hook.armed and self.broken is not None:
                hook.refuse(self.broken)
            if hook.armed and now > hook.until_mono:
                hook.armed = False
            if not hook.armed and not self._module_hooks.registered and self._mode is None:
                hook.live = False

    def expire(self) -> None:
        """Switch off what is past its lease; on the shim's own thread.

        The module hooks go at once where that is safe, else at their next entry.  The mode passes
        through from here on and is taken out by the next boundary or, when none comes, on the main
        thread between two bytecodes.
        """
        self._end_leases()
        if self._module_hooks.registered and not any(one.armed for one in self.hooks):
            self.drop_module_hooks(from_afar=True)

    def is_mode_left(self) -> bool:
        """Tell whether a mode is still in although no hook wants it; on any thread."""
        return self._mode is not None and not any(one.armed and one.kind == "op" for one in self.hooks)

    def take_out_mode(self) -> bool:
        """Take the mode out on this thread if it can be; True when none is left."""
        if self._mode is not None and self._mode.take_out():
            self._mode = None
            self.recorder.release()
        return self._mode is None

    def forget(self) -> None:
        """Let go of everything in a forked child, whose one thread is the one that forked."""
        self.hooks = []
        self._modules = self._ops = self._at_steps = self._at_optimizers = ()
        self.drop_module_hooks()
        self.take_out_mode()

    # Arming without a boundary.

    def tick(self, now: float) -> None:
        """Put the module hooks in when something is armed and no optimizer step comes (shim thread)."""
        if self._steps.source == "optimizer" or not any(
            one.armed and one.kind != "optimizer" for one in self.hooks
        ):
            self._wanted_since = 0.0
            return
        self._wanted_since = self._wanted_since or now
        if (
            not self._module_hooks.registered
            and now - self._wanted_since > NO_OPTIMIZER_S
            and module_refusal() is None
        ):
            self._module_hooks.put_in(from_afar=True)

    def _is_step_without_optimizer(self) -> bool:
        # With gradients on, an optimizer is likely still to come: its step is the better boundary.
        if not sys.modules["torch"].is_grad_enabled():
            return True
        return bool(self._wanted_since) and monotonic() - self._wanted_since > SURELY_NO_OPTIMIZER_S
