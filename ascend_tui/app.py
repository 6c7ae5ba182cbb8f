"""The Textual application: composes the parts of the screen, routes keys and frames; nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.screen import Screen

from ascend_tui import keys, text
from ascend_tui.arrivals import FrameArrived, OutcomeArrived
from ascend_tui.commanding import Commanding
from ascend_tui.controls import Controls, Outcome
from ascend_tui.exporting import Export, save
from ascend_tui.frame import Frame
from ascend_tui.leaving import LEAVE_S, Leaving
from ascend_tui.moments import Moment, Moments
from ascend_tui.plugin import Loaded
from ascend_tui.shown import SILENCE_S, Shown
from ascend_tui.text import tr
from ascend_tui.widgets.desk import Desk
from ascend_tui.widgets.filter_line import FilterLine
from ascend_tui.widgets.help import HelpScreen
from ascend_tui.widgets.key_line import KeyLine
from ascend_tui.widgets.pane import pane_of
from ascend_tui.widgets.quiet_table import TablePane
from ascend_tui.widgets.status import StatusLine, how_attached

TICKS_S = (2.0, 1.0, 0.5, 0.25)
THEMES = ("textual-dark", "textual-light", "ansi-dark", "ansi-light", "nord", "gruvbox", "solarized-light")
NOTICE_S = 6.0


class MonitorApp(App[None]):
    """Show the targets of one session."""

    CSS_PATH = "app.tcss"
    TITLE = "ascend-tui"
    BINDINGS = keys.bindings()  # type: ignore[assignment]

    def __init__(
        self,
        controls: Controls,
        plugins: Sequence[Loaded],
        *,
        theme: str | None = None,
        mouse: bool = False,
        tick_s: float = 1.0,
        readonly: bool = False,
        language: str | None = None,
        keymap: Mapping[str, str] | None = None,
        export: Export | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show `plugins` in this order; `export` writes a file into the run's folder."""
        super().__init__()
        self.controls = controls
        self.mouse = mouse
        self.readonly = readonly
        self.tick_s = tick_s
        self.export = export
        self.clock = clock
        self.shown = Shown()
        self.moments = Moments()
        self.commanding = Commanding(controls, readonly, clock)
        self.leaving = Leaving(
            controls,
            lambda outcome: self._deliver(outcome, leaving=True),
            lambda code: self.exit(return_code=code),
        )
        self._notice: tuple[str, float] = ("", 0.0)
        text.set_language(language or text.language_of(os.environ))
        # Over SSH the terminal's own colours cost half the bytes.
        self.theme = theme or ("ansi-dark" if os.environ.get("SSH_CONNECTION") else "textual-dark")
        self.set_keymap(keymap or {})
        commands = keys.command_keys(plugins, keymap or {})
        for one in commands:
            self.bind(one.key, one.action, description=one.command.title)
        self.keys = keys.KeyBook(self, min(len(plugins), keys.PANES), commands)
        self.desk = Desk([pane_of(digit, loaded) for digit, loaded in enumerate(plugins[: keys.PANES], 1)])

    @property
    def farewell(self) -> list[str]:
        """Return what to print once the terminal is the user's again."""
        return self.leaving.farewell

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run until the user leaves; the mouse stays the terminal's unless it was asked for."""
        kwargs.setdefault("mouse", self.mouse)
        return super().run(*args, **kwargs)

    def compose(self) -> ComposeResult:
        """Set status, panes and keys above each other."""
        yield StatusLine(id="status")
        yield self.desk
        yield KeyLine(id="keys")
        yield FilterLine(id="filter")

    def on_mount(self) -> None:
        """Take over the signals that end the process, then let frames come."""
        if not self.is_headless:
            self.leaving.on_signals(lambda code: self._leave(code=code))
        self.desk.choose(0)
        self.shown.listen(self.clock())
        self.set_interval(SILENCE_S / 2, self.draw_lines)
        self.controls.start(self._on_frame)

    def on_unmount(self) -> None:
        """Close the connections, whichever way the screen ended."""
        self.controls.stop()

    def on_resize(self, event: events.Resize) -> None:
        """Fit status and footer to the new width."""
        self.call_after_refresh(self.draw)

    # Frames in, picture out.

    def _on_frame(self, frame: Frame) -> None:
        self.moments.take(frame)
        self.post_message(FrameArrived(frame))

    def on_frame_arrived(self, message: FrameArrived) -> None:
        """Draw one tick, or count it while frozen; that the target is gone is said even then."""
        for status in self.shown.came_in(message.frame):
            self.say(how_attached(status))
        if self.shown.arrive(message.frame, self.clock()):
            self.draw()
        elif self.shown.behind is not None:
            self.draw_lines()

    def draw(self) -> None:
        """Bring the whole screen up to the shown frame; what did not change costs nothing."""
        target, view = self.shown.target, self.shown.view(self.moments)
        self.desk.take(target.plugins if target else {}, view)
        self.draw_lines()

    def draw_lines(self) -> None:
        """Bring status line and footer up to date."""
        base = self.screen_stack[0] if self.screen_stack else None
        status, line = (base.query(StatusLine), base.query(KeyLine)) if base else ((), ())
        if not status or not line:
            return  # A timer or a frame came in while the app opens or closes.
        notice, ends = self._notice
        status.first().show(
            self.shown.status,
            position=self.shown.position,
            frozen_frames=self.shown.waiting,
            behind=self.shown.behind,
            notice=notice if self.clock() < ends else "",
            silent_s=self.shown.silent_s(self.clock(), self.tick_s),
        )
        line.first().show(self.keys.hints())

    def say(self, words: str) -> None:
        """Show a notice in the status line for a few seconds."""
        self._notice = (words, self.clock() + NOTICE_S)
        self.draw_lines()
        self.set_timer(NOTICE_S + 0.1, self.draw_lines)

    def on_key(self) -> None:
        """Count what waits behind a frozen screen: a key is the moment to say it."""
        self.shown.count_waiting()
        self.draw_lines()

    # Keys: which there are.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave out keys that mean nothing on this screen."""
        if action == "focus_pane":
            return isinstance(parameters[0], int) and parameters[0] <= len(self.desk.panes)
        return self.export is not None if action == "export" else True

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer every key in the palette too."""
        for shown, title, action in self.keys.table():
            yield SystemCommand(title, shown, partial(self.run_action, action))

    # What the keys do.

    def action_focus_pane(self, digit: int) -> None:
        """Let the keys go to one pane."""
        self.desk.choose(digit - 1)

    def action_zoom(self) -> None:
        """Let the chosen pane fill the screen, or give the others their room back."""
        self.desk.zoom()

    def action_unzoom(self) -> None:
        """See all panes again."""
        self.desk.back()

    def action_open(self) -> None:
        """Tell the story of what is chosen: the pane's own detail has the whole screen."""
        if self.desk.chosen and not self.desk.zoomed:
            self.desk.zoom()

    def action_filter(self) -> None:
        """Ask which lines of the chosen pane are to be seen."""
        pane = self.desk.chosen
        if pane is None or not pane.filters:
            self.say(tr("this pane has nothing to filter"))
            return
        self.query_one(KeyLine).display = False
        self.query_one(FilterLine).ask(pane.title, pane.filter_text, pane.filter_example)

    def on_filter_line_typed(self, message: FilterLine.Typed) -> None:
        """Filter as it is typed, and give the keys back at the end."""
        pane = self.desk.chosen
        if pane is not None:
            pane.set_filter(message.text)
            if message.is_done:
                pane.focus(scroll_visible=False)
        if message.is_done:
            self.query_one(KeyLine).display = True

    def action_order(self) -> None:
        """Order the chosen pane's table by something else."""
        pane = self.desk.chosen
        words = pane.next_order() if isinstance(pane, TablePane) else ""
        self.say(words or tr("this pane has nothing to sort"))

    def action_table(self) -> None:
        """Show the other table of the chosen pane."""
        pane = self.desk.chosen
        words = pane.next_table() if isinstance(pane, TablePane) else ""
        self.say(words or tr("this pane has no other table"))

    def action_scroll(self, by: int, pages: bool = False) -> None:
        """Scroll the chosen pane."""
        if self.desk.chosen:
            self.desk.chosen.scroll_lines(by, pages)

    def action_freeze(self) -> None:
        """Hold what is shown, or catch up."""
        self.shown.freeze()
        self.draw()

    def action_mark(self) -> None:
        """Mark this moment."""
        status, newest = self.shown.status, self.shown.newest
        if status is None or newest is None:
            self.say(tr("no target yet"))
            return
        self.controls.mark(status.id)
        self.moments.mark(status.id, Moment(newest.wall_s, status.step, "m"))
        self.draw()
        self.say(tr("marked"))

    def action_alert(self, by: int) -> None:
        """Go to the next or previous alert."""
        found = self.moments.walk(by)
        if found is None:
            self.say(tr("no alerts"))
            return
        place, total, alert = found
        self.shown.turn_to(alert.target)
        self.desk.go_to(alert.plugin, alert.step, alert.wall)
        self.draw()
        step = "" if alert.step is None else f"{tr('step')} {text.count(alert.step)}  "
        severity, words = tr(alert.severity), text.say(alert.headline)
        self.say(f"! {severity} {place}/{total}  {step}{words}")

    def action_step_time(self, by: int) -> None:
        """Step the chosen pane in time."""
        if self.desk.chosen:
            self.desk.chosen.move_cursor(by)

    def action_rate(self, by: int) -> None:
        """Tick more or less often."""
        place = min(range(len(TICKS_S)), key=lambda one: abs(TICKS_S[one] - self.tick_s)) + by
        self.tick_s = TICKS_S[min(max(place, 0), len(TICKS_S) - 1)]
        self.controls.set_tick(self.tick_s)
        self.say(tr("{rate} Hz", rate=f"{1 / self.tick_s:g}"))

    def action_target(self, by: int) -> None:
        """Show another rank or target."""
        self.shown.turn(by)
        self.draw()

    def action_copy(self) -> None:
        """Copy the chosen pane to the terminal's clipboard."""
        if self.desk.chosen:
            lines = self.desk.chosen.as_text()
            self.copy_to_clipboard("\n".join(lines))
            self.say(tr("copied {n} lines, if the terminal allows it (OSC 52)", n=len(lines)))

    def action_export(self) -> None:
        """Save the screen and its numbers."""
        frame = self.shown.frame
        if self.export is None or frame is None:
            self.say(tr("nothing to save yet"))
            return
        try:
            folder = save(self.export, frame, self.export_screenshot())
        except OSError as error:
            self.say(tr("could not save: {reason}", reason=str(error)))
            return
        self.say(tr("saved to {folder}", folder=str(folder)))

    def action_theme(self) -> None:
        """Take the next theme."""
        place = THEMES.index(self.theme) + 1 if self.theme in THEMES else 0
        self.theme = THEMES[place % len(THEMES)]
        self.say(self.theme)

    def action_language(self) -> None:
        """Speak the next language."""
        place = text.LANGUAGES.index(text.language()) + 1
        text.set_language(text.LANGUAGES[place % len(text.LANGUAGES)])
        self.draw()

    def action_help(self) -> None:
        """Show the help."""
        self.push_screen(HelpScreen([(key, title) for key, title, _ in self.keys.table()], self.shown.status))

    def action_command(self, plugin: str, name: str) -> None:
        """Start or stop a plugin's command."""
        for one in self.keys.commands:
            if (one.plugin.name, one.command.name) == (plugin, name):
                self.say(self.commanding.press(one, self.shown.status, self._deliver))

    def action_leave(self) -> None:
        """Quit: stop what was started here, leave the idle shim."""
        self._leave()

    def action_remove(self) -> None:
        """Quit and remove the shim."""
        if self.readonly:
            self.say(tr("refused, this screen is read-only; q quits"))
            return
        self._leave(remove=True)

    def _leave(self, *, remove: bool = False, code: int = 0) -> None:
        words = self.leaving.begin(self.shown.targets(), remove=remove, code=code)
        if words:
            self.say(words)
            self.set_timer(LEAVE_S, self.leaving.give_up)

    def _deliver(self, outcome: Outcome, leaving: bool = False) -> None:
        self.post_message(OutcomeArrived(outcome, leaving))

    def on_outcome_arrived(self, message: OutcomeArrived) -> None:
        """Say how a request ended, and close once the last target let go."""
        if message.leaving:
            self.leaving.took(message.outcome)
        else:
            self.say(text.say(message.outcome.message))
