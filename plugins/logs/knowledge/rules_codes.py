"""Lines with a code of CANN: `EZ1001: [PID: 5] time The k-axis …`, `time AclNN_Runtime_Error(EZ9903): …`.

The code says what sort of fault it is; what stands behind it says more, or is no more than "Inner Error!".
"""

from __future__ import annotations

import re

from ascend_tui.plugin import Message

from ..sighting import CONTEXT, GENERIC, REASON, SPECIFIC, Found, Line, Rule, Sighting
from . import codes
from .rule_table import key_of, near, short
from .rules_facts import device_of, facts_of

_CODE = re.compile(
    r"(?<![A-Za-z0-9_=])(?<!code:)(?P<code>[EW][0-9A-PZ]\d{4})(?=:|\):| ?\[PID|  ?\[|$)"
    r"|^(?P<bare>E[A-PZ]9\d{3})(?= )"
)
_EVIDENCE = re.compile(
    r"\[?PID: ?\d|(?:Inner|Internal) [Ee]rror|20\d\d-\d\d-\d\d-\d\d:\d\d"
    r"|[A-Za-z]_[A-Za-z_]{2,60}\([EW][0-9A-Z]\d{4}\)"
)
"""Other programs have codes of this form, too; only some components of CANN are known by the code alone."""
_BEFORE = re.compile(
    r"[:\s)]{1,8}|\([EW][0-9A-Z]\d{4}\)|\[PID: ?\d{1,9}\]"
    r"|20\d\d-\d\d-\d\d-\d\d:\d\d:\d\d[.\d]{0,8}|\[THREAD:\d{1,9}\]"
)
_NOTHING = re.compile(r"(?:Inner|Internal) [Ee]rror\b[!.,]?(?: ?Please contact support engineer!?)?\s*")
_END = re.compile(r"\[FUNC:|\[THREAD:|\bTraceBack \(most recent")
_CALL = re.compile(
    r"\b(?:call )?(?P<call>aclnn\w{2,80}|acl\w{2,80}|rt[A-Z]\w{2,80}|Hccl\w{2,80}) (?:\w{1,20} )?failed"
)
_WHY = re.compile(r"\bReason: ?(?P<why>.{3,400})")
_INNER = Message("CANN says no more than inner error")
_WORD_NEEDLES = ("[PID", "PID: ]", "nner Error", "nner error", "nternal error", "E: ", "(E)", "(E", "W: -")
NEEDLES = (*_WORD_NEEDLES, *(f"E{one}{end}" for one in "EHIJLZ" for end in (":", "[", ")", " ")))


def coded(text: str) -> tuple[str, str] | None:
    """Return the code of a line and what it says behind it; None without a code of CANN."""
    found = _CODE.search(text)
    if found is None:
        return None
    code = found["code"] or found["bare"]
    is_own = code[:2] in ("EE", "EI", "EJ", "EL", "EZ", "EH") or (
        code[1].isdigit() and code in codes.cann_codes()
    )
    if not is_own and not _EVIDENCE.search(text):
        return None
    rest = text[found.end() : found.end() + 1200]
    at = 0
    while True:
        head = _BEFORE.match(rest, at)
        if head is None or head.end() == at:
            break
        at = head.end()
    says = _END.split(rest[at:], maxsplit=1)[0]
    return code, _NOTHING.sub("", says, count=1).strip()


def known(line: Line) -> Found:
    """Tell what a code means that says which sort of fault it is."""
    told = coded(near(line.text, ("PID:", "(E", "E")))
    code = codes.cann(told[0]) if told else None
    if told is None or code is None or code.kind.is_wrapper:
        return None
    return sighting_of(line, code, told[1])


def sighting_of(line: Line, code: codes.Code, says: str) -> Sighting:
    """Return what a code and the words behind it tell."""
    kind = code.kind
    facts = [*facts_of(line.text[:8000])]
    call = _CALL.search(line.text[:8000])
    if call and not any(name == "operator" for name, _ in facts):
        facts.append(("operator", call["call"]))
    why = _WHY.search(says)
    text = short((why["why"] if why else says).rstrip(), 300)
    if code.kind_name == "check" and says:
        # The words of a check are the reason, with both shapes in them.
        if call:
            words = Message.of(
                "{call}: {says} ({code})", call=call["call"], says=short(says, 240), code=code.code
            )
        else:
            words = Message.of("{says} ({code})", says=short(says, 240), code=code.code)
        key = f"{kind.category} {code.code} {key_of(says)}"
    else:
        words = Message.of("{says} ({code})", says=code.says, code=code.code)
        key = f"{kind.category} {code.code}"
    device = device_of(line.text[:8000])
    return Sighting(
        category=kind.category,
        severity=kind.severity,
        headline=words,
        knows=REASON if code.kind_name in ("check", "differs", "setup", "port") else SPECIFIC,
        key=key,
        attribution=kind.attribution,
        code=code.code,
        reason=Message.of("{says}", says=text) if text and code.kind_name != "check" else None,
        advice=kind.advice,
        facts=tuple(facts),
        device=device if device is not None else line.device,
    )


def inner(line: Line) -> Found:
    """Take a code that wraps; what stands behind it is shown where nothing knows better."""
    told = coded(near(line.text, ("PID:", "(E", "E")))
    if told is None:
        return None
    code, says = told
    if says in ("", "!"):
        return Sighting("other", "info", _INNER, CONTEXT, code=code) if codes.cann(code) else None
    return Sighting(
        category="other",
        severity="info" if code[0] == "W" else "error",
        headline=Message.of("{says} ({code})", says=short(says, 240), code=code),
        knows=GENERIC,
        key=f"inner {code} {key_of(says)}",
        attribution="likely",
        code=code,
        advice=(codes.PLOG,),
        facts=facts_of(line.text[:8000]),
        device=device_of(line.text[:8000]),
    )


RULES: tuple[tuple[tuple[str, ...], Rule], ...] = ((NEEDLES, known),)
LATE: tuple[tuple[tuple[str, ...], Rule], ...] = ((NEEDLES, inner),)
