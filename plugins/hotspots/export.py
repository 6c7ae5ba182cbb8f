"""The table as files: CSV for programs, Markdown for people; no name can be more than text in either."""

from __future__ import annotations

import csv
import io
import math
import string
from collections.abc import Sequence

from ascend_tui.text import count, tr

from .figures import KIND_NAMES, micro, per_cent, plain, ratio_words, span, tally
from .snapshot import HotspotsSnapshot, Row

COLUMNS = (
    "name",
    "kind",
    "clock",
    "self_time_us",
    "share",
    "cumulative_share",
    "calls",
    "avg_us",
    "min_us",
    "max_us",
    "total_time_us",
    "wait_us",
    "core",
    "level",
    "baseline_time_us",
    "time_ratio",
    "avg_ratio",
    "since_step",
    "modules",
    "sites",
)
"""The columns of the CSV: the fields of `--json`, those of lists joined by blanks."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_LONGEST = 1000
_MOST_JOINED = 8
_ENTITIES = {ord(one): f"&#{ord(one)};" for one in string.punctuation if one not in ":.-_,()/"}


def files_of(snapshot: HotspotsSnapshot) -> dict[str, str]:
    """Return the files by name, none of an empty table."""
    found: dict[str, str] = {}
    if snapshot.rows:
        found["hotspots.csv"] = csv_of(snapshot.rows)
        found["hotspots.md"] = markdown_of(snapshot)
    if snapshot.host_rows:
        found["hotspots-host.csv"] = csv_of(snapshot.host_rows)
    return found


def csv_of(rows: Sequence[Row]) -> str:
    """Return the rows as CSV; a text that a spreadsheet would compute is led by an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        change = row.change
        writer.writerow(
            [
                _text(row.name),
                _text(row.kind),
                _text(row.clock),
                *(_number(one) for one in (row.self_time_us, row.share, row.cumulative_share, row.calls)),
                _number(row.avg_us if row.calls else None),
                *(_number(one) for one in (row.min_us, row.max_us, row.total_time_us, row.wait_us)),
                _text(row.core),
                _text(row.level),
                *(
                    _number(getattr(change, name) if change else None)
                    for name in ("baseline_time_us", "time_ratio", "avg_ratio", "since_step")
                ),
                _text(" ".join(one.path for one in row.places[:_MOST_JOINED] if one.path)),
                _text(" ".join(f"{one.file}:{one.line}" for one in row.sites[:_MOST_JOINED] if one.file)),
            ]
        )
    return file.getvalue()


def _text(text: str) -> str:
    text = plain(text, _LONGEST)
    return f"'{text}" if text.lstrip(" \"'").startswith(_FORMULA) else text


def _number(value: float | None) -> str:
    """Return a number as it is read back; what is not known is empty, not 0."""
    if value is None or not math.isfinite(value):
        return ""
    return repr(value) if isinstance(value, int) else f"{value:.9g}"


def markdown_of(snapshot: HotspotsSnapshot) -> str:
    """Return the table in the present language, what it is of above it."""
    words = [tr("taken by {source}", source=_cell(snapshot.source))] if snapshot.source else []
    words.append(tr("host times") if snapshot.clock == "host" else tr("device times"))
    if snapshot.step is not None:
        words.insert(0, tr("step {step}", step=count(snapshot.step)))
    if snapshot.step_time_us > 0:
        words.append(tr("{time} long", time=span(snapshot.step_time_us)))
    titles = [tr("op"), tr("kind"), tr("time"), tr("share"), tr("cum")]
    titles += [tr("avg us"), tr("max us"), tr("calls")]
    changed = any(one.change is not None for one in snapshot.rows)
    if changed:
        titles.append(tr("change"))
    lines = [
        " · ".join(words),
        "",
        _row(titles),
        _row(["---", "---", *["---:"] * (len(titles) - 2)]),
    ]
    for row in snapshot.rows:
        texts = [
            _cell(row.name),
            tr(KIND_NAMES.get(row.kind, "other")),
            span(row.self_time_us),
            per_cent(row.share),
            per_cent(row.cumulative_share),
            micro(row.avg_us if row.calls else None),
            micro(row.max_us),
            tally(row.calls),
        ]
        if changed:
            texts.append(ratio_words(row.change.time_ratio if row.change else None))
        lines.append(_row(texts))
    if snapshot.rows_dropped:
        lines += ["", tr("{n} too small to be listed", n=count(snapshot.rows_dropped))]
    return "\n".join(lines) + "\n"


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _cell(text: str) -> str:
    """Return a foreign text as code, or by entities where code cannot hold it: `|` would end the cell."""
    text = plain(text, _LONGEST).strip()
    if not text:
        return "-"
    return text.translate(_ENTITIES) if set(text) & set("|`\\") else f"`{text}`"
