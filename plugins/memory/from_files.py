"""What `inspect` gets from the memory plugin: a file in, one result out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ascend_tui.frozen import frozen

from .files import kind_of
from .files.events import dump
from .files.lines import lines
from .files.npu_smi import Card, CardFinding, cards, findings
from .files.profiler import operators, readings
from .files.series import Table
from .of_profile import judge_dump, judge_operators, judge_record
from .of_series import judge_table

HEAD = 1 << 20


@frozen
class SmiResult:
    """The cards of an `npu-smi info` text and what is wrong with them."""

    devices: tuple[Card, ...]
    findings: tuple[CardFinding, ...]


def read(path: Path) -> Any:
    """Return the result of a file that `sniff` knows.

    Raises OSError, and ValueError where the file is nothing that this plugin reads.
    """
    with path.open("rb") as file:
        kind = kind_of(file.read(HEAD), path.name)
    if kind == "npu_smi":
        found = tuple(cards(lines(path)))
        return SmiResult(found, tuple(findings(found)))
    if kind == "events":
        return judge_dump(dump(lines(path)))
    if kind == "memory_record":
        return judge_record(lambda: readings(lines(path)))
    if kind == "operator_memory":
        return judge_operators(operators(lines(path)))
    if kind == "table":
        return judge_table(Table(lines(path)))
    raise ValueError("no series of memory, no profile and no npu-smi table in it")
