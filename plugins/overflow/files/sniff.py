"""Which of our readers takes a file, by its first bytes."""

from __future__ import annotations

import codecs
import re
from typing import Literal

from .metrics import is_metrics

FileKind = Literal["dump", "analysis", "metrics"]
PEEKED = 1 << 16

_KEYS = re.compile(r'"(task|level|framework|dump_data_dir|data)"\s*:')
_ENTRY = re.compile(r'"(?:input_args|input_kwargs|input|output|parameters)"\s*:\s*[\[{]')
_API = re.compile(r'"[A-Z]\w*(?:\.[\w.]+)+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:\s*\{')
_RANK = re.compile(r'^\{\s*"rank_?\d*"\s*:\s*\[\s*\{')


def sniff(head: bytes, name: str) -> str | None:
    """Return "overflow_evidence" for a dump, an analysis or bare metric lines; None for others."""
    return None if kind_of(head, name) is None else "overflow_evidence"


def kind_of(head: bytes, name: str) -> FileKind | None:
    """Return which reader takes a file that begins with these bytes."""
    if b"\0" in head[:1024]:
        return None
    text = head[:PEEKED].removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").lstrip()
    if _RANK.match(text) and '"op_name"' in text:
        return "analysis"
    if text.startswith("{") and _is_dump(text):
        return "dump"
    # Logs are read whole by what reads logs, also where all that was kept of one is such lines.
    if not name.lower().endswith(".log") and is_metrics(text, whole=len(head) <= PEEKED):
        return "metrics"
    return None


def _is_dump(text: str) -> bool:
    keys = set(_KEYS.findall(text))
    if "data" not in keys:
        return False
    return (
        {"task", "level"} <= keys
        or "dump_data_dir" in keys
        or bool(_API.search(text) and _ENTRY.search(text))
    )
