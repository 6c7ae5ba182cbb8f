"""The base of every pane: its frame, its title, and the states that all panes share.

A plugin's pane subclasses `Pane` and gives `body`, `draw` and `summary`.  The base draws what is
not the plugin's: waiting, degraded, failed, disconnected, frozen, and which commands are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.style import Style
from textual.widget import Widget

from ascend_tui.frame import Failed, TargetStatus
from ascend_tui.frozen import frozen
from ascend_tui.moments import Moment
from ascend_tui.plugin import Command, Loaded, Message, resolve
from ascend_tui.text import clean, fit, msgid, say, tr, width
from ascend_tui.widgets.curve import CurveView
from ascend_tui.widgets.quiet import Quiet
from ascend_tui.widgets.quiet_line import QuietLine
from ascend_tui.widgets.status import state_words

_PHASES = {"arming": msgid("arming"), "on": msgid("on"), "stopping": msgid("stopping")}


@frozen
class View:
    """All that a pane may need at one tick besides its own snapshot.  `wall_s` is Unix time."""

    status: TargetStatus | None = None
    wall_s: float = 0.0
    moments: tuple[Moment, ...] = ()
    frozen: bool = False


class Pane(Vertical, can_focus=True):
    """Frame one plugin's diagnosis; see the module for what a subclass gives."""

    TELLS: tuple[str, ...] = ()
    """Names of commands of which `mode` says itself that they are on."""

    filters = False
    """Whether `set_filter` does something."""

    def __init__(self, digit: int, loaded: Loaded) -> None:
        """Frame the plugin `loaded` under the key `digit`."""
        super().__init__(id=f"pane-{digit}")
        self.digit = digit
        self.loaded = loaded
        self.view = View()
        self.snapshot: Any = None
        self.zoomed = False
        self.is_called_up = False
        """The desk shows it alone by itself, and takes that back when the reason is gone."""
        self._notice = QuietLine(classes="notice")
        self._title = ""
        self._fault = ""

    # What a subclass gives.

    def body(self) -> Iterable[Widget]:
        """Return the widgets of the pane, from top to bottom."""
        return ()

    def draw(self, snapshot: Any, status: TargetStatus) -> None:
        """Bring the widgets up to this snapshot; called once per tick while the pane is seen."""

    def summary(self, snapshot: Any) -> str:
        """Return the snapshot in one line, for where there is no room for the pane."""
        return ""

    def mode(self, snapshot: Any) -> str:
        """Return the words at the right of the title: how the plugin looks right now."""
        return ""

    def rests(self, snapshot: Any) -> bool:
        """Tell whether one line says all there is to say; such a pane has no room of its own until chosen.

        `snapshot` is None while there is none.
        """
        return False

    def is_urgent(self, snapshot: Any) -> bool:
        """Tell whether this is the first thing to be seen: the desk then shows it alone, once."""
        return False

    def move_cursor(self, by: int) -> None:
        """Step the cursor in time, if the pane has one."""

    def scroll_lines(self, by: int, pages: bool = False) -> None:
        """Go up or down by so many lines or pages, if the pane has more than it can show."""

    def go_to(self, step: int | None) -> None:
        """Bring the moment of `step` into sight, if the pane has a time axis; None is live."""

    def go_to_time(self, wall_s: float) -> None:
        """Bring a moment whose step is not known into sight, in Unix seconds, if the pane has a time axis."""

    def set_filter(self, text: str) -> None:
        """Show only what fits `text`, if the pane filters; an empty text shows all."""

    @property
    def filter_text(self) -> str:
        """Return the present filter as it was typed."""
        return ""

    @property
    def filter_example(self) -> str:
        """Return what may be typed as a filter, as an example."""
        return ""

    # What the base does.

    def startable(self, status: TargetStatus) -> dict[str, Command]:
        """Return the plugin's commands that a key would start now, by name."""
        plugin = self.loaded.plugin
        if plugin is None or status.state != "live":
            return {}
        busy = {
            state.name
            for state in status.commands
            if state.plugin == self.loaded.name and state.phase != "off"
        }
        return {one.name: one for one in plugin.commands if one.hotkey and one.name not in busy}

    @property
    def title(self) -> str:
        """Return the plugin's title in the present language."""
        plugin = self.loaded.plugin
        return tr(plugin.title) if plugin else clean(self.loaded.name)

    def compose(self) -> ComposeResult:
        """Put the line for shared states above the plugin's widgets."""
        yield self._notice
        yield from self.body()

    def on_resize(self, event: events.Resize) -> None:
        """Fit the title to the new width."""
        self._title = ""
        self.redraw()

    def take(self, snapshot: Any, view: View) -> None:
        """Keep what a tick brought; `redraw` draws it, if the pane is seen."""
        self.snapshot, self.view = snapshot, view

    def redraw(self) -> None:
        """Draw what was last shown, in the present language."""
        if not self.is_attached or not self.display:
            return
        if self.has_data and self.view.status is not None:
            try:
                self.draw(self.snapshot, self.view.status)
                self._fault = ""
            except Exception as error:  # noqa: BLE001  a plugin's fault costs its own pane only
                self._fault = f"{type(error).__name__}: {error}"
        self._draw_notice()
        self._draw_title()

    @property
    def has_data(self) -> bool:
        """Tell whether there is a snapshot that the plugin's own `draw` understands."""
        return self.snapshot is not None and not isinstance(self.snapshot, Failed)

    def ask(self, question: Callable[[Any], bool], of_none: bool = False) -> bool:
        """Return what `rests` or `is_urgent` says of the last snapshot; a plugin's slip there is a no."""
        if not self.has_data and not of_none:
            return False
        try:
            return question(self.snapshot if self.has_data else None)
        except Exception:  # noqa: BLE001  the same slip shows as a fault when the pane is drawn
            return False

    def one_line(self) -> str:
        """Return digit, title and summary."""
        text = self.notice()
        if not text and self.has_data:
            try:
                text = self.summary(self.snapshot)
            except Exception as error:  # noqa: BLE001  as in redraw
                text = tr("failed: {reason}", reason=f"{type(error).__name__}: {error}")
        return f"{self.digit} {self.title}  {clean(text)}"

    def notice(self) -> str:
        """Return what the shared states have to say, or nothing."""
        status = self.view.status
        if isinstance(self.snapshot, Failed):
            return tr("failed: {reason}", reason=self.snapshot.failed)
        if self._fault or self.loaded.failed:
            return tr("failed: {reason}", reason=self._fault or self.loaded.failed or "")
        if status is None:
            return tr("no target yet")
        state = getattr(self.snapshot, "state", None)
        reason = getattr(self.snapshot, "reason", None)
        words = say(reason) if isinstance(reason, Message) else ""
        if state == "degraded":
            return tr("degraded: {reason}", reason=words)
        if status.state == "live" and state == "waiting":
            return words or tr("waiting for data")
        if status.state == "passive" and state in (None, "waiting"):
            return tr("needs the shim, and nothing is put into this process (--passive)")
        if status.state == "waiting" and self.ask(self.is_urgent):
            return ""
        if status.state in ("attaching", "waiting", "refused") or self.snapshot is None:
            return state_words(status) if status.state != "live" else tr("waiting for data")
        return ""

    def as_text(self) -> list[str]:
        """Return the pane as plain text, for the clipboard."""
        lines = [self.one_line().rstrip()]
        for widget in self.children:
            if widget.display and isinstance(widget, (Quiet, CurveView)) and widget is not self._notice:
                lines += widget.as_text()
        return lines

    def _draw_notice(self) -> None:
        text = self.notice()
        self._notice.display = bool(text)
        if text:
            status = self.view.status
            waits = status is not None and status.state in ("attaching", "waiting", "live")
            bad = isinstance(self.snapshot, Failed) or bool(self._fault or self.loaded.failed) or not waits
            self._notice.say([(text, "warn" if bad and status is not None else "dim")])

    def _mode_words(self) -> list[str]:
        words = [tr("Esc: back")] if self.is_called_up else []
        status = self.view.status
        if self.view.frozen:
            words.append(f"‖ {tr('frozen')}")
        if status is not None and status.state in ("disconnected", "exited"):
            words.append(f"✕ {tr('last data')}")
        if status is not None and self.loaded.plugin:
            titles = {command.name: command.title for command in self.loaded.plugin.commands}
            for state in status.commands:
                if state.plugin != self.loaded.name or state.phase == "off" or state.name not in titles:
                    continue
                if state.phase != "on" or state.name not in self.TELLS:
                    words.append(f"{tr(titles[state.name])} {tr(_PHASES[state.phase])}")
        if self.has_data and not self._fault:
            words.append(clean(self.mode(self.snapshot)))
        return [word for word in words if word]

    def _draw_title(self) -> None:
        """Write title and mode into the top border; only a change costs, since it repaints whole."""
        # Corner, line and space stand on either side of a title.
        room = self.outer_size.width - 6
        right = " · ".join(self._mode_words())
        left = fit(f"{self.digit} {self.title}", room)
        right = fit(right, room - width(left) - 3)
        # Two titles do not fit into one border, so the line between them is part of the title.
        fill = ("━" if self.has_class("-chosen") else "─") * (room - width(left) - width(right) - 2)
        title = f"{left} {fill} {right}" if right and fill else left
        if title == self._title or room < 1:
            return
        self._title = title
        line = Style(foreground=self.styles.border_top[1])
        title_text = Content.assemble((left, "bold"))
        if right and fill:
            title_text = Content.assemble(title_text, (f" {fill} ", line), right)
        # The public setter repaints the whole pane for one word of its title.
        self._border_title = title_text
        self.refresh(Region(-1, -1, self.outer_size.width, 1))


def pane_of(digit: int, loaded: Loaded) -> Pane:
    """Load a plugin's pane by the reference it gives; one that fails is a pane that says so."""
    if loaded.plugin is None:
        return Pane(digit, loaded)
    try:
        pane = resolve(loaded.plugin.pane)(digit, loaded)
        if not isinstance(pane, Pane):
            raise TypeError(f"{loaded.plugin.pane} is not an ascend_tui.widgets.pane.Pane")
        return pane
    except Exception as error:  # noqa: BLE001  a third party's import may raise anything
        return Pane(digit, Loaded(loaded.name, loaded.plugin, f"{type(error).__name__}: {error}"))
