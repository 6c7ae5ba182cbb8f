"""Modules: what each of them returns, and what comes into it from code between modules.

A container returns what its last part returned: that is looked at once.  No tensor of the training is kept,
only numbers, and of the last tensor a weak reference.
"""

import sys
import weakref
from typing import Any

EVERY = 10
MOST_ROWS = 20000
MOST_LINES = 24


def setup(api):
    """Offer the command."""
    modules = Modules(api)
    api.python_stack = lambda: python_stack(api.torch)
    api.watch.levels["modules"] = modules
    api.command("modules", modules.start, modules.stop, hooks=(modules.hook,))


class Entry:
    """One tensor of a step."""

    __slots__ = ("api", "dtype", "module", "part", "shape")

    def __init__(self, api, module, part, dtype, shape):
        self.api, self.module, self.part, self.dtype, self.shape = api, module, part, dtype, shape

    def row(self, low, high):
        """Return the row of a record."""
        return {
            "path": self.api.module_path(self.module),
            "part": self.part,
            "type": type(self.module).__name__,
            "op": "",
            "phase": "forward",
            "dtype": self.dtype,
            "shape": list(self.shape),
            "min": low,
            "max": high,
        }


class Modules:
    """The command: look at the modules of every so many-th step."""

    def __init__(self, api):
        self.api = api
        self.hook = api.on_module(self.after, self.before, self.done)
        self.suspects = set()
        """Paths whose call is worth a Python stack when it comes again."""
        self.only = ""
        self._seen = []
        """Of each look: the entry and its two numbers."""
        self._is_fresh = False
        self._last = lambda: None
        self._last_version = -1

    def start(self, arguments, steps, seconds):
        """Watch from the next step on."""
        if self.api.torch is None:
            self.api.refuse("torch is not loaded")
        self.api.stats.prepare()
        every = max(1, int(arguments.get("every", EVERY)))
        # A part of the path: `module=layers.12`.
        self.only = str(arguments.get("module") or "")
        if "near" in arguments:
            self.api.stats.near = min(1.0, max(0.01, float(arguments["near"])))
        # Of a step that never ended there may be something left.
        self._is_fresh = not (self.hook.armed or self.hook.live)
        self.hook.arm(steps, seconds, every=every)
        return {"every": every}

    def stop(self):
        """Let go of what is kept; the hooks end themselves."""
        self._last = lambda: None

    def state(self):
        """Return what the pulse says of this level."""
        state = {"on": self.hook.armed, "every": self.hook.pace}
        if self.hook.refused:
            state["why"] = self.hook.refused
        return state

    def tick(self, now):
        """Nothing is due."""

    # On the training thread.

    def before(self, module, inputs):
        """Look at what comes in, unless a module has just returned it."""
        if inputs and type(inputs) is tuple:
            self.api.stats.hidden(self._look, module, "input", inputs[0])

    def after(self, module, inputs, output):
        """Look at what goes out."""
        self.api.stats.hidden(self._look, module, "output", output)
        if self.suspects:
            path = self.api.module_path(module)
            if path in self.suspects:
                self.suspects.discard(path)
                self.api.watch.keep_stack(path, self.api.python_stack())

    def _look(self, module, part, value):
        if self._is_fresh:
            self._is_fresh, self._seen = False, []
        if self._last() is value and value is not None and _version(value) == self._last_version:
            return
        stats = self.api.stats
        why = stats.blocked()
        if why is not None:
            stats.unseen[why] += 1
            return
        if len(self._seen) >= MOST_ROWS:
            return
        if self.only and self.only not in self.api.module_path(module):
            return
        for tensor in stats.tensors_of(value):
            entry = Entry(self.api, module, part, stats.dtype(tensor), tensor.shape)
            # In one piece: replicas of a module run in threads.
            self._seen.append((entry, *stats.measure(tensor)))
            if tensor is value:
                self._last, self._last_version = weakref.ref(tensor), _version(tensor)

    def done(self, step):
        """Hand over the numbers of the step that ends."""
        seen, self._seen = self._seen, []
        self._last = lambda: None
        if not seen:
            return
        entries = [one[0] for one in seen]
        numbers = [number for one in seen for number in one[1:]]

        def arrived(values):
            self.api.watch.arrive("modules", step, entries, values, "modules")

        self.api.read_later(numbers, arrived)


def _version(tensor):
    return -1 if tensor.is_inference() else tensor._version


def python_stack(torch):
    """Return the training's own lines that lead here, outermost first: [file, line, function]."""
    parts = (torch.__file__.rpartition("/")[0] + "/", "<ascend-tui", "probe_", "<string>")
    frame: Any = sys._getframe(1)
    lines: list[Any] = []
    try:
        while frame is not None and len(lines) < MOST_LINES:
            code = frame.f_code
            ours = str(frame.f_globals.get("__name__", "")).startswith("_ascend_tui")
            if not ours and not code.co_filename.startswith(parts):
                lines.append([code.co_filename, frame.f_lineno, code.co_name])
            frame = frame.f_back
    finally:
        # A frame that is kept would keep all variables of the training.
        frame = None
    return lines[::-1]
