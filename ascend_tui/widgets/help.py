"""The help: every key, what the signs mean, and what is known about the target."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from ascend_tui.frame import TargetStatus
from ascend_tui.text import clean, count, fold, msgid, say, say_reason, tr, width
from ascend_tui.widgets.quiet import Line
from ascend_tui.widgets.quiet_line import QuietLine

_NAME, _VALUE = 16, 56
"""Columns of a name, and of what stands beside it."""
_SIGNS = (
    ("● ○", msgid("live · waiting")),
    ("✕ ‖", msgid("gone · frozen, with the number of ticks that wait")),
    ("· ▲ ! ✕", msgid("an incident: information · warning · error · fatal")),
    ("▲ ? =", msgid("memory: grows · undecided · steady")),
    ("┴ m !", msgid("on a time axis: tick · your mark · alert")),
    ("╌ ┊", msgid("capacity of the device · the moment you stepped to")),
)


class HelpScreen(ModalScreen[None]):
    """Show the help over the screen; any of its keys closes it."""

    BINDINGS = [Binding("escape,q,question_mark,enter,space", "dismiss", "close")]  # noqa: RUF012
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll {
        width: 78; max-width: 100%; height: auto; max-height: 100%;
        border: solid $primary; padding: 0 1; background: $surface;
    }
    HelpScreen QuietLine { height: auto; }
    """

    def __init__(self, keys: Sequence[tuple[str, str]], status: TargetStatus | None) -> None:
        """List `keys` as (key, what it does), then the signs, then the target."""
        super().__init__()
        self._keys = keys
        self._status = status

    def compose(self) -> ComposeResult:
        """Set the whole help as one block of lines."""
        with VerticalScroll() as scroll:
            scroll.border_title = tr("help")
            lines = self.lines()
            block = QuietLine()
            block.styles.height = len(lines)
            block.say(*lines)
            yield block

    def lines(self) -> list[Line]:
        """Return the help line by line."""
        found: list[Line] = [_row(key, tr(title)) for key, title in self._keys]
        found += ["", [(tr("Signs"), "bold")]]
        found += [_row(sign, tr(meaning)) for sign, meaning in _SIGNS]
        if self._status is not None:
            found += ["", [(tr("This target"), "bold")]]
            for name, value in about(self._status):
                first, *more = fold(clean(value), _VALUE)
                found += [_row(name, first), *(_row("", one) for one in more)]
        return found


def about(status: TargetStatus) -> list[tuple[str, str]]:
    """Return what is known about the target as (name, value)."""
    rows = [
        (tr("process"), f"{status.id.pid} {status.title}"),
        (tr("device"), f"{status.device} {status.device_name}".strip()),
        ("python", status.python),
        ("torch", status.torch),
        ("torch_npu", status.torch_npu),
        (tr("attached by"), status.method),
        (tr("because"), say_reason(status.method_reason)),
        (tr("stopped for"), "" if status.stop_ms is None else f"{status.stop_ms:.1f} ms"),
        (tr("skipped steps"), count(status.skipped) if status.skipped else ""),
        (tr("records dropped"), count(status.dropped) if status.dropped else ""),
    ]
    rows += [(tr("note"), say(note)) for note in status.notes]
    return [(name, value) for name, value in rows if value]


def _row(key: str, text: str) -> Line:
    return [(key + " " * max(1, _NAME - width(key)), "key"), (clean(text), "")]
