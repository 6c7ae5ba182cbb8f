"""Memory that ran out, in the text of a log or as numbers of a live training: who held it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from ascend_tui_plugins.logs.from_files import read
from ascend_tui_plugins.logs.snapshot import Incident

from ascend_tui.judging.oom import OomNumbers, explain_oom
from ascend_tui.judging.oom_text import errors, is_oom

LOGS = Path(__file__).parent.parent / "corpus" / "logs"
"""Written for these tests, in the grammar of real ones."""
GIB = 1 << 30
MEANT = {
    "cuda_pieces.log": ["fragmentation"],
    "device_taken.log": ["external"],
    "npu_full.log": ["capacity"],
    "speaks_of_it.log": [],
}


def facts(incident: Incident) -> dict[str, object]:
    return {fact.name: fact.value for fact in incident.facts}


def test_logs_of_the_corpus() -> None:
    found = {path.name: read(path).incidents for path in sorted(LOGS.iterdir()) if path.name in MEANT}
    verdicts = {name: [facts(one)["verdict"] for one in told] for name, told in found.items()}
    assert verdicts == MEANT
    full = found["npu_full.log"][0]
    assert (full.count, full.ranks, full.devices, full.step) == (4, (2,), (2,), 311)
    (helps,) = full.advice
    assert "max_split_size_mb does not" not in full.headline.render()
    assert "does not: only" in helps.render()
    pieces = found["cuda_pieces.log"][0]
    assert (pieces.count, pieces.ranks) == (2, (0, 1))
    assert facts(pieces)["reserved_bytes"] == int(46.1 * GIB)
    assert "PYTORCH_CUDA_ALLOC_CONF" in pieces.advice[0].render()
    assert found["device_taken.log"][0].headline.render().startswith("EL0004")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("RuntimeError: NPU out of memory. Tried to allocate more than 1EB memory.", True),
        ("[1.0] Out of memory: Killed process 7 (python) total-vm:1kB", True),
        ("Malloc device memory failed, size[1024], ret[207001], Device 3 may be", True),
        (
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes",
            True,
        ),
        ("内存不足：申请 2.00 GiB 失败，设备 3", True),
        ("step 207001 loss 1.0 memory 3 GiB", False),
        ("set max_split_size_mb to avoid out of memory", False),
        ("registered hooks for OutOfMemoryError, OverflowError", False),
        ("allocated 3 GiB", False),
    ],
)
def test_what_is_an_error_and_what_only_speaks_of_one(line: str, expected: bool) -> None:
    assert is_oom(line) is expected


def test_an_error_that_every_layer_tells_again_is_one() -> None:
    text = [
        "[EXCEPTION] DEVICE(1,f,python):2031-09-13-15:29:07.465 [m.cc:62] Malloc device memory failed,"
        " size[21474836480], ret[207001], Device 4 may be other processes occupying this card",
        "[ERROR] DEVICE(1,f,python):2031-09-13-15:29:07.466 [k.cc:375] Init] Ascend error, error message:",
        "EE9999: Inner Error!",
        "        [driver interface] halMemAlloc failed: device_id=4, size=21474836480, type=2",
        "        Device malloc failed, size=21474836480, type=2.[FUNC:ReportError]",
    ]
    (error,) = errors(text)
    assert (error.count, error.device, error.numbers["requested_bytes"], error.others) == (
        1,
        4,
        20 * GIB,
        True,
    )


# The explanation, for files and for the live training alike.


def numbers(**gib: float) -> OomNumbers:
    return OomNumbers(**{f"{name}_bytes": int(value * GIB) for name, value in gib.items()}, device="npu:0")


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (numbers(requested=0.02, total=61, free=0.02, allocated=10.2, reserved=10.7), "external"),
        (numbers(requested=0.03, total=61, free=0.01, allocated=60.3, reserved=60.6), "capacity"),
        (numbers(requested=4, total=61, free=0.5, allocated=38, reserved=58), "fragmentation"),
        (
            numbers(requested=4, total=61, free=0.5, allocated=38, reserved=58, largest_free=2),
            "fragmentation",
        ),
        # What was asked for was there in one piece: then pieces are not why.
        (numbers(requested=1, total=61, free=0.5, allocated=38, reserved=58, largest_free=9), "undecided"),
        (numbers(requested=80, total=61, free=60, allocated=0.1, reserved=0.2), "capacity"),
        (numbers(requested=1, total=61, free=30, allocated=29.5, reserved=29.6, limit=30), "capacity"),
        (numbers(requested=1), "undecided"),
        (OomNumbers(), "undecided"),
    ],
)
def test_an_error_is_explained_by_its_numbers(told: OomNumbers, kind: str) -> None:
    assert explain_oom(told)[0] == kind


def test_a_leak_that_was_found_before_is_why() -> None:
    kind, reason, advice = explain_oom(
        numbers(requested=1, total=61, free=0, allocated=60, reserved=60.5), leak=True
    )
    assert kind == "leak"
    assert advice is not None
    assert "max_split_size_mb does not help" in advice.render()
    assert "leak" in reason.render()


def test_numbers_of_a_record_are_taken_only_where_they_are_numbers() -> None:
    data = {
        "total_bytes": 5,
        "free_bytes": "1",
        "reserved_bytes": True,
        "allocated_bytes": -1,
        "device": "npu:3",
    }
    assert OomNumbers.of(data) == OomNumbers(total_bytes=5, device="npu:3")
    assert OomNumbers.of({"total_bytes": math.nan, "free_bytes": math.inf, "x": 1}) == OomNumbers()
