"""Snapshots of the hotspots pane: a card with everything known, a CPU, one that waits, and a hostile one."""

from __future__ import annotations

import dataclasses
from typing import Any

from ascend_tui_plugins.hotspots.ranking import ranked
from ascend_tui_plugins.hotspots.snapshot import (
    Change,
    DeviceUse,
    Finding,
    HotspotsSnapshot,
    Jitter,
    Outlier,
    Phase,
    Place,
    Row,
    Sampling,
    Site,
    Sync,
    Units,
    Use,
)

from ascend_tui.plugin import Command, Lease, Loaded, Message, Plugin

COMMANDS = (
    Command(
        "sample",
        "operators of some steps",
        "one step in at least 100, at most 0.2 %",
        Lease(1_000_000, 3600.0),
        auto=True,
    ),
    Command(
        "profile",
        "profile now",
        "one step with its operators, shapes and synchronising calls, measured and shown",
        Lease(3, 120.0),
        hotkey="p",
    ),
)
HOTSPOTS = Loaded(
    "hotspots",
    Plugin(
        "hotspots",
        "Hotspots",
        "",
        "ascend_tui_plugins.hotspots.pane:HotspotsPane",
        commands=COMMANDS,
        order=30,
    ),
)
CAST = Change(14.05, 36_800.0, 1.3, 1.31, 1000)
STORM = Finding(
    "cast_storm",
    Message.of("Cast +{percent} % since step {step}: a per-weight cast loop?", percent=31, step="1,000"),
    "warning",
    evidence=(
        Message.of("{n} calls of Cast a step, {us} us on average", n="2,640", us="18.3"),
        Message.of("{n} different weights are cast, each once", n=320),
    ),
    advice=(Message("cast the weights once, before the first step"),),
    ops=("Cast",),
)
TOP = Finding(
    "concentrated",
    Message.of("5 operators take {share} of the time", share="37.9 %"),
    ops=("FlashAttentionScore", "MatMulV3", "hcom_allReduce_", "Cast", "LayerNorm"),
)
SITE = Site("/home/me/project/train.py", 212, "train_epoch", 1.0, 3100.0)


def _kernels() -> tuple[Row, ...]:
    cast = Row(
        "Cast",
        "movement",
        48_208.0,
        0,
        0,
        2640,
        min_us=4.0,
        max_us=402.0,
        wait_us=1200.0,
        core="AI_VECTOR_CORE",
        uses=(
            Use("[4096, 11008]", "float32 → bfloat16", 1280, 30_100.0),
            Use("[4096, 4096]", "float32 → bfloat16", 1360, 18_108.0),
        ),
        shapes_seen=14,
        places=(
            Place("model.layers.12.mlp.up_proj", "forward", 640, 16_000.0),
            Place("model.layers.13.mlp.up_proj", "forward", 640, 15_000.0),
            Place("", "optimizer", 1360, 17_208.0),
        ),
        sites=(
            Site("/home/me/project/model.py", 88, "Mlp.forward", 1280, 31_000.0),
            Site(stack="/home/me/project/model.py:41 forward;/home/me/project/train.py:160 main", calls=12),
        ),
        units=Units(
            vector_ratio=0.221,
            scalar_ratio=0.041,
            mte2_ratio=0.874,
            mte3_ratio=0.61,
            memory_bound=3.95,
            bound="mte2",
        ),
        change=CAST,
        trend=(36_800.0, 36_900.0, 37_500.0, 39_000.0, 42_000.0, 44_100.0, 47_000.0, 48_208.0),
    )
    bare = [
        ("FlashAttentionScore", "compute", 98_000.0, 320),
        ("MatMulV3", "compute", 68_800.0, 324),
        ("hcom_allReduce_", "communication", 62_400.0, 320),
        ("LayerNorm", "compute", 22_100.0, 322),
        ("FlashAttentionScoreGrad", "compute", 21_000.0, 320),
        ("aclnnMatmul_MatMulCommon_MatMulV2", "compute", 20_000.0, 11),
        ("TransData", "movement", 19_000.0, 1210),
        ("MemcpyAsync", "movement", 14_000.0, 44),
        ("AdamW", "compute", 12_000.0, 1),
        ("SoftmaxV2", "compute", 9000.0, 96),
        ("Transpose", "movement", 7000.0, 310),
        ("Add", "compute", 5000.0, 2010),
        ("aclrtSynchronizeStream", "synchronisation", 3100.0, 1),
        ("Mul", "compute", 2000.0, 999),
        ("ZerosLike", "other", 40.2, 1),
        ("EventRecord", "host", 3.51, 12),
    ]
    rows = [
        Row(name, kind, time, 0, 0, calls, max_us=time / calls * 1.4)  # type: ignore[arg-type]
        for name, kind, time, calls in bare
    ]
    faster = Change(240.0, 82_000.0, 0.88, 0.84, 1000)
    rows[1] = dataclasses.replace(rows[1], change=faster)
    return ranked([*rows, cast], 790_000.0)[0]


KERNELS = _kernels()
ON_HOST = ranked(
    [
        Row("aten::addmm", "compute", 31_000.0, 0, 0, 324, 33_000.0, max_us=402.0, clock="host"),
        Row("aten::copy_", "movement", 12_000.0, 0, 0, 2640, 12_000.0, max_us=80.0, clock="host"),
        Row(
            "autograd::engine::evaluate_function: AddmmBackward0",
            "compute",
            9000.0,
            0,
            0,
            324,
            61_000.0,
            max_us=91.0,
            clock="host",
            places=(Place("model.layers.12.mlp.up_proj", "backward", 12, 4000.0),),
        ),
        Row("Optimizer.step#AdamW.step", "compute", 8000.0, 0, 0, 1, 70_000.0, max_us=8000.0, clock="host"),
    ],
    71_000.0,
)[0]
PHASES = (
    Phase("data", 97_000.0, 0.119),
    Phase("forward", 251_000.0, 0.309),
    Phase("backward", 390_000.0, 0.48),
    Phase("optimizer", 66_000.0, 0.081),
    Phase("other", 8_000.0, 0.01),
)
JITTER = Jitter(
    1000,
    0.812,
    1.21,
    (
        Outlier(18_230, 1.79e9, 2.5, 3.08, Message("a checkpoint was written")),
        Outlier(18_301, 1.79e9, 1.9, 2.34),
    ),
)
SAMPLING = Sampling(True, 640, 29, 19_040, 9_100.0, 0.0011)
MISSING = Message("the lines of synchronising calls: press p, they are looked for in that step")


def npu(**changes: Any) -> HotspotsSnapshot:
    """Return kernels of a card with everything known of them."""
    fields: dict[str, Any] = {
        "state": "live",
        "clock": "device",
        "source": "msPTI",
        "step": 18_400,
        "wall_s": 1_790_000_000.0,
        "step_time_us": 812_000.0,
        "outside_us": 21_000.0,
        "rows": KERNELS,
        "rows_dropped": 12,
        "host_rows": ON_HOST,
        "phases": PHASES,
        "device": DeviceUse(622_000.0, 190_000.0, 0.234, 62_400.0, 0.18, 9310, 41_000.0, 17),
        "syncs": (Sync("aten::item", 1.0, 3100.0, SITE), Sync("aten::nonzero", 0.5, 210.0)),
        "syncs_known": True,
        "jitter": JITTER,
        "findings": (TOP, STORM),
        "sampling": SAMPLING,
        "baseline_step": 1000,
        "notes": (Message("steps with costly checks are left out"),),
    }
    return HotspotsSnapshot(**{**fields, **changes})


def cpu(**changes: Any) -> HotspotsSnapshot:
    """Return operators of a training on a CPU: one clock, one table, no device."""
    fields: dict[str, Any] = {
        "clock": "host",
        "source": "kineto",
        "rows": ON_HOST,
        "rows_dropped": 0,
        "host_rows": (),
        "device": None,
        "syncs": (),
        "syncs_known": False,
        "findings": (),
        "missing": (MISSING,),
        "baseline_step": None,
        "step_time_us": 92_000.0,
    }
    return npu(**{**fields, **changes})


def waiting(**changes: Any) -> HotspotsSnapshot:
    """Return what is known before the first sample."""
    fields: dict[str, Any] = {"state": "live", "sampling": Sampling(True, 640, 0, 640)}
    return HotspotsSnapshot(**{**fields, **changes})


def hostile() -> HotspotsSnapshot:
    """Return names that would be markup, colours, formulas, endless or wide, and numbers that are none."""
    texts = (
        "[red]\x1b[31mop[/red]",
        "=cmd|' /C calc'!A0",
        "x" * 10_000,
        "数据搬运" * 3000,
        "a\u202eb\tc\nd|e`f",
        "",
        "-1+2",
        "[bold]end",
    )
    rows = [
        Row(
            text,
            kind,  # type: ignore[arg-type]
            1000.0 - place,
            0,
            0,
            3,
            max_us=float("nan"),
            min_us=float("inf"),
            core=text,
            uses=(Use(text, text, 1, 5.0),),
            places=(Place(text, "forward", 1, 5.0),),
            sites=(Site(text, 3, text, 1, 5.0), Site(stack=text)),
            units=Units(cube_ratio=float("nan"), vector_ratio=7.0, bound="cube"),
            change=Change(0.0, 0.0, float("inf"), float("nan"), 4),
            trend=(1.0, float("nan"), 3.0),
        )
        for place, (text, kind) in enumerate(zip(texts, ["compute", "movement", "nonsense", "host"] * 2))
    ]
    shown, _ = ranked(rows)
    messages = (*(Message.of("{x}", x=text) for text in texts), Message("{broken"))
    return npu(
        rows=shown,
        host_rows=(),
        source=texts[0],
        syncs=tuple(Sync(text, 1.0, 5.0, Site(text, 1, text)) for text in texts),
        findings=tuple(
            Finding("x", message, "error", evidence=messages, advice=messages, ops=texts)
            for message in messages
        ),
        missing=messages,
        notes=messages,
        jitter=Jitter(9, 1.0, float("inf"), (Outlier(4, 1.0, 5.0, float("inf"), messages[0]),)),
    )


def many(rows: int = 500, seed: int = 0) -> HotspotsSnapshot:
    """Return a table of very many operators; another seed changes a tenth of them."""
    made = [
        Row(
            f"aten::op_{place}",
            "compute",
            1e6 / (place + 1) + (seed if place % 10 == 3 else 0),
            0,
            0,
            10 + place,
            max_us=1e5 / (place + 1),
            clock="host",
            uses=(Use("[1, 2]", "float32", 5, 3.0),),
            places=(Place("model.layers.1", "forward", 5, 3.0),),
            trend=(1.0, 2.0, 3.0),
        )
        for place in range(rows)
    ]
    return cpu(rows=ranked(made)[0])
