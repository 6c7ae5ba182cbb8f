"""Module hooks and the dispatch mode on real torch: armed, thinned, ended, and never in the way."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils import _python_dispatch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from ascend_tui.shim import hooks as shim_hooks  # noqa: E402
from ascend_tui.shim.governor import Governor  # noqa: E402
from ascend_tui.shim.hook import Hook  # noqa: E402
from ascend_tui.shim.hooks import Switchboard  # noqa: E402
from ascend_tui.shim.modes import BottomMode, make_mode, refusal  # noqa: E402
from ascend_tui.shim.modules import ModulePaths, is_at_a_modules_hooks  # noqa: E402
from ascend_tui.shim.steps import OptimizerHook, Steps  # noqa: E402

GLOBAL = torch.nn.modules.module


def registered() -> tuple[int, int]:
    return len(GLOBAL._global_forward_pre_hooks), len(GLOBAL._global_forward_hooks)


def stack() -> list[Any]:
    return _python_dispatch._get_current_dispatch_mode_stack()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert registered() == (0, 0)
    assert stack() == []
    assert not sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks


class Board:
    """The parts an agent joins, on this thread, with one probe."""

    def __init__(self) -> None:
        self.cell: list[Any] = [None]
        self.faults: list[tuple[Any, str, Exception]] = []
        self.step_faults: list[str] = []
        self.governor = Governor()
        self.steps = Steps(self.at_boundary, self.step_faults.append)
        self.board = Switchboard(self.steps, self.governor, self.fault)
        self.hook = OptimizerHook(self.cell)
        self.probe = SimpleNamespace(name="p", failed=None)
        self.seen: list[Any] = []
        assert self.hook.put_in_if_empty()
        self.cell[0] = self.steps.on_optimizer

    def at_boundary(self) -> None:
        self.board.at_boundary(0)

    def fault(self, probe: Any, where: str, error: Exception) -> None:
        self.faults.append((probe, where, error))
        for hook in self.board.hooks:
            if hook.probe is probe:
                hook.retire()

    def add(
        self,
        kind: str,
        after: Callable[..., Any] | None = None,
        before: Callable[..., Any] | None = None,
        rest: Callable[[int], Any] | None = None,
    ) -> Hook:
        hook = Hook(self.probe, kind, after or (lambda *args: self.seen.append(args[0])), before, rest)
        self.board.hooks = [*self.board.hooks, hook]
        return hook


@pytest.fixture
def board() -> Iterator[Board]:
    one = Board()
    yield one
    for hook in one.board.hooks:
        hook.disarm()
    one.board.at_boundary(0)
    one.board.take_out_mode()
    one.hook.take_out()
    assert one.step_faults == []


class Training:
    """A small model with fixed numbers; `digest` is over all its parameters."""

    def __init__(self, model: nn.Module | None = None, rows: torch.Tensor | None = None) -> None:
        torch.manual_seed(7)
        self.model = model or nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4, 4))
        self.rows = torch.randn(3, 4) if rows is None else rows
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(
        self, count: int = 1, around: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None
    ) -> None:
        for _ in range(count):
            self.optimizer.zero_grad()
            out = around(self.model, self.rows) if around else self.model(self.rows)
            out.square().mean().backward()
            self.optimizer.step()

    def digest(self) -> str:
        return hashlib.sha256(
            b"".join(one.detach().numpy().tobytes() for one in self.model.parameters())
        ).hexdigest()


def undisturbed_digest(count: int, **more: Any) -> str:
    training = Training(**{key: value for key, value in more.items() if key != "around"})
    training.step(count, more.get("around"))
    return training.digest()


# Arming and ending.


def test_off_is_unregistered_and_a_lease_of_steps_counts_whole_steps(board: Board) -> None:
    hook, training = board.add("module"), Training()
    training.step(3)
    assert registered() == (0, 0)
    hook.arm(2, 60)
    assert registered() == (0, 0)
    training.step()
    assert registered() == (1, 1)
    assert board.seen == []
    assert hook.until_step == 6
    training.step()
    assert len(board.seen) == 5
    training.step()
    assert registered() == (0, 0)
    training.step(2)
    assert len(board.seen) == 10
    assert not hook.armed
    assert not hook.live


def test_rearming_prolongs(board: Board) -> None:
    hook, training = board.add("module"), Training()
    hook.arm(1, 60)
    training.step()
    hook.arm(3, 60)
    training.step(5)
    assert len(board.seen) == 4 * 5


def test_disarm_ends_at_once_and_unregisters_at_the_boundary(board: Board) -> None:
    hook, training = board.add("module"), Training()
    hook.arm(100, 60)
    training.step(2)
    count = len(board.seen)
    hook.disarm()
    training.step()
    assert len(board.seen) == count
    assert registered() == (0, 0)


def test_seconds_end_it_though_no_step_ever_ends_again(board: Board) -> None:
    hook, training = board.add("module"), Training()
    hook.arm(1000, 0.05)
    training.step()
    training.model(training.rows)
    assert board.seen
    time.sleep(0.06)
    count = len(board.seen)
    training.model(training.rows)
    assert len(board.seen) == count
    assert registered() == (0, 0)
    assert not hook.armed


def test_shims_thread_ends_it_when_no_module_is_called_again(board: Board) -> None:
    hook, training = board.add("module"), Training()
    hook.arm(1000, 0.01)
    training.step()
    time.sleep(0.02)
    thread = threading.Thread(target=board.board.expire)
    thread.start()
    thread.join()
    assert registered() == (0, 0)
    board.board.expire()
    assert not hook.live


def test_hooks_of_others_keep_the_shims_thread_from_removing_where_torch_walks_them(board: Board) -> None:
    hook, training = board.add("module"), Training()
    other = GLOBAL.register_module_forward_hook(lambda module, inputs, output: None)
    results = []

    class Broken(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            raise ValueError("the user's own")

    hook.arm(1000, 60)
    training.step()
    hook.disarm()

    def remove() -> None:
        results.append(board.board.drop_module_hooks(from_afar=True))

    # Between a module's forward and the end of _call_impl nobody may take ours out from afar.
    thread = threading.Thread(target=remove)
    frame = SimpleNamespace(f_code=SimpleNamespace(co_name="_call_impl"), f_back=None)
    assert is_at_a_modules_hooks(frame)
    inner = SimpleNamespace(f_code=SimpleNamespace(co_name="inner"), f_back=frame)
    assert not is_at_a_modules_hooks(SimpleNamespace(f_code=SimpleNamespace(co_name="forward"), f_back=inner))
    thread.start()
    thread.join()
    assert results == [True]
    assert registered() == (0, 1)
    with pytest.raises(ValueError, match="the user's own"):
        Broken()(training.rows)
    other.remove()


def test_every_and_thinning(board: Board) -> None:
    hook, training = board.add("module"), Training()
    board.governor.budget = 1e9
    hook.arm(100, 60, every=5)
    training.step(41)
    assert len(board.seen) == 5 * 8
    board.seen.clear()
    board.governor.budget, board.governor.thinning = 0.0, 4
    burst = board.add("module", lambda *args: board.seen.append("burst"))
    burst.arm(10, 60)
    training.step(20)
    # Ten steps asked for are ten steps, whatever the governor thinks of longer checks.
    assert board.seen.count("burst") == 10 * 5


def test_governor_thins_a_real_expensive_check(board: Board) -> None:
    training = Training()
    hook = board.add("module", lambda *args: time.sleep(0.002))
    training.step(10)
    hook.arm(1000, 60)
    training.step(30)
    assert board.governor.thinning >= 8
    assert board.governor.cost()["thinning"] == board.governor.thinning
    hook.disarm()
    training.step()
    assert board.governor.thinning == 1


def test_burst_is_measured_but_not_thinned(board: Board) -> None:
    training = Training()
    calls = []
    hook = board.add("module", lambda *args: calls.append(time.sleep(0.002)))
    training.step(10)
    hook.arm(10, 60)
    training.step(10)
    assert board.governor.cost()["share"] > 0.03
    training.step()
    assert len(calls) == 50
    assert board.governor.thinning == 1


# Calls at a step.


def test_a_step_hook_is_called_where_each_live_step_begins_and_rests_where_the_first_other_does(
    board: Board,
) -> None:
    training, rests = Training(), []
    hook = board.add("step", rest=rests.append)
    training.step(3)
    hook.arm(4, 60)
    training.step(6)
    # Armed at the end of the 4th step: from there on four steps are begun, and the one after them is not.
    assert board.seen == [4, 5, 6, 7]
    assert rests == [8]
    assert not hook.armed
    assert not hook.live
    assert not board.board.is_wanted()
    assert registered() == (0, 0)


def test_the_governor_thins_a_step_hook_and_each_gap_begins_with_a_rest(board: Board) -> None:
    training, rests = Training(), []
    hook = board.add("step", rest=rests.append)
    board.governor.budget, board.governor.thinning = 0.0, 4
    hook.arm(40, 60)
    training.step(42)
    assert len(board.seen) < 12
    assert hook.pace >= 4
    assert all(step % 4 == 0 for step in board.seen)
    assert rests == [step + 1 for step in board.seen]


def test_what_a_step_hook_takes_is_in_the_time_of_the_step_that_it_begins(board: Board) -> None:
    training = Training()
    training.step(10)
    board.add("step", lambda step: time.sleep(0.02)).arm(8, 60)
    training.step(8)
    assert board.governor.cost()["share"] > 0.03
    training.step()
    armed = [ns for ns, is_armed, _ in board.steps.durations if is_armed]
    plain = [ns for ns, is_armed, _ in board.steps.durations if not is_armed]
    assert len(armed) == 8
    assert min(armed) >= 20_000_000
    assert sorted(plain)[len(plain) // 2] < 20_000_000


@pytest.mark.parametrize("part", ["call", "rest"])
def test_a_step_hook_that_raises_is_told_and_the_training_goes_on(board: Board, part: str) -> None:
    wanted = undisturbed_digest(8)
    calls = []

    def broken(step: int) -> None:
        calls.append(step)
        raise RuntimeError("ours")

    training = Training()
    hook = board.add("step", broken if part == "call" else None, rest=broken if part == "rest" else None)
    hook.arm(2, 60)
    training.step(8)
    assert training.digest() == wanted
    assert len(calls) == 1
    assert [(one[0], one[1], str(one[2])) for one in board.faults] == [(board.probe, "step hook", "ours")]


def test_a_step_hook_does_not_begin_while_a_graph_is_recorded_and_one_that_runs_is_left_alone(
    board: Board,
) -> None:
    training = Training()
    runs, waits, modules = board.add("step"), board.add("step"), board.add("module")
    runs.arm(50, 60)
    training.step()
    waits.arm(50, 60)
    modules.arm(50, 60)
    # The agent says so at a boundary at which the device records.
    board.board.in_capture()
    assert "records a graph" in str(waits.refused)
    assert not waits.armed
    assert runs.armed
    assert modules.armed
    assert runs.refused is modules.refused is None


def test_the_ops_of_a_step_hook_are_not_taken_for_the_trainings(board: Board) -> None:
    training = Training()
    ops = board.add("op")
    board.add("step", lambda step: torch.full((3,), 3.0).erfinv()).arm(3, 60)
    ops.arm(3, 60)
    training.step(4)
    assert "aten.erfinv.default" not in {str(one) for one in board.seen}
    assert "aten.addmm.default" in {str(one) for one in board.seen}


# Callbacks: guarded, ignored, in order.


@pytest.mark.parametrize("kind", ["module", "op"])
def test_returned_values_replace_nothing(board: Board, kind: str) -> None:
    wanted = undisturbed_digest(5)
    training = Training()
    hook = board.add(kind, lambda *args: torch.zeros(1), lambda *args: (torch.zeros(1),))
    hook.arm(5, 60)
    training.step(5)
    assert training.digest() == wanted


@pytest.mark.parametrize("kind", ["module", "op"])
@pytest.mark.parametrize("place", ["after", "before"])
def test_callback_that_raises_is_told_and_never_called_again(board: Board, kind: str, place: str) -> None:
    wanted = undisturbed_digest(6)
    calls = []

    def broken(*args: Any) -> None:
        calls.append(1)
        raise RuntimeError("ours")

    training = Training()
    hook = board.add(
        kind, broken if place == "after" else lambda *args: None, broken if place == "before" else None
    )
    hook.arm(5, 60)
    training.step(6)
    assert training.digest() == wanted
    assert calls == [1]
    assert [(one[0], str(one[2])) for one in board.faults] == [(board.probe, "ours")]
    hook.arm(5, 60)
    assert not hook.armed


@pytest.mark.parametrize("kind", ["module", "op", "step"])
def test_keyboard_interrupt_in_a_callback_is_the_users(board: Board, kind: str) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    training = Training()
    hook = board.add(kind, interrupt)
    hook.arm(5, 60)
    with pytest.raises(KeyboardInterrupt):
        training.step(2)
    hook.disarm()
    training.step()
    assert board.faults == []


@pytest.mark.parametrize("kind", ["module", "op"])
def test_users_exception_passes_unchanged(board: Board, kind: str) -> None:
    class Mine(Exception):
        pass

    mine = Mine("x")

    class Failing(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            raise mine

    training = Training()
    hook = board.add(kind)
    hook.arm(8, 60)
    training.step()
    with pytest.raises(Mine) as caught:
        nn.Sequential(Failing())(training.rows)
    assert caught.value is mine
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        training.model(torch.ones(2, 3))
    training.step()
    assert board.faults == []


@pytest.mark.parametrize("name", ["_choose", "_call", "_expire_here", "_enter"])
def test_fault_of_the_switchboard_itself_ends_the_hooks_only(name: str) -> None:
    wanted = undisturbed_digest(6)
    board, training = Board(), Training()
    for kind in ("module", "op"):
        board.add(kind).arm(100, 60)
    training.step()

    def broken(*args: Any) -> None:
        raise RuntimeError("internal")

    setattr(board.board, name, broken)
    board.board._deadline = 0.0
    training.step(5)
    assert training.digest() == wanted
    if name == "_choose":
        assert board.step_faults
        board.board.break_off("x")
    else:
        assert [one for one in board.faults if one[0] is None]
        delattr(board.board, name)
        training.step()
        assert board.board.hooks[0].refused
    assert registered() == (0, 0)
    board.board.take_out_mode()
    board.hook.take_out()


def test_probe_ops_are_not_taken_for_the_trainings(board: Board) -> None:
    training = Training()
    module = board.add("module", lambda module, inputs, output: torch.full((3,), 3.0).erfinv())
    ops = board.add("op")
    module.arm(3, 60)
    ops.arm(3, 60)
    training.step(4)
    assert "aten.erfinv.default" not in {str(one) for one in board.seen}
    assert "aten.addmm.default" in {str(one) for one in board.seen}


# Modes.


class Counting(TorchDispatchMode):
    """A mode of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def our_mode(seen: list[str]) -> BottomMode:
    return BottomMode(make_mode(lambda: True, lambda *args: None, lambda func, *rest: seen.append(str(func))))


def test_mode_goes_in_below_the_users_and_survives_his_exit() -> None:
    flags = (
        _python_dispatch._is_in_torch_dispatch_mode,
        _python_dispatch._is_in_any_mode_without_ignore_compile_internals,
    )
    seen: list[str] = []
    ours = our_mode(seen)
    first, second = Counting(), Counting()
    first.__enter__()
    second.__enter__()
    ours.put_in()
    assert stack() == [ours.mode, first, second]
    torch.ones(2) + 1
    assert first.calls == second.calls == len(seen) > 0
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    assert stack() == [ours.mode]
    with Counting() as third:
        assert ours.take_out()
        assert stack() == [third]
        torch.ones(2)
        assert third.calls == 1
    now = (
        _python_dispatch._is_in_torch_dispatch_mode,
        _python_dispatch._is_in_any_mode_without_ignore_compile_internals,
    )
    # A flag left on would make torch.compile fall back to eager for ever.
    assert now == flags == (False, False)


def test_mode_is_not_taken_out_by_another_thread_or_inside_its_own_call() -> None:
    answers = []
    ours = BottomMode(None)
    ours.mode = make_mode(lambda: True, lambda *args: answers.append(ours.take_out()), lambda *args: None)
    ours.put_in()
    with Counting() as user:
        torch.ones(2)
        assert answers == [False]
        thread = threading.Thread(target=lambda: answers.append(ours.take_out()))
        thread.start()
        thread.join()
        assert answers == [False, False]
        assert stack() == [ours.mode, user]
    assert ours.take_out()
    assert ours.take_out()


def test_infra_modes_refuse(board: Board) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert refusal() is None
    hook = board.add("op")
    hook.arm(3, 60)
    with FakeTensorMode():
        assert "fake" in str(refusal())
        board.steps.end_step("optimizer", 0)
    assert "fake" in str(hook.refused)
    assert not hook.armed
    assert refusal() is None


def test_mode_does_not_import_dynamo() -> None:
    program = """
import sys, torch
from ascend_tui.shim.modes import BottomMode, make_mode
ours = BottomMode(make_mode(lambda: True, lambda *args: None, lambda *args: None))
ours.put_in()
torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
assert ours.take_out()
assert "torch._dynamo" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def in_checkpoint(reentrant: bool) -> Callable[[nn.Module, torch.Tensor], torch.Tensor]:
    def around(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        rows = rows.clone().requires_grad_()
        return checkpoint(model, rows, use_reentrant=reentrant)

    return around


def in_autocast(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(rows).float()


def in_vmap(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    model.eval()
    with torch.inference_mode():
        model(rows)
    grads = torch.func.grad(lambda row: model(row).sum())(rows)
    return torch.vmap(model)(rows + grads)


def in_users_mode(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    with Counting() as user:
        out = model(rows)
    assert user.calls
    return out


@pytest.mark.parametrize(
    "around",
    [in_checkpoint(True), in_checkpoint(False), in_autocast, in_vmap, in_users_mode],
    ids=["reentrant", "non_reentrant", "autocast", "vmap_grad_inference", "user_mode"],
)
def test_numbers_are_bit_identical_with_everything_armed(board: Board, around: Any) -> None:
    wanted = undisturbed_digest(6, around=around)
    training = Training()
    board.add("module").arm(4, 60)
    board.add("op").arm(4, 60)
    board.add("step").arm(4, 60)
    training.step(6, around)
    assert training.digest() == wanted
    assert {type(one).__name__ for one in board.seen} >= {"Linear", "OpOverload", "int"}
    assert board.faults == []


def test_in_place_relu_net_trains_with_module_hooks(board: Board) -> None:
    def model() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Flatten())

    rows = torch.randn(2, 1, 6, 6)
    wanted = undisturbed_digest(5, model=model(), rows=rows)
    training = Training(model(), rows)
    board.add("module").arm(4, 60)
    training.step(6)
    # The board has seen another optimizer before: the first step of this one is not a boundary.
    assert len(board.seen) == 4 * 5
    training = Training(model(), rows)
    board.add("module").arm(4, 60)
    training.step(5)
    assert training.digest() == wanted


@pytest.fixture
def compiler() -> Iterator[Any]:
    from torch._dynamo import utils

    torch._dynamo.reset()
    utils.counters.clear()
    yield utils.counters
    torch._dynamo.reset()
    utils.counters.clear()


@pytest.mark.parametrize("full", [False, True])
def test_compilation_while_armed_is_whole_and_the_modes_refuse_afterwards(
    board: Board, compiler: Any, full: bool
) -> None:
    training = Training()
    module, ops = board.add("module"), board.add("op")
    module.arm(8, 60)
    ops.arm(8, 60)
    training.step()
    forward = torch.compile(lambda rows: training.model(rows).sin(), backend="aot_eager", fullgraph=full)
    forward(training.rows).sum().backward()
    assert compiler["stats"]["unique_graphs"] == 1
    assert not compiler["graph_break"]
    training.step()
    module.disarm()
    ops.disarm()
    training.step()
    forward(training.rows)
    assert not compiler["graph_break"]
    ops.arm(5, 60)
    training.step()
    assert "torch.compile" in str(ops.refused)
    assert board.faults == []


def test_wholly_compiled_model_refuses_module_hooks(board: Board, compiler: Any) -> None:
    training = Training()
    whole = torch.compile(training.model, backend="eager")
    hook = board.add("module")
    hook.arm(5, 60)
    training.step()
    with pytest.warns(UserWarning, match="global hooks"):
        whole(training.rows)
    assert "compiled" in str(hook.refused)
    assert registered() == (0, 0)
    hook.arm(5, 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["warnings"], "filters", [("error", None, UserWarning, None, 0)])
        training.step()
        assert registered() == (0, 0)
    assert "warnings are errors" in str(hook.refused)


# Without an optimizer.


@pytest.fixture
def idle() -> Iterator[Board]:
    one = Board()
    one.hook.take_out()
    yield one
    for hook in one.board.hooks:
        hook.disarm()
    one.board.at_boundary(0)
    one.board.take_out_mode()
    one.board.drop_module_hooks()


def test_inference_steps_at_the_outermost_module_while_armed(idle: Board) -> None:
    training = Training()
    hook, ops = idle.add("module"), idle.add("op")
    hook.arm(3, 60)
    ops.arm(3, 60)
    idle.board.tick(100.0)
    assert registered() == (0, 0)
    idle.board.tick(100.0 + shim_hooks.NO_OPTIMIZER_S + 1)
    assert registered() == (1, 1)
    with torch.no_grad():
        training.model(training.rows)
        assert idle.steps.source == "module"
        assert idle.seen == []
        training.model(training.rows)
        kinds = {type(one).__name__ for one in idle.seen}
        assert kinds >= {"Sequential", "OpOverload"}
        # One that fails has no return; the next call is a whole step again.
        with pytest.raises(RuntimeError):
            training.model(torch.ones(2, 3))
        training.model(training.rows)
        training.model(training.rows)
    assert idle.steps.step == 4
    assert registered() == (0, 0)
    assert stack() == []


def test_training_whose_first_step_is_long_is_not_taken_for_inference(idle: Board) -> None:
    training = Training()
    idle.add("module").arm(30, 60)
    now = time.monotonic()
    idle.board.tick(now)
    idle.board.tick(now + shim_hooks.NO_OPTIMIZER_S + 1)
    assert registered() == (1, 1)
    for _ in range(3):
        training.model(training.rows).sum().backward()
    assert idle.steps.step == 0
    # But a training without any optimizer of torch is, in the end.
    idle.board._wanted_since = now - shim_hooks.SURELY_NO_OPTIMIZER_S - 1
    training.model(training.rows).sum().backward()
    assert idle.steps.step == 1


# Names.


def test_paths_are_the_users_and_the_longest() -> None:
    paths = ModulePaths()
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    assert paths.path(model[0][0]) == "Linear"
    paths.learn(model)
    # Recomputed in the backward, a block comes as a root of its own.
    paths.learn(model[0])
    assert paths.path(model[0][0]) == "0.0"
    assert paths.path(model[1]) == "1"
    assert paths.path(model) == "Sequential"


def test_paths_of_a_module_that_is_gone_are_not_given_to_the_next_at_its_address() -> None:
    paths = ModulePaths()
    for _ in range(50):
        model = nn.Sequential(nn.Linear(1, 1))
        paths.learn(model)
        assert paths.path(model[0]) == "0"
        del model
        stranger = nn.Linear(1, 1)
        assert paths.path(stranger) == "Linear"


def test_switchboard_holds_no_module_alive(board: Board) -> None:
    import gc
    import weakref

    board.add("module", lambda *args: None).arm(5, 60)
    Training().step()
    model = nn.Sequential(nn.Linear(4, 4))
    model(torch.ones(1, 4))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
