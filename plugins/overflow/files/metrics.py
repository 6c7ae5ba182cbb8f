"""Metric lines as trainers print them: {'loss': 2.31, 'grad_norm': nan, 'learning_rate': 5e-05}."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ascend_tui.frozen import frozen

LONGEST = 1 << 16
"""Characters of one line that are looked at."""

_PAIR = re.compile(
    r"""['"]([A-Za-z_][\w/.-]{0,63})['"]\s*:\s*['"]?([-+]?(?:\d[\d_]*(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf(?:inity)?))""",
    re.IGNORECASE,
)
_LOSS = ("loss", "train_loss", "train/loss")
_NORM = ("grad_norm", "train/grad_norm", "gradient_norm")
_STEP = ("step", "global_step", "train/global_step", "iteration")
_BESIDE = (*_NORM, *_STEP, "learning_rate", "lr", "epoch", "train/learning_rate")


@frozen
class Metrics:
    """One line: `row` counts them from 1, `step` is None where the line does not tell it."""

    row: int
    step: int | None
    loss: float | None
    grad_norm: float | None


def is_metrics(text: str, whole: bool = True) -> bool:
    """Tell whether a text is metric lines and nothing else; of one that is not whole the last line is cut."""
    lines = [line.strip() for line in text.splitlines()]
    if not whole:
        lines = lines[:-1]
    lines = [line for line in lines if line and not line.startswith("#")]
    return bool(lines) and all(_is_one(line) for line in lines)


def metrics(path: Path) -> Iterator[Metrics]:
    """Yield the metric lines of a file.  Raises OSError."""
    row = 0
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        while line := file.readline(LONGEST):
            if not _is_one(line.strip()):
                continue
            row += 1
            found = _pairs(line)
            step = _first(found, _STEP)
            yield Metrics(
                row=row,
                step=int(step) if step is not None and 0 <= step < 2**53 else None,
                loss=_first(found, _LOSS),
                grad_norm=_first(found, _NORM),
            )


def _is_one(line: str) -> bool:
    if not line.startswith("{"):
        return False
    names = _pairs(line)
    return any(name in names for name in (*_LOSS, *_NORM)) and any(name in names for name in _BESIDE)


def _pairs(line: str) -> dict[str, float]:
    return {name: float(value) for name, value in _PAIR.findall(line[:LONGEST])}


def _first(found: dict[str, float], names: tuple[str, ...]) -> float | None:
    return next((found[name] for name in names if name in found), None)
