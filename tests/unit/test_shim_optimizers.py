"""Hooks at optimizers: when they are called, with which gradients, and what the steps between cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from probed import Shim

torch = pytest.importorskip("torch")


@pytest.fixture
def shim() -> Iterator[Shim]:
    one = Shim()
    # Thinning follows the clock: these tests follow the steps.
    one.governor.budget = 1e9
    yield one
    one.end()
    assert one.faults == []


class Seen:
    """A hook at optimizers and what it saw: (step, optimizer, first gradient)."""

    def __init__(self, shim: Shim, done: bool = True) -> None:
        self.shim = shim
        self.calls: list[tuple[int, Any, float]] = []
        self.ends: list[int] = []
        self.hook = shim.probe().on_optimizer(self.call, self.ends.append if done else None)

    def call(self, optimizer: Any) -> None:
        grad = optimizer.param_groups[0]["params"][0].grad
        self.calls.append(
            (self.shim.steps.step + 1, optimizer, float("nan") if grad is None else float(grad[0]))
        )

    @property
    def steps(self) -> list[int]:
        return [step for step, _, _ in self.calls]


def make(count: int = 1) -> list[Any]:
    return [torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1) for _ in range(count)]


def step(optimizer: Any, grad: float = 1.0) -> None:
    (parameter,) = optimizer.param_groups[0]["params"]
    parameter.grad = torch.full((2,), grad)
    optimizer.step()


def test_it_is_called_where_the_step_ends_and_done_right_behind(shim: Shim) -> None:
    seen, (one,) = Seen(shim), make()
    step(one)
    seen.hook.arm(3, 60)
    step(one)
    for grad in (3.0, 4.0, 5.0, 6.0):
        step(one, grad)
    assert seen.calls == [(3, one, 3.0), (4, one, 4.0), (5, one, 5.0)]
    assert seen.ends == [3, 4, 5]
    assert not seen.hook.armed
    assert shim.steps.at_optimizer is None


def test_between_two_due_steps_the_calm_path_is_taken(shim: Shim) -> None:
    seen, (one,) = Seen(shim), make()
    for _ in range(3):
        step(one)
    seen.hook.arm(40, 60, every=10)
    shim.steps.wake()
    step(one)
    before = shim.boundaries
    shim.steps.settle()
    for _ in range(40):
        step(one)
    assert shim.steps.step == 44
    # Armed in step 4: live in the steps that begin at 10, 20, 30 and 40.
    assert seen.steps == [11, 21, 31, 41]
    # Of 40 steps 4 end with the choice of the next one, 4 with the look, and at 44 the lease is over.
    assert shim.boundaries - before == 2 * 4 + 1
    assert not seen.hook.armed
    assert len(shim.steps.settle()) == 40 - 9
    for _ in range(5):
        step(one)
    assert len(seen.calls) == 4
    assert len(shim.steps.settle()) >= 4


def test_the_step_that_is_due_is_kept_though_the_shims_thread_woke_the_training_meanwhile(shim: Shim) -> None:
    seen, (one,) = Seen(shim), make()
    step(one)
    seen.hook.arm(100, 60, every=8)
    for _ in range(30):
        shim.steps.wake()
        step(one)
    assert seen.steps == [9, 17, 25]
    assert seen.ends == [9, 17, 25]


def test_a_hook_that_is_armed_in_the_calm_comes_into_play_with_the_next_step(shim: Shim) -> None:
    slow, quick, (one,) = Seen(shim), Seen(shim), make()
    slow.hook.arm(1000, 60, every=100)
    for _ in range(4):
        step(one)
    quick.hook.arm(2, 60)
    # What the shim's thread does ten times a second.
    assert not shim.is_calm()
    shim.steps.wake()
    for _ in range(5):
        step(one)
    assert quick.steps == [6, 7]
    assert slow.steps == []


def test_a_disarmed_hook_sees_nothing_more(shim: Shim) -> None:
    seen, (one,) = Seen(shim), make()
    step(one)
    seen.hook.arm(10, 60)
    for _ in range(3):
        step(one)
    seen.hook.disarm()
    for _ in range(3):
        step(one)
    assert seen.steps == [3, 4]
    assert shim.steps.at_optimizer is None


def test_of_a_gan_both_are_seen_once_in_each_iteration(shim: Shim) -> None:
    seen, (judge, maker) = Seen(shim), make(2)
    step(judge)
    step(maker)
    seen.hook.arm(3, 60)
    for number in range(5):
        step(judge, 10.0 + number)
        step(maker, 20.0 + number)
    # A step ends at the first optimizer of an iteration: the second one belongs to the next.
    assert [(one is judge, grad) for _, one, grad in seen.calls] == [
        (False, 20.0),
        (True, 11.0),
        (False, 21.0),
        (True, 12.0),
        (False, 22.0),
        (True, 13.0),
    ]
    assert seen.steps == [3, 3, 4, 4, 5, 5]
    assert seen.ends == [3, 4, 5]


class Amp:
    """Parameters under a GradScaler, whose gradients are infinite where that is asked for."""

    def __init__(self, count: int = 1) -> None:
        self.optimizers = make(count)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def iterate(self, *infinite: bool) -> None:
        for optimizer, bad in zip(self.optimizers, infinite):
            optimizer.zero_grad()
            (parameter,) = optimizer.param_groups[0]["params"]
            loss = parameter.sum() * (float("inf") if bad else 1.0)
            self.scaler.scale(loss).backward()
            self.scaler.step(optimizer)
        self.scaler.update()


def test_a_step_that_a_scaler_skipped_is_shown_with_its_gradients(shim: Shim) -> None:
    seen, amp = Seen(shim), Amp()
    amp.iterate(False)
    amp.iterate(False)
    seen.hook.arm(10, 60)
    for bad in (False, True, False, True, True, False):
        amp.iterate(bad)
    assert seen.steps == [4, 5, 6, 7, 8]
    assert [grad for _, _, grad in seen.calls] == [float("inf"), 1.0, float("inf"), float("inf"), 1.0]
    assert seen.ends == seen.steps
    assert (shim.steps.step, shim.steps.skipped) == (8, 3)


def test_of_two_optimizers_under_one_scaler_each_is_shown_whether_it_stepped_or_not(shim: Shim) -> None:
    seen, amp = Seen(shim), Amp(2)
    first, second = amp.optimizers
    amp.iterate(False, False)
    amp.iterate(False, False)
    seen.hook.arm(10, 60)
    for pair in ((False, False), (True, False), (False, True), (True, True), (False, False)):
        amp.iterate(*pair)
    inf = float("inf")
    shown = [(one is first, grad) for _, one, grad in seen.calls]
    assert shown.count((True, inf)) == 2
    assert shown.count((False, inf)) == 2
    assert len(shown) == len(set(map(id, seen.calls))) == 9
    assert first is not second


def test_a_fault_ends_it_and_the_training_goes_on(shim: Shim) -> None:
    calls: list[int] = []

    def broken(optimizer: Any) -> None:
        calls.append(1)
        raise ValueError("ours")

    hook, (one,) = shim.probe().on_optimizer(broken), make()
    hook.arm(10, 60)
    for _ in range(4):
        step(one)
    assert calls == [1]
    assert shim.probes.faults() == {"p": "optimizer hook: ValueError('ours')"}
    assert shim.steps.step == 4
    assert shim.steps.at_optimizer is None


def test_a_fault_of_done_is_told_too(shim: Shim) -> None:
    def broken(number: int) -> None:
        raise ValueError("ours")

    hook, (one,) = shim.probe().on_optimizer(lambda optimizer: None, broken), make()
    hook.arm(10, 60)
    for _ in range(4):
        step(one)
    assert shim.probes.faults() == {"p": "optimizer hook: ValueError('ours')"}


def test_done_of_modules_and_operators_comes_where_their_step_ends(shim: Shim) -> None:
    api, calls = shim.probe(), []
    modules = api.on_module(lambda *args: calls.append("m"), done=lambda number: calls.append(("m", number)))
    ops = api.on_op(lambda *args: calls.append("o"), done=lambda number: calls.append(("o", number)))
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    modules.arm(2, 60)
    ops.arm(1, 60)
    for _ in range(4):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert [one for one in calls if one != "o"] == ["m", ("m", 2), ("o", 2), "m", ("m", 3)]
    assert calls.index("o") < calls.index(("o", 2))
    assert "o" not in calls[calls.index(("o", 2)) :]


def test_no_module_hook_is_registered_for_a_hook_at_optimizers(shim: Shim) -> None:
    module = torch.nn.modules.module
    seen, (one,) = Seen(shim), make()
    seen.hook.arm(5, 60)
    # Before a step was seen it is not known that there is an optimizer.
    shim.board.tick(100.0)
    shim.board.tick(110.0)
    assert not module._global_forward_hooks
    for _ in range(3):
        step(one)
    assert not module._global_forward_hooks
    assert seen.steps == [2, 3]
