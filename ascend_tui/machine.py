"""What plugins ask of the machine beside all targets: in a thread of its own, because it may take seconds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Ask = Callable[[], "Mapping[str, Any] | None"]
"""What a plugin asks of the machine; None is "nothing to be had here"."""
EVERY_S = 30.0


class Machine:
    """Ask again every `EVERY_S` seconds; an answer that takes longer is waited for, never asked twice."""

    def __init__(self, asks: Sequence[tuple[str, Ask]], every_s: float = EVERY_S) -> None:
        """Take what to ask as (plugin's name, function)."""
        self._asks = list(asks)
        self._every_s = every_s
        self._next = 0.0
        self._thread: threading.Thread | None = None
        self._answers: deque[tuple[str, Mapping[str, Any]]] = deque()
        self.faults: dict[str, str] = {}

    def take(self, now_mono: float) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the answers that have come, as (plugin's name, data), and ask again when it is time."""
        answers = []
        while self._answers:
            answers.append(self._answers.popleft())
        idle = self._thread is None or not self._thread.is_alive()
        if self._asks and idle and now_mono >= self._next:
            self._next = now_mono + self._every_s
            self._thread = threading.Thread(target=self._ask, name="machine", daemon=True)
            self._thread.start()
        return answers

    def _ask(self) -> None:
        for name, ask in self._asks:
            if name in self.faults:
                continue
            try:
                answer = ask()
            except Exception as error:  # noqa: BLE001 - a third party's fault costs its own answer only
                self.faults[name] = f"{type(error).__name__}: {error}"
                continue
            if answer is not None:
                self._answers.append((name, answer))
