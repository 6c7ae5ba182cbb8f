"""Where a step ends, and that our hook comes and goes without harm, with real optimizers."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch")
from torch.optim import optimizer as torch_optimizer  # noqa: E402

from ascend_tui.shim import steps as shim_steps  # noqa: E402
from ascend_tui.shim.scaler import ScalerHook  # noqa: E402
from ascend_tui.shim.steps import OptimizerHook, Steps, trampoline, undisturbed  # noqa: E402

POST = torch_optimizer._global_optimizer_post_hooks


class Watch:
    """Steps with its hooks in torch, and what it reported."""

    def __init__(self) -> None:
        self.boundaries = 0
        self.faults: list[str] = []
        self.cell: list[object] = [None]
        self.steps = Steps(self.at_boundary, self.faults.append)
        self.hook = OptimizerHook(self.cell)
        self.scaler = ScalerHook(self.steps)

    def at_boundary(self) -> None:
        self.boundaries += 1


@pytest.fixture
def watch() -> Iterator[Watch]:
    one = Watch()
    one.cell[0] = one.steps.on_optimizer
    assert one.hook.put_in_if_empty()
    one.scaler.put_in()
    yield one
    assert one.hook.take_out()
    assert one.scaler.take_out()
    assert not POST
    assert one.faults == []


def make(count: int = 1) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1) for _ in range(count)]


@contextmanager
def user_hook(call: object = None) -> Iterator[list[int]]:
    calls: list[int] = []

    def hook(optimizer: object, args: object, kwargs: object) -> None:
        calls.append(1)
        # A hook that runs Python: another thread may get its turn in the middle.
        for _ in range(30):
            len(calls)

    handle = torch_optimizer.register_optimizer_step_post_hook(call or hook)
    yield calls
    handle.remove()


def test_each_step_of_one_optimizer_is_one(watch: Watch) -> None:
    (one,) = make()
    for _ in range(7):
        one.step()
    assert (watch.steps.step, watch.steps.skipped, watch.boundaries) == (7, 0, 7)
    assert watch.steps.source == "optimizer"
    assert len(watch.steps.durations) == 6
    assert all(duration > 0 and not armed for duration, armed, _ in watch.steps.durations)


def test_two_optimizers_of_a_gan_are_one_step(watch: Watch) -> None:
    judge, maker = make(2)
    for _ in range(5):
        judge.step()
        maker.step()
    assert watch.steps.step == 5


def test_attach_between_the_two_optimizers_shifts_but_does_not_double(watch: Watch) -> None:
    judge, maker = make(2)
    maker.step()
    for _ in range(5):
        judge.step()
        maker.step()
    assert watch.steps.step == 6


def test_optimizer_per_parameter_is_one_step(watch: Watch) -> None:
    many = make(50)
    for _ in range(4):
        for one in many:
            one.step()
    assert watch.steps.step == 4


def test_fresh_optimizer_later_goes_on_counting(watch: Watch) -> None:
    first, second = make(2)
    for _ in range(3):
        first.step()
    for _ in range(4):
        second.step()
    # Its first step cannot be told from the second optimizer of a GAN.
    assert watch.steps.step == 6


def test_gradient_accumulation_is_one_step(watch: Watch) -> None:
    layer = torch.nn.Linear(2, 2)
    one = torch.optim.AdamW(layer.parameters())
    for _ in range(3):
        for _ in range(4):
            layer(torch.ones(1, 2)).sum().backward()
        one.step()
        one.zero_grad()
    assert watch.steps.step == 3


def test_closure_that_is_called_many_times_is_one_step(watch: Watch) -> None:
    layer = torch.nn.Linear(2, 1)
    one = torch.optim.LBFGS(layer.parameters(), max_iter=5)

    def closure() -> torch.Tensor:
        one.zero_grad()
        loss = layer(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        one.step(closure)
    assert watch.steps.step == 3


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """Forget what was compiled: in a process in which something is, later tests get no hooks of operators."""
    from torch._dynamo import utils

    yield
    torch._dynamo.reset()
    utils.counters.clear()


@pytest.mark.usefixtures("_forgotten")
def test_scheduler_and_compiled_step(watch: Watch) -> None:
    layer = torch.nn.Linear(2, 2)
    one = torch.optim.SGD(layer.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(one, 1)
    forward = torch.compile(lambda rows: layer(rows).sum(), backend="eager")
    for _ in range(3):
        forward(torch.ones(1, 2)).backward()
        one.step()
        schedule.step()
    assert watch.steps.step == 3


class Amp:
    """A model with a GradScaler on the CPU whose gradients are infinite where asked."""

    def __init__(self, enabled: bool = True, count: int = 1) -> None:
        self.layers = [torch.nn.Linear(2, 2) for _ in range(count)]
        self.optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in self.layers]
        self.scaler = torch.amp.GradScaler("cpu", enabled=enabled, init_scale=8.0)

    def iterate(self, *infinite: bool) -> None:
        for layer, optimizer, bad in zip(self.layers, self.optimizers, infinite):
            optimizer.zero_grad()
            loss = layer(torch.ones(1, 2)).sum() * (float("inf") if bad else 1.0)
            self.scaler.scale(loss).backward()
            self.scaler.step(optimizer)
        self.scaler.update()


def test_skipped_steps_are_attempts_and_counted_apart(watch: Watch) -> None:
    amp = Amp()
    for bad in (False, True, True, False, True, False):
        amp.iterate(bad)
    assert (watch.steps.step, watch.steps.skipped) == (6, 3)
    assert watch.boundaries == 6


def test_first_iteration_after_an_attach_may_skip_unseen(watch: Watch) -> None:
    amp = Amp()
    amp.iterate(True)
    amp.iterate(True)
    assert (watch.steps.step, watch.steps.skipped) == (1, 1)


def test_disabled_scaler_changes_nothing(watch: Watch) -> None:
    amp = Amp(enabled=False)
    for _ in range(4):
        amp.iterate(False)
    assert (watch.steps.step, watch.steps.skipped) == (4, 0)


def test_one_of_two_optimizers_skipped_is_one_step_not_skipped(watch: Watch) -> None:
    amp = Amp(count=2)
    amp.iterate(False, False)
    for pair in ((True, False), (False, True), (False, False), (True, False), (True, True), (False, False)):
        amp.iterate(*pair)
    assert (watch.steps.step, watch.steps.skipped) == (7, 1)


def test_unscale_without_step_is_no_attempt(watch: Watch) -> None:
    amp = Amp()
    amp.iterate(False)
    amp.scaler.scale(amp.layers[0](torch.ones(1, 2)).sum()).backward()
    amp.scaler.unscale_(amp.optimizers[0])
    amp.scaler.update()
    assert (watch.steps.step, watch.steps.skipped) == (1, 0)


def test_update_of_a_subclass_that_calls_its_base_counts_once(watch: Watch) -> None:
    class Mine(torch.amp.GradScaler):
        def update(self, new_scale: object = None) -> None:
            super().update(new_scale)

    watch.scaler._wrap(Mine)
    amp = Amp()
    amp.scaler = Mine("cpu", init_scale=8.0)
    for bad in (False, True, False):
        amp.iterate(bad)
    assert (watch.steps.step, watch.steps.skipped) == (3, 1)


def test_users_exception_from_update_passes(watch: Watch) -> None:
    amp = Amp()
    amp.iterate(False)
    with pytest.raises(AssertionError, match="No inf checks"):
        amp.scaler.update()
    amp.iterate(True)
    assert (watch.steps.step, watch.steps.skipped) == (2, 1)


def test_scaler_method_is_the_same_object_afterwards() -> None:
    before = vars(torch.amp.GradScaler)["update"]
    scaler = ScalerHook(Steps(lambda: None, pytest.fail))
    scaler.put_in()
    scaler.put_in()
    ours = vars(torch.amp.GradScaler)["update"]
    assert ours is not before
    assert ours.__name__ == "update"
    assert scaler.take_out()
    assert vars(torch.amp.GradScaler)["update"] is before


def test_scaler_wrapped_again_by_the_user_is_left_and_said() -> None:
    before = vars(torch.amp.GradScaler)["update"]
    scaler = ScalerHook(Steps(lambda: None, pytest.fail))
    scaler.put_in()
    ours = torch.amp.GradScaler.update
    torch.amp.GradScaler.update = lambda self, new_scale=None: ours(self, new_scale)
    assert not scaler.take_out()
    Amp().iterate(False)
    torch.amp.GradScaler.update = ours
    assert scaler.take_out()
    assert vars(torch.amp.GradScaler)["update"] is before


def test_boundary_from_two_threads_never_runs_twice_at_once() -> None:
    inside, worst = 0, 0

    def slow() -> None:
        nonlocal inside, worst
        inside += 1
        worst = max(worst, inside)
        time.sleep(0.001)
        inside -= 1

    steps = Steps(slow, pytest.fail)
    threads = [
        threading.Thread(target=lambda: [steps.on_optimizer(one) for one in make() * 30]) for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert worst == 1


def test_our_fault_is_reported_and_the_users_signal_is_not_swallowed() -> None:
    faults: list[str] = []
    steps = Steps(lambda: 1 / 0, faults.append)
    steps.on_optimizer(make()[0])
    assert "ZeroDivisionError" in faults[0]

    class TimeIsUp(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise TimeIsUp

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        steps = Steps(lambda: signal.raise_signal(signal.SIGUSR1), pytest.fail)
        (one,) = make()
        with pytest.raises(TimeIsUp):
            trampoline([steps.on_optimizer])(one, (), {})
        # The next boundary is not locked out.
        steps._at_boundary = lambda: None
        steps.on_optimizer(one)
        assert steps.step == 2
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_keyboard_interrupt_passes() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    steps = Steps(interrupt, pytest.fail)
    with pytest.raises(KeyboardInterrupt):
        trampoline([steps.on_optimizer])(make()[0], (), {})


def test_trampoline_holds_when_the_guard_itself_fails() -> None:
    def broken(text: str) -> None:
        raise RuntimeError(text)

    steps = Steps(lambda: 1 / 0, broken)
    cell = [steps.on_optimizer]
    trampoline(cell)(make()[0], (), {})
    assert cell == [None]


# Coming and going.


def test_put_in_if_empty_only_when_empty() -> None:
    hook = OptimizerHook([None])
    with user_hook():
        assert not hook.put_in_if_empty()
        assert hook.key is None
        assert hook.put_in()
        assert hook.take_out()
        assert len(POST) == 1
    assert hook.put_in_if_empty()
    assert hook.take_out()


def test_nothing_is_put_in_or_taken_out_while_a_thread_is_in_a_step() -> None:
    at, go = threading.Event(), threading.Event()

    def wait(optimizer: object, args: object, kwargs: object) -> None:
        at.set()
        go.wait(10)

    ours, other = OptimizerHook([None]), OptimizerHook([None])
    assert ours.put_in_if_empty()
    with user_hook(wait):
        thread = threading.Thread(target=make()[0].step)
        thread.start()
        assert at.wait(10)
        assert not ours.take_out()
        assert not other.put_in()
        go.set()
        thread.join()
        assert other.put_in()
        assert ours.take_out()
        assert other.take_out()
    assert not POST


def test_take_out_from_inside_only_as_the_last_hook() -> None:
    cell: list[object] = [None]
    hook = OptimizerHook(cell)
    answers = []
    cell[0] = lambda optimizer: answers.append(hook.take_out_from_inside())
    with user_hook() as calls:
        assert hook.put_in()
        with user_hook():
            make()[0].step()
        assert answers == [False]
        make()[0].step()
        assert answers == [False, True]
        assert hook.key is None
        make()[0].step()
        assert len(calls) == 3
    assert not POST


def test_hammering_with_other_hooks_present_never_harms_a_training() -> None:
    """Install and uninstall from another thread while a training with global hooks runs."""
    failures: list[BaseException] = []
    done = threading.Event()

    def train() -> None:
        optimizers = make(2)
        layer, rows = torch.nn.Linear(8, 8), torch.ones(8, 8)
        try:
            while not done.is_set():
                for one in optimizers:
                    layer(rows).sum().backward()
                    one.step()
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    cell: list[object] = [None]
    steps = Steps(lambda: None, lambda text: failures.append(RuntimeError(text)))
    cycles = refused = 0
    with user_hook() as first:
        hook = OptimizerHook(cell)
        trainers = [threading.Thread(target=train)]
        try:
            sys.setswitchinterval(1e-5)
            for one in trainers:
                one.start()
            end = time.monotonic() + 3
            with user_hook():
                while time.monotonic() < end and not failures:
                    cell[0] = steps.on_optimizer
                    while not hook.put_in() and time.monotonic() < end:
                        refused += 1
                    cell[0] = None
                    while not hook.take_out() and time.monotonic() < end:
                        refused += 1
                    cycles += 1
        finally:
            done.set()
            sys.setswitchinterval(interval)
            for one in trainers:
                one.join()
        hook.take_out()
    assert failures == []
    assert cycles >= 100, refused
    assert refused > 0
    assert len(first) > 20
    assert not POST


def test_undisturbed_keeps_no_frame_alive() -> None:
    import gc
    import weakref

    class Thing:
        pass

    def call() -> weakref.ref[Thing]:
        thing = Thing()
        undisturbed(lambda frame: False, [].append, 1)
        undisturbed(lambda frame: True, [].append, 1)
        return weakref.ref(thing)

    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()


def test_undisturbed_acts_once_or_not_at_all() -> None:
    acted: list[int] = []
    assert undisturbed(lambda frame: False, acted.append, 1)
    assert not undisturbed(lambda frame: True, acted.append, 2)
    assert acted == [1]


def test_torch_half_imported_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shim_steps.torch_module("torch.optim.optimizer", "register_optimizer_step_post_hook") is not None
    monkeypatch.setattr(torch.__spec__, "_initializing", True, raising=False)
    assert shim_steps.torch_module("torch.optim.optimizer") is None
    assert not OptimizerHook([None]).is_ready()
