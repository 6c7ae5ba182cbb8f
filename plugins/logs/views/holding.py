"""Which line stands where: what is shown keeps its place while its numbers grow."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from ascend_tui.text import msgid

from ..snapshot import Incident, Metric, Source, Template, key_of
from .figures import grade, when_of

Rank = tuple[float, ...]
HOLD_S = 10.0
"""So long lines ordered by their counts keep their places: nobody reads a list that is always shuffled."""

ORDERS = {
    "incidents": {
        "worst": msgid("the worst first"),
        "newest": msgid("the newest first"),
        "count": msgid("the most frequent first"),
    },
    "templates": {
        "rare": msgid("new and rare ones first"),
        "count": msgid("the most frequent first"),
        "newest": msgid("the newest first"),
    },
}
"""In which orders a table can be shown, the first one first; the other tables have only their own."""

_RANKS: dict[tuple[str, str], Callable[[Any], Rank]] = {
    ("incidents", "worst"): lambda one: (-grade(one.severity), -when_of(one), -_step(one)),
    ("incidents", "newest"): lambda one: (-when_of(one), -_step(one)),
    ("incidents", "count"): lambda one: (-one.count, -grade(one.severity)),
    ("templates", "rare"): lambda one: _rarity(one),
    ("templates", "count"): lambda one: (-one.count, one.first_line),
    ("templates", "newest"): lambda one: (-one.last_line,),
}


def _step(incident: Incident) -> float:
    step = incident.last_step if incident.last_step is not None else incident.step
    return step if step is not None else -math.inf


def _rarity(template: Template) -> Rank:
    return (
        not template.is_new,
        template.level not in ("error", "fatal"),
        template.count,
        template.first_line,
    )


def keyed(table: str, shown: Iterable[Any]) -> dict[Hashable, Any]:
    """Return the lines of a table, each under a key that stays while its numbers change."""
    found: dict[Hashable, Any] = {}
    twins: dict[Hashable, int] = {}
    for one in shown:
        name = (table, *_name(one))
        twins[name] = twins.get(name, 0) + 1
        found[name, twins[name]] = one
    return found


def _name(one: Incident | Metric | Template | Source) -> tuple[Hashable, ...]:
    if isinstance(one, Incident):
        return key_of(one)
    if isinstance(one, Metric):
        return (one.name, one.printed)
    if isinstance(one, Template):
        return (one.source, one.text)
    return (one.kind, one.name)


class Places:
    """Keep the order in which lines were laid down, and put new ones where they belong."""

    def __init__(self) -> None:
        """Start with no line."""
        self._asked: tuple[str, str] = ("", "")
        self._ranks: dict[Hashable, Rank] = {}
        self._at_s = 0.0

    def forget(self) -> None:
        """Order all lines anew the next time."""
        self._ranks = {}

    def keys(
        self, table: str, order: str, shown: Mapping[Hashable, Any], now_s: float, chosen: Hashable | None
    ) -> list[Hashable]:
        """Return the keys of `shown` in their order.

        A line that was there keeps its place; one that got graver is put anew, unless it is the chosen one.
        Lines that are not incidents are ordered anew now and then, while none is chosen.
        """
        of = _RANKS.get((table, order))
        if of is None:
            return list(shown)
        ranks = {key: of(one) for key, one in shown.items()}
        is_stale = table != "incidents" and chosen is None and not 0 <= now_s - self._at_s < HOLD_S
        if self._asked != (table, order) or is_stale:
            self._ranks, self._asked, self._at_s = {}, (table, order), now_s
        kept = [
            key
            for key, rank in self._ranks.items()
            if key in ranks and not self._is_graver(key, ranks, chosen)
        ]
        # Of many new ones an insertion each would cost the square of their number.
        stays = set(kept)
        new = sorted((key for key in ranks if key not in stays), key=ranks.__getitem__)
        places = self._merged(kept, new, ranks)
        self._ranks = {key: ranks[key] for key in places}
        return places

    def _is_graver(self, key: Hashable, ranks: Mapping[Hashable, Rank], chosen: Hashable | None) -> bool:
        is_by_severity = self._asked == ("incidents", "worst")
        return is_by_severity and key != chosen and ranks[key][0] < self._ranks[key][0]

    @staticmethod
    def _merged(kept: list[Hashable], new: list[Hashable], ranks: Mapping[Hashable, Rank]) -> list[Hashable]:
        """Put each new key before the first kept one that belongs behind it."""
        places: list[Hashable] = []
        waiting = iter(new)
        following = next(waiting, None)
        for key in kept:
            while following is not None and ranks[following] < ranks[key]:
                places.append(following)
                following = next(waiting, None)
            places.append(key)
        while following is not None:
            places.append(following)
            following = next(waiting, None)
        return places


def next_order(table: str, order: str) -> str:
    """Return the order after `order`, nothing where a table has only its own."""
    names = list(ORDERS.get(table, ()))
    if not names:
        return ""
    return names[(names.index(order) + 1) % len(names)] if order in names else names[0]
