"""What a command's key does: start, stop, or first ask whether the training may be slowed."""

from __future__ import annotations

from collections.abc import Callable

from ascend_tui.controls import Controls, Done
from ascend_tui.frame import CommandPhase, TargetStatus
from ascend_tui.keys import CommandKey
from ascend_tui.text import tr

CONFIRM_S = 5.0


class Commanding:
    """Turn the presses of command keys into requests to the session."""

    def __init__(self, controls: Controls, readonly: bool, clock: Callable[[], float]) -> None:
        """Ask `controls`; `readonly` refuses all, `clock` times the second press."""
        self.controls = controls
        self.readonly = readonly
        self.clock = clock
        self._asked: tuple[str, float] | None = None

    def press(self, key: CommandKey, status: TargetStatus | None, done: Done) -> str:
        """Do what the key means now; return what to tell the user."""
        asked, self._asked = self._asked, None
        title, cost = tr(key.command.title), tr(key.command.cost)
        if self.readonly:
            return tr("{title}: refused, this screen is read-only", title=title)
        if status is None or status.state not in ("live", "waiting"):
            return tr("{title}: no live target", title=title)
        phase = _phase(key, status)
        if phase == "stopping":
            return tr("{title}: is stopping already", title=title)
        start = phase == "off"
        if start and key.command.slows and (asked is None or asked[0] != key.id or self.clock() > asked[1]):
            self._asked = (key.id, self.clock() + CONFIRM_S)
            return tr("{title}: {cost}; press {key} again to start", title=title, cost=cost, key=key.key)
        self.controls.command(status.id, key.plugin.name, key.command.name, start, done)
        return tr("{title}: starting", title=title) if start else tr("{title}: stopping", title=title)


def _phase(key: CommandKey, status: TargetStatus) -> CommandPhase:
    for state in status.commands:
        if (state.plugin, state.name) == (key.plugin.name, key.command.name):
            return state.phase
    return "off"
