"""`ascend-tui ps`: the Python processes of this machine and whether they can be attached to."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Sequence

from ascend_tui.attach import has_shim, why_not
from ascend_tui.commands import OK
from ascend_tui.commands.output import data, line
from ascend_tui.frame import SCHEMA
from ascend_tui.frozen import frozen
from ascend_tui.target import Refusal, Target, is_launcher, list_python, rank_of, torch_versions
from ascend_tui.target.proc import read_link
from ascend_tui.text import clean, duration, fit, width

COLUMNS = (
    ("pid", 8), ("rank", 5), ("user", 9), ("python", 7), ("torch", 12), ("torch_npu", 12), ("device", 7),
    ("age", 9), ("stdout", 22), ("attach", 9), ("what", 100),
)  # fmt: skip


@frozen
class Row:
    """One process, as far as this user may see it; None is "not to be seen" or "has none"."""

    target: Target
    rank: int | None
    launcher: bool
    versions: dict[str, str]
    stdout: str | None
    shim: bool
    refusal: Refusal | None


def ps(as_data: bool) -> int:
    """List what can be attached to, trainings first."""
    rows = [_row(target) for target in list_python()]
    rows.sort(key=lambda one: (not one.target.torch_loaded, one.target.id.pid))
    if as_data:
        for row in rows:
            data(_as_json(row))
    elif not rows:
        line("no Python process runs here; start a training, or try: ascend-tui demo")
    else:
        line(_columns([name for name, _ in COLUMNS]))
        for row in rows:
            line(_columns(_cells(row)))
    return OK


def _row(target: Target) -> Row:
    pid = target.id.pid
    return Row(
        target=target,
        rank=rank_of(pid),
        launcher=is_launcher(target),
        versions=torch_versions(pid) if target.torch_loaded else {},
        stdout=read_link(f"/proc/{pid}/fd/1"),
        shim=has_shim(target),
        refusal=why_not(target),
    )


def _as_json(row: Row) -> dict[str, object]:
    target = row.target
    return {
        "schema": SCHEMA,
        "pid": target.id.pid,
        "start_ticks": target.id.start_ticks,
        "rank": row.rank,
        "launcher": row.launcher,
        "user": _user(target.uid),
        "python": target.python,
        "torch": target.torch_loaded,
        "torch_version": row.versions.get("torch"),
        "torch_npu_version": row.versions.get("torch_npu"),
        "device": _device(target),
        "age_s": max(0.0, time.time() - target.start_wall),
        "stdout": row.stdout,
        "title": target.title,
        "shim": row.shim,
        "refused": None if row.refusal is None else row.refusal.as_json(),
    }


def _cells(row: Row) -> list[str]:
    target, refusal = row.target, row.refusal
    title = f"{target.title}  (launcher: attach to it for its ranks)" if row.launcher else target.title
    return [
        str(target.id.pid),
        "" if row.rank is None else str(row.rank),
        _user(target.uid),
        target.python or "?",
        row.versions.get("torch", "?" if target.torch_loaded else ""),
        row.versions.get("torch_npu", "?" if target.npu_loaded else ""),
        _device(target),
        duration(max(0.0, time.time() - target.start_wall)),
        _short(row.stdout),
        "attached" if row.shim else "yes" if refusal is None else "no",
        title if refusal is None else f"{target.title}  ({_why(refusal)})",
    ]


def _columns(cells: Sequence[str]) -> str:
    cut = [fit(clean(cell), cells_wide - 1) for cell, (_, cells_wide) in zip(cells, COLUMNS)]
    padded = [cell + " " * (cells_wide - width(cell)) for cell, (_, cells_wide) in zip(cut, COLUMNS)]
    return "".join(padded).rstrip()


def _short(stdout: str | None) -> str:
    """Return where stdout goes in few words: of a file the last two names, which tell logs apart."""
    if stdout is None:
        return "?"
    if not stdout.startswith("/"):
        return stdout.partition(":")[0]
    if stdout.startswith("/dev/"):
        return stdout
    folder, name = os.path.split(stdout)
    return f"{os.path.basename(folder)}/{name}"


def _why(refusal: Refusal) -> str:
    return refusal.why.format(**dict(refusal.params))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _device(target: Target) -> str:
    if target.npu_loaded:
        return "npu"
    if target.cuda_loaded:
        return "cuda"
    return "cpu" if target.torch_loaded else "-"
