"""The parts of a shim on this very thread, around real torch: what the tests of probes and taps share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from ascend_tui_plugins.overflow import PLUGIN

from ascend_tui.plugin import probe_text
from ascend_tui.shim.api import Api, Probe
from ascend_tui.shim.devices import Device
from ascend_tui.shim.governor import Governor
from ascend_tui.shim.hooks import Switchboard
from ascend_tui.shim.probes import Probes
from ascend_tui.shim.scaler import ScalerHook
from ascend_tui.shim.steps import OptimizerHook, Steps

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402


class Shim:
    """What an agent joins; a test calls what the agent's thread would call."""

    def __init__(self) -> None:
        self.cell: list[Any] = [None]
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.events: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.steps = Steps(self.at_boundary, self.faults.append, self.is_calm)
        self.governor = Governor()
        self.board = Switchboard(self.steps, self.governor, lambda *fault: self.probes.disable(*fault))
        self.device: Any = Device()
        self.probes = Probes(self.steps, self.board, lambda: self.device, self.emit, self.events.append)
        self.hook = OptimizerHook(self.cell)
        self.scaler = ScalerHook(self.steps)
        assert self.hook.put_in_if_empty()
        self.scaler.put_in()
        self.cell[0] = self.steps.on_optimizer
        self.boundaries = 0

    def at_boundary(self) -> None:
        self.boundaries += 1
        self.probes.recorder.end_if_due()
        spent = self.steps.in_hook_ns
        self.board.at_boundary(spent[-1] if spent else 0)
        if self.probes.wants_boundary():
            self.probes.at_boundary()

    def is_calm(self) -> bool:
        return not (self.probes.wants_boundary() or self.board.is_wanted())

    def emit(self, plugin: str, kind: str, data: Any, key: Any = None) -> None:
        self.records.append((kind, data() if callable(data) else data))

    def probe(self, name: str = "p") -> Api:
        """Return what a probe without a text gets."""
        one = self.probes.loaded[name] = Probe(name, 10, "")
        return Api(one, self.probes)

    def end(self) -> None:
        """Take everything out, as a detach does."""
        for name in list(self.probes.loaded):
            self.probes.unload(name)
        for hook in self.board.hooks:
            hook.retire()
        self.board.at_boundary(0)
        self.probes.readback.close()
        assert self.probes.taps.stop()
        assert self.board.take_out_mode()
        assert self.board.drop_module_hooks()
        self.cell[0] = None
        assert self.hook.take_out()
        assert self.scaler.take_out()


class Watched(Shim):
    """A shim with the probe of the overflow plugin, whose commands are started by name."""

    def __init__(self) -> None:
        super().__init__()
        self.probes.load("overflow", probe_text(PLUGIN) or "", 20)
        self.loaded = self.probes.loaded["overflow"]
        self.api = self.loaded.taps[0].call.__self__.api  # type: ignore[attr-defined]
        self.watch = self.api.watch
        self.levels: dict[str, Any] = self.watch.levels
        self.watch._pulse_due_s = float("inf")
        # The pace of the gradients follows the clock, which is not what is tested.
        self.levels["gradients"].tick.__globals__["SHARE"] = 1e9

    def start(self, name: str, steps: int = 10, **arguments: Any) -> None:
        """Start a command.  More than 10 steps are the governor's to thin."""
        self.probes.start("overflow", name, arguments, steps, 60, {"name": "test"}, None, False)
        self.probes.serve_taps()
        self.steps.wake()

    def stop(self, name: str) -> None:
        """Stop a command."""
        self.probes.stop("overflow", name, "test")
        self.probes.serve_taps()

    def serve(self) -> None:
        """Do what the shim's thread does ten times a second, and a boundary after it."""
        self.levels["gradients"].flush(self.steps.step)
        self.watch.serve()
        self.probes.serve_taps()
        if not self.is_calm():
            self.steps.wake()

    def pulse(self) -> dict[str, Any]:
        """Return the present pulse."""
        self.serve()
        self.watch.pulse()
        return next(data for kind, data in reversed(self.records) if kind == "pulse")

    def rows(self, level: str) -> list[dict[str, Any]]:
        """Return the records of a level so far."""
        self.serve()
        return [data for kind, data in self.records if kind == "rows" and data["level"] == level]

    def looked_at(self, level: str) -> list[list[dict[str, Any]]]:
        """Return all rows of each step that a level has looked at and that was not served yet."""
        found = []
        for kept in (self.watch._healthy, self.watch._bad):
            for one in [one for one in kept if one[0] == level]:
                kept.remove(one)
                _, _, entries, values, _ = one
                pairs = zip(values[::2], values[1::2])
                found.append([self._row(entry, *pair) for entry, pair in zip(entries, pairs)])
        return found

    def _row(self, entry: Any, low: float, high: float) -> dict[str, Any]:
        row = dict(entry.row(low, high))
        if is_of_operators(entry) and entry.module is not None:
            row["path"] = self.api.module_path(entry.module)
        return row


def is_of_operators(entry: Any) -> bool:
    """Tell whether an entry is of the level that names its modules only when it is judged."""
    return hasattr(entry, "op")


def bits(net: Any) -> bytes:
    """Return the parameters and buffers of a module as bytes."""
    return b"".join(one.detach().contiguous().view(-1).numpy().tobytes() for one in net.state_dict().values())


def trained(make: Callable[[], Any], step: Callable[[Any, Any], None], count: int = 6) -> bytes:
    """Return the bits of an undisturbed training."""
    torch.manual_seed(5)
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(count):
        step(net, optimizer)
    return bits(net)


def until(holds: Callable[[], object], timeout_s: float = 5.0) -> bool:
    """Wait until something holds."""
    end = time.monotonic() + timeout_s
    while not holds() and time.monotonic() < end:
        time.sleep(0.001)
    return bool(holds())


def sgd(net: nn.Module) -> Any:
    return torch.optim.SGD(net.parameters(), lr=0.1)


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))


ROWS = torch.linspace(-1, 1, 12).view(3, 4)


def plain_step(net: Any, optimizer: Any, spoil: float = 1.0) -> float:
    optimizer.zero_grad()
    loss = net(ROWS).square().mean() * spoil
    loss.backward()
    optimizer.step()
    return float(loss.detach())


class Between(nn.Module):
    """Code between two modules, and outputs of all kinds."""

    def __init__(self, make: Callable[[Any], Any] = lambda y: y * 100) -> None:
        super().__init__()
        self.first, self.second, self.make = nn.Linear(4, 4), nn.Linear(4, 2), make

    def forward(self, x: Any) -> Any:
        return self.second(self.make(self.first(x)))
