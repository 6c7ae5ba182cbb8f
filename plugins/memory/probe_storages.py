"""Storages, a part of the memory probe: what operators allocate, followed by weak references.

Nothing of the training is kept alive, but for the moment in which a reference is looked at.  Backward
passes on an accelerator run on threads of their own, whose operators are not seen.
"""

import sys
import weakref
from itertools import islice
from typing import Any

MOST_TRACKED = 50000
MOST_STACK, MOST_ASKED, TEXT = 16, 8, 160


def setup(api):
    """Leave them for the command that uses them; nothing is followed before."""
    api.storages = Storages(api)


class Entry:
    """One storage: weak references to it and to the tensors that use it."""

    __slots__ = ("born", "key", "size", "storage", "tensors")

    def __init__(self, storage, key, size, born):
        self.storage = weakref.ref(storage)
        self.key, self.size, self.born = key, size, born
        self.tensors = []


class Storages:
    """What operators allocate, by weak references."""

    def __init__(self, api):
        self.api = api
        self.places = api.places
        self.forget()

    def forget(self):
        """Let go of everything."""
        self.table = {}
        self.makes_new = {}
        self.points, self.stacks = [], {}
        self.step = None
        self.missed = 0
        self.lost = None
        self.is_full = False

    def after(self, func, args, kwargs, result):
        """Take the storages of an operator's result."""
        step = self.api.step
        if step != self.step:
            self.turn(step)
        tensor = self.api.torch.Tensor
        new = self.makes_new.get(func)
        if new is None:
            new = self.makes_new[func] = may_allocate(func)
        if isinstance(result, tensor):
            self.take(result, new, step)
        elif isinstance(result, (tuple, list)):
            for one in result:
                if isinstance(one, tensor):
                    self.take(one, new, step)

    def take(self, tensor, new, step):
        """Follow the storage of one tensor."""
        try:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
        except (RuntimeError, NotImplementedError):
            # A sparse tensor or a wrapper; its parts come by themselves.
            return
        entry = self.table.get(key)
        if entry is None or entry.storage() is None:
            if not new or not size:
                return
            if len(self.table) >= MOST_TRACKED and not self.make_room():
                self.missed += 1
                return
            entry = self.table[key] = Entry(storage, self.here(), size, step)
            del storage
            if entry.storage() is None:
                self.lost = "this torch makes a storage's Python object anew each time: it cannot be followed"
        tensors = entry.tensors
        if not tensors or tensors[-1]() is not tensor:
            tensors.append(weakref.ref(tensor))
            # The first and the newest: enough to see who holds it.
            del tensors[1:-3]

    def make_room(self):
        """Look once a step whether the dead can go; tell whether there is room."""
        if not self.is_full:
            self.drop_dead()
            self.is_full = len(self.table) > MOST_TRACKED // 2
        return len(self.table) < MOST_TRACKED

    def here(self):
        """Return the place of the training that called this operator, and keep the stack of a new one."""
        frame: Any = sys._getframe(3)
        while frame is not None and frame.f_code.co_name != "__torch_dispatch__":
            frame = frame.f_back
        frame = frame and frame.f_back
        start, library = frame, None
        while frame is not None:
            rank = self.places.rank(frame.f_code.co_filename)
            if rank == 0:
                break
            if rank == 1 and library is None:
                library = frame
            frame = frame.f_back
        frame = frame or library or start
        if frame is None:
            return self.places.choose(())
        code = frame.f_code
        key = (code.co_filename, frame.f_lineno, code.co_name)
        if key not in self.stacks:
            self.stacks[key] = [
                (one.f_code.co_filename, one.f_lineno, one.f_code.co_name)
                for one in islice(frames_from(start), MOST_STACK)
            ]
        return key

    def drop_dead(self):
        """Forget the storages that are gone."""
        for key, entry in list(self.table.items()):
            if entry.storage() is None:
                del self.table[key]

    def turn(self, step):
        """Count, after a step, what of the steps before it is alive, by site."""
        before, self.step, self.is_full = self.step, step, False
        if before is None:
            return
        self.drop_dead()
        held: Any = {}
        for entry in list(self.table.values()):
            # The step's own may be variables, which the next one assigns again.
            if entry.born >= before:
                continue
            size, count = held.get(entry.key, (0, 0))
            held[entry.key] = (size + entry.size, count + 1)
        self.points.append((before, held))

    def oldest(self, key):
        """Return the step in which the oldest live storage of a site was made."""
        return min([one.born for one in self.table.values() if one.key == key] or [self.points[-1][0]])

    def span(self):
        """Return the steps that were watched, less the first one."""
        return max(1, len(self.points) - 1)

    def explain(self, keys, sites):
        """Say, where there is evidence, what keeps the tensors of each site; once, on the shim's thread."""
        objects = {key: tensors for key, tensors in ((key, self.kept(key)) for key in keys) if tensors}
        holders = self.places.who_holds(objects)
        with_graph = {key for key, group in objects.items() if any(one.grad_fn is not None for one in group)}
        objects.clear()
        heads = [key for key in keys if key in holders and key in with_graph]
        for key, site in zip(keys, sites):
            held = holders.get(key)
            # Alive, and no Python object refers to it: the graph does, where one is known to be kept.
            if key in with_graph or (held is None and heads):
                site["cause"] = "graph"
            elif held is not None:
                site["cause"] = self.places.cause_of(held)
            if held is None and heads and heads[0] != key:
                held = "the graph of %s:%d" % (heads[0][0][-TEXT:], heads[0][1])
            if held is not None:
                site["held_by"] = held
            words = self.places.cause_of(" ".join(one[2] for one in self.stacks.get(key, ())))
            if words != "list" and site.get("cause", "list") == "list":
                site["cause"] = words

    def kept(self, key):
        """Return the live tensors a site made in one step, not in the newest: variables may hold those."""
        entries = [one for one in self.table.values() if one.key == key and one.storage() is not None]
        steps = sorted({one.born for one in entries})
        if not steps:
            return []
        chosen = steps[-3] if len(steps) > 2 else steps[0]
        refs = [ref for one in entries if one.born == chosen for ref in one.tensors][:MOST_ASKED]
        return [one for one in (ref() for ref in refs) if one is not None]


def frames_from(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def may_allocate(func):
    """Tell whether an operator returns anything that is not, by its schema, part of an argument."""
    returns = getattr(getattr(func, "_schema", None), "returns", ())
    return not returns or any(one.alias_info is None for one in returns)
