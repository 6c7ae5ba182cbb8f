"""Operators: each one's output in at most three steps, what made its inputs, and in whose module it ran.

What the training means is told from what happened to it: an operator that makes garbage (`empty`) is not
looked at, an infinity that a mask writes is marked, and so is what is made of it.  Of a bad operator and of
what led to it the second step tells more: how many values, the place of the first, the Python stack.
"""

import collections
from typing import Any

MOST_ROWS = 50000
STEPS, SECONDS = 3, 120.0
UNMADE = (
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
    "resize_",
    "set_",
)
KNOWN = ("zeros", "zeros_like", "ones", "bernoulli", "bernoulli_", "arange", "zero_")
"""What they make is never bad and need not be looked at; it is theirs, not what was there before."""
MEANT = (
    "masked_fill",
    "masked_fill_",
    "full",
    "full_like",
    "new_full",
    "fill",
    "fill_",
    "where",
    "scalar_tensor",
    "lift_fresh",
    "lift_fresh_copy",
    "constant_pad_nd",
    "triu",
    "tril",
    "index_put_",
    "index_put",
)
LOOK, SKIP, FORGET = 0, 1, 2


def setup(api):
    """Offer the command."""
    ops = Ops(api)
    api.watch.levels["ops"] = ops
    api.command("ops", ops.start, ops.stop, hooks=(ops.hook, ops.modules))


class Plan:
    """What is to be done after one operator."""

    __slots__ = ("means", "name", "what")

    def __init__(self, func):
        full = str(getattr(func, "_schema", func)).partition("(")[0]
        self.name = full.partition(".")[0]
        short = self.name.rpartition("::")[2]
        returns = getattr(getattr(func, "_schema", None), "returns", ())
        infos = [one.alias_info for one in returns]
        is_view = bool(infos) and all(info is not None and not info.is_write for info in infos)
        self.what = FORGET if short in UNMADE or short in KNOWN else SKIP if is_view or not returns else LOOK
        self.means = short in MEANT


class Entry:
    """One output of a step."""

    __slots__ = (
        "close",
        "dtype",
        "means",
        "module",
        "nth",
        "op",
        "parameter",
        "part",
        "phase",
        "shape",
        "sources",
        "stack",
    )

    def __init__(self, op, module, phase, dtype, shape, nth, part="output"):
        self.op, self.module, self.phase, self.part = op, module, phase, part
        self.dtype, self.shape, self.nth = dtype, shape, nth
        self.sources, self.means = (), False
        self.close = self.stack = None
        self.parameter = 0

    @property
    def signature(self):
        """Return what tells it from the other outputs of a step, and finds it again in the next."""
        return self.op or self.part, self.parameter or id(self.module), self.phase, self.nth

    def row(self, low, high):
        """Return the row of a record; where the module is in the model is for `judged` to say."""
        return {
            "path": "",
            "part": self.part,
            "type": "" if self.module is None else type(self.module).__name__,
            "op": self.op,
            "phase": self.phase,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "min": low,
            "max": high,
            "from": list(self.sources),
        }


class Ops:
    """The command: look at the operators of the next steps."""

    def __init__(self, api):
        self.api = api
        self.hook = api.on_op(self.after, done=self.done)
        self.modules = api.on_module(self.leave, self.enter)
        self.why = "key"
        self._plans = {}
        self._stack = []
        self._clear()
        self._suspects = set()
        self._left = 0
        self._is_fresh = False
        self._found = False
        self.capture: Any = None
        """What saves tensors on request (probe_capture.py)."""
        self._lead = None

    def start(self, arguments, steps, seconds):
        """Watch the next steps."""
        if self.api.torch is None:
            self.api.refuse("torch is not loaded")
        self.arm("key", min(steps, STEPS), seconds)
        return {"steps": min(steps, STEPS)}

    def stop(self):
        """Let go of what is kept; the hooks end themselves."""
        self._stack = []

    def drill(self, why):
        """Watch the next steps because of what another level saw; False when it is on already."""
        if self.hook.armed or self.hook.live:
            return False
        self.arm(why, STEPS, SECONDS)
        return True

    def arm(self, why, steps, seconds):
        """Watch operators, and the modules that they run in."""
        self.api.stats.prepare()
        self.why, self._left = why, steps
        self._suspects, self._lead, self._found = set(), None, False
        self._plans = {}
        # Of a step that never ended there may be something left.
        self._is_fresh = not (self.hook.armed or self.hook.live)
        self.modules.arm(steps, seconds)
        self.hook.arm(steps, seconds)

    def state(self):
        """Return what the pulse says of this level."""
        state = {"on": self.hook.armed or self.hook.live, "every": 1}
        if self.hook.refused:
            state["why"] = self.hook.refused
        return state

    def tick(self, now):
        """Nothing is due."""

    # On the training thread, and in a backward on its device's thread.

    def _clear(self):
        self._entries, self._numbers = [], []
        self._made, self._of_node = {}, {}
        self._count: collections.Counter[Any] = collections.Counter()

    def _begin(self):
        self._is_fresh, self._stack = False, []
        self._clear()

    def enter(self, module, inputs):
        """Note the module whose forward begins."""
        if self._is_fresh:
            self._begin()
        if not self._stack:
            self.capture.at_outermost(module, inputs)
            if self.hook.live:
                self.api.stats.hidden(self._look_at_inputs, module, inputs)
        self._stack.append(module)

    def _look_at_inputs(self, module, inputs):
        if self.api.stats.blocked() is None:
            for tensor in self.api.stats.tensors_of(inputs):
                if tensor.untyped_storage().data_ptr() not in self._made:
                    self._note_unmade(tensor, "input", module)

    def _note_unmade(self, tensor, part, module, parameter=0):
        """Look at what no operator of this step made: data and weights."""
        key = part, parameter or id(module)
        self._count[key] += 1
        entry = Entry(
            "", module, "forward", self.api.stats.dtype(tensor), tensor.shape, self._count[key], part
        )
        entry.parameter = parameter
        if entry.signature in self._suspects:
            self._look_closely(entry, tensor)
        place = self._made[tensor.untyped_storage().data_ptr()] = len(self._entries)
        self._entries.append(entry)
        self._numbers += self.api.stats.measure(tensor)
        return place

    def leave(self, module, inputs, output):
        """Note its end, and that of those inside it that ended by an exception."""
        stack = self._stack
        while stack:
            if stack.pop() is module:
                break

    def after(self, func, args, kwargs, result):
        """Look at what one operator returned."""
        core = self.api.stats.core
        node = core._current_autograd_node()
        if node is None and not self._stack and not core.is_grad_enabled():
            # An optimizer's arithmetic: what comes out of it is looked at as weights.
            return
        if core._len_torch_function_stack():
            with self.api.unseen():
                self._look(func, args, result, node)
        else:
            self._look(func, args, result, node)

    def _look(self, func, args, result, node):
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = Plan(func)
        stats = self.api.stats
        if self._is_fresh:
            self._begin()
        module = self._stack[-1] if self._stack else None
        # A checkpoint computes a forward anew within the backward, and may leave it by an exception.
        is_forward = node is None or (module is not None and stats.core.is_grad_enabled())
        if is_forward:
            # The node of this operator has the number before the next one; if it has none that is another's.
            self._of_node.setdefault(stats.next_node() - 1, module)
        if plan.what == SKIP:
            return
        outputs = stats.tensors_of(result)
        if not outputs or len(self._entries) >= MOST_ROWS:
            return
        if plan.what == FORGET:
            for tensor in outputs:
                self._made.pop(tensor.untyped_storage().data_ptr(), None)
            return
        if stats.blocked() is not None:
            return
        if not is_forward:
            module = self._of_node.get(node._sequence_nr())
        phase, sources = "forward" if is_forward else "backward", self._sources(args)
        for tensor in outputs:
            key = plan.name, id(module), phase
            self._count[key] += 1
            entry = Entry(plan.name, module, phase, stats.dtype(tensor), tensor.shape, self._count[key])
            entry.sources, entry.means = sources, plan.means
            if self._suspects and entry.signature in self._suspects:
                self._look_closely(entry, tensor)
                if entry.signature == self._lead:
                    self.capture.at_suspect(entry, args, result)
            self._made[tensor.untyped_storage().data_ptr()] = len(self._entries)
            self._entries.append(entry)
            self._numbers += stats.measure(tensor)

    def _sources(self, args):
        made, types, found = self._made, self.api.stats.types, []
        for value in args:
            for one in value[:4] if type(value) in (list, tuple) else (value,):
                # Of other types no output is noted, and their memory may be that of one that is gone.
                if type(one) not in types or one.layout is not self.api.stats.strided:
                    continue
                row = made.get(one.untyped_storage().data_ptr())
                if row is None and type(one) is types[1]:
                    plain = self.api.stats.plain(one, counts=False)
                    row = None if plain is None else self._note_unmade(plain, "parameter", None, id(one))
                if row is not None:
                    found.append(row)
        return tuple(found)

    def _look_closely(self, entry, tensor):
        entry.close = len(self._numbers), self.api.stats.closely(tensor)
        entry.stack = self.api.python_stack()

    def done(self, step):
        """Hand over the numbers of the step that ends."""
        entries, numbers = self._entries, self._numbers
        self._clear()
        self._stack = []
        self.capture.at_end(step)
        close = [entry for entry in entries if entry.close is not None]
        extra = [one for entry in close for one in entry.close[1]]
        if not entries:
            return

        def arrived(values):
            for place, entry in enumerate(close):
                entry.close = values[len(numbers) + 4 * place :][:4]
            values = values[: len(numbers)]
            # At once: the next step is to look closely at what this one shows.
            self._choose_suspects(entries, values)
            self.api.watch.arrive("ops", step, entries, values, self.why)

        self.api.read_later(numbers + extra, arrived)

    def _choose_suspects(self, entries, values):
        first, _ = self.api.first_bad(entries, values)
        near = None if first is not None else self._first_near(entries, values)
        lead = near if first is None else first
        self._lead = None if first is None else entries[first].signature
        self._suspects = (
            {entries[one].signature for one in self.api.chain(entries, lead)} if lead is not None else set()
        )

    def _first_near(self, entries, values):
        stats, near = self.api.stats, None
        for place, entry in enumerate(entries):
            ends = entry.dtype, values[2 * place], values[2 * place + 1]
            if stats.is_near(*ends, entry.op):
                near = place if near is None else near
                if not stats.saturates or stats.is_clamped(*ends):
                    return place
        return near

    # On the shim's thread.

    def judged(self, step, entries, values, rows, why):
        """Choose what is bad in a step's rows, and send it."""
        self._left -= 1
        names, stats = self.api.parameter_names(), self.api.stats
        for row, entry in zip(rows, entries):
            if entry.parameter:
                row["path"] = names.get(entry.parameter, "")
            elif entry.module is not None:
                row["path"] = self.api.module_path(entry.module)
        first, meant = self.api.first_bad(entries, values)
        for place, (row, entry) in enumerate(zip(rows, entries)):
            if place in meant:
                row["intended"] = True
            if entry.close is not None:
                stats.add_counts(row, entry.close)
        near = stats.extremes(rows)
        if first is not None:
            more = {"stack": entries[first].stack} if entries[first].stack else {}
            self.api.watch.send(
                "ops", step, rows, first, near, why, keep=self.api.chain(entries, first), **more
            )
            self._found = True
        elif near and (stats.saturates or why in ("near", "key")):
            self.api.watch.send("ops", step, rows, None, near, why, keep=self.api.chain(entries, near[0]))
            self._found = True
        elif self._left <= 0 and not self._found:
            self.api.watch.send("ops", step, rows[-4:], None, [], why, calm=True, total=len(rows))
