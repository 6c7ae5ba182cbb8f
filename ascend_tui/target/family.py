"""Who belongs together: the ranks below a launcher, and what each process says of its rank.

A rank is a process whose launcher gave it a rank's variables when it was started. What a program sets itself
afterwards (`mp.spawn`) is not visible from outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from ascend_tui.target import proc
from ascend_tui.target.environment import read_environ
from ascend_tui.target.facts import Target, TargetGone, read_target

# torchrun and torch's own launchers, Ascend's msrun and rank tables, MPI, Slurm.
RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "msrun", "mpirun", "mpiexec", "srun", "horovodrun")
_LAUNCHER_MODULES = ("-m torch.distributed.run", "-m torch.distributed.launch", "-m accelerate")


def rank_in(environment: Mapping[str, str]) -> int | None:
    """Return the rank that a launcher's variables name, or None."""
    for name in RANK:
        text = environment.get(name, "")
        if text.isdigit() and len(text) < 10:
            return int(text)
    return None


def rank_of(pid: int) -> int | None:
    """Return the rank a process was started with; None where there is none or this user may not look."""
    return rank_in(read_environ(pid) or {})


def _marks(pid: int) -> dict[str, str]:
    """Return a process's rank variables: srun sets one for torchrun, which adds its own for each rank."""
    environment = read_environ(pid) or {}
    return {name: environment[name] for name in RANK if name in environment}


def is_launcher(target: Target) -> bool:
    """Tell by its name whether a process starts trainings and trains nothing itself."""
    return target.title.startswith(_LAUNCHERS + _LAUNCHER_MODULES)


def children_by_parent() -> dict[int, list[int]]:
    """Return the child processes of every process of this machine, in the order of their pids."""
    found: dict[int, list[int]] = {}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        stat = proc.read_stat(pid)
        if stat is not None:
            found.setdefault(stat.ppid, []).append(pid)
    return found


def ranks_below(pid: int) -> list[tuple[int, Target]]:
    """Return the ranks that `pid` started, each with its number, lowest first.

    Empty for a process that is a rank itself: what is below that (data loaders) inherits its variables.
    Without such variables, those below a program that is not a training itself (a shell script, a scheduler)
    count from 0 in the order of their pids: every topmost process that has torch loaded.
    """
    target = _target(pid)
    own = _marks(pid)
    if target is None or (rank_in(own) is not None and target.python is not None and not is_launcher(target)):
        return []
    tree = children_by_parent()
    ranks = list(_topmost(pid, tree, own))
    if ranks:
        return sorted(ranks, key=lambda one: (one[0], one[1].id.pid))
    trains = target.torch_loaded and not is_launcher(target)
    return [] if trains else list(enumerate(_topmost_with_torch(pid, tree)))


def _topmost(
    pid: int, tree: Mapping[int, list[int]], inherited: Mapping[str, str]
) -> Iterator[tuple[int, Target]]:
    for child in tree.get(pid, ()):
        marks = _marks(child)
        rank = rank_in(marks)
        target = _target(child) if rank is not None and marks != inherited else None
        launches = target is not None and is_launcher(target)
        if rank is not None and target is not None and target.python is not None and not launches:
            yield rank, target
        else:
            # A shell that a launcher put before the program has its variables too, and is no training.
            yield from _topmost(child, tree, marks if launches else inherited)


def _topmost_with_torch(pid: int, tree: Mapping[int, list[int]]) -> Iterator[Target]:
    for child in tree.get(pid, ()):
        target = _target(child)
        if target is not None and target.torch_loaded and not is_launcher(target):
            yield target
        else:
            yield from _topmost_with_torch(child, tree)


def _target(pid: int) -> Target | None:
    try:
        return read_target(pid)
    except TargetGone:
        return None
