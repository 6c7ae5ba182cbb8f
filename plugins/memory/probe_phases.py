"""Where the training evaluates, and steps that take much longer than usual: marks for the curve.

No hook is needed.  The shim's thread reads the flag that `train()` and `eval()` set on the outermost module,
which it has learnt by looking at the training thread's stack, and the clock of the steps.
"""

import collections
import itertools
import operator
import sys
import threading
import time
import weakref

LOOKS_HZ = 5
MOST_PER_MINUTE = 4
"""A training that evaluates at each step has no moment worth a mark."""

SLOW_S = 0.5
SLOW_TIMES = 4.0
WARM_STEPS = 10
OFTEN_STEPS = 50
"""What comes more often than every 50 steps is no outlier."""
APART_S = 10.0

MOST_LOOKS = 60
ENOUGH_SEEN = 20
LOOK_EVERY_S = 10.0
MOST_ROOTS = 8


def setup(api):
    """Register the readings."""
    moments = Moments(api)
    # By its order the long history keeps the oldest and the newest of the marks.
    api.sample(LOOKS_HZ, moments.look, kind="mark", key="order")
    api.sample(1, moments.phase, kind="phase")
    api.on_step(moments.at_step)


class Moments:
    """Notice what deserves a mark; at most one at each look."""

    def __init__(self, api):
        self.roots = Roots(api)
        self.pace = Pace(api)
        self._changes: collections.deque[float] = collections.deque(maxlen=MOST_PER_MINUTE)
        self._told: object = None

    def at_step(self, step):
        """Learn which thread trains; on that thread, at most ten times a second."""
        self.roots.thread = threading.get_ident()

    def look(self):
        """Return a mark, or None."""
        now = time.monotonic()
        change = self.roots.look(now)
        if change or self.roots.evaluating:
            self.pace.excused_s = now
        slow = self.pace.look(now)
        if change:
            many = len(self._changes) == MOST_PER_MINUTE and now - self._changes[0] < 60.0
            if not many:
                self._changes.append(now)
                return {"sign": "e", "label": change, "order": now}
        elif slow:
            return {"sign": "o", "label": "slow step", "seconds": slow[0], "usual_s": slow[1], "order": now}
        return None

    def phase(self):
        """Return whether it trains, where that is known and not said yet."""
        trains = self.roots.training
        if trains is None or trains is self._told:
            return None
        self._told = trains
        return {"training": trains}


class Pace:
    """Notice a step that takes much longer than steps usually take."""

    def __init__(self, api):
        self.api = api
        self.step: object = None
        self.began_s = 0.0
        self.excused_s = 0.0
        """When the training last evaluated: that step is long, and has its mark."""
        self.marked_s = -APART_S
        self._slow: collections.deque[int] = collections.deque(maxlen=4)

    def look(self, now):
        """Return (seconds of the slow step, usual seconds), or None."""
        step, since_s = self.api.step, self.api.since_step_s
        if since_s is None or step == self.step:
            return None
        before, began_s = self.step, self.began_s
        self.step, self.began_s = step, now - since_s
        took_s = self.began_s - began_s
        if before is None or took_s < SLOW_S or step < WARM_STEPS:
            return None
        usual_s = self.api.step_s
        if usual_s is None:
            return None
        # Several steps since the last look: the others took what they usually take, or a little more.
        others_s = (step - before - 1) * usual_s
        slow_s = took_s - others_s
        if slow_s < max(SLOW_TIMES * usual_s, usual_s + SLOW_S) + 0.3 * others_s:
            return None
        self._slow.append(step)
        often = len(self._slow) == 4 and step - self._slow[0] < 3 * OFTEN_STEPS
        if often or self.excused_s >= began_s or now - self.marked_s < APART_S:
            return None
        self.marked_s = now
        return slow_s, usual_s


class Roots:
    """Know whether the training trains or evaluates, by the `training` flag of its outermost modules.

    They are learnt by looking at the training thread's stack now and then; only weak references are kept.
    A module that never trains (a teacher, a reward model) says nothing.
    """

    def __init__(self, api):
        self.api = api
        self.thread: object = None
        self.evaluating = False
        self.training: object = None
        self.step = 0
        # [weak reference, whether it has been seen to train]
        self.known = []
        self.seen = 0
        self.looks_left = MOST_LOOKS
        self.look_due_s = 0.0

    def look(self, now):
        """Return "evaluation" or "training" where it has changed, else None."""
        if now >= self.look_due_s:
            if self.looks_left and self.seen < ENOUGH_SEEN:
                self.looks_left -= 1
            else:
                self.look_due_s = now + LOOK_EVERY_S
            self.learn()
        # No step ends in an evaluation: what rests while steps end is a part that is trained no more.
        goes_on = self.evaluating and self.api.step > self.step + 2
        trains = rests = False
        for entry in list(self.known):
            module = entry[0]()
            if module is None:
                self.known.remove(entry)
                self.seen, self.looks_left, self.look_due_s = 0, MOST_LOOKS, 0.0
                continue
            flag = vars(module).get("training")
            module = None
            entry[1] = flag is True or (entry[1] and not goes_on)
            trains = trains or flag is True
            rests = rests or (entry[1] and flag is False)
        self.training = (trains and not rests) if self.known else None
        if rests == self.evaluating:
            return None
        self.evaluating, self.step = rests, self.api.step
        return "evaluation" if rests else "training"

    def learn(self):
        """Take the modules whose calls are the outermost of the training thread right now."""
        kind = getattr(getattr(self.api.torch, "nn", None), "Module", None)
        if not isinstance(kind, type):
            return
        code = getattr(vars(kind).get("__call__"), "__code__", None)
        if code is None:
            return  # Somebody has put something else in its place.
        found = outermost(self.thread or threading.main_thread().ident, code)
        self.seen += bool(found)
        while found:
            module = found.pop()
            if isinstance(module, kind) and all(entry[0]() is not module for entry in self.known):
                self.known = [*self.known[-MOST_ROOTS + 1 :], [weakref.ref(module), False]]
            module = None


def outermost(thread, code):
    """Return the `self` of the two outermost frames of `thread` that run `code`, the inner one first.

    One call into C does all of it, and a thread switch can come only between two bytecodes: so both walks see
    the same moment, and no frame, whose tensors would live longer for it, is held while the training runs on.
    The code is torch's wrapper of a module's call, whose variables are its arguments from start to end; its
    `f_locals` holds nothing that the frame itself does not hold.
    """
    is_call = map((code,).__contains__, map(operator.attrgetter("f_code"), stack_of(thread)))
    locals_of = map(operator.attrgetter("f_locals"), itertools.compress(stack_of(thread), is_call))
    found: collections.deque[object] = collections.deque(maxlen=2)
    try:
        found.extend(map(operator.itemgetter("self"), locals_of))
    except (AttributeError, KeyError):
        return found  # The end of the stack, where no caller has no caller; or the thread is gone.
    return found


def stack_of(thread):
    """Return an iterator over the frames of a thread, innermost first, and then None.

    It reads where the thread is when it is first asked, and holds one frame at a time.
    """
    now = map(operator.itemgetter(thread), iter(sys._current_frames, None))
    return itertools.accumulate(
        itertools.chain(itertools.islice(now, 1), itertools.repeat("f_back")), getattr
    )
