"""Faults between ranks: collectives that never end, hearts that stopped beating, links that cannot be made.

Most ranks only wait for the one that failed, so that what each of them was doing (`doing`) matters more than
what it says.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ascend_tui.plugin import Message, Scalar, Severity

from ..sighting import GENERIC, REASON, SPECIFIC, Found, Line, Rule, Sighting
from . import codes, rules_collectives
from .rule_table import key_of, near, number, short
from .rules_codes import NEEDLES as CODE_NEEDLES
from .rules_codes import coded, sighting_of
from .rules_collectives import named
from .rules_facts import facts_of

_PLACE = r"\[? ?(?P<place>[\w.:%\-]{1,80}(?:/(?P<id>\d{1,6}))?) ?\]?"
_CRIMER = re.compile(rf"crimer rank ?{_PLACE}(?: status ?\[(?P<status>[\w ]{{1,40}})\])?")
_INFORMER = re.compile(r"(?:by informer rank ?|Discoverer:)\[([^\]]{1,80})\]")
_LOCATION = re.compile(rf"Cluster Exception Location\[IP/ID\]: ?{_PLACE}")
_EXCEPTION = re.compile(r"ExceptionType: ?\[([^\]]{1,60})\]")
_CQE = re.compile(r"ROCE CQE ERROR|UB CQE ERROR|error cqe status", re.IGNORECASE)
_TASK = re.compile(
    r"Task run failed|base information is|groupRank information is|opData information is|Notify Wait"
)
_TAG = re.compile(r"\btag\[(?P<operator>[A-Za-z]{2,40})[^\]]{0,200}\]")
_GROUP = re.compile(r"\bgroup:\[(?P<group>[^\]]{1,120})\]")
_RANK_ID = re.compile(r"\brankId\[(?P<rank>\d{1,6})\b")
_REMOTE = re.compile(r"(?:remote rank: ?\[|Waiting peer (?:rank|end): ?\[?)(?P<rank>\d{1,12})\b")
_RESULT = re.compile(
    r"\b(?P<call>[Hh]ccl[A-Z]\w{2,60})[^,\n]{0,200}, ?error code(?: is|:) ?(?P<result>\d{1,3})\b"
    r"|\b(?P<call2>[Hh]ccl[A-Z]\w{2,60})\b.{0,60}\b(?:ret|result)\w{0,6} ?[=:\[(] ?(?P<result2>\d{1,3})\b"
    r"|\b(?P<call3>hcclComm\w{2,60})\(.{0,200}\)\)?, ?error code is (?P<result3>\d{1,3})\b"
)
_CHINESE = re.compile(
    r"(?:集合)?通信(?:算子)?(?:执行)?超时|建链超时|心跳(?:丢失|超时)|通信(?:链路)?(?:失败|异常|中断)"
)
_CHINESE_SETTING = re.compile(r"设置|配置|时间|时长|阈值|参数|成功|恢复|无(?!法)|未|没有")
_WAITED = re.compile(r"(?P<what>[Nn]otify|[Ee]vent) [Ww]ait(?:ing)? time ?out")
_LINK = re.compile(
    r"Transport init error|Create Dest error|wait socket establish timeout|socket (?:establish )?timeout"
)
_LOST: dict[str, tuple[Message, Severity]] = {
    "lost": (Message("heartbeat lost: the process at {place} has ended, or its network is down"), "warning"),
    "stuck": (Message("heartbeat: the process at {place} is stuck"), "warning"),
    "cqe": (Message("heartbeat: the network to {place} has errors (CQE)"), "warning"),
    "": (Message("heartbeat: something is wrong at {place}"), "warning"),
}
_BEAT_ADVICE = Message("look at this rank's log and process first: HCCL names it as where the fault began")


def heartbeat(line: Line) -> Found:
    """Tell which rank HCCL holds for the first bad one; the line's level may be INFO, and it matters."""
    text = near(line.text, ("crimer rank", "Cluster Exception Location", "HeartbeatAbnormal"))
    found = _CRIMER.search(text) or _LOCATION.search(text)
    if found is None:
        return None
    sort_of = _EXCEPTION.search(text)
    status = (found.groupdict().get("status") or (sort_of[1] if sort_of else "")).lower()
    words, severity = _LOST[next((one for one in ("cqe", "stuck", "lost") if one in status), "")]
    place = short(found["place"], 80)
    facts: list[tuple[str, Scalar]] = [("first_bad", place)]
    informer = _INFORMER.search(text)
    if informer:
        facts.append(("informer", short(informer[1], 80)))
    return Sighting(
        category="communication",
        severity="error" if line.level in ("error", "fatal") else severity,
        headline=Message.of(words.text, place=place),
        knows=REASON,
        # Another place is another fault, of which the first bad one must not hide the second.
        key=f"heartbeat {place}",
        attribution="likely",
        advice=(_BEAT_ADVICE,),
        facts=tuple(facts),
        rank=number(found["id"]),
        alone=True,
    )


def task(line: Line) -> Found:
    """Tell which collective did not end, of which rank: HCCL's own handler tells it in several lines."""
    text = near(
        line.text, ("TaskExecStage", "base information", "groupRank information", "opData information")
    )
    if not _TASK.search(text):
        return None
    tag, rank = _TAG.search(text), _RANK_ID.search(text)
    operator = named(tag["operator"]) if tag else ""
    facts = [*facts_of(text), *_details(text)]
    is_timeout = "[Timeout]" in text or "Notify Wait" in text
    kind = codes.KINDS["collective" if is_timeout else "link"]
    if operator and is_timeout:
        words = Message.of("HCCL operator {operator} timed out: it waited for other ranks", operator=operator)
    elif operator:
        words = Message.of("HCCL operator {operator} failed", operator=operator)
    else:
        words = Message("an HCCL operator timed out") if is_timeout else Message("an HCCL operator failed")
    return Sighting(
        category=kind.category,
        severity="fatal",
        headline=words,
        knows=SPECIFIC if operator else GENERIC,
        key="hccl task",
        attribution="async",
        advice=kind.advice,
        facts=tuple(facts),
        rank=number(rank["rank"]) if rank else None,
        device=next((v for name, v in facts if name == "device" and isinstance(v, int)), None),
        doing=operator,
    )


def result(line: Line) -> Found:
    """Tell what a function of HCCL gave back: `HcclAllreduce, error code is 7`."""
    found = _RESULT.search(near(line.text, ("Hccl", "hccl")))
    if found is None:
        return None
    call = found["call"] or found["call2"] or found["call3"]
    known = codes.hccl(found["result"] or found["result2"] or found["result3"])
    if known is None:
        return None
    operator = re.sub(r"^[Hh]ccl", "", call)
    is_operator = not re.match(r"Comm|Get|Set|Create|Init", operator)
    return Sighting(
        category="timeout" if known.kind_name == "collective" else "communication",
        severity="error",
        headline=Message.of(
            "{call} failed: {says} (HCCL result {result})", call=call, says=known.says, result=int(known.code)
        ),
        knows=GENERIC,
        key=f"hccl {call.lower()} {known.code}",
        attribution="async" if is_operator else "exact",
        advice=(codes.FIRST_RANK, codes.PLOG),
        facts=(("operator", call),),
        doing=named(operator) if is_operator else "",
    )


def code(line: Line) -> Found:
    """Tell what a code of HCCL or its helper process means."""
    told = coded(near(line.text, ("EI", "EJ")))
    known = codes.cann(told[0]) if told and told[0][:2] in ("EI", "EJ") else None
    if told is None or known is None or known.kind.is_wrapper:
        return None
    seen = sighting_of(line, known, told[1])
    tag, own = _TAG.search(told[1]), _RANK_ID.search(told[1])
    return replace(
        seen,
        facts=(*seen.facts, *_details(told[1])),
        rank=number(own["rank"]) if own else None,
        doing=named(tag["operator"]) if tag else "",
    )


def _details(text: str) -> list[tuple[str, Scalar]]:
    tag, group, remote = _TAG.search(text), _GROUP.search(text), _REMOTE.search(text)
    told: list[tuple[str, Scalar]] = []
    if tag:
        told.append(("operator", named(tag["operator"])))
    if group:
        told.append(("group", short(group["group"], 120)))
    # A rank that is not known is printed as 2^32 - 1.
    if remote and int(remote["rank"]) < 1_000_000:
        told.append(("waited_for_rank", int(remote["rank"])))
    return told


def link(line: Line) -> Found:
    """Tell of a link between two ranks that could not be made or broke."""
    text = near(line.text, ("ransport", "socket", "Dest error", "cqe", "CQE", "ait"))
    waited = _WAITED.search(text)
    if _CQE.search(text):
        kind, words, key = (
            codes.KINDS["link"],
            Message("the network between two devices has errors (error CQE)"),
            "cqe",
        )
    elif _LINK.search(text):
        kind, words, key = codes.KINDS["connect"], Message("a link to another rank could not be made"), "link"
    elif waited and waited["what"].lower() == "notify":
        kind, key = codes.KINDS["collective"], "notify wait"
        words = Message("a task waited too long for another rank (notify wait timeout)")
    elif waited:
        kind, words, key = codes.KINDS["wait"], Message("a task waited too long for an event"), "event wait"
    else:
        return None
    knows = GENERIC if key == "link" else SPECIFIC
    return Sighting(
        kind.category,
        kind.severity,
        words,
        knows,
        key,
        kind.attribution,
        advice=kind.advice,
        facts=facts_of(text),
    )


def chinese(line: Line) -> Found:
    """Tell of communication that timed out or failed, where the program says it in Chinese."""
    text = near(line.text, ("通信", "建链", "心跳"))
    found = _CHINESE.search(text)
    if found is None or _CHINESE_SETTING.search(text[max(0, found.start() - 6) : found.end() + 4]):
        return None
    if "超时" in found[0]:
        words = Message.of("communication between ranks timed out ({said})", said=found[0])
    else:
        words = Message.of("communication between ranks failed ({said})", said=found[0])
    return Sighting(
        category="timeout" if "超时" in found[0] else "communication",
        severity="error",
        headline=words,
        knows=SPECIFIC,
        key=key_of(found[0]),
        attribution="likely",
        advice=(codes.FIRST_RANK, codes.NETWORK),
    )


_LINK_NEEDLES = (
    "ransport init error|Dest error|socket timeout|socket establish|cqe status|CQE ERROR"
    "|otify wait|otify Wait|vent wait|vent Wait"
)
RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("crimer rank", "Cluster Exception Location"), heartbeat),
    (("[TaskExecStage]", "base information is", "groupRank information is", "opData information is"), task),
    *rules_collectives.RULES,
    (("Hccl", "hccl"), result),
    (CODE_NEEDLES, code),
    (tuple(_LINK_NEEDLES.split("|")), link),
    (("通信", "建链", "心跳"), chinese),
)
