"""Lines of the runtime and of torch_npu around a fault: results, wrappers with a number, advice, teardown."""

from __future__ import annotations

import re

from ascend_tui.plugin import Message

from ..sighting import CONTEXT, GENERIC, SPECIFIC, Found, Line, Rule, Sighting
from . import codes
from .rule_table import key_of, near, short
from .rules_facts import device_of, facts_of

_TEARDOWN = re.compile(
    r"not in (?:the )?current (?:ctx|context)"
    r"|(?:destroy|Destroy)\w{0,30}.{0,80}(?:10700[23]\b|ctx is NULL|context is empty)"
    r"|destroy_process_group\(\) was not called"
)
_DESTROYS = re.compile(r"destroy", re.IGNORECASE)
_RESULT = re.compile(r"\bret[cC]ode ?= ?(?P<ret>0x[0-9a-fA-F]{1,8})(?:, ?\[(?P<says>[^\]]{1,120})\])?")
_REASON = re.compile(r"\breason ?= ?\[?(?P<says>[^\[\]\n]{1,160}?)(?=\]|\[FUNC|\.?\s*$|, )")
_RUNTIME_CALL = re.compile(r"\[FUNC:|\b(?:rt|acl)[A-Z]\w{2,80} execut\w{1,4} fail")
_WRAPPED = re.compile(
    r"(?:错误码[:： =]{0,3}|error code(?: is)?:? ?"
    r"|[eE]rr(?:or)?[cC]ode ?[=:] ?|runtime result ?= ?|\brt_?ret(?:code)?[:=] ?"
    r"|\bretcode: ?(?=[125]07)|(?:[Ff]ail|[Ee]rror).{0,60}\b(?:ret\w{0,8}|result) ?[=:\[(] ?(?=[125]07)"
    r"|failed: (?=[125]07\d{3}\s{0,3}(?:$|[(\[,])))(?P<number>[1-5]\d{5})\b"
)
"""A bare number behind a word is none: `result = 100000` is what a program counts."""
_NUMBER_WORDS = ("error code", "rrorCode", "rrCode", "result", "retcode", "failed: ", "ret", "错误码")
_CALLED = re.compile(
    r"(?:function error: |^|\] |: )(?:call )?(?P<call>(?:c10_npu::acl::|at_npu::\w{1,40}::)?"
    r"(?:[Aa]cl|rt|hal|aclnn)\w{2,80})\b"
)
_NAMESPACE = re.compile(r"^(?:\w{1,40}::){0,3}")
_SAID = re.compile(r"\[Error\]: ?(?P<says>.{3,200})")
_TRAILER = re.compile(r"\b(?P<code>ERR\d{5}) \w{3,7} ")
_TASK = re.compile(r"Task run failed|Task exception!|task exception, ", re.IGNORECASE)
_ADVICE = re.compile(
    r"^\s*(?:Solution:|Possible Cause:?|TraceBack \(most recent call last\):\s*$|Rectify the fault"
    r"|Check whether the context where|Since the operator is called asynchronously"
    r"|Note: ASCEND_LAUNCH_BLOCKING|\(function [^)]{1,60}\){1,2}\s*$|\[AIC_INFO\]|RecentErrMsg:\s*$"
    r"|For details, see|DEVICE\[\d{1,4}\] PID\[)"
)
_UNCAUGHT = re.compile(r"terminate called after throwing an instance of '(?P<what>[^']{1,200})'")

_GOES_WITH = Message("a line that goes with another fault")
_TEARDOWN_WORDS = Message(
    "a stream or event was destroyed outside its context: the order of teardown at exit, harmless where"
    " results are complete"
)
_NO_GROUP_END = Message("the process group was not destroyed before the program ended: teardown, harmless")


def teardown(line: Line) -> Found:
    """Tell what only the order of things at exit brings about."""
    text = near(line.text, ("estroy", "not in current", "not in the current"))
    if not _TEARDOWN.search(text):
        return None
    words = _NO_GROUP_END if "process_group" in text else _TEARDOWN_WORDS
    # Outside of a destroy it may be a stream that is used on the wrong device: its wrapper tells then.
    knows = GENERIC if _DESTROYS.search(text) else CONTEXT
    return Sighting("other", "info", words, knows, "teardown", "likely", code=_number_in(text))


def task_result(line: Line) -> Found:
    """Tell what the task scheduler says of a task: `retCode=0x26, [aicore exception]`."""
    text = near(line.text, ("retCode", "retcode"))
    found = _RESULT.search(text)
    if found is None:
        return None
    known = codes.task(found["ret"])
    says = found["says"] or (known.says if known else "")
    if not says:
        return None
    return _of_kind(line, text, known or codes.said(says), short(says, 160), SPECIFIC)


def task_failed(line: Line) -> Found:
    """Tell that a task failed, without why."""
    text = near(line.text, ("Task run failed", "Task exception", "task exception"))
    if not _TASK.search(text):
        return None
    device = device_of(text)
    if device is None:
        words = Message("a task failed on the device (Task run failed)")
    else:
        words = Message.of("a task failed on device {device} (Task run failed)", device=device)
    return Sighting(
        category="device",
        severity="error",
        headline=words,
        knows=GENERIC,
        key="device task",
        attribution="async",
        advice=(codes.PLOG,),
        facts=facts_of(text),
        device=device,
    )


def reason(line: Line) -> Found:
    """Tell why a call failed: `rtStreamSynchronize execute failed, reason=[aicore exception]`."""
    text = near(line.text, ("reason=", "reason ="))
    found = _REASON.search(text)
    if found is None:
        return None
    says = short(found["says"].strip(), 160)
    known = codes.said(says) or _BY_REASON.get(says.lower())
    if known is None and not _RUNTIME_CALL.search(text):
        return None
    return _of_kind(line, text, known, says, GENERIC)


def numbered(line: Line) -> Found:
    """Tell what a number means that a call gave back: `error code is 507035`, `runtime result = 507046`."""
    text = near(line.text, _NUMBER_WORDS)
    found = _WRAPPED.search(text)
    known = codes.acl(found["number"]) if found else None
    if known is None:
        return None
    called = _CALLED.search(text)
    return _of_kind(
        line, text, known, known.says, GENERIC, _NAMESPACE.sub("", called["call"]) if called else ""
    )


def in_words(line: Line) -> Found:
    """Tell what stands alone behind "[Error]:", in the words of the table of numbers."""
    found = _SAID.search(near(line.text, ("[Error]:",)))
    known = codes.said(found["says"]) if found else None
    if known is None:
        return None
    if known.kind.severity == "fatal":
        return _of_kind(line, line.text, known, known.says, GENERIC)
    return Sighting("other", "info", _GOES_WITH, CONTEXT, code=known.code)


def trailer(line: Line) -> Found:
    """Take torch_npu's trailer: which of its parts called what."""
    found = _TRAILER.search(near(line.text, ("ERR",)))
    known = codes.torch_npu(found["code"]) if found else None
    if known is None:
        return None
    words = Message.of(
        "an error of torch_npu without more: {says} ({code})", says=known.says, code=known.code
    )
    return Sighting("other", "error", words, GENERIC, f"trailer {known.code}", "likely", code=known.code)


def uncaught(line: Line) -> Found:
    """Tell that C++ ended the process; what it could not catch is told by other lines."""
    found = _UNCAUGHT.search(near(line.text, ("terminate called",)))
    if found is None:
        return None
    words = Message.of("an uncaught C++ exception ended the process ({what})", what=short(found["what"], 120))
    return Sighting("crash", "fatal", words, GENERIC, "uncaught", "likely")


def advice(line: Line) -> Found:
    """Take advice and headings: they hold alarming words, and belong to the fault above them."""
    if _ADVICE.match(line.body) or _ADVICE.match(line.text):
        return Sighting("other", "info", _GOES_WITH, CONTEXT)
    return None


def _of_kind(
    line: Line, text: str, known: codes.Code | None, says: str, knows: int, call: str = ""
) -> Sighting | None:
    kind = known.kind if known else codes.KINDS["inner"]
    number = known.code if known and known.code.isdigit() else _number_in(text)
    if number and call:
        words = Message.of("{says} ({code}, {call})", says=says, code=number, call=short(call, 80))
    elif number:
        words = Message.of("{says} ({code})", says=says, code=number)
    else:
        words = Message.of("{says}", says=says)
    device = device_of(text)
    return Sighting(
        category=kind.category,
        severity=kind.severity,
        headline=words,
        knows=min(knows, GENERIC) if kind.is_wrapper else knows,
        key=f"{kind.category} {key_of(says)}",
        attribution=kind.attribution,
        code=number,
        reason=codes.NOT_THE_LINE if kind.attribution == "async" and kind.category != "timeout" else None,
        advice=kind.advice,
        facts=facts_of(text),
        device=device if device is not None else line.device,
    )


def _number_in(text: str) -> str:
    found = _WRAPPED.search(text)
    return found["number"] if found and codes.acl(found["number"]) else ""


def _reasons() -> dict[str, codes.Code]:
    told = {
        "stream sync timeout": "507046",
        "event sync timeout": "507047",
        "device retain error": "507033",
    }
    table = codes.acl_codes()
    return {says: table[number] for says, number in told.items()}


_BY_REASON = _reasons()
"""Reasons of the runtime that are not in the words of the tables, with the number that goes with them."""

_ADVICE_NEEDLES = (
    "Solution:|ossible Cause|TraceBack (most|Rectify the fault|Check whether the context where"
    "|operator is called asynchronously|Note: ASCEND_LAUNCH_BLOCKING|(function |[AIC_INFO]|RecentErrMsg:"
    "|For details, see|] PID["
)
_NUMBER_NEEDLES = (
    "error code|rrorCode|rrCode|rrcode|retcode|failed: |runtime result|result =|result=|result:|result("
    "|ret=|ret:|ret[|ret(|rt_ret|错误码"
)
RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("estroy", "not in current c", "not in the current c"), teardown),
    (tuple(_ADVICE_NEEDLES.split("|")), advice),
    (("retCode", "retcode"), task_result),
    (("Task run failed", "Task exception", "task exception"), task_failed),
)
LATE: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("reason=", "reason ="), reason),
    (tuple(_NUMBER_NEEDLES.split("|")), numbered),
    (("[Error]:",), in_words),
    (("ERR",), trailer),
    (("terminate called",), uncaught),
)
"""What wraps other errors, after every rule that knows the error itself."""
