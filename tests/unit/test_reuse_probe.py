"""The reuse switch in an agent of this process: what it calls, when, and that it always gives reuse back.

malloc_trim is glibc's own, on this very process.  The card is a stand-in, as there is none here: it keeps
what its allocator was told and in which order.  (On torch_npu and in trainings: tests/attach/test_reuse.py.)
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from ascend_tui.commands.manage import _action
from ascend_tui.plugin import Command, Lease, Plugin
from ascend_tui.shim import modes
from ascend_tui.shim import reuse as means
from ascend_tui.shim.agent import Agent
from ascend_tui.shim.api import Refused
from ascend_tui.shim.devices import Accelerator, Device, Npu
from ascend_tui.shim.hook import BURST_STEPS

ROOT = Path(__file__).parents[2]
PROBE = (ROOT / "plugins" / "memory" / "probe_reuse.py").read_text("utf-8")
GIB = 2**30
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc")


class Driver:
    """Stand in for torch.cuda: what was asked of the allocator, in `told`."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.free = 3 * GIB
        self.backend = "native"
        self.broken = ""
        self.enabled = True
        self.capturing = False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def get_device_name(self, index: int | None) -> str:
        return "stand-in"

    def mem_get_info(self, index: int | None) -> tuple[int, int]:
        return self.free, 4 * GIB

    def get_allocator_backend(self) -> str:
        return self.backend

    def empty_cache(self) -> None:
        self.told.append("empty")
        if self.broken == "empty":
            raise RuntimeError("ours")

    def caching_allocator_enable(self, value: bool = True) -> None:
        self.told.append(value)
        self.enabled = value


class Card(Accelerator):
    """A card whose allocator has 1 GiB reserved, of which a step uses 200 MiB."""

    kind = "cuda"
    uncached_by = "PYTORCH_NO_CUDA_MEMORY_CACHING"

    def _raw(self, index: int) -> dict[str, Any]:
        pools = {
            "allocated": (100 << 20, 300 << 20),
            "active": (100 << 20, 300 << 20),
            "reserved": (GIB, GIB),
        }
        return {
            f"{name}_bytes": {"all": {"current": current, "peak": peak}}
            for name, (current, peak) in pools.items()
        }

    def is_capturing(self) -> bool:
        return bool(self.module.capturing)

    def means(self, wanted: str = "") -> means.Means:
        return means.of_accelerator(self, getattr(self.module, "caching_allocator_enable", None))


class Machine:
    """An agent without its thread, whose steps and ticks are the test's."""

    def __init__(self, path: Path, device: Device) -> None:
        self.agent = Agent(str(path / "private" / "1.sock"), "test", None)
        self.agent.device.close()
        self.agent.device = device
        self.agent.probes.load("memory", PROBE, 1)

    def start(self, steps: int = 8, seconds: float = 60.0) -> dict[str, Any]:
        return self.agent.probes.start("memory", "reuse", {}, steps, seconds, {}, self, False)

    def stop(self) -> None:
        self.agent.probes.stop("memory", "reuse", "test")

    def step(self, count: int = 1, sleep_s: float = 0.0) -> None:
        for _ in range(count):
            time.sleep(sleep_s)
            self.agent.steps.wake()
            self.agent.steps.on_optimizer(self)

    def tick(self, now: float | None = None) -> None:
        self.agent.probes.tick(time.monotonic() if now is None else now)
        self.agent.switchboard.expire()

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the switch so far, as the shim's thread would make them now."""
        queued = [(kind, data) for _, kind, *_, data, _ in self.agent._queue]
        made = [data() if callable(data) else data for kind, data in queued if kind == "reuse"]
        self.agent._queue.clear()
        return made

    @property
    def faults(self) -> dict[str, str]:
        return dict(self.agent.probes.faults())


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    monkeypatch.setattr(means, "is_compile_in_use", lambda: False)
    made = Card(None, Driver())
    yield made
    made.close()


@pytest.fixture
def machine(card: Card, tmp_path: Path) -> Machine:
    return Machine(tmp_path, card)


# A switch that lasts: CUDA's.


def test_the_allocators_switch_is_off_in_the_leased_steps_and_on_after_them(
    machine: Machine, card: Card
) -> None:
    machine.step(2)
    assert machine.start(3)["result"] == {
        "how": "caching_allocator_enable",
        "says": "other processes on this card may take the memory given back",
    }
    assert card.module.told == []
    seen = []
    for _ in range(5):
        machine.step()
        seen.append(card.module.enabled)
    assert seen == [False, False, False, True, True]
    assert card.module.told == ["empty", False, "empty", False, "empty", False, True]
    machine.tick()
    assert card.module.enabled
    first, *_, last = machine.records()
    assert (first["state"], first["how"], first["why"]) == ("off", "caching_allocator_enable", "")
    assert last["state"] == "on"
    assert last["cost_us"] > 0
    assert machine.faults == {}


def test_while_it_is_off_torch_counts_nothing_and_no_number_of_it_is_given(
    machine: Machine, card: Card
) -> None:
    machine.start(3)
    assert "allocated_bytes" in card.memory()
    machine.step(2)
    now = card.decode(card.capture_at_step())
    # That word is for an environment that switched it off for good.
    assert "reuse" not in now
    assert not {name for name in now if name.startswith(("allocated", "active", "reserved", "inactive"))}
    assert now["device_used_bytes"] == GIB
    machine.stop()
    assert "allocated_bytes" in card.memory()


def end_by_stop(machine: Machine) -> None:
    machine.stop()


def end_by_time(machine: Machine) -> None:
    machine.tick(time.monotonic() + 61)


def end_by_orphan(machine: Machine) -> None:
    machine.agent.probes.orphan(machine, 5.0)
    machine.tick(time.monotonic() + 4)
    assert not machine.agent.device.module.enabled
    machine.tick(time.monotonic() + 6)


def end_by_detach(machine: Machine) -> None:
    machine.agent.probes.unload("memory")


def end_by_fault_of_the_shim(machine: Machine) -> None:
    machine.agent._step_fault("broken")
    machine.tick()


@pytest.mark.parametrize(
    "end", [end_by_stop, end_by_time, end_by_orphan, end_by_detach, end_by_fault_of_the_shim]
)
def test_reuse_comes_back_though_no_step_ends_any_more(machine: Machine, card: Card, end: Any) -> None:
    machine.start(BURST_STEPS)
    machine.step(3)
    machine.records()
    assert not card.module.enabled
    end(machine)
    assert card.module.enabled
    assert [one["state"] for one in machine.records()][-1] == "on"
    machine.step()
    assert card.module.enabled


def test_a_means_that_raises_is_told_and_leaves_the_cache_in_use(machine: Machine, card: Card) -> None:
    machine.start(BURST_STEPS)
    machine.step(2)
    assert not card.module.enabled
    card.module.broken = "empty"
    machine.step()
    machine.tick()
    assert "ours" in machine.faults["memory"]
    assert card.module.enabled
    told = list(card.module.told)
    machine.step(3)
    assert card.module.told == told


def test_a_stop_in_the_very_moment_of_the_switch_wins(machine: Machine, card: Card) -> None:
    machine.start(BURST_STEPS)

    def stopped_meanwhile() -> None:
        card.module.told.append("empty")
        machine.stop()

    card.module.empty_cache = stopped_meanwhile
    machine.step()
    assert card.module.enabled
    assert not card.counts_nothing


def test_without_room_for_a_step_the_cache_stays_and_is_emptied_instead(machine: Machine, card: Card) -> None:
    machine.start(BURST_STEPS)
    machine.step()
    assert not card.module.enabled
    # Half of the working memory of a step beside it, and the reserve of 256 MiB.
    card.module.free = (300 << 20) + means.SPARE_BYTES - 1
    machine.step(2)
    assert card.module.enabled
    assert card.module.told[-2:] == [True, "empty"]
    machine.stop()
    assert machine.records()[-1]["how"] == "empty_cache"
    assert "allocated_bytes" in card.memory()


def test_where_graphs_may_be_recorded_by_a_compiler_the_cache_is_only_emptied(
    machine: Machine, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(means, "is_compile_in_use", modes.is_compile_in_use)
    counters = {"frames": {"ok": 1}}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", type(sys)("utils"))
    monkeypatch.setattr(sys.modules["torch._dynamo.utils"], "counters", counters, raising=False)
    assert machine.start(5)["result"]["how"] == "empty_cache"
    machine.step(3)
    assert card.module.told == ["empty"] * 3


@pytest.mark.parametrize("backend", ["cudaMallocAsync", "pluggable"])
def test_of_other_allocators_only_what_they_can(machine: Machine, card: Card, backend: str) -> None:
    card.module.backend = backend
    if backend == "pluggable":
        with pytest.raises(Refused, match="an allocator of its own"):
            machine.start()
    else:
        assert machine.start()["result"]["how"] == "empty_cache"


def test_what_is_off_already_is_refused(
    machine: Machine, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    monkeypatch.setattr(Card, "_raw", lambda self, index: {})
    with pytest.raises(Refused, match="off already, by PYTORCH_NO_CUDA_MEMORY_CACHING"):
        machine.start()
    assert machine.faults == {}


def test_an_npu_has_no_such_switch(card: Card) -> None:
    # torch_npu has no caching_allocator_enable; a function of that name would not be used.
    npu = Npu.__new__(Npu)
    npu.module, npu.index = card.module, 0
    npu._raw = card._raw  # type: ignore[method-assign]
    assert npu.means().how == "empty_cache"


def test_another_device_ends_it_with_the_reason(machine: Machine, card: Card) -> None:
    machine.start(BURST_STEPS)
    machine.step()
    machine.agent.device = Device()
    machine.step()
    machine.tick()
    assert "another device" in machine.records()[-1]["why"]
    assert card.module.enabled
    machine.agent.device.close()


def test_a_second_start_prolongs_and_keeps_the_figures(machine: Machine) -> None:
    machine.start(2)
    machine.step(1, 0.001)
    machine.start(3)
    machine.step(5, 0.001)
    machine.tick()
    assert [step for record in machine.records() for step, _ in record["left"]] == [1, 2, 3, 4]


# What it costs.


def test_the_ratio_of_step_times_is_there_when_both_kinds_of_steps_are(machine: Machine, card: Card) -> None:
    machine.step(8, 0.004)
    card.module.empty_cache = lambda: time.sleep(0.008)
    machine.start(10)
    machine.step(1)
    (first,) = machine.records()
    assert first["slower"] is not None
    machine.step(10, 0.004)
    machine.tick()
    last = machine.records()[-1]
    assert last["state"] == "on"
    assert last["cost_us"] >= 8000
    assert 1.5 < last["slower"] < 6
    assert len(machine.agent.governor._unarmed) > 0


def space() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "probe"}
    exec(compile(PROBE, "probe_reuse.py", "exec"), names)
    return names


def test_noise_is_not_taken_for_a_cost_and_what_was_measured_is_not_lost_in_it() -> None:
    slower = space()["slower"]
    even = [0.10, 0.11, 0.12, 0.11, 0.10, 0.12]
    assert slower([], [], []) is None
    assert slower([0.2] * 9, [0.1] * 4, [1]) is None
    assert slower(even, even, [1_000_000]) == pytest.approx(1 + 0.001 / 0.11)
    assert slower([0.01] * 9, even, [1_000_000]) == pytest.approx(1 + 0.001 / 0.11)
    assert slower([0.2, 0.21, 0.2, 0.21, 0.2], even, [1_000_000]) == pytest.approx(0.2 / 0.11)


# malloc_trim, on this process.


@needs_glibc
def test_malloc_trim_gives_the_heap_back_and_says_how_much(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Device())
    machine.step()
    # Half of it freed, block by block, below blocks that stay: the heap keeps it all.
    blocks = [bytearray(8000) for _ in range(8000)]
    kept = blocks[::2] + blocks[-1:]
    del blocks
    before = machine.agent.device.memory()["rss_bytes"]
    assert machine.start(3)["result"] == {"how": "malloc_trim", "says": ""}
    machine.step(2)
    machine.stop()
    off, on = machine.records()
    assert (off["state"], on["state"]) == ("off", "on")
    assert on["returned_bytes"] > 8 << 20
    assert before - on["left"][0][1] > 8 << 20
    assert kept
    machine.agent.device.close()


OTHER_MALLOC = (
    "#include <stddef.h>\nvoid *__libc_malloc(size_t);\nvoid *malloc(size_t n) { return __libc_malloc(n); }\n"
)
ASKS = """
import ctypes
from ascend_tui.shim.devices import Device
try:
    print(Device().means().how)
except LookupError as error:
    print(error)
"""


@needs_glibc
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_malloc_that_is_not_glibcs_is_not_trimmed(tmp_path: Path) -> None:
    source, library = tmp_path / "other.c", tmp_path / "libothermalloc.so"
    source.write_text(OTHER_MALLOC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    said = {}
    for name, env in (("glibc", {}), ("other", {"LD_PRELOAD": str(library)})):
        done = subprocess.run(
            [sys.executable, "-c", ASKS], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
        )
        said[name] = done.stdout.strip() or done.stderr
    assert said["glibc"] == "malloc_trim"
    assert said["other"] == "its malloc is of libothermalloc.so; only glibc's can be trimmed"


# A graph that is recorded.


def test_it_does_not_begin_while_the_training_records_a_graph_and_skips_such_steps(
    machine: Machine, card: Card
) -> None:
    card.module.capturing = True
    machine.start(5)
    machine.step()
    machine.tick()
    assert "records a graph" in machine.records()[-1]["why"]
    assert card.module.told == [True]
    card.module.capturing = False
    machine.start(5)
    machine.step(2)
    told = list(card.module.told)
    card.module.capturing = True
    machine.step()
    assert card.module.told == told
    card.module.capturing = False
    machine.step()
    assert card.module.told == [*told, "empty", False]


def test_a_reading_after_a_step_does_not_hold_what_was_given_back_there(machine: Machine, card: Card) -> None:
    order: list[str] = []
    card.module.empty_cache = lambda: order.append("empty")
    machine.agent.probes.loaded["memory"].every_step.append(lambda step: order.append("reading"))
    machine.agent.probes.refresh()
    machine.start(2)
    machine.step(2)
    assert order == ["empty", "reading", "empty", "reading"]


def test_the_record_of_the_end_says_why(machine: Machine) -> None:
    machine.start(5)
    machine.step(2)
    machine.stop()
    assert machine.records()[-1]["why"] == "stopped by test"
    machine.start(2)
    machine.step(3)
    machine.tick()
    assert machine.records()[-1]["why"] == "lease over"


def test_a_shim_that_gives_up_gives_reuse_back(
    machine: Machine, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.start(5)
    machine.step(2)
    assert not card.module.enabled

    def broken(until: float) -> None:
        raise RuntimeError("the shim itself")

    monkeypatch.setattr(machine.agent, "_loop", broken)
    monkeypatch.setattr(machine.agent, "_take_hooks_out", list)
    machine.agent._run()
    assert card.module.enabled


def test_do_knows_the_words_of_a_command() -> None:
    lease = Lease(1, 1.0)
    own = Command("reuse", "title", "cost", lease, words=("off", "on"))
    plugin = Plugin(
        name="p", title="P", collector="c", pane="p", commands=(own, Command("x", "t", "c", lease))
    )
    assert [_action(plugin, "reuse", word) for word in ("", "off", "start")] == ["start"] * 3
    assert [_action(plugin, "reuse", word) for word in ("on", "stop")] == ["stop"] * 2
    with pytest.raises(ValueError, match=r"\[start\|stop\|off\|on\]"):
        _action(plugin, "reuse", "sideways")
    with pytest.raises(ValueError, match=r"\[start\|stop\] "):
        _action(plugin, "x", "off")
