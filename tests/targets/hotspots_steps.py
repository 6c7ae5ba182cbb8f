"""What the trainings in hotspots.py have in common: how they begin and end, and what they note."""

import hashlib
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from device import pause, say_end

FIRST = 5
"""Steps until it says that it is ready: the first ones are slow."""
MOST = 200_000


class Steps:
    """Count the steps of a training and time them; iterate over it.  `onset` is the step of it, 0 before."""

    def __init__(self, asked):
        self.steps, self.sleep_s = asked.steps, asked.sleep
        self.folder = Path(asked.folder) if asked.folder else None
        self.onset = 0
        self.truth = {"planted": []}
        self._ends, self._waited_s, self._net = [], [], None

    def watch(self, net):
        """Name the net whose parameters are told at the end."""
        self._net = net

    def _is_there(self, name):
        return self.folder is not None and (self.folder / name).exists()

    def __iter__(self):
        parent, number = os.getppid(), 0
        while os.getppid() == parent and (number < self.steps if self.steps else not self._is_there("stop")):
            number += 1
            if not self.onset and self._is_there("onset"):
                self.onset = number
            self._waited_s.append(0.0)
            yield number
            if number == FIRST:
                print("ready", flush=True)
            pause(self.sleep_s)
            self._ends.append(time.monotonic())
            del self._ends[:-MOST], self._waited_s[:-MOST]
        self.truth["steps"] = number

    @contextmanager
    def waits(self):
        """Note the time within as waiting for data."""
        began = time.monotonic()
        yield
        self._waited_s[-1] += time.monotonic() - began

    def planted(self, step):
        """Note a step in which something slow was put on purpose."""
        self.truth["planted"].append(step)

    def median_s(self):
        """Return the median of the newest steps."""
        ends = self._ends[-100:]
        return median(later - earlier for earlier, later in zip(ends, ends[1:])) if len(ends) > 1 else 0.0

    def over(self):
        """Write what is true, and say the end."""
        digest = hashlib.sha256()
        for one in self._net.parameters():
            digest.update(one.detach().cpu().numpy().tobytes())
        if self.folder is not None:
            times = [later - earlier for earlier, later in zip(self._ends, self._ends[1:])]
            self.truth.update(
                onset=self.onset, ends=self._ends, first=self.truth["steps"] - len(self._ends) + 1
            )
            self.truth["step_s"] = median(times) if times else 0.0
            self.truth["waited_s"] = self._waited_s
            draft = self.folder / "truth.new"
            draft.write_text(json.dumps(self.truth))
            draft.rename(self.folder / "truth.json")
        say_end(self.truth["steps"], digest.hexdigest())
