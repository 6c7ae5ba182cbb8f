"""The filter that holds: what it lets through, and what is wrong with one that was typed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from ascend_tui.plugin import Message
from ascend_tui.text import tr

from .figures import fit_end, plain, sentence
from .filtering import Filter, NotAFilter, parse
from .patience import TooSlow, within

PATIENCE_S = 0.25
"""So long a filter may take for all lines: the screen stands still meanwhile."""


class Sieve:
    """Hold one filter; one that cannot be understood, or takes too long, leaves the one before it."""

    def __init__(self) -> None:
        """Let everything through."""
        self.filter = Filter()
        self.fault: tuple[Message, str] | None = None
        """What is wrong with what was typed last, and the filter that holds instead."""
        self._before = self.filter
        self._asked: tuple[Filter, float] = (self.filter, 0.0)
        self._fits: dict[Hashable, tuple[Any, bool]] = {}

    def set(self, text: str) -> None:
        """Take what was typed as the filter."""
        try:
            found = parse(text)
        except NotAFilter as error:
            self.fault = (error.message, self.filter.text)
            return
        # What takes too long shows only once it is tried: then the one before it holds.
        self._before, self.filter, self.fault = self.filter, found, None

    def clear(self) -> None:
        """Let everything through again."""
        self.set("")

    def words(self) -> str:
        """Say what is wrong with a filter, and which one holds; nothing where all is well."""
        if self.fault is None:
            return ""
        message, kept = self.fault
        holds = tr("no filter holds")
        if kept:
            holds = tr("the filter is still /{filter}", filter=plain(fit_end(kept, 40)))
        return f"{sentence(message)}; {holds}"

    def through(self, every: Mapping[Hashable, Any], now_s: float) -> dict[Hashable, Any]:
        """Return what fits the filter at the time `now_s`."""
        for other in (self._before, Filter()):
            try:
                with within(PATIENCE_S):
                    return self._through(every, now_s)
            except TooSlow:
                self.filter = other
                self.fault = (Message("this regular expression takes too long"), other.text)
        return dict(every)

    def _through(self, every: Mapping[Hashable, Any], now_s: float) -> dict[Hashable, Any]:
        """Look at each line once: of hundreds it costs to look at them every tick."""
        if not self.filter.text:
            return dict(every)
        asked = (self.filter, now_s if self.filter.since_s is not None else 0.0)
        if self._asked != asked:
            self._asked, self._fits = asked, {}
        fits: dict[Hashable, tuple[Any, bool]] = {}
        for key, one in every.items():
            known = self._fits.get(key)
            if known is None or (known[0] is not one and known[0] != one):
                known = (one, self.filter.fits(one, now_s))
            fits[key] = known
        self._fits = fits
        return {key: one for key, (one, does) in fits.items() if does}
