"""What an adapter asks, on which thread, and when it asks nothing.

The accelerator is a stand-in: there is none here.  It counts the calls that reach the driver.
"""

from __future__ import annotations

from typing import Any

import pytest

from ascend_tui.shim.agent import Agent
from ascend_tui.shim.devices import Accelerator, Device

GIB = 2**30
FIELDS = {"allocated_bytes", "active_bytes", "reserved_bytes", "rss_bytes"}


class Driver:
    """Stand in for torch.cuda or torch.npu."""

    def __init__(self) -> None:
        self.asked = 0
        self.capturing = False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def get_device_name(self, index: int | None) -> str:
        return "stand-in"

    def mem_get_info(self, index: int) -> tuple[int, int]:
        self.asked += 1
        return 3 * GIB, 4 * GIB


class Card(Accelerator):
    kind = "cuda"

    def _raw(self, index: int) -> dict[str, Any]:
        return {name: {"all": {"current": 7, "peak": 9}} for name in FIELDS - {"rss_bytes"}}

    def is_capturing(self) -> bool:
        return bool(self.module.capturing)


@pytest.fixture
def card() -> Any:
    made = Card(None, Driver())
    yield made
    made.close()


def test_shims_own_thread_never_reaches_the_driver(card: Card) -> None:
    found = card.memory()
    assert set(found) >= FIELDS
    assert "device_used_bytes" not in found
    assert card.module.asked == 0


def test_step_asks_the_driver_once(card: Card) -> None:
    found = card.decode(card.capture_at_step())
    assert (found["device_used_bytes"], found["device_total_bytes"]) == (GIB, 4 * GIB)
    assert (found["allocated_bytes"], found["allocated_peak_bytes"], found["device"]) == (7, 9, "cuda:0")
    assert card.module.asked == 1


def test_without_a_cache_nothing_is_counted_and_no_zero_is_given(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card, "uncached_by", "PYTORCH_NO_CUDA_MEMORY_CACHING")
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    # Set too late: the allocator has its cache.
    assert card.memory()["allocated_bytes"] == 7
    monkeypatch.setattr(Card, "_raw", lambda self, index: {})
    found = card.decode(card.capture_at_step())
    assert found["reuse"] == "off"
    assert not {name for name in found if name.startswith(("allocated", "active", "reserved"))}
    assert found["device_used_bytes"] == GIB
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "0")
    assert "reuse" not in card.memory()


def test_cpu_gives_the_same_at_a_step() -> None:
    device = Device()
    assert set(device.decode(device.capture_at_step())) == set(device.memory())
    device.close()


def test_nothing_of_ours_runs_at_a_boundary_inside_graph_capture(card: Card, tmp_path: Any) -> None:
    agent = Agent(str(tmp_path / "private" / "1.sock"), "test", None)
    agent.device.close()
    agent.device = card
    calls: list[int] = []
    source = "def setup(api):\n    api.on_step(lambda step: api.device.capture_at_step())\n"
    agent.probes.load("test", source, 1)
    agent.probes.loaded["test"].every_step.append(calls.append)
    agent.probes.refresh()
    agent.probes.tick(0.0)
    card.module.capturing = True
    agent.steps.on_optimizer(card)
    assert (card.module.asked, calls, agent.steps.step) == (0, [], 1)
    card.module.capturing = False
    agent.steps.on_optimizer(card)
    assert (card.module.asked, calls, agent.steps.step) == (1, [2], 2)
