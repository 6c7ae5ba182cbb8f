"""Loss and gradients: the level that is always on while somebody watches.

The loss is seen at each backward, the gradients behind the optimizer in every so many-th step, and right away
when the loss is bad.  How many is chosen so that it costs half a per cent of a step at most.
"""

import collections
import math
import sys
import time
import weakref
from typing import Any

EVERY = 10
SHARE = 0.005
LOOKS, LOOKS_S = 3, 60.0
"""After a bad loss: the steps whose gradients are looked at whatever the pace is."""
WEIGHTS_AGAIN_S = 20.0
SEARCH_SKIPS = 8
"""So many skipped steps in a row are more than a search for the scale, and worth a look at the operators."""
MOST_BAD, MOST_CLOSE = 40, 4
MOST_PENDING, SMALL_BYTES = 64, 4096
CLAMPED = 3.4e38
"""A loss from here on is what a chip without Inf makes of one."""
HALVES = ("float16", "bfloat16")


def setup(api):
    """Offer the command; the monitor starts it when it attaches."""
    gradients = Gradients(api)
    api.watch.levels["loss"] = gradients.of_loss
    api.watch.levels["gradients"] = gradients
    api.command("gradients", gradients.start, gradients.stop, hooks=(gradients.hook,))
    api.on_close(gradients.stop)


class Entry:
    """One number of a step: the loss, or the norm of one gradient or parameter."""

    __slots__ = ("dtype", "index", "parameter", "part", "path", "shape")

    def __init__(self, part, path, dtype, shape, index=None, parameter=0):
        self.part, self.path, self.dtype, self.shape = part, path, dtype, shape
        self.index, self.parameter = index, parameter

    def row(self, low, high):
        """Return the row of a record."""
        row = {"path": self.path, "part": self.part, "type": "", "op": "", "phase": "backward"}
        row.update(dtype=self.dtype, shape=list(self.shape), min=low, max=high)
        if self.index is not None:
            row["index"] = self.index
        return row


class OfLoss:
    """What the pulse says of the loss."""

    def __init__(self, gradients):
        self.gradients = gradients

    def state(self):
        """Return whether the loss is seen, and why not."""
        on = self.gradients.loss.on
        unseen = on and not self.gradients.seen_losses and self.gradients.api.step > 20
        return {
            "on": on,
            "every": 1,
            **({"why": "no backward from a single number was seen"} if unseen else {}),
        }

    def tick(self, now):
        """Nothing is due."""


class Gradients:
    """The command: losses, the GradScaler, gradients, and the register of chips that saturate."""

    def __init__(self, api):
        self.api = api
        self.of_loss = OfLoss(self)
        self.loss = api.tap("loss", self.at_loss)
        self.scaler = api.tap("scaler", self.at_scaler)
        self.hook = api.on_optimizer(self.at_optimizer)
        self.now = api.on_optimizer(self.at_optimizer)
        # Names of parameters are learnt where a module is called: one step of hooks that look at nothing.
        self.names = api.on_module(self.learn)
        api.on_step(self.flush)
        self.every = EVERY
        self.saturates = None
        self.seen_losses = 0
        self._begun: Any = None
        self.scale = None
        self._losses: list[Any] = []
        self._took_ns: collections.deque[int] = collections.deque(maxlen=16)
        self._in_a_row = 0
        self._looked = (0, 0)
        self._weights_due_s = 0.0
        self._optimizers = set()

    # On the shim's thread.

    def start(self, arguments, steps, seconds):
        """Watch from the next step on."""
        if self.api.torch is None or not hasattr(self.api.torch, "_foreach_norm"):
            self.api.refuse("torch is not loaded, or older than 2.0")
        self.api.stats.prepare()
        self.every = max(1, int(arguments.get("every", EVERY)))
        self.loss.on = self.scaler.on = True
        self.hook.arm(steps, seconds, every=self.every)
        if not has_compiled():
            # With a compiled model torch would warn of hooks, in the training's own output.
            self.names.arm(1, 30.0)
        return {"every": self.every}

    def stop(self):
        """Look no more."""
        self.loss.on = self.scaler.on = False
        self._losses = []
        self.names.disarm()
        self.now.disarm()

    def look_now(self):
        """Look at the gradients of the next steps, whatever the pace is."""
        if self.hook.armed and not self.now.armed:
            self.now.arm(LOOKS, LOOKS_S)

    def _does_saturate(self):
        """Tell whether the chip clamps instead of making Inf; None where that is not known (yet)."""
        if self.api.device.kind != "npu":
            # The adapter of a device is found some time after the attach.
            return None if self.api.device.kind == "cpu" and "torch_npu" in sys.modules else False
        try:
            return not self.api.device.torch_npu.npu.utils.is_support_inf_nan()
        except (RuntimeError, AttributeError):
            return None

    def state(self):
        """Return what the pulse says of this level."""
        state = {"on": self.hook.armed, "every": self.hook.pace}
        if self.hook.refused:
            state["why"] = self.hook.refused
        return state

    def tick(self, now):
        """Learn what the chip does, and choose the pace: `SHARE` of the steps that a look is spread over."""
        if self.saturates is None and self.hook.armed:
            self.saturates = self._does_saturate()
            self.api.stats.saturates = bool(self.saturates)
        step_s = self.api.step_s
        if self.hook.armed and self._took_ns and step_s:
            took_s = sorted(self._took_ns)[len(self._took_ns) // 2] / 1e9
            self.hook.every = max(self.every, min(1000, math.ceil(took_s / (SHARE * step_s))))

    # On the training thread.

    def learn(self, module, inputs, output):
        """Nothing: the names are learnt by the way."""

    def at_loss(self, root, step):
        """Keep the loss that a backward begins at, until `flush` reads it a tenth of a second later."""
        loss = root.detach()
        self._losses.append((step, loss, self.scale))
        # Of a large tensor the loss may be a part that keeps all of it alive.
        if len(self._losses) >= MOST_PENDING or loss.untyped_storage().nbytes() > SMALL_BYTES:
            self.flush(step)

    def flush(self, step):
        """Read the losses of the last steps."""
        stats, taken = self.api.stats, self._losses
        if not taken or stats.blocked():
            return
        self._losses = []
        taken = [one for one in taken if one[1].dtype in stats._names]
        if not taken:
            return
        self.seen_losses += len(taken)
        self._begun = taken[0][0] if self._begun is None else self._begun

        def arrived(values):
            for (at, loss, scale), value in zip(taken, values):
                self._take_loss(at, stats.dtype(loss), value, scale)

        self.api.read_later([one[1] for one in taken], arrived)

    def _take_loss(self, step, dtype, value, scale):
        watch = self.api.watch
        if self.saturates and abs(value) >= CLAMPED:
            watch.drills.append("clamped")
        if scale and math.isfinite(value):
            value /= scale
        # Whether a GradScaler has scaled it is known from its second update on.
        if scale is not None or step > self._begun + 1:
            watch.losses.append((step, value))
        if not math.isfinite(value):
            # A scaled loss in half precision may be Inf while the scale is searched for.
            why = "search" if dtype in HALVES and self.is_searching() else "loss"
            watch.arrive("loss", step, [Entry("loss", "", dtype, ())], [value, value], why)

    def is_searching(self):
        """Tell whether a skipped step is no news: a GradScaler looks for its scale that way."""
        return self.scale is not None and self._in_a_row < SEARCH_SKIPS

    def at_scaler(self, scaler, skipped, step):
        """Take the scale after an update, and whether the step was skipped."""
        self.api.stats.hidden(self._take_scale, scaler, skipped, step)

    def _take_scale(self, scaler, skipped, step):
        watch = self.api.watch
        self._in_a_row = self._in_a_row + 1 if skipped else 0
        if skipped:
            watch.skipped += 1
            watch.skips.append((step,))
            if self._in_a_row == SEARCH_SKIPS:
                watch.drills.append("skips")
        scale = getattr(scaler, "_scale", None)
        if scale is None or scale.numel() != 1 or self.api.stats.blocked():
            return

        def arrived(values):
            before, self.scale = self.scale, values[0]
            if before != values[0]:
                watch.scales.append((step, values[0]))

        self.api.read_later([scale], arrived)

    def at_optimizer(self, optimizer):
        """Look at the gradients of one optimizer."""
        self.api.stats.hidden(self._look, optimizer)

    def _look(self, optimizer):
        began = time.perf_counter_ns()
        step = self.api.step + 1
        if self._looked == (step, id(optimizer)) or self.api.stats.blocked():
            return
        self._looked = (step, id(optimizer))
        stats = self.api.stats
        parameters = [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        groups: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        for index, parameter in enumerate(parameters):
            grad = stats.plain(parameter.grad)
            if grad is not None:
                groups.setdefault((grad.device, grad.dtype), []).append((index, parameter, grad))
        entries, norms = [], []
        with self.api.unseen():
            for rows in groups.values():
                grads = [grad for _, _, grad in rows]
                norms += self._norms(grads, stats.dtype(grads[0]) in HALVES)
                entries += [
                    Entry("gradient", "", stats.dtype(grad), tuple(grad.shape), index, id(parameter))
                    for index, parameter, grad in rows
                ]
        if norms:
            if len(norms) > 64:
                # One number for the usual case; the single ones only where that is bad.
                self._read_sums(step, entries, norms, optimizer)
            else:
                self._read(step, entries, norms, optimizer)
        self.api.watch.steps += 1
        if self.saturates:
            self._read_register(step, optimizer)
        self._took_ns.append(time.perf_counter_ns() - began)

    def _norms(self, grads, half):
        torch = self.api.torch
        if not half:
            return torch._foreach_norm(grads, 2.0)
        # Squares of half precision do not fit into it.
        try:
            return torch._foreach_norm(grads, 2.0, torch.float32)
        except TypeError:  # before torch 2.4 it takes no type
            return [torch.linalg.vector_norm(one, 2.0, dtype=torch.float32) for one in grads]

    def _read_sums(self, step, entries, norms, optimizer):
        of_device, halves = collections.defaultdict(list), collections.defaultdict(list)
        for entry, norm in zip(entries, norms):
            of_device[norm.device].append(norm)
            if entry.dtype == "float16":
                halves[norm.device].append(norm)
        torch = self.api.torch
        with self.api.unseen():
            sums = [torch.stack([norm.float() for norm in one]).norm() for one in of_device.values()]
            zeros = [(torch.stack(one) == 0).sum().float() for one in halves.values()]

        def arrived(values):
            total = math.sqrt(sum(one * one for one in values[: len(sums)]))
            self.api.watch.grads.append((step, total))
            self._tell_zeros(step, sum(values[len(sums) :]), sum(map(len, halves.values())))
            if not math.isfinite(total):
                # Norms of the same step: they are on the device, and small.
                self._read(step, entries, norms, optimizer, told=True)

        self.api.read_later(sums + zeros, arrived)

    def _read(self, step, entries, norms, optimizer, told=False):
        of_optimizer = weakref.ref(optimizer)

        def arrived(values):
            total = math.sqrt(sum(one * one for one in values if math.isfinite(one)))
            bad = [place for place, one in enumerate(values) if not math.isfinite(one)]
            if not told:
                self.api.watch.grads.append((step, values[bad[0]] if bad else total))
            halves = [value for entry, value in zip(entries, values) if entry.dtype == "float16"]
            self._tell_zeros(step, halves.count(0.0), len(halves))
            if bad:
                self._tell(step, entries, values, bad[:MOST_BAD], of_optimizer())

        self.api.read_later(norms, arrived)

    def _tell_zeros(self, step, zeros, halves):
        if halves and zeros * 2 >= halves:
            self.api.watch.zero_grads = [step, zeros / halves]

    def _tell(self, step, entries, values, bad, optimizer):
        if self.is_searching():
            return
        names = self.api.parameter_names()
        for place in bad:
            entries[place].path = names.get(entries[place].parameter, "")
        numbers = [number for place in bad for number in (0.0, values[place])]
        self.api.watch.arrive("gradients", step, [entries[place] for place in bad], numbers, "gradients")
        now = time.monotonic()
        if optimizer is not None and now > self._weights_due_s:
            self._weights_due_s = now + WEIGHTS_AGAIN_S
            self._look_at_parameters(optimizer, names)

    def _read_register(self, step, optimizer):
        """Read the chip's sticky register, and clear it where nobody else depends on it.

        A GradScaler reads and clears it itself, and so may the code of a training with several optimizers.
        """
        self._optimizers.add(id(optimizer))
        torch_npu, torch = self.api.device.torch_npu, self.api.torch
        with self.api.unseen():
            flag = torch_npu.npu_get_float_status(torch.zeros(8, device="npu"))
            if len(self._optimizers) == 1 and self.scale is None:
                torch_npu.npu_clear_float_status(torch.zeros(8, device="npu"))

        def arrived(values):
            if values[0] != 0:
                self.api.watch.register_step = step
                if not self.is_searching():
                    self.api.watch.drills.append("register")

        self.api.read_later([flag[0]], arrived)

    def _look_at_parameters(self, optimizer, names):
        """Look at the weights once: bad ones are no fault of what is computed with them."""
        stats, step = self.api.stats, self.api.step + 1
        entries: list[Entry] = []
        numbers: list[Any] = []
        tensors: list[Any] = []
        with self.api.unseen():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    plain = stats.plain(parameter)
                    if plain is None:
                        continue
                    numbers += stats.measure(plain)
                    name, shape = names.get(id(parameter), ""), tuple(plain.shape)
                    entries.append(Entry("parameter", name, stats.dtype(plain), shape, len(entries)))
                    tensors.append(weakref.ref(plain))

        def arrived(values):
            pairs = list(zip(entries, values[::2], values[1::2], tensors))
            worth = [one for one in pairs if is_bad_or_big(stats, one[0].dtype, *one[1:3])][:MOST_BAD]
            close = [one[3]() for one in worth[:MOST_CLOSE]]
            rows = [entry.row(low, high) for entry, low, high, _ in worth]
            counts = [one for tensor in close if tensor is not None for one in stats.closely(tensor)]

            def told(values):
                for row, place in zip(rows, range(0, len(values), 4)):
                    stats.add_counts(row, values[place : place + 4])
                self.api.watch.weights.append((step, rows, len(entries)))

            self.api.read_later(counts, told)

        self.api.read_later(numbers, arrived)


def has_compiled():
    """Tell whether torch.compile has compiled anything in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    return bool(counters.get("frames") or counters.get("stats"))


def is_bad_or_big(stats, dtype, low, high):
    """Tell whether a weight is worth a row."""
    return not (math.isfinite(low) and math.isfinite(high)) or stats.is_near(dtype, low, high)
