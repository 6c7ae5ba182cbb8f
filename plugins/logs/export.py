"""The digest as files: Markdown for people, JSON for programs; a line of a log is only text in either."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence

from ascend_tui.frame import SCHEMA, as_json
from ascend_tui.plugin import Message
from ascend_tui.text import count, tr

from .snapshot import Digest, Incident, LogsSnapshot, Raw, Source
from .telling import SURENESS, code_words, fact_words, when_words
from .views.figures import (
    SOURCE_STATES,
    TRENDS,
    UNKNOWN,
    grade,
    last_of,
    number,
    plain,
    ranks_of,
    sentence,
    severity_of,
    size_words,
    source_at,
    source_kind,
    source_name,
    when_of,
)

_LONGEST = 1000
_MOST_TEMPLATES = 40
_MOST_LINES = 80
_ENTITIES = {ord(one): f"&#{ord(one)};" for one in string.punctuation if one not in ":.-,()/"}
"""What can begin something in Markdown; a dash or a dot cannot, behind what stands before it here."""


def files_of(snapshot: LogsSnapshot) -> dict[str, str]:
    """Return the files by name, none where no line was read."""
    digest = snapshot.digest
    if not (digest.lines or digest.incidents or digest.metrics):
        return {}
    return {"logs.md": markdown_of(digest, snapshot.sources), "logs.json": json_of(digest, snapshot.sources)}


def json_of(digest: Digest, sources: Sequence[Source] = ()) -> str:
    """Return the whole digest as strict JSON, in the fields of `--json`."""
    found = {
        "schema": SCHEMA,
        "plugin": "logs",
        "incidents": [
            {**as_json(one), "context": as_json(one.context)} for one in in_order(digest.incidents)
        ],
        "metrics": [{**as_json(one), "points": as_json(one.points)} for one in digest.metrics],
        "templates": as_json(digest.templates),
        "sources": as_json(sources),
        "lines": digest.lines,
        "bytes": digest.bytes,
        "ignored": digest.ignored,
        "dropped_incidents": digest.dropped_incidents,
        "notes": as_json(digest.notes),
    }
    # In ASCII also half a character of a log is JSON.
    return json.dumps(found, allow_nan=False, indent=1) + "\n"


def in_order(incidents: Sequence[Incident]) -> list[Incident]:
    """Return incidents with the worst first, of equals the newest."""
    return sorted(incidents, key=lambda one: (-grade(one.severity), -when_of(one)))


def markdown_of(digest: Digest, sources: Sequence[Source] = ()) -> str:
    """Return the digest in the present language: incidents and their stories, metrics, templates, sources."""
    incidents = in_order(digest.incidents)
    lines = [f"# {tr('Digest of the logs')}", "", _head(digest)]
    if digest.notes:
        lines += ["", *(f"* {_text(sentence(note))}" for note in digest.notes)]
    if incidents:
        lines += ["", *_table_of(incidents)]
    for place, one in enumerate(incidents, 1):
        lines += ["", *_story(place, one, sources)]
    for title, rows in (
        (tr("Metrics"), _metrics(digest)),
        (tr("Kinds of lines"), _templates(digest)),
        (tr("Sources"), _sources(sources)),
    ):
        if rows:
            lines += ["", f"## {title}", "", *rows]
    return "\n".join(lines) + "\n"


def _head(digest: Digest) -> str:
    numbers: dict[str, int] = {}
    for one in digest.incidents:
        numbers[one.severity] = numbers.get(one.severity, 0) + 1
    words = [
        f"{count(numbers[name])} {_text(severity_of(name)[1])}"
        for name in sorted(numbers, key=grade, reverse=True)
    ]
    words.append(tr("{n} lines read", n=count(digest.lines)))
    if digest.ignored:
        words.append(tr("{n} lines look alarming and are known to be harmless", n=count(digest.ignored)))
    if digest.dropped_incidents:
        words.append(tr("{n} older ones let go", n=count(digest.dropped_incidents)))
    return " · ".join([*([] if digest.incidents else [tr("no incident")]), *words])


def _table_of(incidents: Sequence[Incident]) -> list[str]:
    titles = ["#", tr("severity"), "n", tr("incident"), tr("ranks"), tr("step"), tr("last")]
    rows = [_row(titles), _row(["---:", "---", "---:", "---", "---", "---:", "---"])]
    for place, one in enumerate(incidents, 1):
        sign, word, _ = severity_of(one.severity)
        step = one.last_step if one.last_step is not None else one.step
        rows.append(
            _row(
                [
                    str(place),
                    f"{sign} {_text(word)}",
                    count(one.count),
                    _text(sentence(one.headline)),
                    _text(ranks_of(one.ranks, most=12)) or UNKNOWN,
                    UNKNOWN if step is None else count(step),
                    _text(last_of(one)),
                ]
            )
        )
    return rows


def _story(place: int, one: Incident, sources: Sequence[Source]) -> list[str]:
    sign, word, _ = severity_of(one.severity)
    lines = [f"## {place}. {sign} {_text(word)}: {_text(sentence(one.headline))}", ""]
    lines.append(_text(" · ".join(when_words(one))))
    name = source_name(source_at(one.source, sources))
    where = ":".join(part for part in (name, str(one.line) if one.line > 0 else "") if part)
    pairs = [
        (tr("line"), one.text),
        (tr("in"), where),
        (tr("noticed at") if one.attribution == "async" else tr("called at"), one.place),
        (tr("code"), code_words(one.code)),
        *fact_words(one.facts),
        *((tr("rank {ranks}", ranks=rank), what) for rank, what in one.by_rank[:32]),
    ]
    rows = [f"* {_text(label)}: {_code(value)}" for label, value in pairs if value]
    sureness = tr(SURENESS.get(one.attribution, one.attribution))
    rows.append(f"* {tr('sureness')}: {_text(sureness)}")
    lines += ["", *rows]
    reasons = [one.reason] if one.reason is not None else []
    lines += _part(tr("Why we think so"), [*reasons, *one.evidence])
    lines += _part(tr("What to do"), one.advice)
    if one.context:
        lines += ["", f"{tr('The lines around it')}:", "", *_raw(one.context)]
    return lines


def _part(title: str, messages: Sequence[Message]) -> list[str]:
    if not messages:
        return []
    return ["", f"{title}:", "", *(f"* {_text(sentence(one))}" for one in messages[:12])]


def _raw(context: Sequence[Raw]) -> list[str]:
    """Return lines as a block of code by its indentation: no line in it can end the block."""
    of_number = max(len(str(one.number)) for one in context[:_MOST_LINES])
    return [
        f"    {'>' if one.is_key else ' '} {one.number:>{of_number}}  {plain(one.text, _LONGEST)}".rstrip()
        for one in context[:_MOST_LINES]
    ]


def _metrics(digest: Digest) -> list[str]:
    if not digest.metrics:
        return []
    titles = [tr("metric"), tr("value"), tr("trend"), tr("low"), tr("high"), tr("step")]
    rows = [_row(titles), _row(["---", "---:", "---", "---:", "---:", "---:"])]
    for one in digest.metrics:
        word = tr(TRENDS[one.trend][1]) if one.trend in TRENDS else _text(one.trend)
        step = UNKNOWN if one.step is None else count(one.step)
        rows.append(_row([_code(one.name), number(one.value), word, number(one.low), number(one.high), step]))
    return rows


def _templates(digest: Digest) -> list[str]:
    """Return the new kinds first, then the rarest: the many are what everybody knows."""
    if not digest.templates:
        return []
    shown = sorted(digest.templates, key=lambda one: (not one.is_new, one.count, one.first_line))
    rows = [_row(["n", "", tr("lines that differ in numbers only")]), _row(["---:", "---", "---"])]
    for one in shown[:_MOST_TEMPLATES]:
        rows.append(_row([count(one.count), tr("new") if one.is_new else "", _code(one.text)]))
    if len(shown) > _MOST_TEMPLATES:
        rows += ["", tr("{n} more", n=count(len(shown) - _MOST_TEMPLATES))]
    return rows


def _sources(sources: Sequence[Source]) -> list[str]:
    if not sources:
        return []
    rows = [_row([tr("log source"), tr("place"), tr("state"), tr("read"), tr("lines")])]
    rows.append(_row(["---", "---", "---", "---:", "---:"]))
    for one in sources:
        state = tr(SOURCE_STATES[one.state][1]) if one.state in SOURCE_STATES else _text(one.state)
        why = f": {_text(sentence(one.why))}" if one.why is not None else ""
        rows.append(
            _row(
                [
                    _text(source_kind(one.kind)),
                    _code(one.name),
                    state + why,
                    size_words(one),
                    count(one.lines),
                ]
            )
        )
    return rows


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _text(text: str) -> str:
    """Return a foreign text by entities where it could be more than text."""
    return plain(text, _LONGEST).strip().translate(_ENTITIES)


def _code(text: str) -> str:
    """Return a foreign text as code, or by entities where code cannot hold it: `|` would end the cell."""
    text = plain(text, _LONGEST).strip()
    if not text:
        return UNKNOWN
    return text.translate(_ENTITIES) if set(text) & set("|`\\") else f"`{text}`"
