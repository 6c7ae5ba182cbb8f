"""The files that the memory plugin reads: one module for each kind, text in and numbers out."""

from __future__ import annotations

import re
from typing import Literal

from ascend_tui.judging.oom_text import is_oom

from .events import is_dump
from .lines import text_of
from .npu_smi import is_npu_smi
from .profiler import is_operators, is_record
from .series import is_series

FileKind = Literal["npu_smi", "events", "memory_record", "operator_memory", "table", "log"]

_KINDS: dict[FileKind, str] = {
    "npu_smi": "npu_smi",
    "events": "memory_series",
    "memory_record": "memory_series",
    "operator_memory": "memory_series",
    "table": "memory_series",
    "log": "log",
}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def sniff(head: bytes, name: str) -> str | None:
    """Return the kind of a file that begins (or, if it is long, ends) with these bytes; None for others."""
    kind = kind_of(head, name)
    return None if kind is None else _KINDS[kind]


def kind_of(head: bytes, name: str) -> FileKind | None:
    """Return which of our readers takes a file."""
    text = text_of(head)
    if is_npu_smi(text):
        return "npu_smi"
    if is_dump(text):
        return "events"
    if is_record(text):
        return "memory_record"
    if is_operators(text):
        return "operator_memory"
    if is_series(text):
        return "table"
    # A table of somebody else's may hold the words in a cell.
    if name.lower().endswith((".csv", ".tsv", ".json", ".jsonl", ".md", ".py")):
        return None
    plain = _ESCAPE.sub("", text) if "\x1b" in text else text
    return "log" if any(is_oom(line) for line in plain.splitlines()) else None
