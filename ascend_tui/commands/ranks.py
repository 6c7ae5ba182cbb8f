"""Which processes an `attach PID` means: the process itself, or the ranks of a launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ascend_tui.commands.output import say
from ascend_tui.target import Target, is_launcher, ranks_below

ALL, NONE = "all", "none"
_MOST_TOLD = 16


class RanksError(ValueError):
    """Say what is wrong with the ranks that were asked for."""


def wanted(text: str) -> set[int] | None:
    """Return the ranks that `0,2-5` names; None for "all".  Raises RanksError for anything else."""
    if text in ("", ALL):
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(part) > 12:
            raise RanksError(f"--ranks {text}: say all, none, or numbers like 0,2-5")
        found.update(range(int(first), int(last or first) + 1))
    return found


def expand(target: Target, ranks: str, may_ask: bool) -> list[Target]:
    """Return the targets to attach to for `target`, in the order of their ranks; empty when the user said no.

    Without being told so it is the ranks only of what is known for a launcher. Anything else that has
    trainings below it (a shell, the init of a container, a script) may have those of several jobs.
    Raises RanksError where ranks were asked for that there are not.
    """
    if ranks == NONE:
        return [target]
    found = ranks_below(target.id.pid)
    chosen = wanted(ranks)
    if not found:
        if chosen is not None:
            raise RanksError(f"process {target.id.pid} ({target.title}) has no ranks below it")
        return [target]
    missing = sorted((chosen or set()) - {rank for rank, _ in found})
    if missing:
        there = ", ".join(str(rank) for rank, _ in found)
        raise RanksError(f"there is no rank {missing[0]} below process {target.id.pid}; there are: {there}")
    taken = [(rank, one) for rank, one in found if chosen is None or rank in chosen]
    told = ", ".join(f"{one.id.pid} (rank {rank})" for rank, one in taken[:_MOST_TOLD])
    more = "" if len(taken) <= _MOST_TOLD else f" and {len(taken) - _MOST_TOLD} more"
    say(f"process {target.id.pid} ({target.title}) starts trainings: {told}{more}")
    if ranks:
        return [one for _, one in taken]
    if may_ask:
        if _agreed(len(taken)):
            return [one for _, one in taken]
        say("nothing was attached to; choose with --ranks 0,2-5, or --ranks none for the process itself")
        return []
    if is_launcher(target):
        return [one for _, one in taken]
    say("those are meant with --ranks all; without it the process itself is")
    return [target]


def _agreed(count: int) -> bool:
    sys.stderr.write(f"Attach to all {count}, one after the other? [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def of_all(targets: Sequence[Target], ranks: str, may_ask: bool) -> list[Target]:
    """Return the targets for several pids, each once."""
    found = {one.id: one for target in targets for one in expand(target, ranks, may_ask)}
    return list(found.values())
