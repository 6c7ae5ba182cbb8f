"""Commands that run while a monitor is there: started after an attach, and again when a lease is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ascend_tui.plugin import Command, Plugin, Record

AGAIN_S = 30.0
"""A start that was refused is tried again after so long."""


class Autostart:
    """Decide, at each beat of one shim, which commands to start; one that somebody stopped stays off."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self._commands: Sequence[tuple[Plugin, Command]] = [
            (plugin, command) for plugin in plugins for command in plugin.commands if command.auto
        ]
        self._stopped: set[tuple[str, str]] = set()
        self._not_before: dict[tuple[str, str], float] = {}

    def due(self, beat: Mapping[str, Any], loaded: Iterable[str], now_mono: float) -> list[dict[str, Any]]:
        """Return the fields of the requests to send now; `loaded` are the plugins whose probe is there."""
        there = beat.get("commands")
        busy = {
            (str(one.get("plugin")), str(one.get("name")))
            for one in (there if isinstance(there, list) else ())
            if isinstance(one, dict)
        }
        found = []
        for plugin, command in self._commands:
            key = (plugin.name, command.name)
            if plugin.name not in loaded or key in busy or key in self._stopped:
                continue
            if now_mono < self._not_before.get(key, 0.0):
                continue
            # Whatever the answer: one that starts is in the next beats, one that cannot is not asked often.
            self._not_before[key] = now_mono + AGAIN_S
            lease = {"steps": command.lease.steps, "seconds": command.lease.seconds}
            found.append({"plugin": plugin.name, "name": command.name, "action": "start", "lease": lease})
        return found

    def learn(self, record: Record) -> None:
        """Take a record of the core: what is stopped by somebody is not started again until he does."""
        if record.plugin != "core" or record.kind != "command":
            return
        key = (str(record.data.get("plugin")), str(record.data.get("name")))
        if record.data.get("phase") == "started":
            self._stopped.discard(key)
        elif (reason := str(record.data.get("reason", ""))).startswith("stopped by"):
            self._stopped.add(key)
        elif not reason.startswith("refused:"):
            self._not_before.pop(key, None)

    def reset(self) -> None:
        """Begin anew with a new connection."""
        self._not_before.clear()
