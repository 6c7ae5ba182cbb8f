"""What is true of each training of tests/targets/hotspots.py, and what may be said of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

DEVICES = ("cpu", "npu")
GRAVE = ("warning", "error", "fatal")


@dataclass(frozen=True)
class Truth:
    """What is right on one device; what is empty is not asked about.

    One finding has one of the `rules`; a warning or worse of a rule that is neither there nor in `may` is
    wrong.  A synchronising call whose name has one of the words in `syncs` is told at the line of the
    training that ends in `# here`, `sync_calls` times a step (0: at least once); one
    that is not `placed` may lack its line.  `calls` are calls of
    operators in a step.  `data` asks for the share of the wait for data, within ten points; `changed` for the
    operator that became slower at the onset, by at least `slower` times; `outliers` for the planted steps,
    and for a cause with one of the words in `causes`; `idle` for the limits of the device's idle share;
    `shapes` for an operator that had several sets of shapes; `average_us` for the average time of rows with
    such a name, planted in the simulated device.
    """

    rules: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    syncs: frozenset[str] = frozenset()
    sync_calls: float = 0.0
    placed: bool = True
    calls: Mapping[str, int] = field(default_factory=dict)
    data: bool = False
    changed: str = ""
    slower: float = 1.5
    outliers: bool = False
    causes: frozenset[str] = frozenset()
    idle: tuple[float, float] | None = None
    shapes: str = ""
    average_us: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A training and its truth by device; one that is missing cannot show it, for the reason in `absent`.

    `every` is how often a step is looked at, `samples` how many are to be there before it is judged, `steps`
    how many steps have to be seen.  `costs` are the times of kernels on the simulated device.  A training
    that `prints` has lines of its own profiler in its output.  `profiles` is how often key `p` is pressed.
    `target` is another name in the target's file; `mspti` whether msPTI is loaded on the NPU,
    `sites` whether lines can be looked for.
    """

    name: str
    truths: Mapping[str, Truth]
    every: int = 7
    samples: int = 6
    steps: int = 0
    costs: str = ""
    absent: str = ""
    prints: bool = False
    profiles: int = 1
    target: str = ""
    mspti: bool = True
    sites: bool = True
    is_healthy: bool = False


def words(text: str) -> frozenset[str]:
    """Return words set apart by spaces."""
    return frozenset(text.split())


def truth(rules: str = "", may: str = "", syncs: str = "", causes: str = "", **more: object) -> Truth:
    """Return a truth of words set apart by spaces."""
    sets = {"rules": words(rules), "may": words(may), "syncs": words(syncs), "causes": words(causes)}
    return Truth(**sets, **more)  # type: ignore[arg-type]


def everywhere(one: Truth, **npu: object) -> dict[str, Truth]:
    """Return a truth of both devices; on the NPU what is given is otherwise."""
    return {"cpu": one, "npu": dataclasses.replace(one, **npu)}  # type: ignore[arg-type]


READS = "item _local_scalar_dense is_nonzero"
LAYERS = 9
"""Linear layers of the small GPT."""
GPT = {"aten::linear": LAYERS, "aten::embedding": 1, "aten::scaled_dot_product_attention": 2}
HOST = words("host_bound syncs")
"""The simulated device is faster than its host: that a small training is host-bound there is no fault."""
NO_CONVOLUTION = "a convolution has no operator there that is simulated"

CASES = (
    Case(
        "gpt",
        everywhere(truth(calls=GPT), may=HOST),
        samples=10,
        costs="*=400us",
        is_healthy=True,
    ),
    Case(
        "conv",
        {"cpu": truth(calls={"aten::conv2d": 5, "aten::batch_norm": 4})},
        samples=10,
        absent=NO_CONVOLUTION,
        is_healthy=True,
    ),
    Case(
        "perceptron",
        everywhere(truth(calls={"aten::linear": 3, "aten::gelu": 2}), may=HOST, average_us={"Addmm": 3000.0}),
        samples=10,
        costs="aclnnAddmm=3ms;aclnnMm=3ms;*=400us",
        is_healthy=True,
    ),
    Case("item", everywhere(truth(syncs=READS, sync_calls=1.0), may=HOST)),
    Case("nonzero", everywhere(truth(syncs="nonzero", sync_calls=2.0), may=HOST)),
    Case("mask", everywhere(truth(syncs="nonzero index masked_select", sync_calls=1.0), may=HOST)),
    Case("branch", everywhere(truth(syncs=READS, sync_calls=1.0), may=HOST)),
    Case("floats", everywhere(truth(syncs=READS, sync_calls=1.0), may=HOST)),
    Case("prints", everywhere(truth(syncs=f"{READS} masked_select print", placed=False), may=HOST)),
    Case("loader", everywhere(truth("data_wait", data=True), may=HOST)),
    Case("workers", {"cpu": truth("data_wait", data=True)}, absent="a fork under torch_npu is not supported"),
    Case("casts", everywhere(truth("cast_storm"), may=HOST)),
    Case("transposes", everywhere(truth("tiny_moves", may="movement"), may=HOST)),
    Case(
        "dynamic",
        everywhere(truth("dynamic_shapes", shapes="aten::embedding"), may=HOST),
        profiles=6,
    ),
    Case(
        "grows",
        everywhere(truth("slower", changed="aten::bmm"), may=HOST, changed="BatchMatMul"),
    ),
    Case(
        "host_bound",
        {"npu": truth("host_bound", idle=(0.5, 1.0))},
        costs="*=5us",
        absent="a CPU is its own host",
    ),
    Case(
        "device_bound",
        {"npu": truth(syncs=READS, sync_calls=1.0, idle=(0.0, 0.35))},
        costs="*=3ms",
        absent="a CPU is its own host",
    ),
    Case(
        "unloaded",
        {"npu": truth(calls=GPT, may="other_phase")},
        target="gpt",
        mspti=False,
        absent="a CPU has no msPTI",
    ),
    Case("checkpoints", everywhere(truth("jitter", outliers=True), may=HOST), steps=420),
    Case("garbage", everywhere(truth("jitter", outliers=True, causes="collector"), may=HOST), steps=420),
    Case(
        "two_optimizers",
        everywhere(truth(calls={"aten::linear": 7}, may="python"), may=HOST),
    ),
    Case(
        "accumulation",
        everywhere(truth(calls={"aten::linear": 4 * LAYERS, "aten::embedding": 4}), may=HOST),
    ),
    Case("compiled", {"cpu": truth(may="python")}, sites=False, absent="torch.compile is not simulated"),
    Case("profiler", everywhere(truth(), may=HOST), samples=2, steps=300, prints=True),
    Case("profiler_inside", everywhere(truth(), may=HOST), samples=4, steps=300, prints=True),
    Case(
        "forks",
        {"cpu": truth(calls=GPT, may="data_wait python")},
        absent="a fork under torch_npu is not supported",
    ),
    Case("ranges", everywhere(truth(calls=GPT), may=HOST)),
)


def case(name: str) -> Case:
    """Return the case of this name."""
    return next(one for one in CASES if one.name == name)
