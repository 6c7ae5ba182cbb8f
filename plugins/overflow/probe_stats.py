"""How a tensor is looked at: its lowest and highest value, as tensors of one element on its own device.

`aminmax` keeps NaN and Inf, makes no copy and needs no waiting.  Nothing here writes a tensor of the
training.
"""

import collections
import math
from typing import Any

LIMITS = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
NEAR = 0.9
HUGE = 1e30
"""Finite, and beyond what a healthy value of a wide type is."""
PRODUCTS = ("mm", "matmul", "linear", "conv", "aten::mul")
DEVICES = ("cpu", "cuda", "npu")
MOST_OF_ONE = 4
"""Tensors of one output that are looked at."""


def setup(api):
    """Offer the ways of looking to the other parts."""
    api.stats = Stats(api)


class Stats:
    """Tell which tensors can be looked at, and look at them.  On the training thread."""

    def __init__(self, api):
        self.api = api
        self.unseen: collections.Counter[str] = collections.Counter()
        self.near = NEAR
        self.saturates = False
        self.core: Any = None
        self.next_node: Any = None
        self._peek: Any = None
        self._aminmax: Any = None
        self.types: tuple[Any, ...] = ()
        self._names = {}
        self.strided: Any = None

    def prepare(self):
        """Learn torch's types; before anything else is called."""
        torch = self.api.torch
        self._aminmax = torch.aminmax
        self.core, self.next_node = torch._C, torch.autograd._get_sequence_nr
        self._peek = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
        self.types = (torch.Tensor, torch.nn.Parameter)
        self.strided = torch.strided
        self._names = {
            torch.float16: "float16",
            torch.bfloat16: "bfloat16",
            torch.float32: "float32",
            torch.float64: "float64",
        }

    def blocked(self):
        """Say why nothing can be looked at just now, or return None: a transform, a tracer, a capture."""
        core, peek = self.core, self._peek
        if peek is not None and peek() is not None:
            return "traced"
        if core._get_tracing_state() is not None:
            return "traced"
        if self.api.device.kind != "cpu" and self.api.device.is_capturing():
            return "capture"
        return None

    def hidden(self, call, *args):
        """Call `call(*args)` so that a function mode of the training's sees nothing, be it an attribute."""
        if self.api.torch._C._len_torch_function_stack():
            with self.api.unseen():
                call(*args)
        else:
            call(*args)

    def tensors_of(self, value):
        """Return what can be looked at in a tensor, a list or a mapping of them; at most four."""
        if type(value) in self.types:
            found: Any = (value,)
        elif isinstance(value, (list, tuple)):
            found = value[:MOST_OF_ONE]
        elif isinstance(value, dict):
            found = list(value.values())[:MOST_OF_ONE]
        elif value is None:
            return ()
        else:
            found = (value,)
        return [one for one in map(self.plain, found) if one is not None]

    def plain(self, value, counts=True):
        """Return the tensor if it can be looked at, of a distributed one the local part, else None."""
        if type(value) not in self.types:
            # An object that is no tensor is not asked for anything: its attributes may be code of the user's.
            if not isinstance(value, self.types):
                return None
            value = getattr(value, "_local_tensor", None)
            if type(value) not in self.types:
                self.unseen["subclass"] += counts
                return None
        if value.dtype not in self._names or value.device.type not in DEVICES:
            return None
        if value.layout != self.strided or value.is_nested or value._is_zerotensor():
            return None
        return value if value.numel() else None

    def dtype(self, tensor):
        """Return the name of a tensor's type."""
        return self._names.get(tensor.dtype, "")

    def measure(self, tensor):
        """Return (lowest, highest): numbers of a host's tensor, of a device's tensors of one element.

        On a host nothing has to be waited for.  Tensors kept there until the step ends would lie between the
        training's own, and what it frees around them would not be one piece any more: its heap would grow.
        """
        core = self.core
        if core._len_torch_dispatch_stack() or core._len_torch_function_stack():
            with self.api.unseen():
                return self._ends(tensor)
        grad = core.is_grad_enabled()
        core._set_grad_enabled(False)
        try:
            return self._ends(tensor)
        finally:
            core._set_grad_enabled(grad)

    def _ends(self, tensor):
        low, high = self._aminmax(flat(tensor))
        return (low.item(), high.item()) if tensor.device.type == "cpu" else (low, high)

    def closely(self, tensor):
        """Return, as `measure` does: the bad values, the place of the first, those near the limit, zeros."""
        torch = self.api.torch
        with self.api.unseen():
            flat = tensor.detach().reshape(-1)
            bad = ~torch.isfinite(flat)
            limit = LIMITS.get(self.dtype(tensor), HUGE)
            near = flat.abs() > (limit * self.near if limit < HUGE else HUGE)
            counts = [bad.sum(), bad.float().argmax(), (near & ~bad).sum(), (flat == 0).sum()]
            if tensor.device.type == "cpu":
                return [float(one.item()) for one in counts]
            # Counts of large tensors do not fit into every number of the device: 32 bits are enough here.
            return [one.to(torch.float32) for one in counts]

    def is_near(self, dtype, low, high, made_by=""):
        """Tell whether a finite output is near the limit of its type, for another reason than a mask.

        A mask writes the lowest value there is, and leaves the highest where it was.  Where a chip clamps, a
        product that ends there is none.
        """
        limit = LIMITS.get(dtype)
        if limit is None or not (math.isfinite(low) and math.isfinite(high)):
            return False
        bound = limit * self.near if limit < HUGE else HUGE
        if high > bound or -limit * 0.999 < low < -bound:
            return True
        is_product = any(one in made_by.lower() for one in PRODUCTS)
        return low < -bound and self.saturates and is_product

    @staticmethod
    def add_counts(row, counts):
        """Add to a row what `closely` brought, as shares, a count and the place of the first bad value."""
        bad, place, near, zero = counts
        size = 1
        for one in row["shape"]:
            size *= int(one)
        row["bad"], row["near"], row["zero"] = int(bad), near / max(size, 1), zero / max(size, 1)
        if bad:
            position, left = [], int(place)
            for one in reversed(row["shape"]):
                position.append(left % int(one))
                left //= int(one)
            row["position"] = position[::-1]

    def extremes(self, rows):
        """Return the places of the rows near the limit of their type, those that a chip has clamped first."""
        near = [
            row
            for row in rows
            if self.is_near(row["dtype"], row["min"], row["max"], row["op"] or row["type"])
        ]
        clamped = [
            row for row in near if self.saturates and self.is_clamped(row["dtype"], row["min"], row["max"])
        ]
        return [row["i"] for row in (*clamped, *(one for one in near if one not in clamped))]

    @staticmethod
    def is_clamped(dtype, low, high):
        """Tell whether a value is exactly at the limit of its type."""
        limit = LIMITS.get(dtype)
        return limit is not None and max(-low, high) >= limit


def flat(tensor):
    """Return a tensor of the host in the order of its memory where it only is transposed.

    A CPU walks it ten times faster then, and the order is no matter for what is asked.
    """
    if tensor.is_contiguous() or tensor.device.type != "cpu":
        return tensor
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride != reach:
                return tensor
            reach *= size
    return tensor.as_strided((reach,), (1,))
