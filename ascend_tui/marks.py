"""The marks that the core puts on the time axes: the user's own, and commands that slow the training."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.plugin import Loaded, Mark, Message, Record, commands
from ascend_tui.target import TargetId


def mark_of(target: TargetId, record: Record, plugins: Sequence[Loaded]) -> Mark | None:
    """Return the mark for a record of the core, None where it deserves none.

    A command has one at its beginning and one at its end, under the first letter of its name; one that does
    not slow the training has none.
    """
    data = record.data
    if record.kind == "mark":
        label = Message.of("{label}", label=str(data.get("label", "")))
        sign = str(data.get("sign") or "m")[:1]
        return Mark(target, "core", record.wall_s, sign, label, record.step)
    if record.kind != "command":
        return None
    owner, name = str(data.get("plugin", "")), str(data.get("name", ""))
    slowing = {(plugin.name, command.name) for plugin, command in commands(plugins) if command.slows}
    if (owner, name) not in slowing:
        return None
    label = Message.of("{plugin}.{name} ends", plugin=owner, name=name)
    if data.get("phase") == "started":
        label = Message.of("{plugin}.{name} starts", plugin=owner, name=name)
    return Mark(target, owner, record.wall_s, name[:1], label, record.step)
