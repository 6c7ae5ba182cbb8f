"""What can go wrong inside the helper, each with the code under which the user is told."""

from __future__ import annotations


class InjectError(Exception):
    """Stop the injection; `code` names the refusal, `detail` the particulars.

    Whoever raises it has left the target running as it was.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail


class RetryError(InjectError):
    """Say that this thread cannot be given back exactly at this moment: take another, or wait."""

    def __init__(self, detail: str) -> None:
        super().__init__("no_usable_thread", detail)
