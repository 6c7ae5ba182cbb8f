"""Sites, a part of the memory probe: whose line it is, and what holds a tensor, in words.

The parts of a probe are texts of their own; what one leaves on `api` the later ones find there.
"""

import gc
import os
import sys
from collections import deque
from itertools import islice

NOWHERE = ("", 0, "no Python frame: backward or C++")
TEXT = 160
MOST_LOOKED_AT = 64
KINDS = (list, deque, set, dict, tuple)


def setup(api):
    """Leave the places for the parts that find sites."""
    api.places = Places()


class Places:
    """Tell whose code a file is: 0 the user's, 1 a library's, 2 torch's, Python's or ours."""

    def __init__(self):
        self.library = os.path.dirname(os.__file__) + os.sep
        self.known = {}

    def rank(self, file):
        """Return it for a file name; asked once per operator, so remembered."""
        rank = self.known.get(file)
        if rank is None:
            rank = self.known[file] = self._rank(file)
        return rank

    def _rank(self, file):
        torch = getattr(sys.modules.get("torch"), "__file__", None) or "/nowhere/"
        ours = file.startswith(("<ascend-tui", "<frozen")) or "/ascend_tui/shim/" in file
        if ours or file.startswith(os.path.dirname(torch) + os.sep):
            return 2
        for folder in ("/site-packages/", "/dist-packages/"):
            if folder in file:
                return 2 if file.partition(folder)[2].startswith(("torch/", "torch_npu/")) else 1
        return 2 if file.startswith(self.library) else 0

    def choose(self, stack):
        """Return the innermost place of the user's, else of a library's, of (file, line, function)s."""
        best = None
        for place in stack:
            rank = self.rank(place[0])
            if rank == 0:
                return place
            if rank == 1 and best is None:
                best = place
        return best or (stack[0] if stack else NOWHERE)

    @staticmethod
    def cause_of(words):
        """Name the typical fault that the names of a holder or of functions tell of."""
        words = words.lower()
        if "hook" in words:
            return "hook"
        return "callback" if "callback" in words or "on_batch" in words or "on_train" in words else "list"

    def who_holds(self, objects):
        """Return by site the container that refers to its tensors, in words.

        Python looks at all its objects for this, and holds the interpreter: 50 ms with a bare torch, 150 ms
        with 900,000 objects (2 slow cores).
        """
        asked = [one for group in objects.values() for one in group]
        if not asked:
            return {}
        ours = {id(asked), *(id(group) for group in objects.values())}
        holders = [one for one in gc.get_referrers(*asked) if type(one) in KINDS and id(one) not in ours]
        holders.sort(key=lambda one: KINDS.index(type(one)))
        found = {}
        for holder in holders:
            # A variable is no container: what it holds is gone when it is assigned again.
            if type(holder) is dict and "__builtins__" in holder:
                continue
            inside = holder.values() if type(holder) is dict else holder
            ends = reversed(inside) if hasattr(inside, "__reversed__") else inside
            seen = {id(one) for one in islice(ends, MOST_LOOKED_AT)}
            for key, group in objects.items():
                if key not in found and any(id(one) in seen for one in group):
                    kind = type(holder).__name__
                    found[key] = "a %s of %d%s" % (kind, len(holder), self.name_of(holder))
        return found

    def name_of(self, holder):
        """Return the name under which a module of the user's, or an object in it, knows a container."""
        for title, module in list(sys.modules.items()):
            names = fields(module)
            file = names.get("__file__")
            if title != "__main__" and not (isinstance(file, str) and self.rank(file) == 0):
                continue
            for name, value in list(names.items()):
                if value is holder:
                    return ": %s" % name[:TEXT]
                for part, one in list(fields(value).items()):
                    if one is holder:
                        return ": %s.%s" % (type(value).__name__, part)
        return ""


def fields(value):
    """Return the attributes of an object without running code of its class."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if type(found) is dict else {}
