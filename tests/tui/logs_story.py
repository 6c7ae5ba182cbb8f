"""Snapshots of the logs plugin: the picture of the design, calm ones, one that cannot read, a hostile one."""

from __future__ import annotations

import math
from typing import Any

from ascend_tui_plugins.logs.snapshot import (
    Digest,
    Fact,
    Incident,
    LogsSnapshot,
    Metric,
    Raw,
    Source,
    Template,
)
from fake import START

from ascend_tui.plugin import Command, Lease, Loaded, Message, Plugin

TEE = Command(
    "tee",
    "tee the output",
    "a few microseconds a write",
    Lease(10_000_000, 86400.0),
    "W",
    words=("on", "off"),
)
LOGS = Loaded(
    "logs", Plugin("logs", "Logs", "", "ascend_tui_plugins.logs.pane:LogsPane", commands=(TEE,), order=40)
)
PLOG = "/home/me/ascend/log/debug/plog/plog-41233_20260325061402113.log"
SOURCES = (
    Source("stdout", "stdout", read_bytes=1_300_000, size_bytes=1_300_000, lines=9_120),
    *(Source("plog", f"{PLOG[:-4]}{n}.log", rank=n, read_bytes=420_000, lines=2_000) for n in range(4)),
    Source("open_file", "/home/me/run/train.log", read_bytes=90_000, skipped_bytes=2**30, lines=640),
)
UNREADABLE = (
    Source("stdout", "stdout", "nothing", Message("it is a terminal, and what is written there is gone")),
    Source("plog", "/root/ascend/log", "unreadable", Message("only root may read it")),
)
CONTEXT = (
    Raw(211, "[INFO] RUNTIME(41233,python):2026-03-25-06:14:02 [engine.cc:88] report begins", 1),
    Raw(
        212,
        "[ERROR] RUNTIME(41233,python):2026-03-25-06:14:02 [device_error_proc.cc:1372] The extend info:"
        " errcode:(0x10, 0, 0) errorStr: The DDR address of the MTE instruction is out of range."
        " fixp_error0 info: 0x3000069, fixp_error1 info: 0x21",
        1,
        is_key=True,
    ),
    Raw(213, "[ERROR] RUNTIME(41233,python):2026-03-25-06:14:02 kernel_name=gather_v2_71", 1),
)


def device_fault(**changes: Any) -> Incident:
    """Return the fault of the picture: a kernel that read beyond the memory of the card."""
    fields: dict[str, Any] = {
        "severity": "fatal",
        "category": "memory_access",
        "headline": Message("aivector error: MTE DDR address out of range, kernel gather_v2"),
        "step": 18_401,
        "ranks": (3,),
        "attribution": "async",
        "key": "mte",
        "code": "507035",
        "reason": Message("the device names the address and the kernel itself"),
        "evidence": (Message("errcode 0x10 is an address out of range"),),
        "advice": (Message("run a few steps under mssanitizer --tool=memcheck"),),
        "facts": (Fact("device", 3), Fact("core", 21), Fact("kernel", "gather_v2_71"), Fact("odd", 1.5)),
        "place": "/home/me/project/train.py:212 in train_epoch",
        "first_wall_s": START + 40.0,
        "last_wall_s": START + 40.0,
        "is_clock_known": True,
        "source": 1,
        "line": 212,
        "text": "errorStr: The DDR address of the MTE instruction is out of range.",
        "context": CONTEXT,
        "devices": (3,),
    }
    return Incident(**{**fields, **changes})


def timeout(**changes: Any) -> Incident:
    """Return a collective that one rank entered with another operator."""
    fields: dict[str, Any] = {
        "severity": "error",
        "category": "communication",
        "headline": Message.of("HCCL timeout {operator} seq {number}", operator="AllReduce", number=196),
        "step": 18_399,
        "last_step": 18_401,
        "ranks": tuple(range(8)),
        "count": 4,
        "key": "hccl",
        "attribution": "likely",
        "first_wall_s": START + 20.0,
        "last_wall_s": START + 41.0,
        "is_clock_known": True,
        "by_rank": ((5, "AllGather seq 196, the first to wait"), (0, "AllReduce seq 196")),
        "text": "rank[5] op[AllGather] seq[196]",
    }
    return Incident(**{**fields, **changes})


def halved(**changes: Any) -> Incident:
    """Return a warning that is seen again and again, in a log whose lines have no time."""
    fields: dict[str, Any] = {
        "severity": "warning",
        "category": "numeric",
        "headline": Message.of("loss scale halved to {scale}", scale="1,024"),
        "count": 62,
        "key": "scale",
        "first_wall_s": START - 900.0,
        "last_wall_s": START - 160.0,
        "source": 5,
        "line": 640,
    }
    return Incident(**{**fields, **changes})


METRICS = (
    Metric(
        "loss",
        "lm loss",
        2.314,
        18_440,
        count=1_844,
        low=2.1,
        high=11.2,
        points=tuple((float(n * 10), 11.0 - n * 0.1) for n in range(80)),
    ),
    Metric("grad_norm", "grad_norm", math.nan, 18_440, "not_finite", 1_844, 0.4, 3.1),
    Metric("loss_scale", "loss scale", 1_024.0, 18_440, "collapsing", 1_844, 1_024.0, 65_536.0),
)
TEMPLATES = (
    Template("iteration <*> / <*> | lm loss: <*>", 9_000, "iteration 3 / 9 | lm loss: 2.1", 4, 9_118),
    Template(
        "[WARN] cache of <*> entries dropped",
        12,
        "[WARN] cache of 3 entries dropped",
        80,
        7_000,
        0,
        "warning",
    ),
    Template(
        "worker <*> came back after <*> s", 1, "worker 3 came back after 9 s", 9_001, 9_001, is_new=True
    ),
)


def digest(**changes: Any) -> Digest:
    """Return the digest of the picture."""
    fields: dict[str, Any] = {
        "incidents": (halved(), timeout(), device_fault()),
        "metrics": METRICS,
        "templates": TEMPLATES,
        "lines": 18_442,
        "bytes": 3_070_000,
        "ignored": 12,
    }
    return Digest(**{**fields, **changes})


def picture(**changes: Any) -> LogsSnapshot:
    """Return the snapshot of the picture in the design; `incidents` and the like are of its digest."""
    of_digest = {name: changes.pop(name) for name in tuple(changes) if name in Digest.__dataclass_fields__}
    fields: dict[str, Any] = {"state": "live", "digest": digest(**of_digest), "sources": SOURCES}
    return LogsSnapshot(**{**fields, **changes})


def calm(**changes: Any) -> LogsSnapshot:
    """Return a snapshot without an incident."""
    return picture(**{"incidents": (), "metrics": METRICS[:1], "templates": TEMPLATES[:1], **changes})


def unreadable(**changes: Any) -> LogsSnapshot:
    """Return a snapshot of a process whose output cannot be read."""
    return LogsSnapshot(**{"state": "live", "sources": UNREADABLE, **changes})


def many(n: int = 300) -> LogsSnapshot:
    """Return a snapshot with as many incidents as a digest keeps, and more."""
    names = ("info", "warning", "error", "fatal")
    found = tuple(
        timeout(
            severity=names[at % 4],
            key=f"k{at}",
            headline=Message.of("fault {n}", n=at),
            step=at,
            last_step=at,
            first_wall_s=START + at,
            last_wall_s=START + at,
        )
        for at in range(n)
    )
    return picture(incidents=found, dropped_incidents=7)


def hostile() -> LogsSnapshot:
    """Return a snapshot whose every text wants to be more than text."""
    bad = "[red]\x1b[31m\x07" + "数据\u202e\r\n`|*_<b>" * 40 + "[bold]end"
    one = device_fault(
        headline=Message.of("{it}", it=bad),
        reason=Message(bad),
        evidence=(Message.of("{x", x=1),),
        advice=(Message.of("{it}", it="x" * 5000),),
        facts=(Fact(bad, bad), Fact("chip", math.inf)),
        place=bad,
        code=bad,
        text=bad * 20,
        source=99,
        context=(Raw(-1, bad, 3), Raw(2**60, "x" * 100_000, 1, is_key=True), Raw(3, "", 0)),
        by_rank=((0, bad), (2**40, "")),
        ranks=(1, 2**40, -3),
        first_wall_s=math.nan,
        last_wall_s=1e300,
    )
    odd = timeout(severity="severe", category="[odd]", headline=Message(bad), count=10**12, last_wall_s=None)
    strange = Metric(
        bad, bad, math.inf, None, "odd", points=((math.nan, 1.0), (1.0, math.inf), (2.0, -1e308))
    )
    huge = Metric("x", "x", 1e308, 3, points=((0.0, -1e308), (1.0, 1e308), (2.0, math.nan)))
    return LogsSnapshot(
        "degraded",
        Message.of("{it}", it=bad),
        Digest(
            (one, odd),
            (strange, huge),
            (Template(bad, 3, bad, 1, 2, 50, bad, True),),
            5,
            5,
            notes=(Message(bad),),
        ),
        (
            Source("glob", bad, "reading", Message(bad), 1, 5, 9, 4, 2),
            Source("odd", bad, "odd", Message(bad)),
        ),
        math.inf,
        math.nan,
        True,
    )
