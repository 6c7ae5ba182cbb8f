"""Numbers of a device are read when it has made them, in their order, and never waited for."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
from probed import Shim

torch = pytest.importorskip("torch")
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from ascend_tui.shim.readback import MOST_PENDING, Readback  # noqa: E402


class FarDevice:
    """What `tensor.device` says of a device whose work is as late as the test wants it."""

    type = "cuda"


FAR = FarDevice()


class Far(torch.Tensor):
    """Host memory that says of itself that it is a device's."""

    device = property(lambda self: FAR)  # type: ignore[assignment]


def far(value: float, dtype: Any = None) -> Any:
    return torch.tensor(value, dtype=dtype).as_subclass(Far)


class Event:
    """An event that has passed when the test says so."""

    made: ClassVar[list[Event]] = []

    def __init__(self) -> None:
        self.passed = False
        self.streams: list[Any] = []
        Event.made.append(self)

    def record(self, stream: Any) -> None:
        self.streams.append(stream)

    def query(self) -> bool:
        return self.passed


@pytest.fixture
def readback(monkeypatch: pytest.MonkeyPatch) -> Readback:
    Event.made = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream of", device))
    one = Readback()
    monkeypatch.setattr(one, "_host", lambda dtype, count: host_of(one, dtype, count))
    return one


def host_of(readback: Readback, dtype: Any, count: int) -> Any:
    # Page-locked memory needs a device: the rest of the method is the real one.
    with pytest.MonkeyPatch.context() as patch:
        empty = torch.empty
        patch.setattr(torch, "empty", lambda size, dtype, pin_memory: empty(size, dtype=dtype))
        return Readback._host(readback, dtype, count)


def test_on_the_host_the_values_are_there_at_once() -> None:
    one, got = Readback(), []
    tensors = [
        torch.tensor(1.5),
        torch.tensor([2.0]),
        torch.tensor(3.0, dtype=torch.float16),
        torch.tensor(4),
    ]
    one.later([*tensors, torch.tensor(1e300, dtype=torch.float64)], got.append)
    assert got == [[1.5, 2.0, 3.0, 4, 1e300]]
    assert not one.waits
    one.later([torch.tensor(math.nan), torch.tensor(-math.inf)], got.append)
    assert math.isnan(got[1][0])
    assert got[1][1] == -math.inf
    one.later([], got.append)
    assert got[2] == []
    # Numbers among them are values already.
    one.later([2.5, torch.tensor(3.5), -math.inf], got.append)
    assert got[3] == [2.5, 3.5, -math.inf]


def test_of_a_device_they_come_when_its_event_has_passed_and_not_before(readback: Readback) -> None:
    got: list[list[float]] = []
    readback.later([far(1.5), torch.tensor(2.5), far(-math.inf)], got.append)
    assert readback.waits
    readback.poll()
    assert got == []
    (event,) = Event.made
    assert event.streams == [("stream of", FAR)]
    event.passed = True
    readback.poll()
    assert got == [[1.5, 2.5, -math.inf]]
    assert not readback.waits
    readback.poll()
    assert len(got) == 1


def test_types_are_mixed_and_a_double_stays_one(readback: Readback) -> None:
    got: list[list[float]] = []
    values = [
        far(0.1, torch.float64),
        far(65504.0, torch.float16),
        far(3e38, torch.bfloat16),
        far(7, torch.int64),
    ]
    readback.later(values, got.append)
    Event.made[0].passed = True
    readback.poll()
    assert got[0][0] == 0.1
    assert got[0][1] == 65504.0
    assert got[0][2] == pytest.approx(3e38, rel=0.01)
    assert got[0][3] == 7


def test_the_oldest_comes_first_though_a_later_one_is_ready(readback: Readback) -> None:
    got: list[float] = []
    for number in (1.0, 2.0, 3.0):
        readback.later([far(number)], lambda values: got.append(values[0]))
    Event.made[1].passed = Event.made[2].passed = True
    readback.poll()
    assert got == []
    Event.made[0].passed = True
    readback.poll()
    assert got == [1.0, 2.0, 3.0]


def test_a_host_that_runs_ahead_loses_the_oldest_and_counts_it(readback: Readback) -> None:
    got: list[float] = []
    for number in range(MOST_PENDING + 3):
        readback.later([far(float(number))], lambda values: got.append(values[0]))
    assert readback.late == 3
    for event in Event.made:
        event.passed = True
    readback.poll()
    assert got == [float(number) for number in range(3, MOST_PENDING + 3)]


def test_the_memory_of_what_was_read_is_used_again_and_of_what_was_lost_never(readback: Readback) -> None:
    readback.later([far(1.0)], lambda values: None)
    first = readback._pending[0][1][0][1]
    assert len(first) == 16
    # While its copy is on the way it is nobody else's.
    readback.later([far(2.0)], lambda values: None)
    second = readback._pending[1][1][0][1]
    assert second is not first
    for event in Event.made:
        event.passed = True
    readback.poll()
    readback.later([far(3.0)], lambda values: None)
    used = readback._pending[0][1][0][1]
    assert used is first or used is second
    readback.later([far(0.0)] * 17, lambda values: None)
    assert len(readback._pending[1][1][0][1]) == 32
    for _ in range(MOST_PENDING):
        readback.later([far(0.0)], lambda values: None)
    assert readback.late == 2
    assert all(one is not used for kept in readback._idle.values() for one in kept)
    readback.close()
    assert not readback.waits
    assert readback._idle == {}


def test_what_is_called_may_ask_for_more(readback: Readback) -> None:
    got: list[float] = []

    def first(values: list[float]) -> None:
        got.append(values[0])
        readback.later([far(2.0)], lambda more: got.append(more[0]))

    readback.later([far(1.0)], first)
    Event.made[0].passed = True
    readback.poll()
    assert got == [1.0]
    Event.made[1].passed = True
    readback.poll()
    assert got == [1.0, 2.0]


class Functions(TorchFunctionMode):
    names: list[str]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    names: list[str]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Operators])
def test_no_mode_of_the_trainings_sees_it(readback: Readback, mode: Any) -> None:
    got: list[list[float]] = []
    host, device = torch.tensor(1.0, requires_grad=True), far(2.0)
    with mode() as one:
        one.names = []
        readback.later([host], got.append)
        readback.later([device, host], got.append)
        Event.made[0].passed = True
        readback.poll()
        assert one.names == []
    assert got == [[1.0], [2.0, 1.0]]
    assert torch.is_grad_enabled()


def test_a_call_that_raises_costs_its_probe_and_not_the_steps(
    readback: Readback, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = Shim()
    try:
        monkeypatch.setattr(shim.probes, "readback", readback)
        api, (one,) = shim.probe(), [torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)]
        one.step()

        def broken(values: list[float]) -> None:
            raise RuntimeError("ours")

        api.read_later([far(1.0)], broken)
        Event.made[0].passed = True
        shim.steps.wake()
        one.step()
        assert set(shim.probes.faults()) == {"p"}
        assert "RuntimeError('ours')" in shim.probes.faults()["p"]
        assert shim.faults == []
        one.step()
        assert shim.steps.step == 3
    finally:
        shim.end()
