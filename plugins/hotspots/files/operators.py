"""operator_details.csv: torch operators by their time on the device or on the host, with call stacks."""

from __future__ import annotations

from pathlib import Path

from ascend_tui.plugin import Message
from ascend_tui.text import clean

from ..snapshot import Clock, ProfileResult
from .columns import time_us, word
from .groups import MOST_SITES, NAME, Groups
from .reader import Reader, head_of
from .stacks import LONGEST


def is_operators(head: str, name: str) -> bool:
    """Tell whether a text begins like operator_details.csv."""
    header = head_of(head)
    return "name" in header and header.at("host self duration", "device self duration") >= 0


def read_operators(path: Path) -> ProfileResult:
    """Return the operators by their own time on the device, or on the host where none ran there.

    Raises OSError.
    """
    reader = Reader(path)
    header = reader.header
    at = {
        clock: (header.at(f"{clock} self duration"), header.at(f"{clock} total duration"))
        for clock in ("device", "host")
    }
    name_at, shapes_at, stack_at = header.at("name"), header.at("input shapes"), header.at("call stack")
    by_clock: dict[str, Groups] = {"device": Groups(), "host": Groups()}
    own = {"device": 0.0, "host": 0.0}

    def take(cells: list[str]) -> bool:
        name = word(cells[name_at])[:NAME]
        times = {
            clock: [time_us(cells[place], header.scales[place]) if place >= 0 else None for place in places]
            for clock, places in at.items()
        }
        if not name or all(one[0] is None for one in times.values()):
            return False
        shapes = word(cells[shapes_at]) if shapes_at >= 0 else ""
        stack = cells[stack_at].strip()[:LONGEST] if stack_at >= 0 else ""
        for clock, (self_us, total_us) in times.items():
            if self_us is None:
                continue
            own[clock] += self_us
            group = by_clock[clock].of(name)
            group.add(self_us, 1, "")
            group.spread(self_us, self_us)
            if total_us is not None:
                group.totals += 1
                group.total_us += total_us
            if shapes:
                group.use(shapes, "", self_us)
            if word(stack) and (stack in group.sites or len(group.sites) < MOST_SITES):
                sums = group.sites.setdefault(stack, [0, 0.0])
                sums[0] += 1
                sums[1] += self_us
        return True

    reader.rows(take)
    clock: Clock = "device" if own["device"] > 0 else "host"
    notes = []
    if clock == "device" and own["host"] > 0:
        host = by_clock["host"].by_name
        most = max(host, key=lambda one: host[one].us)
        notes.append(
            Message.of(
                "Times are those on the device, {device_us} us together; on the host the same operators took "
                "{host_us} us of their own, most of it {name} with {most_us} us",
                device_us=round(own["device"], 3),
                host_us=round(own["host"], 3),
                name=clean(most),
                most_us=round(host[most].us, 3),
            )
        )
    elif own["host"] > 0:
        notes.append(Message.of("No operator has a time on the device: the times are those on the host"))
    return by_clock[clock].result("operator_details", reader, notes, clock)
