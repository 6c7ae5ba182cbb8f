"""What `inspect` gets from the logs plugin: a log in, its digest out, by the engine that reads live ones."""

from __future__ import annotations

import bz2
import lzma
import os
import re
import time
import zlib
from pathlib import Path

from ascend_tui.plugin import Message

from .digest import Digester, Keywords
from .knowledge import rules
from .lines import cleaned, parse_text
from .metrics import metric_lines
from .reading.follow import read_file
from .reading.follow_packed import DAMAGED
from .snapshot import LogResult
from .traces import FRAME, OPENING

LOOKED_AT, LOOKED_AT_BYTES = 400, 65536
"""Lines and bytes at the beginning of a file by which a log is told from other text."""
_NAMES = (".log", ".out", ".err", ".stdout", ".stderr")
_NO_LOG = re.compile(
    r"\.(?:pyi?|cc?|cpp|h|hpp|cu|sh|[jt]s|css|ipynb|sql|md|rst|html|xml|toml|ya?ml|ini|cfg|json|[ct]sv|po)$"
)
_DAMAGED = Message(
    "the file can be read no further after {n} lines ({why}): only what comes before is judged"
)
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}


def sniff(head: bytes, name: str) -> str | None:
    """Return "log" for a file that is one by its name, or by its lines; None for others."""
    plain_name, packed = _unpacked_name(name.lower())
    if packed:
        head = _unpacked(head, packed)
    sample = head[:LOOKED_AT_BYTES]
    is_named = any(suffix in _NAMES for suffix in Path(plain_name).suffixes)
    # Of a packed log that is cut short nothing may be left to look at; reading it says what is wrong.
    if is_named and packed and not sample:
        return "log"
    if not sample or _is_binary(sample):
        return None
    if is_named:
        return "log"
    if _NO_LOG.search(plain_name):
        return None
    return "log" if _looks_like_one(head) else None


def read(path: Path, keywords: Keywords | None = None) -> LogResult:
    """Return the digest of a log, which may be packed; `keywords` are the user's own.  Raises OSError."""
    changed_s = os.stat(path).st_mtime
    digester = Digester(keywords, time.localtime(changed_s).tm_year)
    notes: tuple[Message, ...] = ()
    try:
        for block in read_file(path):
            digester.feed(0, block, changed_s)
    except OSError as error:
        if not digester.bytes:
            raise
        notes = (Message.of(_DAMAGED.text, why=str(error.strerror or error), n=f"{digester.lines:,}"),)
    digester.settle()
    found = digester.result()
    return LogResult(
        found.incidents, found.metrics, found.templates, found.lines, found.ignored, (*notes, *found.notes)
    )


def _unpacked_name(name: str) -> tuple[str, str]:
    stem, suffix = os.path.splitext(name)
    return (stem, _PACKED[suffix]) if suffix in _PACKED else (name, "")


def _unpacked(head: bytes, how: str) -> bytes:
    """Return the beginning of what a packed file holds, nothing where it is none."""
    try:
        if how == "gzip":
            return zlib.decompressobj(31).decompress(head, LOOKED_AT_BYTES)
        if how == "bz2":
            return bz2.BZ2Decompressor().decompress(head, LOOKED_AT_BYTES)
        return lzma.LZMADecompressor().decompress(head, LOOKED_AT_BYTES)
    except DAMAGED:
        return b""


def _is_binary(sample: bytes) -> bool:
    """Tell whether it is no text; a log may hold some garbage, and UTF-16 begins with its mark."""
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    odd = sum(sample.count(bytes([code])) for code in (*range(8), *range(14, 27), 28, 29, 30, 31))
    return odd > len(sample) // 10


def _looks_like_one(head: bytes) -> bool:
    """Tell whether lines carry what loggers put before them, metrics, or what a rule knows."""
    lines = [raw for raw in head.replace(b"\r", b"\n").split(b"\n")[:LOOKED_AT] if raw.strip()]
    headed = known = 0
    for raw in lines:
        text = cleaned(raw[:4096])
        line = parse_text(text)
        headed += bool(line.level or line.wall_s is not None or line.rank is not None)
        is_told = rules.is_special(text) and rules.sight(line) is not None
        is_trace = text.startswith(OPENING) or FRAME.match(text) is not None
        is_metric = metric_lines.is_metric(text) and metric_lines.layout_of(line, raw) is not None
        known += is_told or is_trace or is_metric
    return bool(lines) and (headed >= max(1, len(lines) // 5) or known > 0)
