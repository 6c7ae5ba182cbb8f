"""Chrome traces: what torch.profiler exports, and torch_npu's `trace_view.json`.

Read event by event, whatever the size.  Which lane is a device, its communication or a host is known only
when the names of all processes are, and those may come last: every lane is summed, and chrome_result.py takes
those that count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ascend_tui.plugin import Message

from ..kinds import kind_of
from ..snapshot import ProfileResult
from .json_stream import BrokenJson, JsonStream, nanoseconds, opened
from .lanes import HELD, Lane
from .trace_keys import Key, phase_of, shapes_of, types_of, waits_of

MOST_LANES = 4096
MOST_KEYS = 50_000
"""Names with their shapes that are told apart."""
MOST_BROKEN = 1000
MOST_OPEN = 10_000
LONGEST_NAME = 400
OTHERS = "(other names)"

HOST, DEVICE, BARE = "host", "device", "bare"
"""The kinds of lanes that an event's category tells; of a bare one the process tells it."""

_HOST_CATEGORIES = frozenset(
    ("cpu_op", "operator", "user_annotation", "cuda_runtime", "cuda_driver", "runtime", "xpu_runtime")
)
_DEVICE_CATEGORIES = frozenset(
    ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "concurrent_kernel")
)
_PASSED_OVER = frozenset(
    (
        "python_function",
        "gpu_user_annotation",
        "trace",
        "overhead",
        "enqueue",
        "dequeue",
        "ac2g",
        "fwdbwd",
        "cuda_sync",
    )
)
"""Python's own functions, and what repeats what another lane has."""
_END = object()
_CUT = Message("the file ends in the middle of an event: what comes before it is counted")
_BROKEN = Message("at character {at} it is no JSON any more: what comes before is counted")
_PATCHED = Message("{n} events are no JSON and are left out")
_LATE = Message(
    "{n} events came more than {held} events late: their time is also in the own time of what called them"
)
_LANES = Message("it has more than {n} threads and streams: the events of the others are left out")
_NAMES = Message("it has more than {n} names and shapes: the others are one row")


class Trace:
    """All lanes of a trace, with what names them."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.lanes: dict[tuple[str, str, str], Lane] = {}
        self.processes: dict[str, str] = {}
        self.threads: dict[tuple[str, str], str] = {}
        self.labels: dict[str, str] = {}
        self.keys: list[Key] = []
        self.read = 0
        self.skipped = 0
        self.notes: list[Message] = []
        self._phases: list[int] = []
        self._names: list[str] = []
        self._ids: dict[tuple[str, ...], int] = {}
        self._held = 0
        self._full = False

    def take(self, event: Any) -> None:
        """Count one event; what is none is skipped."""
        if not isinstance(event, dict):
            self.skipped += 1
            return
        phase = event.get("ph")
        if phase == "X":
            start, taken = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0))
            if start is None or taken is None or taken < 0:
                self.skipped += 1
                return
            self._event(event, start, start + taken)
        elif phase == "B":
            self._begin(event)
        elif phase == "E":
            self._end(event)
        elif phase == "M":
            self._name(event)

    def finish(self) -> None:
        """Nest what still waits, and say what could not be had."""
        late = 0
        for lane in self.lanes.values():
            self.skipped += len(lane.opened)
            lane.fold(everything=True)
            late += lane.late
        if late:
            self.notes.append(Message.of(_LATE.text, n=late, held=HELD // 2))
        if len(self.lanes) >= MOST_LANES:
            self.notes.append(Message.of(_LANES.text, n=MOST_LANES))
        if self._full:
            self.notes.append(Message.of(_NAMES.text, n=MOST_KEYS))

    def _lane(self, event: Mapping[str, Any]) -> Lane | None:
        category = str(event.get("cat") or "").lower()
        if category in _PASSED_OVER or category.startswith("async"):
            return None
        group = HOST if category in _HOST_CATEGORIES else DEVICE if category in _DEVICE_CATEGORIES else BARE
        place = (_word(event.get("pid")), _word(event.get("tid")), group)
        lane = self.lanes.get(place)
        if lane is None and len(self.lanes) < MOST_LANES:
            lane = self.lanes[place] = Lane(self._phases, self._names, group == HOST)
        return lane

    def _event(self, event: Mapping[str, Any], start: int, end: int) -> None:
        lane = self._lane(event)
        if lane is None:
            return
        number = self._key(event)
        self._count(lane, start, end, number)

    def _count(self, lane: Lane, start: int, end: int, number: int) -> None:
        self.read += 1
        lane.add(start, end, number)
        if not lane.follows:
            key = self.keys[number]
            if not key.waits:
                lane.busy.add(start, end)
            if key.kind == "communication":
                lane.communicating.add(start, end)
        self._held += 1
        if self._held >= HELD:
            self._held -= max(self.lanes.values(), key=lambda one: len(one.pending)).fold()

    def _begin(self, event: Mapping[str, Any]) -> None:
        lane, start = self._lane(event), nanoseconds(event.get("ts"))
        if lane is not None and start is not None and len(lane.opened) < MOST_OPEN:
            lane.opened.append((start, self._key(event)))

    def _end(self, event: Mapping[str, Any]) -> None:
        # An end may leave out the category of its beginning, and then belongs to another lane by it.
        place, end = (_word(event.get("pid")), _word(event.get("tid"))), nanoseconds(event.get("ts"))
        open_here = [
            lane
            for group in (HOST, DEVICE, BARE)
            if (lane := self.lanes.get((*place, group))) and lane.opened
        ]
        lane = max(open_here, key=lambda one: one.opened[-1][0], default=None)
        if lane is None or end is None:
            self.skipped += 1
            return
        start, number = lane.opened.pop()
        self._count(lane, start, max(start, end), number)

    def _key(self, event: Mapping[str, Any]) -> int:
        arguments = event.get("args")
        more: Mapping[str, Any] = arguments if isinstance(arguments, dict) else {}
        name, category = str(event.get("name", ""))[:LONGEST_NAME], str(event.get("cat") or "")
        core = str(more.get("Task Type") or "")[:LONGEST_NAME]
        shapes = shapes_of(more.get("Input Dims", more.get("Input dims")))
        identity: tuple[str, ...] = (name, category, core, shapes)
        number = self._ids.get(identity)
        if number is None:
            if len(self.keys) >= MOST_KEYS:
                self._full = True
                identity = (OTHERS,)
                if identity in self._ids:
                    return self._ids[identity]
                name = OTHERS
            dtypes = types_of(more.get("Input type"))
            waits = not category and waits_of(name, core)
            number = self._ids[identity] = len(self.keys)
            self.keys.append(Key(name, core, shapes, dtypes, kind_of(name, core), waits))
            self._names.append(name)
            self._phases.append(phase_of(name, category.lower()))
        return number

    def _name(self, event: Mapping[str, Any]) -> None:
        arguments = event.get("args")
        if not isinstance(arguments, dict) or len(self.processes) + len(self.threads) > 4 * MOST_LANES:
            return
        what, pid = event.get("name"), _word(event.get("pid"))
        if what == "process_name":
            self.processes[pid] = str(arguments.get("name", ""))[:LONGEST_NAME]
        elif what == "process_labels":
            self.labels[pid] = str(arguments.get("labels", ""))[:LONGEST_NAME]
        elif what == "thread_name":
            self.threads[pid, _word(event.get("tid"))] = str(arguments.get("name", ""))[:LONGEST_NAME]


def is_chrome(head: str, name: str) -> bool:
    """Tell whether a text begins like a trace: an object with `traceEvents`, or a list of events."""
    start = head.lstrip()[:1]
    if start == "{":
        return '"traceEvents"' in head
    if start != "[":
        return False
    first = head.lstrip()[1:4096]
    return first.lstrip()[:1] == "{" and '"ph"' in first and ('"ts"' in first or '"pid"' in first)


def read_chrome(path: Path) -> ProfileResult:
    """Return the operators of a trace: kernels where it has any, else those on the host.

    Raises OSError, and ValueError where nothing in it can be read.
    """
    from .chrome_result import result_of

    trace = Trace()
    with opened(path) as stream:
        for event in _events(stream, trace):
            trace.take(event)
    trace.finish()
    if not trace.read:
        raise ValueError("no event with a time and a duration in it")
    return result_of(trace, path.name)


def _events(stream: JsonStream, trace: Trace) -> Iterator[Any]:
    broken = 0
    try:
        if stream.peek() == "{":
            for key in stream.members():
                if key == "traceEvents" and stream.peek() == "[":
                    break
                stream.value()
            else:
                return
        walk = stream.items()
        while True:
            try:
                event = next(walk, _END)
            except BrokenJson as error:
                if error.cut or broken >= MOST_BROKEN or not stream.resume():
                    raise
                broken += 1
                walk = stream.rest()
                continue
            if event is _END:
                break
            yield event
    except BrokenJson as error:
        at = f"{stream.position:,}"
        trace.notes.append(_CUT if error.cut else Message.of(_BROKEN.text, at=at))
    if broken:
        trace.skipped += broken
        trace.notes.append(Message.of(_PATCHED.text, n=broken))


def _word(value: object) -> str:
    return value if isinstance(value, str) else str(value)[:LONGEST_NAME]
