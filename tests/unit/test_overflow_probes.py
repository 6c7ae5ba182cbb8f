"""The overflow probe inside real trainings on this thread: what it sees, and what it must not do."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from probed import ROWS, Between, Watched, bits, plain_step, sgd, small, trained

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from ascend_tui.shim import modes  # noqa: E402

NAN, INF = math.nan, math.inf
ALL = ("gradients", "modules", "ops")


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    # Another test of this process may have compiled something, which is for good.
    monkeypatch.setattr(modes, "is_compile_in_use", lambda: False)
    torch.manual_seed(5)
    one = Watched()
    yield one
    faults = one.faults, one.probes.faults()
    one.end()
    assert faults == ([], {})


def told(pairs: list[list[Any]]) -> dict[int, float]:
    return dict(pairs)


# Loss and gradients.


def test_losses_and_the_norm_of_the_gradients_come_with_their_steps(watched: Watched) -> None:
    net = small()
    optimizer = sgd(net)
    plain_step(net, optimizer)
    watched.start("gradients", every=1)
    losses, norms = {}, {}
    for step in range(2, 8):
        losses[step] = plain_step(net, optimizer)
        norms[step] = math.sqrt(sum(float(one.grad.square().sum()) for one in net.parameters()))
    pulse = watched.pulse()
    # Whether a GradScaler has scaled the first two is not known: they are left out.
    assert told(pulse["losses"]) == pytest.approx({step: losses[step] for step in range(4, 8)})
    # Armed in step 2, it runs from the next one on.
    assert told(pulse["grads"]) == pytest.approx({step: norms[step] for step in range(3, 8)})
    assert pulse["watched"] == 5
    assert [(one["name"], one["on"]) for one in pulse["levels"]][:2] == [("loss", True), ("gradients", True)]
    assert pulse["saturates"] is False
    assert watched.rows("loss") == watched.rows("gradients") == []
    # What was told is not told again.
    assert watched.pulse()["losses"] == []


def test_bad_gradients_are_named_in_the_order_of_the_optimizer_and_then_the_weights(watched: Watched) -> None:
    net = small()
    optimizer = sgd(net)
    watched.start("gradients", every=1)
    for _ in range(3):
        plain_step(net, optimizer)
    net[2].register_full_backward_pre_hook(lambda module, grads: (grads[0] * NAN,))
    plain_step(net, optimizer)
    (record,) = watched.rows("gradients")
    assert (record["step"], record["first"], record["bad"], record["why"]) == (4, 0, 4, "gradients")
    assert [one["path"] for one in record["rows"]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [one["index"] for one in record["rows"]] == [0, 1, 2, 3]
    assert all(one["part"] == "gradient" and math.isnan(one["max"]) for one in record["rows"])
    assert [one["shape"] for one in record["rows"]] == [[6, 4], [6], [2, 6], [2]]
    # The step has spoilt the weights too.
    (weights,) = watched.rows("parameters")
    assert [one["path"] for one in weights["rows"]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    # And the operators of the next steps are watched.
    assert watched.levels["ops"].hook.armed


def test_operators_that_are_watched_by_themselves_are_told_of_as_a_command(watched: Watched) -> None:
    net = small()
    optimizer = sgd(net)
    watched.start("gradients", every=1)
    for _ in range(3):
        plain_step(net, optimizer)
    told_before = len(watched.records)
    plain_step(net, optimizer, NAN)
    watched.probes.tick(float("inf"))
    for _ in range(4):
        watched.steps.wake()
        plain_step(net, optimizer)
    watched.probes.tick(float("inf"))
    found = [data for kind, data in watched.records[told_before:] if kind == "command"]
    assert [(one["name"], one["phase"], one["reason"]) for one in found if one["name"] == "ops"] == [
        ("ops", "started", "started by its probe"),
        ("ops", "ended", "lease over"),
    ]


@pytest.mark.parametrize("level", ["modules", "ops"])
def test_what_a_look_keeps_until_the_step_ends_are_numbers_on_a_host(watched: Watched, level: str) -> None:
    # Tensors would lie between those of the training, whose heap is in pieces after that and grows.
    looked: list[Any] = []
    stats = watched.api.stats
    measure, closely = stats.measure, stats.closely

    def noted(tensor: Any) -> Any:
        looked.append((tensor.detach().clone(), measure(tensor)))
        return looked[-1][1]

    stats.measure = noted
    net = small()
    optimizer = sgd(net)
    watched.start(level, every=1)
    for _ in range(2):
        plain_step(net, optimizer)
    assert looked
    for tensor, ends in looked:
        assert ends == (float(tensor.min()), float(tensor.max()))
        assert [type(one) for one in ends] == [float, float]
    assert closely(torch.tensor([0.0, INF, NAN, 3.4e38])) == [2.0, 1.0, 1.0, 1.0]


def test_a_single_bad_gradient_is_told_alone(watched: Watched) -> None:
    net = small()
    optimizer = sgd(net)
    watched.start("gradients", every=1)
    for _ in range(2):
        plain_step(net, optimizer)
    optimizer.zero_grad()
    net(ROWS).mean().backward()
    net[0].bias.grad[3] = INF
    optimizer.step()
    (record,) = watched.rows("gradients")
    (row,) = record["rows"]
    assert (row["path"], row["min"], row["max"], row["dtype"], row["index"]) == (
        "0.bias",
        0.0,
        INF,
        "float32",
        1,
    )


def test_a_bad_loss_has_the_gradients_looked_at_though_they_are_not_due(watched: Watched) -> None:
    net = small()
    optimizer = sgd(net)
    watched.start("gradients", steps=100_000, every=1000)
    for _ in range(4):
        plain_step(net, optimizer)
    assert watched.pulse()["watched"] == 0
    plain_step(net, optimizer, NAN)
    (record,) = watched.rows("loss")
    assert record["step"] == 5
    assert record["rows"][0]["part"] == "loss"
    assert math.isnan(record["rows"][0]["min"])
    for _ in range(6):
        watched.serve()
        plain_step(net, optimizer)
    assert watched.pulse()["watched"] == 3
    assert [one["bad"] for one in watched.rows("gradients")] == [4]


class Scaled:
    """A training with a GradScaler."""

    def __init__(self, scale: float = 8.0, interval: int = 2000) -> None:
        self.net = small()
        self.optimizer = sgd(self.net)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)

    def step(self, spoil: float = 1.0) -> float:
        self.optimizer.zero_grad()
        loss = self.net(ROWS).square().mean() * spoil
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return float(loss.detach())


def test_a_scaled_loss_is_told_as_it_is_without_the_scale(watched: Watched) -> None:
    training = Scaled(1024.0, interval=3)
    watched.start("gradients", every=1)
    losses = {step: training.step() for step in range(1, 9)}
    pulse = watched.pulse()
    found = told(pulse["losses"])
    # Never one that is 1024 times too large, not even at first.
    assert found == pytest.approx({step: losses[step] for step in found})
    assert set(found) == set(range(3, 9))
    assert pulse["scales"] == [[2, 1024.0], [3, 2048.0], [6, 4096.0]]


def test_skips_of_a_search_are_told_as_skips_and_many_in_a_row_are_looked_into(watched: Watched) -> None:
    training = Scaled()
    watched.start("gradients", steps=10, every=1)
    for _ in range(2):
        training.step()
    for _ in range(3):
        training.step(INF)
    training.step()
    pulse = watched.pulse()
    assert pulse["skips"] == [3, 4, 5]
    assert watched.rows("gradients") == []
    # The loss itself was bad, in float32: that is no search.
    assert [one["step"] for one in watched.rows("loss")] == [3]
    ops = watched.levels["ops"]
    ops.hook.disarm()
    for _ in range(2):
        training.step()
    watched.watch._drilled.clear()
    net = training.net
    spoilt = net[2].register_full_backward_pre_hook(lambda module, grads: (grads[0] * INF,))
    for _ in range(7):
        training.step()
    watched.serve()
    assert not ops.hook.armed
    training.step()
    watched.serve()
    assert ops.hook.armed
    assert ops.why == "skips"
    spoilt.remove()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("count", [3, 70])
def test_the_norm_of_half_precision_does_not_overflow_by_itself(
    watched: Watched, dtype: Any, count: int
) -> None:
    parameters = [nn.Parameter(torch.zeros(1000, dtype=dtype)) for _ in range(count)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    watched.start("gradients", every=1)
    for _ in range(3):
        for one in parameters:
            one.grad = torch.full_like(one, 8192.0)
        optimizer.step()
    pulse = watched.pulse()
    assert told(pulse["grads"]) == pytest.approx(
        dict.fromkeys((2, 3), 8192.0 * math.sqrt(1000 * count)), rel=1e-3
    )
    assert watched.rows("gradients") == []
    assert "fp16_zero_grads" not in pulse


@pytest.mark.parametrize("count", [4, 100])
def test_where_half_of_the_gradients_in_half_precision_are_zero_it_is_told(
    watched: Watched, count: int
) -> None:
    halves = [nn.Parameter(torch.zeros(5, dtype=torch.float16)) for _ in range(count)]
    full = nn.Parameter(torch.zeros(5))
    optimizer = torch.optim.SGD([*halves, full], lr=0.1)
    watched.start("gradients", every=1)

    def step(zeros: int) -> dict[str, Any]:
        for place, one in enumerate(halves):
            one.grad = torch.full_like(one, 0.0 if place < zeros else 1.0)
        full.grad = torch.zeros(5)
        optimizer.step()
        return watched.pulse()

    step(0)
    assert "fp16_zero_grads" not in step(count // 2 - 1)
    assert step(count // 2)["fp16_zero_grads"] == [3, 0.5]
    assert step(count)["fp16_zero_grads"] == [4, 1.0]


def test_sparse_gradients_frozen_parameters_and_ones_without_a_gradient(watched: Watched) -> None:
    net = nn.ModuleDict(
        {"table": nn.Embedding(10, 4, sparse=True), "a": nn.Linear(4, 2), "b": nn.Linear(4, 2)}
    )
    net["a"].weight.requires_grad_(False)
    optimizer = sgd(net)
    watched.start("gradients", every=1)
    for _ in range(3):
        optimizer.zero_grad()
        net["a"](net["table"](torch.tensor([1, 2]))).sum().backward()
        optimizer.step()
    assert net["table"].weight.grad.is_sparse
    assert net["b"].weight.grad is None
    norm = float(net["a"].bias.grad.norm())
    assert told(watched.pulse()["grads"]) == pytest.approx({2: norm, 3: norm})


def test_accumulated_gradients_and_several_optimizers(watched: Watched) -> None:
    net = small()
    optimizers = [sgd(net[0]), sgd(net[2])]
    watched.start("gradients", every=1)
    losses: dict[int, list[float]] = {}
    for step in range(1, 6):
        for _ in range(3):
            loss = net(ROWS).square().mean()
            loss.backward()
            losses.setdefault(step, []).append(float(loss.detach()))
        norms = [
            math.sqrt(sum(float(p.grad.square().sum()) for p in part.parameters()))
            for part in (net[0], net[2])
        ]
        for one in optimizers:
            one.step()
        for one in optimizers:
            one.zero_grad()
    pulse = watched.pulse()
    # Between the first optimizer of an iteration and the next one's lies a step.
    assert [step for step, _ in pulse["losses"]] == [3, 3, 3, 4, 4, 4, 5, 5, 5]
    assert [value for _, value in pulse["losses"]] == pytest.approx(
        [one for step in (3, 4, 5) for one in losses[step]]
    )
    assert [value for _, value in pulse["grads"]][-2:] == pytest.approx(norms)


def test_losses_that_are_no_single_number_are_said_to_be_unseen(watched: Watched) -> None:
    net = small()
    optimizer = sgd(net)
    watched.start("gradients", steps=1000)
    for _ in range(25):
        optimizer.zero_grad()
        net(ROWS).backward(torch.ones(3, 2))
        optimizer.step()
    (loss, *_) = watched.pulse()["levels"]
    assert loss["why"] == "no backward from a single number was seen"


# Modules.


def seen(
    watched: Watched, net: Any, step: Callable[..., Any] = plain_step, steps: int = 3
) -> list[dict[str, Any]]:
    """Train with the modules watched in each step; return the rows of the last step."""
    optimizer = sgd(net)
    step(net, optimizer)
    watched.start("modules", steps=10, every=1)
    for _ in range(steps):
        step(net, optimizer)
    return watched.looked_at("modules")[-1]


def test_outputs_in_their_order_with_the_extremes_that_they_have(watched: Watched) -> None:
    net = small()
    rows = seen(watched, net)
    assert [(one["path"], one["part"], one["type"]) for one in rows] == [
        ("Sequential", "input", "Sequential"),
        ("0", "output", "Linear"),
        ("1", "output", "ReLU"),
        ("2", "output", "Linear"),
    ]
    assert (rows[0]["min"], rows[0]["max"], rows[0]["shape"]) == (-1.0, 1.0, [3, 4])
    # The ReLU writes into what the layer returned: that was looked at before, and after.
    assert rows[1]["min"] < 0.0
    assert rows[2]["min"] == 0.0
    assert rows[2]["max"] == rows[1]["max"]
    assert all(one["phase"] == "forward" and one["op"] == "" and one["dtype"] == "float32" for one in rows)


def test_what_comes_from_code_between_modules_is_seen_where_it_goes_in(watched: Watched) -> None:
    rows = seen(watched, Between())
    assert [(one["path"], one["part"]) for one in rows] == [
        ("Between", "input"),
        ("first", "output"),
        ("second", "input"),
        ("second", "output"),
    ]
    assert rows[2]["max"] == pytest.approx(rows[1]["max"] * 100)


def test_what_is_written_into_an_output_between_modules_is_seen(watched: Watched) -> None:
    spoils = [0, 0, NAN]

    def spoil(y: Any) -> Any:
        y.data[1, 2] += spoils.pop(0)
        return y.add_(0)

    net = Between(spoil)
    optimizer = sgd(net)
    watched.start("modules", steps=2, every=1)
    for _ in range(3):
        plain_step(net, optimizer)
    (record,) = watched.rows("modules")
    row = next(one for one in record["rows"] if one["i"] == record["first"])
    assert (row["path"], row["part"]) == ("second", "input")
    assert record["step"] == 3
    assert math.isnan(row["max"])


class Odd:
    """An output of the user's that answers every question with an error."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class Kinds(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Any) -> Any:
        return self.value(x)


KINDS: dict[str, tuple[Callable[[Any], Any], list[tuple[float, float]]]] = {
    "tuple": (lambda x: (x, x * 2), [(-1, 1), (-2, 2)]),
    "dict": (lambda x: {"a": x * 3, "b": 7, "c": None}, [(-3, 3)]),
    "list": (lambda x: [x * k for k in range(1, 7)], [(-k, k) for k in range(1, 5)]),
    "nothing": (lambda x: None, []),
    "empty": (lambda x: x[:0], []),
    "integers": (lambda x: x.long(), []),
    "booleans": (lambda x: x > 0, []),
    "complex": (lambda x: torch.complex(x, x), []),
    "sparse": (lambda x: x.to_sparse(), []),
    "rows of a sparse": (lambda x: x.to_sparse_csr(), []),
    "nested": (lambda x: torch.nested.nested_tensor([x[0], x[1, :2]]), []),
    "scalar": (lambda x: x.sum() + 2, [(2, 2)]),
    "half": (lambda x: (x * 60000).half(), [(-60000, 60000)]),
    "bfloat16": (lambda x: x.bfloat16(), [(-1, 1)]),
    "double": (lambda x: x.double() * 1e300, [(-1e300, 1e300)]),
    "broadcast": (lambda x: x[:1].expand(1000, 4), [(-1, float(ROWS[0, 3]))]),
    "transposed": (lambda x: x.t(), [(-1, 1)]),
    "text": (lambda x: "text", []),
    "odd": (lambda x: Odd(), []),
    "odd in a tuple": (lambda x: (Odd(), x), [(-1, 1)]),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse")
@pytest.mark.parametrize("name", KINDS)
def test_outputs_of_all_kinds_are_looked_at_or_left_alone(watched: Watched, name: str) -> None:
    make, wanted = KINDS[name]
    net = nn.ModuleDict({"layer": nn.Linear(4, 2), "kind": Kinds(make)})

    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        net["kind"](ROWS)
        net["layer"](ROWS).sum().backward()
        optimizer.step()

    rows = seen(watched, net, step)
    found = [(one["min"], one["max"]) for one in rows if one["type"] == "Kinds" and one["part"] == "output"]
    assert found == [pytest.approx(one, rel=1e-3, abs=1e-6) for one in wanted]
    assert [one["path"] for one in rows if one["type"] == "Linear"][-1] == "Linear"


def test_a_minus_infinity_alone_is_a_mask_and_only_the_operators_are_asked(watched: Watched) -> None:
    net = Between(lambda y: y.masked_fill(torch.eye(3, 4, dtype=torch.bool), -INF).exp())
    mask = nn.ModuleDict({"net": net, "mask": Kinds(lambda x: x.masked_fill(x > 0.5, -INF))})

    def step(both: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        both["mask"](ROWS)
        both["net"](ROWS).square().mean().backward()
        optimizer.step()

    optimizer = sgd(mask)
    watched.start("modules", steps=10, every=1)
    for _ in range(3):
        step(mask, optimizer)
    assert watched.rows("modules") == []
    ops = watched.levels["ops"]
    assert (ops.hook.armed, ops.why) == (True, "mask")
    for _ in range(5):
        step(mask, optimizer)
    (record,) = watched.rows("ops")
    assert (record["calm"], record["first"], record["why"]) == (True, None, "mask")
    assert record["total"] > 10


def test_a_subclass_is_counted_and_left_alone_and_of_a_distributed_tensor_the_local_part_is_looked_at(
    watched: Watched,
) -> None:
    class Mine(torch.Tensor):
        """A tensor of the user's."""

    class Parts(torch.Tensor):
        """One that has its part here, as DTensor has."""

        _local_tensor: Any

    def parts(x: Any) -> Any:
        one = x.as_subclass(Parts)
        one._local_tensor = x * 5
        return one

    net = nn.ModuleDict({"a": Kinds(lambda x: x.as_subclass(Mine)), "b": Kinds(parts), "c": nn.Linear(4, 2)})

    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        net["a"](ROWS)
        net["b"](ROWS)
        net["c"](ROWS).sum().backward()
        optimizer.step()

    rows = seen(watched, net, step)
    kinds = [(one["min"], one["max"]) for one in rows if one["type"] == "Kinds" and one["part"] == "output"]
    assert kinds == [(-5.0, 5.0)]
    assert watched.pulse()["unseen"]["subclass"] == 3 - 1


def test_a_real_distributed_tensor_is_looked_at_at_each_level(watched: Watched) -> None:
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        net = nn.Linear(4, 2, bias=False)
        net.weight = nn.Parameter(distribute_tensor(net.weight.detach(), mesh, [Shard(0)]))
        rows = distribute_tensor(ROWS, mesh, [Replicate()])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        watched.start("gradients", every=1)
        watched.start("modules", steps=10, every=1)
        watched.start("ops", steps=3)
        for _ in range(4):
            optimizer.zero_grad()
            net(rows).square().sum().backward()
            optimizer.step()
        wanted = float(net.weight.grad.to_local().norm())
        assert [one["part"] for one in watched.looked_at("modules")[-1]] == ["input", "output"]
        assert any(one["op"] == "aten::mm" for one in watched.looked_at("ops")[-1])
        assert watched.pulse()["grads"][-1][1] == pytest.approx(wanted)
    finally:
        distributed.destroy_process_group()


def test_what_is_left_of_a_step_that_never_ended_is_not_taken_for_the_next_ones(watched: Watched) -> None:
    net = small()
    optimizer = sgd(net)
    plain_step(net, optimizer)
    watched.start("modules", steps=5, every=1)
    watched.start("ops", steps=3)
    plain_step(net, optimizer)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        net(torch.ones(1, 9))
    net(ROWS * 1000)
    watched.looked_at("modules")
    # Nothing ends any more: the shim's thread ends the leases.
    for name in ("modules", "ops"):
        watched.stop(name)
    watched.board.expire()
    watched.board.take_out_mode()
    watched.board.expire()
    assert watched.looked_at("modules") == []
    plain_step(net, optimizer)
    watched.looked_at("ops")
    watched.start("modules", steps=5, every=1)
    watched.start("ops", steps=1)
    for _ in range(2):
        plain_step(net, optimizer)
    (rows,) = watched.looked_at("modules")
    assert len(rows) == 4
    assert max(one["max"] for one in rows) < 100


# Everything on: the numbers stay, and the training's own code sees nothing of us.


def with_autocast(net: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(ROWS).float().square().mean()
    loss.backward()
    optimizer.step()


def with_checkpoint(reentrant: bool) -> Callable[[Any, Any], None]:
    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        checkpoint(net, ROWS.clone().requires_grad_(), use_reentrant=reentrant).square().mean().backward()
        optimizer.step()

    return step


def with_transforms(net: Any, optimizer: Any) -> None:
    grads = torch.func.grad(lambda row: net(row).sum())(ROWS)
    optimizer.zero_grad()
    torch.vmap(net)(ROWS + grads).square().mean().backward()
    torch.func.jvp(lambda one: functional.linear(one, net[0].weight), (ROWS,), (ROWS,))
    optimizer.step()


def with_inference(net: Any, optimizer: Any) -> None:
    with torch.inference_mode():
        net(ROWS)
        net(torch.ones(2, 4))
    with torch.no_grad():
        net(ROWS)
    plain_step(net, optimizer)


def with_saved_tensors(net: Any, optimizer: Any) -> None:
    with torch.autograd.graph.save_on_cpu():
        plain_step(net, optimizer)


def with_anomaly(net: Any, optimizer: Any) -> None:
    with torch.autograd.detect_anomaly(check_nan=False):
        plain_step(net, optimizer)


def with_hooks(net: Any, optimizer: Any) -> None:
    one = net[0].register_forward_hook(lambda module, inputs, output: output * 2)
    two = net[2].register_full_backward_hook(lambda module, given, made: (given[0] * 0.5,))
    three = net[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    plain_step(net, optimizer)
    for hook in (one, two, three):
        hook.remove()


def with_default_device(net: Any, optimizer: Any) -> None:
    torch.set_default_device("cpu")
    try:
        plain_step(net, optimizer)
    finally:
        torch.set_default_device(None)


def with_double_backward(net: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    rows = ROWS.clone().requires_grad_()
    (grad,) = torch.autograd.grad(net(rows).square().sum(), rows, create_graph=True)
    grad.square().mean().backward()
    optimizer.step()


STEPS = {
    "plain": plain_step,
    "autocast": with_autocast,
    "reentrant": with_checkpoint(True),
    "not_reentrant": with_checkpoint(False),
    "inference": with_inference,
    "saved_tensors": with_saved_tensors,
    "anomaly": with_anomaly,
    "hooks": with_hooks,
    "default_device": with_default_device,
    "double_backward": with_double_backward,
}


@pytest.mark.filterwarnings("ignore:Anomaly")
@pytest.mark.parametrize("name", [*STEPS, "transforms"])
def test_parameters_are_bit_identical_with_every_level_on(watched: Watched, name: str) -> None:
    step = STEPS.get(name, with_transforms)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=name != "transforms"), nn.Linear(6, 2))

    wanted = trained(make, step)
    torch.manual_seed(5)
    net = make()
    # The first step of a second optimizer is none to us: it may be that of a GAN.
    optimizer = sgd(net)
    watched.start("gradients", every=1)
    watched.start("modules", every=1)
    watched.start("ops", steps=3)
    for _ in range(6):
        step(net, optimizer)
    assert bits(net) == wanted
    watched.serve()
    assert watched.pulse()["watched"] >= 4
    ops = [data for kind, data in watched.records if kind == "rows" and data["level"] == "ops"]
    assert [one["calm"] for one in ops] == [True]
    looked_at = watched.watch._climbs.keys() >= {("0", "output"), ("2", "output")}
    assert looked_at == (name != "transforms")
    assert (name == "transforms") == ("traced" in watched.pulse()["unseen"])


def test_modules_inside_a_transform_are_not_looked_at_and_counted(watched: Watched) -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))

    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        torch.vmap(net)(ROWS).sum().backward()
        net(ROWS)
        optimizer.step()

    rows = seen(watched, net, step, steps=2)
    assert [(one["path"], one["shape"]) for one in rows] == [
        ("Sequential", [3, 4]),
        ("0", [3, 6]),
        ("1", [3, 2]),
    ]
    assert watched.pulse()["unseen"]["traced"] > 0


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
@pytest.mark.parametrize("name", ["gradients", "modules", "ops", "all"])
def test_a_mode_of_the_trainings_sees_what_it_sees_without_us(watched: Watched, mode: Any, name: str) -> None:
    def names() -> list[list[str]]:
        training = Scaled()
        found = []
        for step in range(5):
            with mode() as one:
                training.step(INF if step == 3 else 1.0)
            found.append(one.names)
        return found

    wanted = names()
    assert all(wanted)
    for level in ALL if name == "all" else (name,):
        watched.start(level, steps=3 if level == "ops" else 10, every=1)
    assert names() == wanted
    assert watched.probes.faults() == {}


def test_a_mode_that_is_open_all_the_time_sees_nothing_either(watched: Watched) -> None:
    def names(start: bool) -> list[str]:
        net = small()
        optimizer = sgd(net)
        with Operators() as outer, Functions() as inner:
            for step in range(5):
                if start and step == 0:
                    for level in ALL:
                        watched.start(level, steps=3, every=1)
                plain_step(net, optimizer)
        return [*outer.names, *inner.names]

    wanted = names(False)
    assert names(True) == wanted
    assert len(watched.looked_at("ops")) == 3


def test_no_tensor_of_the_training_is_kept(watched: Watched) -> None:
    import gc
    import weakref

    kept: list[Any] = []

    class Weak(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2
            kept.append(weakref.ref(y))
            return y + 1

    net = nn.Sequential(nn.Linear(4, 4), Weak(), nn.Linear(4, 2))
    optimizer = sgd(net)
    gc.disable()
    try:
        for level in ALL:
            watched.start(level, steps=3, every=1)
        for _ in range(5):
            plain_step(net, optimizer)
        assert [one() for one in kept] == [None] * 5
    finally:
        gc.enable()


# torch.compile comes last: what it leaves in the process cannot be taken back.


@pytest.fixture
def compiler() -> Iterator[Any]:
    from torch._dynamo import utils

    torch._dynamo.reset()
    utils.counters.clear()
    torch.manual_seed(5)
    yield utils.counters
    torch._dynamo.reset()
    utils.counters.clear()


@pytest.fixture
def beside_a_compiler(compiler: Any) -> Iterator[tuple[Watched, Any]]:
    one = Watched()
    yield one, compiler
    faults = one.faults, one.probes.faults()
    one.end()
    assert faults == ([], {})


def test_a_compiled_part_stays_whole_and_the_operators_are_refused_with_the_reason(
    beside_a_compiler: tuple[Watched, Any],
) -> None:
    watched, counters = beside_a_compiler
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = sgd(net)
    inner = torch.compile(lambda x: net[0](x).sin(), backend="eager", fullgraph=True)

    def step() -> None:
        optimizer.zero_grad()
        net[1](inner(ROWS)).sum().backward()
        optimizer.step()

    watched.start("gradients", every=1)
    watched.start("modules", steps=10, every=1)
    for _ in range(3):
        step()
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert [one["type"] for one in watched.looked_at("modules")[-1]] == ["Linear", "Linear"]
    watched.start("ops", steps=3)
    step()
    (state,) = [one for one in watched.pulse()["levels"] if one["name"] == "ops"]
    assert state["on"] is False
    assert "torch.compile is in use" in state["why"]
    step()
    assert not counters["graph_break"]
    assert len(watched.pulse()["grads"]) > 0


def test_a_model_that_is_compiled_wholly_refuses_the_modules(beside_a_compiler: tuple[Watched, Any]) -> None:
    watched, _ = beside_a_compiler
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = sgd(net)
    whole = torch.compile(net, backend="eager")
    watched.start("gradients", every=1)
    plain_step(net, optimizer)
    watched.start("modules", steps=10, every=1)
    plain_step(net, optimizer)
    with pytest.warns(UserWarning, match="global hooks"):
        plain_step(whole, optimizer)
    plain_step(whole, optimizer)
    (state,) = [one for one in watched.pulse()["levels"] if one["name"] == "modules"]
    assert state["on"] is False
    assert "the whole model is compiled" in state["why"]
    assert not sys.modules["torch.nn.modules.module"]._global_forward_hooks
    # The gradients are looked at all the same.
    assert watched.pulse()["watched"] >= 3


def test_how_a_value_climbed_is_kept_small_and_whole(watched: Watched) -> None:
    climb = type(watched.watch).serve.__globals__["Climb"]()
    for step in range(1, 20_001):
        climb.take(step, 9e4 if step == 777 else float(step))
    points = climb.points
    assert 8 <= len(points) <= 24
    assert [step for step, _ in points] == sorted(step for step, _ in points)
    # The peak of long ago is there, and the newest value.
    assert max(value for _, value in points) == 9e4
    assert points[0][0] <= 777
    assert points[-1][1] == 20_000.0
    assert climb.numbers.itemsize * len(climb.numbers) <= 24 * 16
