"""Which lines of the training make the host wait for the device: one step, looked at by a dispatch mode.

`item()`, a `nonzero`, a copy to the host, an index by a mask: each waits until the device has come that far.
On a CPU there is nothing to wait for: the calls are named all the same, they are the ones that will wait.
"""

import sys
import time
from typing import Any

MOST_SITES = 64
MOST_FRAMES = 60
MOST_TRIES = 20
SURE = {
    "_local_scalar_dense": "item",
    "nonzero": "nonzero",
    "nonzero_numpy": "nonzero",
    "masked_select": "masked_select",
    "_unique2": "unique",
    "unique_dim": "unique",
    "unique_consecutive": "unique",
    "equal": "equal",
    "repeat_interleave": "repeat_interleave",
}
OF_TORCH = ("/torch/optim/", "/torch/utils/data/")
"""What torch itself reads from tensors on the host: counters of its optimizers, seeds of its loaders."""
COPIES = ("_to_copy", "copy_")


def setup(api):
    """Leave it for the files that come after."""
    api.sites = Sites(api)


class Sites:
    """One step in which the calls that wait are timed and traced to their lines."""

    def __init__(self, api):
        self.api = api
        self.hook = api.on_op(self.after, self.before, self.done)
        self.looked = 0
        self._tries = 0
        self._plans: dict[Any, str] = {}
        self._found: dict[Any, Any] = {}
        self._began = 0

    def arm(self):
        """Look at the next step, or at a later one where that cannot be."""
        self._tries = MOST_TRIES
        self.hook.arm(1, 60.0)

    def again(self):
        """Try again, where the training profiled itself in that step."""
        if self._tries and self.hook.refused and not self.hook.armed and not self.hook.live:
            self._tries -= 1
            self.hook.arm(1, 60.0)

    def state(self):
        """Return how often it was looked, and why it cannot be."""
        return {"looked": self.looked, "why": self.hook.refused or ""}

    def _plan(self, func):
        name = str(getattr(func, "_schema", func)).partition("(")[0].partition(".")[0]
        short = name.rpartition("::")[2]
        if short == "repeat_interleave" and "Tensor" not in str(func):
            return ""
        return SURE.get(short) or ("index" if short == "index" else short if short in COPIES else "")

    def before(self, func, args, kwargs):
        """Note when an operator that may wait begins."""
        if func not in self._plans:
            self._plans[func] = self._plan(func)
        if self._plans[func]:
            self._began = time.perf_counter_ns()

    def after(self, func, args, kwargs, result):
        """Note how long it took, and where it was called, if it was one that waits."""
        what = self._plans.get(func)
        if not what:
            return
        took_us = (time.perf_counter_ns() - self._began) / 1e3
        what, on_host = _kind(what, args, kwargs, result)
        if not what:
            return
        line, by_torch = self._line()
        if on_host and by_torch:
            return
        found = self._found.get((what, line))
        if found is None:
            if len(self._found) >= MOST_SITES:
                return
            found = self._found[(what, line)] = [0, 0.0]
        found[0] += 1
        found[1] += took_us

    def _line(self):
        """Return (file, line, function) of the training's innermost line, and if torch itself called it."""
        package = self.api.torch.__file__.rpartition("/")[0] + "/"
        parts = (package, package.replace("/torch/", "/torch_npu/"))
        frame: Any = sys._getframe(1)
        by_torch = False
        try:
            for _ in range(MOST_FRAMES):
                if frame is None:
                    break
                code = frame.f_code
                file = code.co_filename
                ours = str(frame.f_globals.get("__name__", "")).startswith(("_ascend_tui", "ascend_tui."))
                if not ours and not file.startswith(("<ascend-tui", "probe_", "<string>")):
                    if not file.startswith(parts):
                        return (file, frame.f_lineno, code.co_name), by_torch
                    by_torch = by_torch or any(part in file for part in OF_TORCH)
                frame = frame.f_back
        finally:
            # A frame that is kept would keep all variables of the training.
            frame = None
        return ("", 0, ""), True

    def done(self, step):
        """Hand over what was found."""
        self.looked += 1
        self._tries = 0
        found, self._found = self._found, {}
        sites = [[what, *line, calls, round(took, 1)] for (what, line), (calls, took) in found.items()]
        self.api.emit("sites", {"step": step, "sites": sorted(sites, key=lambda one: -one[5])})


def _kind(what, args, kwargs, result):
    """Return what kind of wait a call is, empty for none, and whether its data lie on the host anyway."""
    first = args[0] if args else None
    device = getattr(getattr(first, "device", None), "type", "cpu")
    if what == "_to_copy":
        to = getattr(getattr(result, "device", None), "type", "cpu")
        waits = device != "cpu" and to == "cpu" and not (kwargs or {}).get("non_blocking")
        return ("copy to the host" if waits else ""), False
    if what == "copy_":
        source = args[1] if len(args) > 1 else None
        of = getattr(getattr(source, "device", None), "type", "cpu")
        asks = args[2] if len(args) > 2 else (kwargs or {}).get("non_blocking")
        return ("copy to the host" if of != "cpu" and device == "cpu" and not asks else ""), False
    if what == "index":
        masks = args[1] if len(args) > 1 else ()
        return ("index by a mask" if any(_is_mask(one) for one in masks or ()) else ""), device == "cpu"
    return what, device == "cpu"


def _is_mask(one):
    return str(getattr(one, "dtype", "")) in ("torch.bool", "torch.uint8")
