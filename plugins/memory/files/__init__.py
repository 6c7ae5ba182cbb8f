"""The files that the memory plugin reads: one module for each kind, text in and numbers out."""

from __future__ import annotations

from typing import Literal

from .events import is_dump
from .lines import text_of
from .npu_smi import is_npu_smi
from .profiler import is_operators, is_record
from .series import is_series

FileKind = Literal["npu_smi", "events", "memory_record", "operator_memory", "table"]

_KINDS: dict[FileKind, str] = {
    "npu_smi": "npu_smi",
    "events": "memory_series",
    "memory_record": "memory_series",
    "operator_memory": "memory_series",
    "table": "memory_series",
}


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
    return None
