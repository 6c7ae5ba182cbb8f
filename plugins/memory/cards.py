"""The target's card among those that `npu-smi` shows, and what about it is worth an alert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascend_tui.plugin import Message, Severity

from .decode import number, objects, words
from .files.npu_smi import HOT_C
from .snapshot import Card

MIB = 1 << 20
MOST_CARDS = 64
MOST_PROCESSES = 256


def card_of(data: Mapping[str, Any], pid: int) -> Card | None:
    """Return the card that the process `pid` uses, from a `machine` record.

    npu-smi names the processes of a card; where it does not, the only card is the one.  A card is not guessed
    by its number: a container and ASCEND_RT_VISIBLE_DEVICES count anew.
    """
    cards = objects(data.get("cards"), MOST_CARDS)
    mine = [one for one in cards if pid in _pids(one)]
    if not mine and len(cards) != 1:
        return None
    return _card((mine or cards)[0], pid)


def _pids(card: Mapping[str, Any]) -> set[Any]:
    return {
        one.get(field)
        for one in objects(card.get("processes"), MOST_PROCESSES)
        for field in ("pid", "container_pid")
        if isinstance(one.get(field), int)
    }


def _card(card: Mapping[str, Any], pid: int) -> Card:
    shown = isinstance(card.get("processes"), (list, tuple))
    processes = objects(card.get("processes"), MOST_PROCESSES)
    own = [one for one in processes if pid in (one.get("pid"), one.get("container_pid"))]
    others = [one for one in processes if one not in own]
    return Card(
        name=words(card.get("name", "")),
        health=words(card.get("health", "")),
        temp_c=number(card.get("temp_c")),
        used_bytes=_bytes(card.get("used_mib")),
        total_bytes=_bytes(card.get("total_mib")),
        own_bytes=_sum(own) if own else None,
        others_bytes=_sum(others) if shown else None,
        others=len(others) if shown else None,
        unseen_bytes=_bytes(card.get("unaccounted_mib")),
    )


def _bytes(mib: Any) -> int | None:
    value = number(mib)
    return None if value is None else int(value * MIB)


def _sum(processes: list[Mapping[str, Any]]) -> int:
    return sum(_bytes(one.get("memory_mib")) or 0 for one in processes)


def alarms(card: Card) -> list[tuple[Severity, Message]]:
    """Return what a person should know of the card before looking for a bug in the training."""
    found: list[tuple[Severity, Message]] = []
    if card.temp_c is not None and card.temp_c > HOT_C:
        found.append(
            (
                "warning",
                Message.of("the card is hot, {temp} °C: chips lower their clock", temp=round(card.temp_c)),
            )
        )
    if card.health and card.health.upper() != "OK":
        found.append(("error", Message.of("the card's health is {health}, not OK", health=card.health)))
    return found
