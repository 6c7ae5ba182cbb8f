"""Holders probe: which lines of the training allocate what is still alive, more of it with every step.

On npu and cuda the allocator's own history knows the Python line of each live block.  On the cpu, and
where the training records a history itself, each operator's new storage gets a weak reference.
"""

import math

EVIDENCE_STEPS = 4
"""Beside the allocator's history: steps in which operators are watched too, to see who holds the tensors."""
MOST_LOOKS, NEEDED_LOOKS = 20, 4
MOST_SITES, TEXT = 20, 160


def setup(api):
    """Offer the command; nothing else is done before it is asked for."""
    holders = Holders(api)
    api.command("holders", holders.start, holders.stop, hooks=(holders.looks, holders.watch))
    api.on_close(holders.close)


class Holders:
    """The command: start one way of looking, end it, and report."""

    def __init__(self, api):
        self.api = api
        self.storages = api.storages
        self.history = None
        self.steps = 0
        self.note = None
        self.running = False
        self.looks = api.at_step(self.look)
        self.watch = api.on_op(self.storages.after)
        # Not a hook of the command: where operators cannot be watched the history goes on without.
        self.evidence = api.on_op(self.storages.after)

    def start(self, arguments, steps, seconds):
        """Look for `steps` steps, at most `seconds` seconds; refuses with the reason."""
        self.close()
        self.steps, self.note = steps, None
        if self.api.torch is None:
            self.refuse("torch is not loaded")
        if not hasattr(self.api.torch.Tensor, "untyped_storage"):
            self.refuse("this needs torch 2.0 or newer")
        history = None if self.api.device.kind == "cpu" else self.api.history_of(self.api.device)
        if history is not None:
            self.note = history.begin()
        if history is not None and self.note is None:
            self.history = history
            self.looks.arm(steps, seconds, every=max(1, steps // MOST_LOOKS))
            self.evidence.arm(min(steps, EVIDENCE_STEPS), seconds)
        else:
            self.watch.arm(steps, seconds)
        self.running = True
        self.api.emit("holders", self.record("collecting"))
        return {"how": self.how, "steps": steps}

    @property
    def how(self):
        return "weak references" if self.history is None else "allocator history"

    def refuse(self, why):
        """Refuse the command, on the screen too."""
        self.api.emit("holders", self.record("refused", why))
        self.api.refuse(why)

    def record(self, phase, why=None, sites=(), others=0):
        """Return a record of this phase."""
        found = {
            "phase": phase,
            "how": self.how,
            "steps": self.steps,
            "step": self.api.step,
            "sites": list(sites),
            "others_bytes": int(others),
        }
        if why or self.note:
            found["why"] = why or self.note
        return found

    def look(self, step):
        """Count what is alive, at the same point of each step: nothing that lives within one is there."""
        if self.running and self.history is not None:
            self.history.look(step)

    def stop(self):
        """End the look and report what was found; on the shim's thread."""
        if not self.running:
            return
        self.running = False
        self.evidence.disarm()
        if self.history is not None:
            self.history.end()
        self.storages.turn(None)
        source = self.storages if self.history is None else self.history
        why = self.watch.refused or self.looks.refused or source.lost
        if why is None and len(source.points) < NEEDED_LOOKS:
            why = "too few steps ended in time: %d, and %d are needed" % (len(source.points), NEEDED_LOOKS)
        if why is not None:
            self.api.emit("holders", self.record("refused", why))
        else:
            self.report(source)
        self.history = None
        self.storages.forget()

    def report(self, source):
        """Send the sites that grow, the fastest first."""
        points = source.points
        looks_a_step = (len(points) - 1) / source.span()
        growing = []
        for key in points[-1][1]:
            size, count = growth([held.get(key, (0, 0)) for _, held in points])
            if count:
                growing.append((size * looks_a_step, count, key))
        growing.sort(key=lambda one: one[:2], reverse=True)
        keys = [key for _, _, key in growing[:MOST_SITES]]
        sites = [
            {
                "file": key[0][-TEXT:],
                "line": key[1],
                "function": key[2][:TEXT],
                "bytes_per_step": slope,
                "live_bytes": points[-1][1][key][0],
                "live_count": points[-1][1][key][1],
                "age_steps": max(0, points[-1][0] - source.oldest(key)),
                "stack": [
                    "%s:%d %s" % (file[-TEXT:], line, name[:TEXT])
                    for file, line, name in source.stacks.get(key, ())
                ],
            }
            for slope, _, key in growing[:MOST_SITES]
        ]
        self.storages.explain(keys, sites)
        if self.storages.missed:
            self.note = "too many live tensors to follow: %d were left out" % self.storages.missed
        # Blocks without a place may be older than the history.
        others = [size for key, (size, _) in points[-1][1].items() if key[0] and key not in keys]
        self.api.emit("holders", self.record("done", None, sites, sum(others)))

    def close(self):
        """Switch everything off, now; at a new start, at a detach and after a fault."""
        self.running = False
        self.evidence.disarm()
        history, self.history = self.history, None
        if history is not None:
            history.end()
        self.storages.forget()


def growth(held):
    """Return by how many bytes and blocks a look a site grew over its (bytes, blocks), or (0, 0).

    What grows is more in each third than in the one before, at its least: a deque that is full by then does
    not, and what comes and goes does not either.
    """
    third = len(held) / 3.0
    starts = [math.floor(third * n) for n in range(3)]
    parts = [held[start : math.ceil(third * (n + 1))] for n, start in enumerate(starts)]
    sizes, counts = ([min(one[at] for one in part) for part in parts] for at in (0, 1))
    if not (counts[0] < counts[1] < counts[2] and sizes[0] < sizes[2]):
        return 0.0, 0.0
    looks = starts[2] - starts[0]
    return (sizes[2] - sizes[0]) / looks, (counts[2] - counts[0]) / looks
