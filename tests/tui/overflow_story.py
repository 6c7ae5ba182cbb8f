"""Snapshots of the overflow plugin: one of every kind, an empty one, and one that is hostile."""

from __future__ import annotations

import math
from typing import Any

from ascend_tui_plugins.overflow.snapshot import Incident, Level, Line, Output, OverflowSnapshot, Point

from ascend_tui.plugin import Command, Lease, Loaded, Message, Plugin

COMMANDS = (
    Command("gradients", "gradients", "under 1 % of a step", Lease(1_000_000, 30.0)),
    Command("modules", "modules", "about +1 %", Lease(2000, 3600.0), hotkey="o", slows=True),
    Command("ops", "drill down", "op level, 3 steps, +20 %", Lease(3, 600.0), hotkey="d", slows=True),
)
OVERFLOW = Loaded(
    "overflow",
    Plugin(
        "overflow",
        "Overflow",
        "",
        "ascend_tui_plugins.overflow.pane:OverflowPane",
        commands=COMMANDS,
        order=20,
    ),
)
LEVELS = (Level("loss", on=True), Level("gradients", on=True, every=10), Level("modules"), Level("ops"))
COMPILED = Message("the model is compiled (torch.compile), and a hook would compile it anew")
NORM = Output(
    10,
    "layers.12.mlp.norm",
    module_type="LayerNorm",
    op="aten::native_layer_norm",
    dtype="float16",
    shape=(8, 128, 1024),
    low=-12.1,
    high=14.2,
    near_share=0.0,
)
SOURCE = Output(
    12,
    "layers.12.mlp.up_proj",
    module_type="Linear",
    op="aten::addmm",
    dtype="float16",
    shape=(8, 128, 4096),
    low=-61440.0,
    high=48128.0,
    near_share=0.004,
    sources=(10,),
)
MASK = Output(
    13, "layers.12.attn", op="aten::masked_fill", dtype="float16", low=-math.inf, high=2.5, intended=True
)
FIRST = Output(
    14,
    "layers.12.mlp.act",
    module_type="GELU",
    op="aten::gelu",
    dtype="float16",
    shape=(8, 128, 4096),
    low=0.0,
    high=math.inf,
    near_share=0.001,
    bad_count=3,
    position=(0, 17, 33),
    sources=(12,),
)
CLIMB = tuple(Point(17_501 + n * 50, 48_128.0 + n * n * 41.086) for n in range(19))
STACK = (
    Line("/home/me/project/train.py", 160, "main"),
    Line("/home/me/project/train.py", 88, "train_epoch"),
    Line("/home/me/project/model.py", 41, "Mlp.forward"),
)


def inf(**changes: Any) -> Incident:
    """Return the incident of the picture: an Inf with its source, its window, and all there is to say."""
    fields: dict[str, Any] = {
        "kind": "inf",
        "severity": "error",
        "headline": Message.of("{value} in {place}", value="Inf", place="layers.12.mlp.act"),
        "step": 18_401,
        "first_step": 18_398,
        "count": 3,
        "level": "ops",
        "first_seen": FIRST,
        "source": SOURCE,
        "source_reason": Message.of("its output passed {value} in fp16", value="60,000"),
        "window": (NORM, SOURCE, MASK, FIRST),
        "climb": CLIMB,
        "stack": STACK,
        "evidence": (
            Message("every input of the activation was finite, and its output is not"),
            Message.of("the output before it was at {share} of the limit of fp16", share="93.8 %"),
        ),
        "advice": (Message("keep the up projection in fp32, or scale its weights down"),),
        "keep_fp32": 'with torch.autocast("npu", enabled=False):\n    up = self.up_proj(x.float())',
    }
    return Incident(**{**fields, **changes})


def climbing(**changes: Any) -> Incident:
    """Return a warning that an output nears its limit."""
    fields: dict[str, Any] = {
        "kind": "near_limit",
        "severity": "warning",
        "headline": Message("near limit"),
        "step": 17_900,
        "level": "modules",
        "first_seen": SOURCE,
        "source": SOURCE,
        "climb": CLIMB,
    }
    return Incident(**{**fields, **changes})


SKIPPED = Incident(
    "scale_search", "info", Message("GradScaler skipped a step (normal)"), 18_230, level="gradients"
)


def of_every_kind() -> tuple[Incident, ...]:
    """Return one incident of every kind, the oldest first."""
    nan, path = math.nan, "decoder.blocks.3.attn"
    half = {"dtype": "float16", "module_type": "Attention"}
    return (
        Incident("scale_search", "info", Message("GradScaler skipped a step (normal)"), 100),
        Incident(
            "masked_row",
            "error",
            Message("a row is masked"),
            200,
            first_seen=Output(1, path, low=nan, high=nan),
        ),
        Incident(
            "huge", "warning", Message("huge"), 300, first_seen=Output(1, path, high=2.5e31, dtype="bfloat16")
        ),
        Incident("underflow", "warning", Message("underflow"), 400, first_seen=Output(1, path, **half)),
        Incident(
            "saturated", "error", Message("clamped"), 500, first_seen=Output(1, path, high=65504.0, **half)
        ),
        Incident(
            "loss", "error", Message("loss is NaN"), 600, first_seen=Output(0, "", "loss", low=nan, high=nan)
        ),
        Incident(
            "gradient",
            "error",
            Message("gradient"),
            700,
            ranks=(0, 1, 2, 5),
            first_seen=Output(0, "decoder.blocks.3.attn.weight", "gradient", high=math.inf),
        ),
        Incident(
            "parameter",
            "fatal",
            Message("parameter"),
            800,
            first_seen=Output(0, "embed.weight", "parameter", low=nan, high=nan),
        ),
        Incident(
            "scale_collapse", "error", Message("the loss scale collapses: 65,536 to 2 in 40 steps"), 900
        ),
        Incident("divergence", "warning", Message("the loss climbs since step 850"), 1000),
        Incident(
            "nan",
            "error",
            Message("NaN"),
            1100,
            attribution="async",
            first_seen=Output(3, path, "input", low=nan, high=nan, **half),
            source=Output(3, path, "input", low=nan, high=nan, **half),
            source_reason=Message("its inputs were not watched"),
        ),
        climbing(step=1200, first_step=900),
        inf(step=1300, first_step=1290),
    )


def picture(**changes: Any) -> OverflowSnapshot:
    """Return the snapshot of the picture in the design."""
    fields: dict[str, Any] = {
        "state": "live",
        "incidents": (climbing(), SKIPPED, inf()),
        "levels": (LEVELS[0], LEVELS[1], Level("modules", on=True, every=10), LEVELS[3]),
        "steps_watched": 18_442,
        "loss": 2.314,
        "grad_norm": 1.204,
        "scale": 65_536.0,
        "skipped": 12,
        "hottest": (SOURCE, NORM),
    }
    return OverflowSnapshot(**{**fields, **changes})


def calm(**changes: Any) -> OverflowSnapshot:
    """Return a snapshot in which nothing is wrong."""
    return picture(**{"incidents": (), "levels": LEVELS, "skipped": 0, **changes})


def hostile() -> OverflowSnapshot:
    """Return a snapshot whose every text wants to be more than text."""
    path = "[red]\x1b[31m" + "模块.數\u202e" * 2500 + "[/red]\n[bold]end"
    one = Output(
        7,
        path,
        module_type="[link=x]T" * 900,
        op="aten::\x07op" * 900,
        dtype="\x1b]0;x\x07" * 99,
        high=math.inf,
    )
    incident = inf(
        headline=Message.of("Inf in {place}", place=path),
        first_seen=one,
        source=Output(6, path + "x", dtype="float16", low=-1e300, high=1e300, shape=tuple(range(99))),
        source_reason=Message.of("{x}", x=path),
        window=(one,) * 14,
        stack=(Line(path, 1, path),) * 40,
        evidence=(Message.of("{x}", x=path), Message("{broken")),
        keep_fp32=path * 3,
        ranks=tuple(range(0, 4000, 2)),
    )
    levels = (*LEVELS[:2], Level("modules", why=Message.of("{x}", x=path)))
    return picture(incidents=(incident,), levels=levels, notes=(Message.of("{x}", x=path),), hottest=(one,))
