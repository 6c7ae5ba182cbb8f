"""What is true of each training of tests/targets/memory.py, and what may be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1 << 20
LEAKS = frozenset({"leak", "host_leak"})
ONSET = 100
SOON = 300
"""Steps from the onset of a leak of 1 MB a step and more to its verdict: the target of the product."""


@dataclass(frozen=True)
class Truth:
    """What is right on one device.

    `right` are the verdicts that may stand at the end, and from `within` steps after the onset on; a leak is
    never to be seen where it is not right, but up to the step `leak_until`, where there is one for so long.
    One of `between` has to be said before that, where there is any.  `bytes_per_step` is planted, None
    where nothing grows for good.  `holds_host`: see `Watching`.
    """

    right: frozenset[str]
    within: int = SOON
    bytes_per_step: float | None = None
    leak_until: int | None = None
    between: frozenset[str] = frozenset()
    holds_host: bool = False

    @property
    def never(self) -> frozenset[str]:
        """The verdicts that are a false alarm."""
        return LEAKS - self.right


@dataclass(frozen=True)
class Case:
    """A training and its truth by device; one that is missing cannot show it, for the reason in `absent`."""

    name: str
    truths: Mapping[str, Truth]
    steps: int = 700
    period_ms: float = 15.0
    onset: int = ONSET
    lasts: int = 128
    target: str = ""
    neighbour_onset: int | None = None
    absent: str = ""
    is_healthy: bool = False


def both(npu: str, cpu: str, **more: object) -> dict[str, Truth]:
    """Return the truths of both devices, of verdicts set apart by spaces."""
    return {
        "npu": Truth(frozenset(npu.split()), **more),  # type: ignore[arg-type]
        "cpu": Truth(frozenset(cpu.split()), **more),  # type: ignore[arg-type]
    }


# On a CPU tensors and all else of the process are in one number, its resident memory: both words are right.
# It grows by more than is planted where what is kept lies between what is freed: glibc cannot give that back.
EITHER = "leak host_leak"
ACTIVATION = 1024 * 96 * 4.0
LOSS = 640 * 4.0 * (6 * 96 + 288 + 16)
ROWS = MIB * 1.0
ONE_CARD = "a CPU has no card that others could use"
NO_CACHE = "on a CPU there is no allocator whose segments could be pinned"

CASES = (
    Case("losses", both("leak", EITHER, bytes_per_step=LOSS)),
    Case("activations", both("leak", EITHER, bytes_per_step=3 * ACTIVATION)),
    Case("predictions", both("leak", EITHER, bytes_per_step=1024 * 288 * 4.0)),
    Case("dataset", both("host_leak", EITHER, bytes_per_step=ROWS)),
    # Workers are read once a second: steps as fast as the others' would leave five readings for 300 of them.
    Case("workers", both("host_leak", "host_leak", bytes_per_step=ROWS), period_ms=40.0),
    Case(
        "slow",
        {
            # The allocator adds 32 bytes and rounds up to 512.
            "npu": Truth(frozenset({"leak"}), 1000, 7680.0),
            # Resident memory grows by pages and has a noise of hundreds of kilobytes.
            "cpu": Truth(LEAKS, 4000, 7168.0),
        },
        steps=5000,
        period_ms=6.0,
    ),
    Case(
        "stops",
        both(
            "steady buffer_growth", "steady buffer_growth", within=128 + SOON, leak_until=ONSET + 128 + SOON
        ),
        steps=1000,
    ),
    Case(
        "stops late",
        {
            device: Truth(
                frozenset({"steady", "buffer_growth"}),
                400 + SOON,
                leak_until=ONSET + 400 + SOON,
                between=between,
            )
            for device, between in (("npu", frozenset({"leak"})), ("cpu", LEAKS))
        },
        steps=1300,
        target="stops",
        lasts=400,
    ),
    Case(
        "sequence",
        {
            "npu": Truth(frozenset({"steady", "buffer_growth", "cache"}), 320 + SOON, holds_host=True),
            # As long as it grows, resident memory looks like that of a leak.
            "cpu": Truth(
                frozenset({"steady", "buffer_growth", "cache"}), 320 + SOON, leak_until=ONSET + 320 + SOON
            ),
        },
        steps=1000,
    ),
    Case("workspace", both("steady buffer_growth", "steady buffer_growth")),
    Case(
        "staircase",
        {
            "npu": Truth(frozenset({"cache", "fragmentation"}), 480 + SOON),
            "cpu": Truth(frozenset({"steady", "cache", "buffer_growth"}), 480 + SOON),
        },
        steps=1000,
    ),
    Case(
        "pinned",
        {"npu": Truth(frozenset({"fragmentation"}))},
        steps=800,
        absent=NO_CACHE,
    ),
    Case(
        "external",
        {"npu": Truth(frozenset({"external"}), bytes_per_step=MIB)},
        target="calm",
        neighbour_onset=ONSET,
        absent=ONE_CARD,
    ),
    Case(
        "constant neighbour",
        {"npu": Truth(frozenset({"steady"}))},
        target="calm",
        neighbour_onset=-1,
        absent=ONE_CARD,
    ),
    Case("full", {"npu": Truth(frozenset({"capacity"}))}, absent="a CPU has no card that could be full"),
    Case("evaluation", both("steady cache", "steady cache buffer_growth", within=400), steps=1000),
    Case("checkpoint", both("steady", "steady", within=400), steps=800),
    Case("gpt", both("steady", "steady", within=600), steps=5000, period_ms=6.0, is_healthy=True),
    Case("conv", both("steady", "steady", within=600), steps=5000, period_ms=6.0, is_healthy=True),
    Case("scaler", both("steady", "steady", within=600), steps=5000, period_ms=6.0, is_healthy=True),
)
DEVICES = ("cpu", "npu")
