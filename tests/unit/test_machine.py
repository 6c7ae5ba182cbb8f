"""What the machine says of all cards: asked in a thread, found for one target, told where it matters."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.memory.cards import alarms, card_of
from ascend_tui_plugins.memory.collector import MemoryCollector
from ascend_tui_plugins.memory.live import machine

from ascend_tui.machine import Machine
from ascend_tui.plugin import Alert, Record
from ascend_tui.target import TargetId

MIB = 1 << 20
# Our own values in the layout of a 910B with two processes.
TABLE = """\
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 2     910B3               | Warning       | 301.2       88                0    / 0             |
| 0                         | 0000:81:00.0  | 97          0    / 0          52000/ 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 2       0                 | 4000000       | python                   | 30000                   |
| 2       0                 | 4000001       | vllm                     | 18000                   |
+===========================+===============+====================================================+
"""


def settle(machine_: Machine) -> list[tuple[str, Any]]:
    """Take until an answer comes."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        answers = machine_.take(1e9)
        if answers:
            return answers
        time.sleep(0.01)
    return []


@pytest.fixture
def npu_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program that plays npu-smi on the PATH: there is no card here to ask."""
    program = tmp_path / "npu-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{TABLE}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return program


def test_it_asks_in_a_thread_and_not_again_before_its_time() -> None:
    asked = []
    one = Machine([("memory", lambda: asked.append(1) or {"n": len(asked)})], every_s=1e6)  # type: ignore[func-returns-value]
    assert settle(one) == [("memory", {"n": 1})]
    assert one.take(1e9 + 1) == []
    assert one.take(1e9 + 2e6) == []
    assert settle(one) == [("memory", {"n": 2})]


def test_a_fault_costs_its_own_answer_only() -> None:
    one = Machine([("broken", lambda: 1 / 0), ("fine", lambda: {"x": 1})], every_s=0.0)  # type: ignore[arg-type, return-value]
    assert settle(one) == [("fine", {"x": 1})]
    assert "ZeroDivisionError" in one.faults["broken"]


def test_a_machine_without_the_command_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert machine() is None


def test_the_card_of_a_process_with_its_neighbours(npu_smi: Path) -> None:
    data = machine()
    assert data is not None
    card = card_of(data, 4_000_000)
    assert card is not None
    assert (card.name, card.temp_c, card.health) == ("910B3", 88.0, "Warning")
    assert (card.own_bytes, card.others_bytes, card.others) == (30000 * MIB, 18000 * MIB, 1)
    assert [severity for severity, _ in alarms(card)] == ["warning", "error"]
    # The only card is the target's also where its pid is not shown; of two, none is guessed.
    assert card_of(data, 77) is not None
    assert card_of({"cards": data["cards"] * 2}, 77) is None


@pytest.mark.parametrize(
    "data", [{}, {"cards": 3}, {"cards": [7, {}]}, {"cards": [{"processes": [{"pid": "x"}]}]}]
)
def test_hostile_answers_are_left_out(data: dict[str, Any]) -> None:
    card = card_of(data, 1)
    assert card is None or (card.own_bytes, card.others) in ((None, None), (None, 1))


def test_a_neighbour_on_the_card_is_external_and_a_hot_card_an_alert(npu_smi: Path) -> None:
    events: list[Any] = []
    collector, target = MemoryCollector(events.append), TargetId(4_000_000, 1)
    for step in range(200):
        reading = {
            "device": "npu:0",
            "rss_bytes": 50 * MIB,
            "allocated_bytes": 900 * MIB,
            "reserved_bytes": 1000 * MIB,
            "device_used_bytes": 19000 * MIB,
            "device_total_bytes": 65536 * MIB,
        }
        collector.on_record(target, Record(step, "memory", "step", step, step * 0.1, step * 0.1, reading))
        if step % 50 == 10:
            data = machine()
            assert data is not None
            collector.on_record(target, Record(0, "memory", "machine", step, 0.0, 0.0, data))
        collector.on_tick(step * 0.1)
    snapshot = collector.snapshot(target)
    assert snapshot.verdict.kind == "external"
    assert "1 other processes hold 17.6 GiB" in snapshot.verdict.reason.render()
    alerts = [(one.severity, one.category) for one in events if isinstance(one, Alert)]
    assert alerts.count(("warning", "device")) == alerts.count(("error", "device")) == 1
