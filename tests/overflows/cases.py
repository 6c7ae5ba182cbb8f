"""What is true of each training of tests/targets/overflow.py, and what may be said of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

ONSET = 60
CONSEQUENCES = frozenset({"scale_collapse"})
"""A step that is bad again and again halves the scale each time; that is said, too."""


@dataclass(frozen=True)
class Truth:
    """What is right on one device; an empty set is not asked about.

    The first serious incident has one of `kinds`; it names one of the paths in `first` and, once operators
    were looked at, one of `ops`, and its source is one of the paths in `source`, of an operator in
    `source_ops`.  `within` is how many steps after the onset it may come.  Of kinds in `also` there may be
    further errors.  Without kinds nothing may be said but infos, one of which is of `info`.
    `looks` is false where a drill-down comes too late to see what was first: the weights are spoilt by then.
    """

    kinds: frozenset[str] = frozenset()
    first: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()
    source: frozenset[str] = frozenset()
    source_ops: frozenset[str] = frozenset()
    position: tuple[int, ...] = ()
    attribution: frozenset[str] = frozenset({"exact", "likely"})
    within: int = 2
    also: frozenset[str] = CONSEQUENCES
    info: frozenset[str] = frozenset()
    looks: bool = True


@dataclass(frozen=True)
class Case:
    """A training and its truth by device; one that is missing cannot show it, for the reason in `absent`.

    `every` is how often modules are watched, 0 for not at all; `drills` asks for the operators by hand.
    """

    name: str
    truths: Mapping[str, Truth]
    steps: int = 260
    period_ms: float = 15.0
    onset: int = ONSET
    every: int = 1
    drills: bool = False
    ranks: int = 1
    target: str = ""
    absent: str = ""
    is_healthy: bool = False


def words(text: str) -> frozenset[str]:
    """Return words set apart by spaces; `-` is the empty one, of code outside of modules."""
    return frozenset("" if one == "-" else one for one in text.split())


def truth(kinds: str = "", first: str = "", ops: str = "", source: str = "", **more: object) -> Truth:
    """Return a truth of words set apart by spaces."""
    sets = {name: words(value) if isinstance(value, str) else value for name, value in more.items()}
    return Truth(words(kinds), words(first), words(ops), words(source), **sets)  # type: ignore[arg-type]


def everywhere(one: Truth, **saturating: object) -> dict[str, Truth]:
    """Return a truth of all devices; on the one that saturates what is given is otherwise."""
    sets = {name: words(value) if isinstance(value, str) else value for name, value in saturating.items()}
    return {"cpu": one, "npu": one, "910a": dataclasses.replace(one, **sets)}  # type: ignore[arg-type]


def unsaturated(one: Truth) -> dict[str, Truth]:
    """Return a truth of the devices that know infinities."""
    return {"cpu": one, "npu": one}


QUIET = Truth()
# On an NPU a product of matrices is one operator, which the CPU takes apart.
PRODUCTS = "aten::bmm aten::mm aten::matmul aten::addmm aten::linear aten::baddbmm"
CASTS = "aten::_to_copy npu::_npu_dtype_cast"
MLP, ATTENTION = "blocks.1.mlp", "blocks.1.attn"
FFN = truth(
    "inf",
    f"{MLP}.act",
    "aten::mul",
    f"{MLP}.up_proj",
    source_ops=f"{PRODUCTS} {CASTS}",
)
ROW = "a chip that saturates takes 3e38 and NaN for numbers like others"
CALM = {"cpu": QUIET, "npu": QUIET, "910a": QUIET}

CASES = (
    Case("ffn", everywhere(FFN, kinds="saturated")),
    # Some steps before, the activation is near the limit already.
    Case(
        "climb",
        everywhere(dataclasses.replace(FFN, within=62), kinds="saturated"),
        steps=320,
    ),
    Case("accumulation", everywhere(FFN, kinds="saturated"), period_ms=30.0),
    Case(
        "logits",
        everywhere(
            truth(
                "inf nan",
                f"{ATTENTION} {ATTENTION}.out_proj",
                PRODUCTS,
                f"{ATTENTION} {ATTENTION}.q_proj {ATTENTION}.k_proj",
            ),
            kinds="saturated",
            # No module's output is clamped: only after some skipped steps are the operators looked at.
            within=14,
        ),
    ),
    Case("reduction", everywhere(truth("inf", "pool", "aten::sum", "pool"), kinds="saturated")),
    Case(
        "dequantisation",
        everywhere(truth("inf", "blocks.3.down_proj", PRODUCTS, "blocks.2.down_proj"), kinds="saturated"),
    ),
    Case(
        "log_zero",
        everywhere(
            truth("inf loss", "-", "aten::log", "-", source_ops="aten::log aten::_softmax aten::gather"),
            kinds="saturated huge loss",
        ),
    ),
    Case(
        "loss_only",
        unsaturated(truth("nan loss", "-", "aten::div", "-", source_ops="aten::div aten::sum")),
        absent="0 / 0 is 0 on a chip that saturates",
    ),
    Case(
        "root",
        unsaturated(
            truth("gradient inf nan", "", "aten::div", "", source_ops="aten::div aten::sqrt", within=11),
        ),
        absent="infinity times 0 is 0 on a chip that saturates",
    ),
    Case(
        "bad_row",
        # A batch may not have that token.
        unsaturated(
            truth(
                "nan parameter",
                "tokens tokens.weight",
                "aten::embedding",
                "tokens tokens.weight",
                within=10,
                also="scale_collapse parameter",
            )
        ),
        absent=ROW,
    ),
    Case(
        "huge_row",
        unsaturated(
            truth(
                "inf nan huge parameter",
                f"{MLP}.up_proj {MLP}.up_proj.weight",
                PRODUCTS,
                f"{MLP}.up_proj {MLP}.up_proj.weight",
            )
        ),
        absent=ROW,
    ),
    Case(
        "inplace",
        unsaturated(
            truth(
                "nan",
                f"{MLP} {MLP}.act",
                "aten::index_put_",
                f"{MLP} {MLP}.act",
                source_ops="aten::index_put_",
                position=(1, 7, 3),
            )
        ),
        absent=ROW,
    ),
    Case(
        "sticky",
        unsaturated(
            truth("nan", f"{MLP} {MLP}.act", "", f"{MLP} {MLP}.act -", also="parameter", looks=False)
        ),
        absent=ROW,
    ),
    Case(
        "masked_row",
        unsaturated(
            truth(
                "masked_row",
                "blocks.0.attn blocks.0.attn.out_proj",
                "aten::_softmax aten::softmax",
                "blocks.0.attn",
                # A card casts between the two.
                source_ops=f"aten::_softmax aten::softmax aten::masked_fill {CASTS}",
            )
        ),
        absent="a softmax of nothing is 0 on a chip that saturates",
    ),
    Case("masked", CALM, drills=True),
    Case("search", everywhere(truth(info="scale_search"))),
    Case(
        "collapse",
        everywhere(truth("scale_collapse", within=40, also="")),
    ),
    Case(
        "divergence",
        unsaturated(truth("divergence", within=180, also="inf nan loss gradient parameter")),
        steps=420,
        absent="a loss that saturates climbs to the largest float",
    ),
    Case(
        "ranks",
        {"cpu": truth("inf nan", "Mlp hidden.0 -", "aten::copy_ -", also="parameter", looks=False)},
        ranks=4,
        absent="four of them take too long to start on a simulated card",
    ),
    Case("gpt", CALM, steps=5000, period_ms=6.0, every=10, is_healthy=True),
    Case("gpt_bfloat16", CALM, steps=5000, period_ms=6.0, every=10, is_healthy=True),
    Case(
        "conv",
        {"cpu": QUIET, "npu": QUIET},
        steps=5000,
        period_ms=6.0,
        every=10,
        is_healthy=True,
        absent="a convolution has no operator there that is simulated",
    ),
    Case("perceptron", CALM, steps=5000, period_ms=6.0, every=10, is_healthy=True),
)
DEVICES = ("cpu", "npu", "910a")
