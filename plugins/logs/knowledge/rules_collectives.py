"""What PyTorch's watchdogs of collectives and NCCL tell: which collective never ended, on which rank."""

from __future__ import annotations

import re

from ascend_tui.plugin import Message, Scalar, Severity

from ..sighting import CONTEXT, GENERIC, SPECIFIC, Found, Line, Rule, Sighting
from . import codes
from .rule_table import key_of, near, number, short

_RANK_HERE = re.compile(r"\[(?:PG [^\]]{0,60})?Rank (?P<rank>\d{1,6})\]", re.IGNORECASE)
_WORK = re.compile(
    r"\bWork[HN]CCL\(SeqNum=(?P<sequence>\d{1,12}), OpType=(?P<operator>\w{1,60})"
    r"(?P<rest>.{0,200}? ran for |[^)]{0,200})"
    r"(?P<ran>\d{1,12})?"
)
_TIMEOUT = re.compile(r"Timeout\(ms\)=(\d{1,12})")
_AT_WORK = re.compile(
    r"(?:Timeout at [HN]CCL work: ?|watchdog at work(?: sequence id)?: ?)(?P<sequence>\d{1,12})"
)
_DONE = re.compile(r"last completed (?:[HN]CCL )?work: ?(?P<done>-?\d{1,12})")
_QUEUED = re.compile(r"last enqueued (?:[HN]CCL )?work: ?(?P<queued>-?\d{1,12})")
_STUCK = re.compile(r"watchdog got stuck for|Heartbeat monitor timed out")
_NCCL = re.compile(
    r"\bNCCL WARN (?P<warn>.{3,300})|\b(?P<name>nccl(?:Unhandled|Internal|System|Remote|Invalid)\w{3,40})"
)
_AROUND = re.compile(
    r"(?:[HN]CCL|collective) operations have failed or timed out|taking the entire process down"
    r"|Stack trace of the failed collective|watchdog thread (?:joined|terminated normally)"
)
_NAMES = {
    "ALLREDUCE": "AllReduce",
    "ALLREDUCE_COALESCED": "AllReduce",
    "ALLGATHER": "AllGather",
    "_ALLGATHER_BASE": "AllGather",
    "ALLGATHER_COALESCED": "AllGather",
    "REDUCE_SCATTER": "ReduceScatter",
    "REDUCESCATTER": "ReduceScatter",
    "_REDUCE_SCATTER_BASE": "ReduceScatter",
    "BROADCAST": "Broadcast",
    "REDUCE": "Reduce",
    "ALLTOALL": "AlltoAll",
    "ALLTOALL_BASE": "AlltoAll",
    "BARRIER": "Barrier",
    "SEND": "Send",
    "RECV": "Receive",
    "RECEIVE": "Receive",
}
_AFTERWARDS = Message("what follows a collective that failed: the process is ended on purpose")
_WATCHDOG_STUCK = Message("the watchdog of the collectives got stuck: a call into the device does not return")


def named(operator: str) -> str:
    """Return one spelling for an operator that layers spell differently."""
    return _NAMES.get(operator.upper(), operator)


def watchdog(line: Line) -> Found:
    """Tell which collective the watchdog gave up, with its number in the row of all collectives."""
    text = near(line.text, ("Watchdog", "watchdog", "WorkHCCL", "WorkNCCL", "CCL work", "Heartbeat monitor"))
    told = _which(text)
    if told is None:
        return None
    words, knows, doing, facts, evidence = told
    done, queued = _DONE.search(text), _QUEUED.search(text)
    if done and queued:
        evidence = Message.of(
            "last completed collective {done}, last enqueued {queued}",
            done=int(done["done"]),
            queued=int(queued["queued"]),
        )
    rank = _RANK_HERE.search(text)
    return Sighting(
        category="timeout",
        severity="fatal",
        headline=words,
        knows=knows,
        key="collective timeout",
        attribution="async",
        evidence=(evidence,) if evidence else (),
        advice=(codes.FIRST_RANK, codes.SAME_CALLS, codes.PLOG),
        facts=tuple(facts),
        rank=number(rank["rank"]) if rank else None,
        doing=doing,
    )


def _which(text: str) -> tuple[Message, int, str, list[tuple[str, Scalar]], Message | None] | None:
    """Return the headline, how much it knows, the operator, the facts and how long it ran."""
    work = _WORK.search(text)
    if work:
        doing, sequence = named(work["operator"]), int(work["sequence"])
        facts: list[tuple[str, Scalar]] = [("operator", doing), ("sequence", sequence)]
        timeout = _TIMEOUT.search(work["rest"])
        if timeout:
            facts.append(("timeout_ms", int(timeout[1])))
        ran = (
            Message.of("it ran for {seconds} s", seconds=round(int(work["ran"]) / 1000, 1))
            if work["ran"]
            else None
        )
        words = Message.of(
            "collective {operator} timed out (SeqNum {sequence})", operator=doing, sequence=sequence
        )
        return words, SPECIFIC, doing, facts, ran
    if _STUCK.search(text):
        return _WATCHDOG_STUCK, SPECIFIC, "", [], None
    at = _AT_WORK.search(text)
    if at is None:
        return None
    sequence = int(at["sequence"])
    words = Message.of("a collective timed out (SeqNum {sequence})", sequence=sequence)
    return words, GENERIC, "", [("sequence", sequence)], None


def around(line: Line) -> Found:
    """Take what is printed around a failed collective: its "corrupted data" is a warning, no finding."""
    needles = ("operations have failed", "entire process down", "Stack trace of", "watchdog")
    if _AROUND.search(near(line.text, needles)):
        return Sighting("timeout", "info", _AFTERWARDS, CONTEXT, attribution="async")
    return None


def nccl(line: Line) -> Found:
    """Tell what NCCL says of itself; a WARN is how it tells of errors."""
    found = _NCCL.search(near(line.text, ("NCCL WARN", "nccl")))
    if found is None:
        return None
    says = short(found["warn"] or found["name"], 200)
    severity: Severity = "warning" if found["warn"] else "error"
    return Sighting(
        category="communication",
        severity=severity,
        headline=Message.of("NCCL: {says}", says=says),
        knows=GENERIC,
        key=f"nccl {key_of(says)}",
        attribution="likely",
        advice=(codes.FIRST_RANK, codes.NETWORK),
    )


_WATCHDOG_NEEDLES = (
    "WorkHCCL(|WorkNCCL(|Timeout at HCCL work|Timeout at NCCL work|watchdog at work|watchdog got stuck"
    "|Heartbeat monitor timed out"
)
RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (tuple(_WATCHDOG_NEEDLES.split("|")), watchdog),
    (
        (
            "operations have failed or timed out",
            "entire process down",
            "Stack trace of the failed",
            "watchdog thread",
        ),
        around,
    ),
    (("NCCL WARN", "ncclUn", "ncclIn", "ncclSys", "ncclRem"), nccl),
)
