"""Numbers that the device computed, brought to the host without waiting for it.

They are copied into page-locked memory behind the work that makes them, with an event behind the copy,
and read at a later step boundary at which the event has passed.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Tuple

from .modes import unseen

MOST_PENDING = 16
"""A host that runs further ahead of its device than this loses the oldest: `late` counts them."""
DEVICES = ("cpu", "cuda", "npu")


class Readback:
    """Tensors of one element in, numbers out.  Everything here runs on the training thread."""

    def __init__(self) -> None:
        self.late = 0
        self._pending: Deque[Tuple[List[Any], List[Tuple[List[int], Any]], List[float], Any]] = deque()
        self._idle: Dict[Tuple[Any, int], List[Any]] = {}

    @property
    def waits(self) -> bool:
        """Tell whether something is still on its way."""
        return bool(self._pending)

    def later(self, tensors: List[Any], call: Callable[[List[float]], Any]) -> None:
        """Call `call(values)`, in the order of `tensors`, as soon as the values are here.

        On the host they are here at once, and numbers among them are values already.  Never while a graph is
        captured: a copy would become part of it.
        """
        values = [math.nan] * len(tensors)
        groups: Dict[Tuple[Any, Any], List[int]] = {}
        with unseen():
            for place, tensor in enumerate(tensors):
                if tensor.__class__ is float:
                    values[place] = tensor
                elif tensor.device.type == "cpu":
                    values[place] = tensor.item()
                else:
                    groups.setdefault((tensor.device, tensor.dtype), []).append(place)
        if not groups:
            call(values)
            return
        torch = sys.modules["torch"]
        copies, events = [], {}
        with unseen():
            for (device, dtype), places in groups.items():
                flat = torch.stack([tensors[place].detach().reshape(()) for place in places])
                if dtype != torch.float64:
                    flat = flat.float()
                host = self._host(flat.dtype, len(places))
                host[: len(places)].copy_(flat, non_blocking=True)
                copies.append((places, host))
                events[device] = device
            passed = []
            for device in events:
                module = getattr(torch, device.type)
                event = module.Event()
                event.record(module.current_stream(device))
                passed.append(event)
        if len(self._pending) == MOST_PENDING:
            # Its host memory may still be written to: it is let go of, not used again.
            self._pending.popleft()
            self.late += 1
        self._pending.append((passed, copies, values, call))

    def poll(self) -> None:
        """Hand out what has arrived, oldest first."""
        while self._pending and all(event.query() for event in self._pending[0][0]):
            _, copies, values, call = self._pending.popleft()
            with unseen():
                for places, host in copies:
                    for place, value in zip(places, host.tolist()):
                        values[place] = value
                    self._idle.setdefault((host.dtype, len(host)), []).append(host)
            call(values)

    def close(self) -> None:
        """Let go of everything."""
        self._pending.clear()
        self._idle.clear()

    def _host(self, dtype: Any, count: int) -> Any:
        """Return page-locked memory for `count` numbers: it is slow to get and used again."""
        size = 1 << max(4, (count - 1).bit_length())
        idle = self._idle.get((dtype, size))
        if idle:
            return idle.pop()
        return sys.modules["torch"].empty(size, dtype=dtype, pin_memory=True)
