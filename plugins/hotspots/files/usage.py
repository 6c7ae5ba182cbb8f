"""How busy a device was, from the start and the end of its tasks in whole nanoseconds."""

from __future__ import annotations

from ..snapshot import DeviceUse

LATE_NS = 1_000_000
"""How much earlier than the one before a task may start: those of two streams are written together.

A profiler writes tasks in their order; a table in another order was made by hand, and its gaps mean nothing.
"""
MOST_DEVICES = 64


class Span:
    """The tasks of one device."""

    __slots__ = ("busy_ns", "end_ns", "first_ns", "kernels", "longest_ns", "start_ns")

    def __init__(self, start: int) -> None:
        """Begin with the first task."""
        self.first_ns = self.start_ns = self.end_ns = start
        self.busy_ns = self.longest_ns = self.kernels = 0


class Busy:
    """The union of the times of tasks that come in order; where they do not, nothing is told."""

    def __init__(self) -> None:
        """Start idle."""
        self.spans: dict[str, Span] = {}
        self.unordered = False

    def add(self, start: int, end: int, device: str = "") -> None:
        """Take one task."""
        span = self.spans.get(device)
        if span is None:
            if len(self.spans) >= MOST_DEVICES:
                self.unordered = True
                return
            span = self.spans[device] = Span(start)
        if start < span.start_ns - LATE_NS:
            self.unordered = True
        span.kernels += 1
        span.start_ns = max(start, span.start_ns)
        if start > span.end_ns:
            span.longest_ns = max(span.longest_ns, start - span.end_ns)
            span.busy_ns += end - start
            span.end_ns = end
        elif end > span.end_ns:
            span.busy_ns += end - span.end_ns
            span.end_ns = end

    def result(self, communication_us: float) -> DeviceUse | None:
        """Return the use of all devices together; None where the tasks do not tell it."""
        spans = list(self.spans.values())
        busy = sum(one.busy_ns for one in spans)
        whole = sum(one.end_ns - one.first_ns for one in spans)
        if self.unordered or whole <= 0 or sum(one.kernels for one in spans) < 2:
            return None
        idle = max(0, whole - busy)
        return DeviceUse(
            busy_us=busy / 1000,
            idle_us=idle / 1000,
            idle_share=idle / whole,
            communication_us=communication_us,
            kernels=sum(one.kernels for one in spans),
            longest_idle_us=max(one.longest_ns for one in spans) / 1000,
        )
