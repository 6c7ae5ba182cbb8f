"""Taps at the root of a backward and at a GradScaler's update, on real torch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from probed import Shim

torch = pytest.importorskip("torch")
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

ORIGINAL = torch.autograd.backward


@pytest.fixture
def shim() -> Iterator[Shim]:
    one = Shim()
    yield one
    one.end()
    assert torch.autograd.backward is ORIGINAL
    assert one.faults == []


def listen(shim: Shim, place: str = "loss", call: Any = None) -> tuple[Any, list[Any]]:
    seen: list[Any] = []
    tap = shim.probe().tap(place, call or (lambda *args: seen.append(args)))
    tap.on = True
    shim.probes.serve_taps()
    return tap, seen


def layer() -> tuple[Any, Any]:
    torch.manual_seed(1)
    net = torch.nn.Linear(3, 3)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def step(net: Any, optimizer: Any) -> float:
    optimizer.zero_grad()
    loss = net(torch.ones(2, 3)).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def test_the_function_is_ours_only_while_a_tap_is_on(shim: Shim) -> None:
    tap = shim.probe().tap("loss", lambda *args: None)
    shim.probes.serve_taps()
    assert torch.autograd.backward is ORIGINAL
    tap.on = True
    shim.probes.serve_taps()
    assert torch.autograd.backward is not ORIGINAL
    assert torch.autograd.backward.__name__ == "backward"
    tap.on = False
    shim.probes.serve_taps()
    assert torch.autograd.backward is ORIGINAL


def test_each_loss_comes_with_the_number_of_its_step(shim: Shim) -> None:
    _, seen = listen(shim)
    net, optimizer = layer()
    losses = [step(net, optimizer) for _ in range(3)]
    assert [(root.item(), number) for root, number in seen] == list(zip(losses, (1, 2, 3)))


def test_all_ways_of_calling_it(shim: Shim) -> None:
    _, seen = listen(shim)
    one, two = (torch.tensor(value, requires_grad=True) for value in (2.0, 3.0))
    torch.autograd.backward(one * 1)
    torch.autograd.backward([one * 2, two * 2])
    torch.autograd.backward(tensors=(two * 3,))
    torch.autograd.backward((one * 5).unsqueeze(0), torch.ones(1))
    (one * 4).backward(inputs=[one])
    # Not one number, or none of torch's plain tensors: nothing is told, and nothing is broken.
    torch.autograd.backward((one * torch.ones(2)), torch.ones(2))
    torch.autograd.backward(torch.nn.Parameter(torch.tensor(1.0)))
    assert [root.item() for root, _ in seen] == [2.0, 4.0, 6.0, 9.0, 10.0, 8.0]
    assert float(two.grad) == 2 + 3


def test_an_exception_of_the_trainings_backward_is_its_own(shim: Shim) -> None:
    _, seen = listen(shim)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.tensor(1.0).backward()
    with pytest.raises(TypeError):
        torch.autograd.backward()
    assert len(seen) == 1


def test_gradients_are_bit_identical_and_what_a_tap_computes_is_in_no_graph(shim: Shim) -> None:
    net, optimizer = layer()
    for _ in range(3):
        step(net, optimizer)
    wanted = [one.clone() for one in net.parameters()]
    made: list[Any] = []
    listen(shim, call=lambda root, number: made.append(root * 2))
    net, optimizer = layer()
    for _ in range(3):
        step(net, optimizer)
    assert all(torch.equal(*pair) for pair in zip(wanted, net.parameters()))
    assert [one.requires_grad for one in made] == [False] * 3
    assert torch.is_grad_enabled()


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Operators])
def test_a_mode_of_the_trainings_sees_what_it_sees_without_us(shim: Shim, mode: Any) -> None:
    def names() -> list[str]:
        net, optimizer = layer()
        with mode() as one:
            step(net, optimizer)
        return list(one.names)

    wanted = names()
    assert wanted
    read: list[list[float]] = []

    def look(root: Any, number: int) -> None:
        assert root.dtype == torch.float32
        shim.probes.readback.later([root.detach() * 2], read.append)

    listen(shim, call=look)
    assert names() == wanted
    assert len(read) == 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_backward_within_a_backward_of_a_checkpoint_is_no_loss(shim: Shim, reentrant: bool) -> None:
    _, seen = listen(shim)
    net, _ = layer()
    rows = torch.ones(2, 3, requires_grad=True)
    part = checkpoint(lambda one: net(one).sum(), rows, use_reentrant=reentrant)
    (part * 3).backward()
    assert [root.item() for root, _ in seen] == [pytest.approx(net(rows).sum().item() * 3)]


@pytest.mark.parametrize("place", ["loss", "scaler"])
def test_a_tap_that_raises_is_told_and_the_training_goes_on(shim: Shim, place: str) -> None:
    calls: list[int] = []

    def broken(*args: Any) -> None:
        calls.append(1)
        raise RuntimeError("ours")

    listen(shim, place, broken)
    net, optimizer = layer()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(2, 3)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert len(calls) == 1
    assert shim.probes.faults() == {"p": f"{place} tap: RuntimeError('ours')"}
    # The shim's thread takes the rest out.
    shim.probes.tick(0.0)
    assert torch.autograd.backward is ORIGINAL
    assert shim.steps.at_scaler is None


def test_a_fault_of_the_taps_themselves_ends_them_only(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    _, seen = listen(shim)
    net, optimizer = layer()

    def broken(roots: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(shim.probes.taps, "_show", broken)
    for _ in range(3):
        step(net, optimizer)
    assert seen == []
    assert [(one["plugin"], one["phase"]) for one in shim.events] == [("", "failed")]
    shim.probes.serve_taps()
    assert torch.autograd.backward is ORIGINAL
    assert shim.steps.step == 3


class TimeIsUp(Exception):
    """What a handler of the training's raises."""


def test_what_a_handler_of_the_trainings_raises_within_a_tap_is_the_trainings(shim: Shim) -> None:
    def handler(number: int, frame: object) -> None:
        raise TimeIsUp

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        tap, _ = listen(shim, call=lambda *args: signal.raise_signal(signal.SIGUSR1))
        net, optimizer = layer()
        with pytest.raises(TimeIsUp):
            step(net, optimizer)
        assert shim.probes.faults() == {}
        tap.on = False
        step(net, optimizer)
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_a_keyboard_interrupt_in_a_tap_is_the_trainings(shim: Shim) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    tap, _ = listen(shim, call=interrupt)
    net, optimizer = layer()
    with pytest.raises(KeyboardInterrupt):
        step(net, optimizer)
    assert not shim.board.quiet
    assert torch.is_grad_enabled()
    tap.on = False
    step(net, optimizer)


def test_what_a_tap_costs_is_in_the_cost_of_its_step(shim: Shim) -> None:
    import time

    net, optimizer = layer()
    step(net, optimizer)
    listen(shim, call=lambda *args: time.sleep(0.02))
    for _ in range(2):
        step(net, optimizer)
    shim.steps.settle()
    assert list(shim.steps.in_hook_ns)[-1] > 20_000_000
    assert shim.steps.aside_ns == 0


def test_a_function_that_somebody_wrapped_again_passes_through_and_is_said(shim: Shim) -> None:
    tap, seen = listen(shim)
    ours = torch.autograd.backward

    def theirs(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    torch.autograd.backward = theirs
    tap.on = False
    shim.probes.serve_taps()
    assert torch.autograd.backward is theirs
    net, optimizer = layer()
    step(net, optimizer)
    assert seen == []
    assert not shim.probes.taps.stop()
    # On again while it is still there, it is not put in a second time.
    tap.on = True
    shim.probes.serve_taps()
    assert torch.autograd.backward is theirs
    step(net, optimizer)
    assert len(seen) == 1
    torch.autograd.backward = ours
    tap.on = False
    shim.probes.serve_taps()


def test_a_scaler_tap_tells_scale_and_skips_with_their_steps(shim: Shim) -> None:
    _, seen = listen(shim, "scaler", None)
    seen.clear()
    net, optimizer = layer()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    told: list[tuple[float, bool, int]] = []
    for bad in (False, False, True, False, True, True, False):
        optimizer.zero_grad()
        loss = net(torch.ones(2, 3)).mean() * (float("inf") if bad else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        told += [(float(one[0]._scale), *one[1:]) for one in seen]
        seen.clear()
    # The first update after an attach may close an iteration of which only the end was seen.
    assert told == [
        (16.0, False, 2),
        (8.0, True, 3),
        (8.0, False, 4),
        (4.0, True, 5),
        (2.0, True, 6),
        (2.0, False, 7),
    ]
    assert (shim.steps.step, shim.steps.skipped) == (7, 3)


def test_a_disabled_scaler_tells_nothing(shim: Shim) -> None:
    _, seen = listen(shim, "scaler")
    net, optimizer = layer()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(3):
        scaler.scale(net(torch.ones(2, 3)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert seen == []
    assert shim.steps.step == 3
