"""One row at the foot of the screen in which a filter is typed; it takes effect as it is typed."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from ascend_tui.text import width
from ascend_tui.widgets.quiet_line import QuietLine

MOST_TYPED = 200
"""Characters of a filter: a paste by mistake ends there."""


class FilterLine(Horizontal):
    """Hold a prompt and an input; hidden until `ask`."""

    DEFAULT_CSS = """
    FilterLine { height: 1; display: none; padding: 0 1; }
    FilterLine QuietLine { width: auto; }
    FilterLine Input { width: 1fr; }
    """
    BINDINGS = [Binding("escape", "give_up", "back", show=False)]  # noqa: RUF012

    class Typed(Message):
        """What stands in the line now; `is_done` once it was accepted or given up."""

        def __init__(self, text: str, is_done: bool) -> None:
            """Carry the text."""
            super().__init__()
            self.text = text
            self.is_done = is_done

    def __init__(self, *, id: str | None = None) -> None:
        """Start hidden and empty."""
        super().__init__(id=id)
        self._prompt = QuietLine()
        self._input = Input(compact=True, max_length=MOST_TYPED, select_on_focus=False)
        # Nothing blinks.
        self._input.cursor_blink = False
        # Textual gives the keys to the first widget that may have them, be it hidden.
        self._input.disabled = True
        self._before = ""

    def compose(self) -> ComposeResult:
        """Set the prompt before the input."""
        yield self._prompt
        yield self._input

    def ask(self, prompt: str, text: str, example: str = "") -> None:
        """Show the line with the present filter in it, and take the keys."""
        self._before = text
        words = f"/ {prompt} "
        self._prompt.styles.width = width(words)
        self._prompt.say([("/ ", "key"), (f"{prompt} ", "dim")])
        with self.prevent(Input.Changed):
            self._input.value = text
        self._input.cursor_position = len(text)
        self._input.placeholder = example
        self.display = True
        self._input.disabled = False
        self._input.focus(scroll_visible=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell what stands there while it is typed."""
        event.stop()
        self.post_message(self.Typed(event.value, is_done=False))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep what was typed."""
        event.stop()
        self._end(event.value)

    def action_give_up(self) -> None:
        """Go back to the filter that was there before."""
        self._end(self._before)

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        """Keep what was typed when the keys go elsewhere."""
        if self.display:
            self._end(self._input.value)

    def _end(self, text: str) -> None:
        if self.display:
            self.display = False
            self._input.disabled = True
            self.post_message(self.Typed(text, is_done=True))
