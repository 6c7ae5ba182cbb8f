"""From the events of one step to sums: what each operator took, in which modules, and how the step divides.

The events of a thread come in order, a push and a pop for each operator, so that a stack tells what called
what.  They are worked off in portions on the shim's thread: the training gets its turn in between.
"""

import time
from typing import Any

MOST_ROWS = 120
PARTS, LARGE, FEW_PARTS = 5, 40, 1
"""Modules and shapes of an operator that are told: as many of the largest ones, fewer of the others.

A record of more than 128 KiB is not kept by the shim.
"""
PORTION = 400
DATA, OPTIMIZER, ENGINE = "enumerate(DataLoader)#", "Optimizer.", "autograd::engine::evaluate_function"
SHAPE_CELLS = 96
PATH_CELLS = 128


def setup(api):
    """Leave the class for the files that come after."""
    api.sums = Sums


class Open:
    """An operator that has begun."""

    __slots__ = ("began", "handle", "inner", "name", "path", "phase", "shapes")

    def __init__(self, name, handle, began, phase, path, shapes):
        self.name, self.handle, self.began = name, handle, began
        self.phase, self.path, self.shapes = phase, path, shapes
        self.inner = 0.0


class Sum:
    """All calls of one operator."""

    __slots__ = ("calls", "low", "most", "places", "self_us", "total_us", "uses")

    def __init__(self):
        self.calls, self.self_us, self.total_us, self.most, self.low = 0, 0.0, 0.0, 0.0, float("inf")
        self.places = {}
        self.uses = {}


class Sums:
    """One recorded step.  All times are microseconds from its begin.

    `marks` are the module calls of the training thread: (Unix nanoseconds, path) where one begins,
    (nanoseconds, None) where it ends.
    """

    def __init__(self, threads, marks, began_ns, ended_ns, shapes=False):
        self.window_us = (ended_ns - began_ns) / 1e3
        self.sums: dict[str, Any] = {}
        self.spans: list[Any] = []
        """(begin, end, phase) of what tells the phases."""
        self._loose: list[Any] = []
        """(begin, end) of operators of the training thread in no part of the step that is known."""
        self.top_us = 0.0
        """Time in operators of the training thread."""
        self.events = 0
        self.faults = 0
        self._began_ns = began_ns
        self._shapes = shapes
        self._marks = [((at - began_ns) / 1e3, path) for at, path in marks]
        self._paths: dict[int, str] = {}
        """Of the number that a forward operator and its backward share, the module."""
        for events in sorted(threads, key=self._is_of_other_thread):
            self._add(events)
        self._add_modules()
        self._add_loose()

    @staticmethod
    def _is_of_other_thread(events):
        # The forward tells the modules of the backward.
        return not any(one.name() == "__start_profile" for one in events[:1])

    def _add(self, events):
        if not events:
            return
        first = events[0]
        is_training = first.name() == "__start_profile"
        # As a double the absolute time is exact to a quarter of a microsecond; within a thread it is exact.
        offset = first.start_us() - self._began_ns / 1e3
        stack: list[Any] = []
        modules: list[Any] = []
        marks = iter(self._marks if is_training else ())
        mark = next(marks, None)
        for number, event in enumerate(events):
            if number % PORTION == PORTION - 1:
                time.sleep(0.0005)
            kind = event.kind()
            if kind == "push":
                at = offset + first.cpu_elapsed_us(event)
                while mark is not None and mark[0] <= at:
                    _go(modules, mark[1])
                    mark = next(marks, None)
                stack.append(self._begin(event, at, stack, modules, is_training))
            elif kind == "pop" and stack:
                at = offset + first.cpu_elapsed_us(event)
                handle = event.handle()
                if stack[-1].handle == handle:
                    self._end(stack.pop(), at, stack, is_training)
                elif any(one.handle == handle for one in stack):
                    # What did not end before what it is in, ended with it.
                    while stack[-1].handle != handle:
                        self._end(stack.pop(), at, stack, is_training)
                    self._end(stack.pop(), at, stack, is_training)
        # What is open still is at least the optimizer's step, in whose end the record ends.
        while stack:
            self._end(stack.pop(), self.window_us, stack, is_training)

    def _begin(self, event, at, stack, modules, is_training):
        name = event.name()
        outer = stack[-1] if stack else None
        if name.startswith(OPTIMIZER):
            phase = "optimizer"
        elif name.startswith(DATA):
            phase = "data"
        elif name.startswith(ENGINE) or (not is_training and outer is None):
            phase = "backward"
        elif outer is not None and outer.phase:
            phase = outer.phase
        else:
            phase = "forward" if modules else ""
        path = modules[-1] if modules else None
        sequence = event.sequence_nr()
        if sequence >= 0:
            if phase in ("backward", "optimizer"):
                path = path or self._paths.get(sequence)
            elif path is not None:
                self._paths[sequence] = path
        if path is None and outer is not None:
            path = outer.path
        shapes = event.shapes() if self._shapes else None
        return Open(name, event.handle(), at, phase, path, shapes)

    def _end(self, one, at, stack, is_training):
        self.events += 1
        took = max(0.0, at - one.began)
        alone = max(0.0, took - one.inner)
        if stack:
            stack[-1].inner += took
        elif is_training:
            self.top_us += took
        if not stack and is_training and not one.phase:
            self._loose.append((one.began, at))
        if one.name.startswith((OPTIMIZER, DATA, ENGINE)) and (not stack or not stack[-1].phase):
            self.spans.append((one.began, at, one.phase))
        total = self.sums.get(one.name)
        if total is None:
            total = self.sums[one.name] = Sum()
        total.self_us += alone
        # One that torch dispatches again, to itself, is one call.
        if not stack or stack[-1].name != one.name:
            total.calls += 1
            total.most = max(total.most, took)
            total.low = min(total.low, took)
        # One that calls itself further down is in its own total already.
        if not any(outer.name == one.name for outer in stack):
            total.total_us += took
        _count(total.places, (one.path or "", one.phase or "other"), alone)
        if one.shapes:
            _count(total.uses, tuple(map(tuple, one.shapes)), alone)

    def _add_modules(self):
        """Add the outermost modules' time that no backward encloses as forward."""
        depth: list[Any] = []
        began = 0.0
        for at, path in self._marks:
            if path is not None:
                if not depth:
                    began = at
                depth.append(path)
            elif depth:
                depth.pop()
                if not depth and not any(low <= began and at <= high for low, high, _ in self.spans):
                    self.spans.append((began, at, "forward"))

    def _add_loose(self):
        """Where modules are not seen, take what comes before the first backward for the forward."""
        backward = min([began for began, _, phase in self.spans if phase == "backward"] or [0.0])
        if not self._marks:
            self.spans += [(began, ended, "forward") for began, ended in self._loose if ended <= backward]

    def phases(self):
        """Return the microseconds of each phase; a phase goes on until another one begins."""
        took: dict[str, float] = {}
        last, reached = "", 0.0
        for began, ended, phase in sorted(self.spans):
            if ended <= reached:
                continue
            began = max(began, reached)
            if phase == last and phase != "data":
                # Between two nodes of a backward is the engine itself, between two modules the loss.
                began = reached
            took[phase] = took.get(phase, 0.0) + ended - began
            last, reached = phase, ended
        rest = self.window_us - sum(took.values())
        took["other"] = max(rest, 0.0)
        return took

    def data_spans(self):
        """Return where the host waited for data: (begin, end)."""
        return [(began, ended) for began, ended, phase in self.spans if phase == "data"]

    def rows(self):
        """Return the largest operators as rows, and count and self time of all."""
        ordered = sorted(self.sums.items(), key=lambda one: -one[1].self_us)
        rows = [
            {
                "name": name[:256],
                "calls": one.calls,
                "self_us": _short(one.self_us),
                "total_us": _short(one.total_us),
                "max_us": _short(one.most),
                "min_us": _short(one.low),
                "places": [
                    [place[:PATH_CELLS], phase, *counts]
                    for (place, phase), counts in _largest(one.places, _parts(number))
                ],
                "uses": [[_words(use), *counts] for use, counts in _largest(one.uses, _parts(number))],
                "shapes_seen": len(one.uses),
            }
            for number, (name, one) in enumerate(ordered[:MOST_ROWS])
        ]
        return rows, len(ordered), _short(sum(one.self_us for _, one in ordered))


def _go(modules, path):
    if path is not None:
        modules.append(path)
    elif modules:
        modules.pop()


def _count(table, key, alone):
    found = table.get(key)
    if found is None:
        table[key] = [1, alone]
    else:
        found[0] += 1
        found[1] += alone


def _parts(number):
    return PARTS if number < LARGE else FEW_PARTS


def _largest(table, most):
    ordered = sorted(table.items(), key=lambda one: -one[1][1])[:most]
    return [(key, [calls, _short(alone)]) for key, (calls, alone) in ordered]


def _words(shapes):
    return ";".join(",".join(map(str, one)) for one in shapes)[:SHAPE_CELLS]


def _short(number):
    return round(number, 3)
