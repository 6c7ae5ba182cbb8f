"""Every key of the screen in one table: dispatch, footer, help and palette all read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual.app import App
from textual.binding import Binding

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Command, Loaded, Plugin, commands
from ascend_tui.text import fit, tr
from ascend_tui.widgets.key_line import Hint

PANES = 9
"""Digits there are for panes."""


@frozen
class Key:
    """One key: `id` is what a keymap remaps, `short` stands in the footer where it is not empty.

    One without a title is told of by the key before it.
    """

    id: str
    key: str
    action: str
    title: str
    short: str = ""
    shown_as: str = ""


KEYS = (
    Key("zoom", "z", "zoom", title="fill the screen with this pane, and back", short="zoom"),
    Key("unzoom", "escape", "unzoom", title="back from one pane to all", shown_as="esc"),
    Key("open", "enter", "open", title="the story of the chosen line", shown_as="enter"),
    Key("filter", "slash", "filter", title="filter this pane", short="filter", shown_as="/"),
    Key(
        "scroll.up",
        "up",
        "scroll(-1)",
        title="choose a line of this pane, or scroll it by a line or a page",
        shown_as="↑ ↓ pgup pgdn",
    ),
    Key("scroll.down", "down", "scroll(1)", title=""),
    Key("page.up", "pageup", "scroll(-1, True)", title=""),
    Key("page.down", "pagedown", "scroll(1, True)", title=""),
    Key("order", "c", "order", title="sort this table by its next column"),
    Key("table", "v", "table", title="the other table of this pane, where it has two"),
    Key("freeze", "space", "freeze", title="freeze what is shown; collecting goes on", short="freeze"),
    Key("mark", "m", "mark", title="mark this moment on every time axis", short="mark"),
    Key("alert.next", "n", "alert(1)", title="next alert", short="alert"),
    Key("alert.previous", "N", "alert(-1)", title="previous alert"),
    Key("time.back", "[", "step_time(-1)", title="step back in time", shown_as="["),
    Key(
        "time.forward",
        "]",
        "step_time(1)",
        title="step forward in time, at the end back to live",
        shown_as="]",
    ),
    Key("rate.faster", "+", "rate(1)", title="draw more often", shown_as="+"),
    Key("rate.slower", "-", "rate(-1)", title="draw less often", shown_as="-"),
    Key("target.previous", "<", "target(-1)", title="previous rank or target", shown_as="<"),
    Key("target.next", ">", "target(1)", title="next rank or target", shown_as=">"),
    Key("copy", "y", "copy", title="copy this pane as text"),
    Key("export", "e", "export", title="save this screen and its numbers to the run folder", short="export"),
    Key("theme", "t", "theme", title="next colours"),
    Key("language", "L", "language", title="next language"),
    Key("help", "?", "help", title="this help", short="help", shown_as="?"),
    Key("quit", "q", "leave", title="quit: stop what was started here, leave the idle shim", short="quit"),
    Key("remove", "Q", "remove", title="quit and remove the shim from the training"),
)


def bindings() -> list[Binding]:
    """Return the table as bindings, the digits of the panes first."""
    panes = [
        Binding(str(digit), f"focus_pane({digit})", "let the keys go to this pane", id=f"pane.{digit}")
        for digit in range(1, PANES + 1)
    ]
    table = [
        Binding(key.key, key.action, key.title, key_display=key.shown_as or None, id=key.id) for key in KEYS
    ]
    # What hands are used to: Textual would only talk about ctrl+c, and ctrl+q would skip the release.
    leave = Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True)
    return [*panes, *table, leave]


@frozen
class CommandKey:
    """A plugin's command under the key that starts and stops it."""

    key: str
    plugin: Plugin
    command: Command

    @property
    def id(self) -> str:
        """Return the name under which a keymap finds it."""
        return f"{self.plugin.name}.{self.command.name}"

    @property
    def action(self) -> str:
        """Return the action the key runs."""
        return f"command({self.plugin.name!r}, {self.command.name!r})"


def command_keys(plugins: Iterable[Loaded], keymap: Mapping[str, str]) -> list[CommandKey]:
    """Return the commands that have a key, after the user's keymap; the first of two wins."""
    taken = {keymap.get(key.id, key.key) for key in KEYS} | {str(digit) for digit in range(1, PANES + 1)}
    found = []
    for plugin, command in commands(plugins):
        key = keymap.get(f"{plugin.name}.{command.name}", command.hotkey)
        if key and key not in taken:
            taken.add(key)
            found.append(CommandKey(key, plugin, command))
    return found


class KeyBook:
    """The keys as they are bound now, after the keymap: what footer, help and palette show."""

    def __init__(self, app: App[None], panes: int, commands: list[CommandKey]) -> None:
        """Read the bindings of `app`; it has so many panes and command keys."""
        self.app = app
        self.panes = panes
        self.commands = commands

    def bound(self) -> list[tuple[Key, str]]:
        """Return every key of the table that does something, with how it is written."""
        active = self.app.screen_stack[0].active_bindings.values()
        written = {one.binding.id: self.app.get_key_display(one.binding) for one in active}
        return [(key, written[key.id]) for key in KEYS if key.title and key.id in written]

    def hints(self) -> list[Hint]:
        """Return the footer's entries, in its order."""
        hints = [Hint(f"1-{self.panes}", tr("focus"), 3)] if self.panes > 1 else []
        for key, written in self.bound():
            if key.short:
                hints.append(Hint(written, tr(key.short), 0 if key.id in ("help", "quit") else 2))
        own = [Hint(one.key, fit(tr(one.command.title), 14)) for one in self.commands]
        return [*hints[:-2], *own, *hints[-2:]]

    def table(self) -> list[tuple[str, str, str]]:
        """Return every key with what it does, in the present language, and its action."""
        rows = []
        if self.panes > 1:
            rows.append((f"1-{self.panes}", tr("let the keys go to this pane"), "focus_pane(1)"))
        rows += [(written, tr(key.title), key.action) for key, written in self.bound()]
        for one in self.commands:
            rows.append((one.key, f"{tr(one.command.title)} ({tr(one.command.cost)})", one.action))
        return rows
