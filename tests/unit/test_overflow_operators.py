"""The overflow probe at the level of operators: who was bad first, what is meant, and where it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probed import ROWS, Between, Watched, plain_step, sgd, small

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from ascend_tui.shim import modes  # noqa: E402

NAN, INF = math.nan, math.inf


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


def mean_square(net: Any) -> Any:
    return net(ROWS).square().mean()


def operators(
    watched: Watched, net: Any, loss_of: Callable[[Any], Any] = mean_square, steps: int = 5
) -> list[Any]:
    """Have the operators of three steps watched; return what came of it.  The weights stay good."""
    optimizer = sgd(net)

    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        loss_of(net).backward()
        with torch.no_grad():
            for one in net.parameters():
                one.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimizer.step()

    step(net, optimizer)
    watched.start("ops", steps=3)
    for _ in range(steps):
        step(net, optimizer)
        watched.serve()
    return watched.rows("ops")


def row_of(record: Any, index: int) -> Any:
    return next(one for one in record["rows"] if one["i"] == index)


class Spoilt(nn.Module):
    """A net into whose activations a NaN is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 2)
        self.where = [torch.tensor([1]), torch.tensor([5])]

    def forward(self, x: Any) -> Any:
        y = self.up(x)
        y.index_put_(self.where, torch.tensor(NAN))  # the line
        return self.down(torch.tanh(y))


def test_a_value_that_is_planted_in_place_is_found_with_its_position_and_line(watched: Watched) -> None:
    first, second, *_ = operators(watched, Spoilt())
    row = row_of(first, first["first"])
    assert (row["op"], row["path"], row["type"], row["phase"]) == (
        "aten::index_put_",
        "Spoilt",
        "Spoilt",
        "forward",
    )
    assert math.isnan(row["max"])
    assert "position" not in row
    # The second look at the same operator tells more.
    row = row_of(second, second["first"])
    assert (row["op"], row["bad"], row["position"], row["shape"]) == ("aten::index_put_", 1, [1, 5], [3, 8])
    assert second["step"] == first["step"] + 1
    # Here the shim's own lines are among them: it is imported, and not sent.
    *_, (file, line, function) = [one for one in second["stack"] if "/ascend_tui/shim/" not in one[0]]
    assert (file, function) == (__file__, "forward")
    assert "# the line" in Path(file).read_text().splitlines()[line - 1]
    # It was made of what the layer returned, and that was fine.
    made_of = [row_of(second, one) for one in row["from"]]
    assert ("aten::addmm", "up") in [(one["op"], one["path"]) for one in made_of]
    assert all(math.isfinite(one["max"]) for one in made_of if one["op"] == "aten::addmm")


class Divided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.layer(x) / x.new_zeros(1)


def test_the_first_of_a_chain_is_found_not_what_follows_from_it(watched: Watched) -> None:
    net = nn.Sequential(nn.Linear(4, 4), Divided(), nn.Tanh(), nn.Linear(2, 2))
    first, second, *_ = operators(watched, net)
    row = row_of(first, first["first"])
    assert (row["op"], row["path"], row["type"]) == ("aten::div", "1", "Divided")
    assert not math.isfinite(row["max"])
    assert first["bad"] > 3
    assert row_of(second, second["first"])["bad"] == 6
    assert row_of(second, second["first"])["position"] == [0, 0]


class Cleaned(nn.Module):
    """What is bad in between is taken out again."""

    def forward(self, x: Any) -> Any:
        spread = x.detach() / torch.zeros(1)
        return x + torch.nan_to_num(spread, 0.0, 0.0, 0.0)


def test_what_is_bad_but_taken_out_again_is_not_what_is_looked_for(watched: Watched) -> None:
    net = nn.Sequential(nn.Linear(4, 4), Cleaned(), Divided(), nn.Tanh())
    first, *_ = operators(watched, net)
    row = row_of(first, first["first"])
    assert (row["op"], row["path"]) == ("aten::div", "2")


def test_what_is_bad_and_taken_out_again_is_told_where_nothing_else_is(watched: Watched) -> None:
    (first, *_) = operators(watched, nn.Sequential(nn.Linear(4, 4), Cleaned()))
    row = row_of(first, first["first"])
    assert (row["op"], row["path"], first["bad"]) == ("aten::div", "1", 1)


def test_a_loss_that_is_bad_by_itself_is_found_outside_of_all_modules(watched: Watched) -> None:
    def loss_of(net: Any) -> Any:
        kept = torch.zeros(3, 2)
        return (net(ROWS).square() * kept).sum() / kept.sum()

    first, *_ = operators(watched, small(), loss_of)
    row = row_of(first, first["first"])
    assert (row["op"], row["path"], row["phase"]) == ("aten::div", "", "forward")


class Distance(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x - x.detach()).square().sum(-1).sqrt()


def test_what_is_bad_in_the_backward_only_is_found_in_its_module(watched: Watched) -> None:
    net = nn.Sequential(nn.Linear(4, 4), Distance())
    first, *_ = operators(watched, net)
    row = row_of(first, first["first"])
    assert (row["phase"], row["path"], row["type"]) == ("backward", "1", "Distance")
    assert row["op"] in ("aten::div", "aten::mul")


class Noise(nn.Module):
    """Operators that autograd does not see, behind a layer."""

    def forward(self, x: Any) -> Any:
        noise = torch.linspace(0, 1, 4).exp().cos()
        return x + noise


def test_operators_of_a_backward_are_those_of_the_module_whose_forward_they_belong_to(
    watched: Watched,
) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Noise(), nn.Linear(4, 2))
    optimizer = sgd(net)
    plain_step(net, optimizer)
    watched.start("ops", steps=1)
    plain_step(net, optimizer)
    plain_step(net, optimizer)
    (rows,) = watched.looked_at("ops")
    backward = {(one["op"], one["path"]) for one in rows if one["phase"] == "backward"}
    assert ("aten::tanh_backward", "1") in backward
    assert {path for op, path in backward if op == "aten::mm"} == {"0", "3"}
    assert ("aten::tanh_backward", "2") not in backward


@pytest.mark.parametrize("reentrant", [True, False])
def test_in_a_checkpoint_the_modules_of_a_backward_are_right_too(watched: Watched, reentrant: bool) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))

    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        middle = checkpoint(net[1], net[0](ROWS), use_reentrant=reentrant)
        net[2](middle).square().mean().backward()
        optimizer.step()

    optimizer = sgd(net)
    net(ROWS)
    step(net, optimizer)
    watched.start("ops", steps=1)
    step(net, optimizer)
    step(net, optimizer)
    (rows,) = watched.looked_at("ops")
    tanh = [one for one in rows if one["op"] == "aten::tanh_backward"]
    assert [(one["type"], one["phase"]) for one in tanh] == [("Tanh", "backward")]


class Attention(nn.Module):
    """A causal attention whose masks are made in three ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(4, 4), how

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        logits = y @ y.t()
        barred = torch.ones(3, 3, dtype=torch.bool).triu(1)
        if self.how == "fill":
            logits = logits.masked_fill(barred, -INF)
        elif self.how == "add":
            logits = logits + torch.full((3, 3), -INF).triu(1)
        else:
            logits = torch.where(barred, torch.tensor(-INF), logits)
        return torch.softmax(logits, -1) @ y


@pytest.mark.parametrize("how", ["fill", "add", "where"])
def test_a_mask_is_meant_and_the_answer_is_calm(watched: Watched, how: str) -> None:
    (record,) = operators(watched, Attention(how))
    assert (record["calm"], record["first"], record["bad"]) == (True, None, 0)


@pytest.mark.parametrize("how", ["fill", "add", "where"])
def test_a_row_that_is_masked_wholly_is_bad_at_the_softmax(
    watched: Watched, how: str, monkeypatch: Any
) -> None:
    ones = torch.ones

    def all_barred(*shape: Any, **more: Any) -> Any:
        made = ones(*shape, **more)
        return made if shape != (3, 3) else Wholly(made)

    class Wholly:
        def __init__(self, made: Any) -> None:
            self.made = made

        def triu(self, diagonal: int) -> Any:
            barred = self.made.triu(diagonal)
            barred[2] = True
            return barred

    net = Attention(how)
    if how == "add":
        full = torch.full
        monkeypatch.setattr(torch, "full", lambda shape, value: Rows(full(shape, value)))

        class Rows:
            def __init__(self, made: Any) -> None:
                self.made = made

            def triu(self, diagonal: int) -> Any:
                barred = self.made.triu(diagonal)
                barred[2] = -INF
                return barred
    else:
        monkeypatch.setattr(torch, "ones", all_barred)
    first, second, *_ = operators(watched, net)
    row = row_of(first, first["first"])
    assert (row["op"], row["path"]) == ("aten::_softmax", "Attention")
    assert row_of(second, second["first"])["position"] == [2, 0]


def test_near_the_limit_is_told_with_its_share_at_the_second_look(watched: Watched) -> None:
    def near(y: Any) -> Any:
        half = torch.arange(8, dtype=torch.float16) * 8858.0
        return y + half.float().mean() * 0

    first, second, *_ = operators(watched, Between(near))
    assert first["first"] is None
    assert (first["why"], first["bad"]) == ("key", 0)
    row = row_of(second, second["near"][0])
    assert (row["op"], row["dtype"], row["max"]) == ("aten::mul", "float16", 62016.0)
    assert (row["near"], row["zero"], row["bad"]) == (0.125, 0.125, 0)
