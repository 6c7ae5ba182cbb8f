"""Overflow: what was seen in a step, from the first bad output to a record; on the shim's own thread.

The levels hand over the numbers of whole steps (`arrive`, on the training thread).  Here they become
records: the outputs around the first bad one, how the largest values climbed, and once a second the pulse.
What is bad makes the deeper level look at the next steps.
"""

import array
import collections
import math
import os
import time
from typing import Any

WINDOW, AFTER = 10, 3
MOST_NEAR = 6
KEPT_POINTS = 24
MOST_PLACES = 10000
HOTTEST = 12
SAME_PLACE_S = 2.0
NEAR_AGAIN_S = 15.0
DRILL_STEPS, DRILL_S = 3, 120.0
DRILL_AGAIN_S = 60.0
MASK_LOOKS = 2
MOST_LOSSES, MOST_SKIPS = 64, 1024


def setup(api):
    """Offer the watch to the levels, and serve it."""
    api.watch = Watch(api)
    api.sample(10, api.watch.serve, kind="rows")


class Climb:
    """The largest absolute value of one output over the steps, thinned so that all of the run stays in it.

    There is one for each place of a model, in the memory of the training: half a kilobyte, and no more.
    """

    __slots__ = ("every", "last_step", "numbers")

    def __init__(self):
        self.numbers = array.array("d")
        """A step and its value, and so on, the oldest first."""
        self.every = 1
        self.last_step = -1

    @property
    def points(self):
        """Return the pairs of step and value."""
        return [[int(step), value] for step, value in zip(self.numbers[::2], self.numbers[1::2])]

    def take(self, step, value):
        """Keep a value; of those that come too close together only the largest."""
        if self.numbers and step - self.last_step < self.every:
            self.numbers[-1] = max(self.numbers[-1], value)
            return
        self.last_step = step
        if len(self.numbers) >= 2 * KEPT_POINTS:
            kept = array.array("d")
            for place in range(0, len(self.numbers), 4):
                earlier, later = self.numbers[place : place + 2], self.numbers[place + 2 : place + 4]
                kept.extend(earlier if earlier[1] >= later[1] else later)
            self.numbers, self.every = kept, self.every * 2
        self.numbers.extend((step, value))


class Watch:
    """Numbers of steps in, records out."""

    def __init__(self, api):
        self.api = api
        self.levels = {}
        """Level objects by name; each has `state()`, the deepest also `drill(why)`."""
        self.steps = 0
        self.losses: collections.deque[Any] = collections.deque(maxlen=MOST_LOSSES)
        self._told_loss = 0
        self.grads: collections.deque[Any] = collections.deque(maxlen=MOST_LOSSES)
        self.scales: collections.deque[Any] = collections.deque(maxlen=MOST_LOSSES)
        self.skipped = 0
        self.skips: collections.deque[Any] = collections.deque(maxlen=MOST_SKIPS)
        self.register_step = None
        self.zero_grads = None
        self.weights: collections.deque[Any] = collections.deque(maxlen=16)
        """Of each look at the weights: the step, rows of bad and big ones, and how many there are."""
        self.drills: collections.deque[Any] = collections.deque(maxlen=8)
        """Reasons to watch operators that came up on the training thread."""
        self._healthy: collections.deque[Any] = collections.deque(maxlen=32)
        self._bad: collections.deque[Any] = collections.deque(maxlen=16)
        self._climbs = {}
        self._hottest = []
        self._told = {}
        self._repeats: collections.Counter[Any] = collections.Counter()
        self._drilled = {}
        self._masks: collections.Counter[Any] = collections.Counter()
        self._stacks = {}
        self._pulse_due_s = 0.0

    # On the training thread.

    def arrive(self, level, step, entries, values, why=""):
        """Take the numbers of one step: two values for each entry, in the order of execution."""
        # A sum of doubles that came from floats is finite exactly if all of them are.
        kept = self._healthy if math.isfinite(sum(values)) else self._bad
        kept.append((level, step, entries, values, why))

    # On the shim's thread.

    def serve(self):
        """Work off what arrived; called ten times a second."""
        for kept in (self._bad, self._healthy):
            while kept:
                self._evaluate(*kept.popleft())
        while self.weights:
            self._tell_weights(*self.weights.popleft())
        while self.drills:
            why = self.drills.popleft()
            self.drill(why, why)
        now = time.monotonic()
        for level in self.levels.values():
            level.tick(now)
        if now >= self._pulse_due_s and (
            self.steps or any(one.state()["on"] for one in self.levels.values())
        ):
            self._pulse_due_s = now + 1.0
            self.pulse()
        return None

    def pulse(self):
        """Send how the watching stands."""
        stats = self.api.stats
        data = {
            "losses": self._new_losses(),
            "grads": _taken(self.grads),
            "scales": _taken(self.scales),
            "skips": [step for (step,) in _taken(self.skips)],
            "skipped": self.skipped,
            "rank": self._rank(),
            "device": self.api.device.kind,
            "watched": self.steps,
            "levels": [dict(level.state(), name=name) for name, level in list(self.levels.items())],
            "saturates": self.levels["gradients"].saturates,
            "hottest": self._hottest,
            "unseen": dict(stats.unseen, late=self.api.late),
        }
        if self.register_step is not None:
            data["register"], data["register_step"] = True, self.register_step
            self.register_step = None
        if self.zero_grads is not None:
            data["fp16_zero_grads"], self.zero_grads = self.zero_grads, None
        self.api.emit("pulse", data)

    def _new_losses(self):
        found = [list(one) for one in list(self.losses) if one[0] > self._told_loss]
        self._told_loss = max([self._told_loss, *(step for step, _ in found)])
        return found

    def _rank(self):
        for name in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
            if os.environ.get(name, "").isdigit():
                return int(os.environ[name])
        dist = getattr(self.api.torch, "distributed", None)
        if dist is not None and dist.is_available() and dist.is_initialized():
            return int(dist.get_rank())
        return None

    def _evaluate(self, level, step, entries, values, why):
        rows = [entry.row(values[2 * place], values[2 * place + 1]) for place, entry in enumerate(entries)]
        for place, row in enumerate(rows):
            row["i"] = place
        if level == "ops":
            self.levels["ops"].judged(step, entries, values, rows, why)
            return
        if level == "modules":
            self._keep(step, rows)
        first = next((row["i"] for row in rows if is_bad(row)), None)
        near = self.api.stats.extremes(rows)
        if first is None and level == "modules":
            self._look_behind_masks(rows)
        if first is not None and why != "search":
            self.tell(level, step, rows, first, near, why)
            if self._may_tell("look", DRILL_AGAIN_S):
                self.levels["gradients"].look_now()
            if level == "modules":
                self.levels["modules"].suspects.add(rows[first]["path"])
            # A loss, a gradient and a module that are bad are one fault as a rule.
            self.drill(level, "bad")
        elif near and self._may_tell(("near", rows[near[0]]["path"]), NEAR_AGAIN_S):
            self.send(level, step, rows, None, near, why)
            self.drill("near", ("near", rows[near[0]]["path"]))

    def _tell_weights(self, step, rows, total):
        for place, row in enumerate(rows):
            row["i"] = place
        first = next((row["i"] for row in rows if is_bad(row)), None)
        near = [row["i"] for row in rows if not is_bad(row)]
        self.send("parameters", step, rows, first, near, "gradients", total=total, calm=first is None)

    def _keep(self, step, rows):
        if len(self._climbs) > MOST_PLACES:
            self._climbs.clear()
        heat = []
        for row in rows:
            value = max(abs(row["min"]), abs(row["max"]))
            if not math.isfinite(value):
                continue
            key = (row["path"], row["part"])
            climb = self._climbs.get(key)
            if climb is None:
                climb = self._climbs[key] = Climb()
            climb.take(step, value)
            if row["part"] == "output":
                heat.append((value / (65504.0 if row["dtype"] == "float16" else 3e38), row["i"]))
        heat.sort(reverse=True)
        self._hottest = [rows[place] for _, place in heat[:HOTTEST]]

    def _look_behind_masks(self, rows):
        # -Inf and nothing worse: a mask, as a rule. The operators tell, once or twice for each place.
        for row in rows:
            if row["min"] == -math.inf and row["max"] < math.inf and self._masks[row["path"]] < MASK_LOOKS:
                self._masks[row["path"]] += 1
                self.drill("mask", ("mask", row["path"]))

    def drill(self, why, place):
        """Have the operators of the next steps watched, now and then for one and the same place."""
        now = time.monotonic()
        if now < self._drilled.get(place, 0.0) or "ops" not in self.levels:
            return
        if self.levels["ops"].drill(why):
            if len(self._drilled) > MOST_PLACES:
                self._drilled.clear()
            self._drilled[place] = now + DRILL_AGAIN_S

    def _may_tell(self, key, every_s):
        now = time.monotonic()
        if now < self._told.get(key, 0.0):
            return False
        if len(self._told) > MOST_PLACES:
            self._told.clear()
        self._told[key] = now + every_s
        return True

    def tell(self, level, step, rows, first, near, why, **more):
        """Send the evidence of a step in which something is bad; of one place not again and again."""
        place = (level, rows[first]["path"], rows[first]["op"])
        if not self._may_tell(place, SAME_PLACE_S):
            self._repeats[place] += 1
            return
        self.send(level, step, rows, first, near, why, repeats=self._repeats.pop(place, 0), **more)

    def send(self, level, step, rows, first, near, why, keep=(), **more):
        """Send the rows around the first bad one, those near the limit, and those in `keep`."""
        middle = first if first is not None else (near or [0])[0]
        wanted = {*range(middle - WINDOW, middle + AFTER + 1), *near[:MOST_NEAR], *keep}
        chosen = [row for row in rows if row["i"] in wanted]
        data = {
            "level": level,
            "step": step,
            "first": first,
            "near": near[:MOST_NEAR],
            "total": len(rows),
            "bad": sum(map(is_bad, rows)),
            "rows": chosen,
            "history": self._histories(chosen),
            "why": why,
        }
        loss = next((one for at, one in reversed(list(self.losses)) if at == step), None)
        if loss is not None:
            data["loss"] = loss
        if first is not None and "stack" not in more:
            stack = self._stacks.get(rows[first]["path"])
            if stack:
                data["stack"] = stack
        data.update(more)
        self.api.emit("rows", data)

    def _histories(self, rows):
        seen, found = set(), []
        for row in rows:
            climb = self._climbs.get((row["path"], row["part"]))
            if climb is not None and (row["path"], row["part"]) not in seen:
                seen.add((row["path"], row["part"]))
                found.append({"path": row["path"], "part": row["part"], "op": "", "points": climb.points})
        return found

    def keep_stack(self, path, stack):
        """Keep the Python stack of a suspect's call; from the training thread."""
        if len(self._stacks) < 256:
            self._stacks[path] = stack


def is_bad(row):
    """Tell whether a row is NaN or Inf where the training did not mean it; -Inf alone may be a mask."""
    low, high = row["min"], row["max"]
    if math.isfinite(low) and math.isfinite(high):
        return False
    if row.get("intended"):
        return False
    if row["op"] or row["part"] not in ("output", "input"):
        return True
    return not (low == -math.inf and high < math.inf)


def _taken(kept):
    """Take everything out of a deque that another thread appends to."""
    found = []
    while kept:
        found.append(list(kept.popleft()))
    return found
