"""One lane of a trace: what its events took by themselves, and when it was busy, in bounded memory.

A lane's events are put in order in a buffer: they may come in any order as long as no more than half of HELD
events of the trace lie between one and the place it belongs to.  Of one that comes later still its own time
counts, and is not taken off that of its caller.
"""

from __future__ import annotations

from array import array

from ascend_tui.frozen import frozen

HELD = 200_000
"""Events of a trace that wait to be put in order."""
MOST_SPANS = 400_000
"""Separate busy times of a lane that are kept; beyond, the shortest gaps between them are filled."""

_Frame = list[int]
END, START, KEY, INNER, INSIDE, IN_STEP, PHASE, CALLED = range(8)
NOBODY, SEVERAL = -1, -2
"""What a frame called, where it is not the key of the only one."""

NO_PHASE, STEP, DATA, OPTIMIZER, BACKWARD, OPERATOR, AFTER = range(7)
"""What a frame is for the phases of a step: an operator after a backward pass is no forward."""


@frozen
class Tally:
    """What the calls of one key took."""

    calls: int
    self_ns: int
    total_ns: int
    least_ns: int
    most_ns: int


class Busy:
    """The union of spans of time, whatever their order."""

    def __init__(self) -> None:
        """Start idle."""
        self._starts: array[int] = array("q")
        self._ends: array[int] = array("q")
        self._merged = 0
        self.filled_ns = 0

    def __bool__(self) -> bool:
        """Tell whether there was any."""
        return bool(self._starts)

    def add(self, start: int, end: int) -> None:
        """Take one span."""
        if self._ends and self._starts[-1] <= start <= self._ends[-1]:
            self._ends[-1] = max(end, self._ends[-1])
            return
        self._starts.append(start)
        self._ends.append(end)
        if len(self._starts) >= max(MOST_SPANS, 2 * self._merged):
            self._fold()

    def _fold(self) -> None:
        spans = union(list(zip(self._starts, self._ends)))
        if len(spans) > MOST_SPANS // 2:
            gaps = sorted(after[0] - before[1] for before, after in zip(spans, spans[1:]))
            longest = gaps[len(gaps) // 2]
            spans = union(spans, longest)
            self.filled_ns += sum(gap for gap in gaps if gap <= longest)
        self._merged = len(spans)
        self._starts = array("q", [start for start, _ in spans])
        self._ends = array("q", [end for _, end in spans])

    def spans(self) -> list[tuple[int, int]]:
        """Return the spans in order, none touching the next."""
        return union(list(zip(self._starts, self._ends)))


def union(spans: list[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Return the spans in order, those joined that overlap or lie at most `gap` apart."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1] + gap:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


class Lane:
    """The events of one thread or stream, nested by their times."""

    def __init__(self, phases: list[int], names: list[str], follow: bool) -> None:
        """Start empty; `phases` tells of each key what it is in a step, `follow` whether that is wanted."""
        self.busy = Busy()
        self.communicating = Busy()
        self.tallies: dict[int, list[int]] = {}
        self.late = 0
        self.steps: list[tuple[int, int]] = []
        self.in_phases = [0] * 7
        self.in_steps = [0] * 7
        self.first_ns: int | None = None
        self.last_ns = 0
        self.pending: list[tuple[int, int, int]] = []
        self.opened: list[tuple[int, int]] = []
        self._stack: list[_Frame] = []
        self._behind: int | None = None
        self._phases = phases
        self._names = names
        self.follows = follow
        self._backward_seen = False

    def add(self, start: int, end: int, key: int) -> None:
        """Take one event; it is looked at when it is this lane's turn."""
        self.pending.append((start, -end, key))
        if self.first_ns is None or start < self.first_ns:
            self.first_ns = start
        self.last_ns = max(self.last_ns, end)

    def fold(self, everything: bool = False) -> int:
        """Nest the older half of what waits, or all of it; return how many that were."""
        self.pending.sort()
        count = len(self.pending) if everything else (len(self.pending) + 1) // 2
        for start, minus_end, key in self.pending[:count]:
            if self._behind is not None and start < self._behind:
                self.late += 1
                self._count(key, -minus_end - start, 0)
            else:
                self._behind = start
                self._push(start, -minus_end, key)
        del self.pending[:count]
        if everything:
            while self._stack:
                self._pop()
        return count

    def tally(self, key: int) -> Tally:
        """Return what the calls of a key took."""
        return Tally(*self.tallies[key])

    def _push(self, start: int, end: int, key: int) -> None:
        stack = self._stack
        while stack and stack[-1][END] <= start:
            self._pop()
        inside = in_step = phase = 0
        if self.follows:
            if stack:
                inside = stack[-1][INSIDE] or int(stack[-1][PHASE] > STEP)
                in_step = stack[-1][IN_STEP] or int(stack[-1][PHASE] == STEP)
            phase = self._phases[key]
            if phase == BACKWARD:
                self._backward_seen = True
            elif phase in (STEP, OPTIMIZER):
                self._backward_seen = False
            elif phase == OPERATOR and self._backward_seen:
                phase = AFTER
        if stack:
            stack[-1][CALLED] = key if stack[-1][CALLED] == NOBODY else SEVERAL
        stack.append([end, start, key, 0, inside, in_step, phase, NOBODY])

    def _pop(self) -> None:
        frame = self._stack.pop()
        taken = frame[END] - frame[START]
        if self._stack:
            above = self._stack[-1]
            above[INNER] += min(frame[END], above[END]) - frame[START]
        self._count(frame[KEY], taken, frame[INNER])
        called = frame[CALLED]
        if called >= 0 and self._names[called] == self._names[frame[KEY]]:
            # An operator that only goes on under its own name is one call.
            self.tallies[called][0] -= 1
            self.tallies[called][2] -= frame[INNER]
        phase = frame[PHASE]
        if phase == STEP:
            self.steps.append((frame[KEY], taken))
        elif phase and not frame[INSIDE]:
            self.in_phases[phase] += taken
            if frame[IN_STEP]:
                self.in_steps[phase] += taken

    def _count(self, key: int, taken: int, inner: int) -> None:
        found = self.tallies.get(key)
        alone = max(0, taken - inner)
        if found is None:
            self.tallies[key] = [1, alone, taken, taken, taken]
            return
        found[0] += 1
        found[1] += alone
        found[2] += taken
        if taken < found[3]:
            found[3] = taken
        if taken > found[4]:
            found[4] = taken
