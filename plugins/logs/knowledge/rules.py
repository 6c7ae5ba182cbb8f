"""From a line to what it tells: every rule is asked from here, and the first that knows the line answers.

What is harmless comes first, then what knows a reason, then what wraps one, and last a line that is unknown
and says itself that it is an error.
"""

from __future__ import annotations

import re

from ascend_tui.plugin import Message, Severity

from ..sighting import CONTEXT, GENERIC, Harmless, Line, Rule, Sighting
from . import (
    harmless,
    rules_codes,
    rules_communication,
    rules_compile,
    rules_device,
    rules_framework,
    rules_memory,
    rules_plog,
    rules_reports,
)
from .needles import Needles
from .rule_table import key_of, masked

_NO_DIGITS = dict.fromkeys(range(ord("0"), ord("9") + 1))
_LEVEL = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|EXCEPTION|SEVERE)\b|(?:^|[\[\s])[EF] (?:::|[\w./-]{1,60}\.(?:cpp|cc|ts|py)\b)"
    r"|\b(?:[Ee]rror|[Ff]atal|[Cc]ritical)\b ?[:\]|]|- (?:error|fatal|critical) -|\blevel=(?:error|fatal)"
    r"|[\[【](?:错误|严重|致命)[\]】]"
)
_LEVEL_REACH = 400
"""Characters of a line in which its logger's level is looked for."""
_FUNCTION = re.compile(r"\[FUNC:\w{1,80}\]\[FILE:")
_NO_MESSAGE = re.compile(r"[-=*#~^+.\s]{0,400}$|\s{2}|File \"|Traceback \(most recent")
"""Rulers, and what continues a message or a traceback."""


def _rows() -> tuple[tuple[tuple[str, ...], Rule], ...]:
    tables = (
        rules_memory.RULES,
        rules_communication.RULES,
        rules_device.RULES,
        rules_reports.RULES,
        rules_compile.RULES,
        rules_codes.RULES,
        rules_plog.RULES,
        rules_framework.RULES,
        rules_plog.LATE,
        rules_codes.LATE,
    )
    return tuple((tuple(map(bare, needles)), rule) for rows in tables for needles, rule in rows)


def bare(text: str) -> str:
    """Return a text without its digits: lines that differ in numbers only are of one kind."""
    return text.translate(_NO_DIGITS)


_ROWS = _rows()
_NEEDLES = Needles([needles for needles, _ in _ROWS])
_LOUD_WORDS = (
    "ERROR",
    "FATAL",
    "CRITICAL",
    "EXCEPTION",
    "SEVERE",
    "rror",
    "atal",
    "ritical",
    "错误",
    "严重",
    "致命",
)
_LOUD = (*_LOUD_WORDS, "E ::", "F ::", ".cpp", ".cc", ".ts", ".py")
_ALARMS_CHINESE = ("错误", "失败", "异常", "溢出", "超时")
_ALARMS = (
    *_ALARMS_CHINESE,
    "error",
    "fail",
    "exception",
    "fatal",
    "overflow",
    "nan",
    "timeout",
    "out of",
    "leak",
    "inf",
)


def is_special(text: str) -> bool:
    """Tell whether `sight` could know a line; asked once for all lines that differ in digits only."""
    plain = bare(text)
    return _NEEDLES.any_in(plain) or "[FUNC:" in plain or _is_loud(plain[:_LEVEL_REACH]) or _is_alarming(text)


def _is_loud(head: str) -> bool:
    """Tell whether a line calls itself an error where loggers put their level; most lines cost no pattern."""
    return any(word in head for word in _LOUD) and _LEVEL.search(head) is not None


def _is_alarming(text: str) -> bool:
    """Tell whether a line has a word for which it may be counted as harmless."""
    if len(text) > harmless.MOST:
        return False
    lower = text.lower()
    return any(word in lower for word in _ALARMS) and harmless.ALARM.search(text) is not None


def rows_of(text: str) -> tuple[Rule, ...]:
    """Return the rules that could know a line; the same for all lines that differ in digits only."""
    return tuple(_ROWS[row][1] for row in _NEEDLES.rows_of(bare(text)))


def sight(
    line: Line, rows: tuple[Rule, ...] | None = None, is_grave: bool = False
) -> tuple[Sighting, ...] | Harmless | None:
    """Return what a line tells; None where it tells nothing.

    `rows` are those of `rows_of`, if they are known; `is_grave`: it is known not to be harmless.
    """
    nothing = None if is_grave else harmless.sight(line)
    if nothing is not None:
        return nothing
    for rule in rows_of(line.text) if rows is None else rows:
        found = rule(line)
        if isinstance(found, Harmless):
            return found
        told = () if found is None else (found,) if isinstance(found, Sighting) else tuple(found)
        if told:
            return told
    return _unknown(line)


def _unknown(line: Line) -> tuple[Sighting, ...] | None:
    """Return a line that no rule knows and whose logger calls it an error."""
    body = line.body
    if _FUNCTION.search(line.text[-400:]):
        # A layer of the runtime: it goes with what others tell, or is all that is known.
        return (
            Sighting("other", "error", _words(body.split("[FUNC:", 1)[0]), GENERIC, key_of(body), "likely"),
        )
    if line.level not in ("error", "fatal") or _NO_MESSAGE.match(body):
        return None
    if line.logger in ("IDEDD", "ADUMP"):
        return (Sighting("device", "info", _words(body), CONTEXT, attribution="async"),)
    severity: Severity = "error" if line.level == "fatal" else "warning"
    return (Sighting("other", severity, _words(body), GENERIC, key_of(body), "likely"),)


def _words(text: str) -> Message:
    return Message.of("{says}", says=masked(text.strip(), 240))
