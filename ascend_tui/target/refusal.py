"""A refusal: what cannot be done, why, and what the user can do about it."""

from __future__ import annotations

from ascend_tui.frozen import frozen


@frozen
class Refusal:
    """Say exactly why something was not done, in a form that can still be translated.

    `what`, `why` and `next_step` are English message ids with {named} placeholders; they are formatted only
    when shown, because a formatted sentence can no longer be found in a catalogue.
    """

    code: str
    what: str
    why: str
    next_step: str
    params: tuple[tuple[str, object], ...] = ()

    def english(self) -> str:
        """Return the whole refusal as English text: what, why, next step."""
        values = dict(self.params)
        return "{}: {}. {}".format(*(text.format(**values) for text in (self.what, self.why, self.next_step)))

    def as_json(self) -> dict[str, object]:
        """Return a JSON-ready dict with the code, the formatted English sentences and the parameters."""
        values = dict(self.params)
        return {
            "code": self.code,
            "what": self.what.format(**values),
            "why": self.why.format(**values),
            "next_step": self.next_step.format(**values),
            "params": values,
        }


class RefusedError(Exception):
    """Carry a `Refusal` to whoever can show it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.english())
        self.refusal = refusal
