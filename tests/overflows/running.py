"""Run one case and watch it as a monitor does: a real injection, the product's session and collector."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from ascend_tui_plugins.overflow.collector import OverflowCollector
from ascend_tui_plugins.overflow.snapshot import OverflowSnapshot

from ascend_tui.controls import Outcome
from ascend_tui.frame import Failed, Frame
from ascend_tui.plugin import Alert, Event, Loaded, Record, load
from ascend_tui.session import Session
from ascend_tui.target import TargetId, read_target
from tests.cann_sim.simulator import simulator
from tests.overflows.cases import Case
from tests.targets.process import Process, RunError

SCRIPT = Path(__file__).parent.parent / "targets" / "overflow.py"
START_S = 120.0
LEASE = {"steps": 1_000_000, "seconds": 3600.0}
MOST_APART = 12
"""Steps by which the shim's number may be ahead of the training's more than at other times: records wait."""
PULSES = 2
"""Seconds of watching that a monitor has behind it before the steps of a case begin."""


@dataclasses.dataclass(frozen=True)
class Watched:
    """One process of a run: its records, what was said at last, and the shim's number of its step 0."""

    offset: float
    records: tuple[Record, ...]
    snapshot: OverflowSnapshot
    alerts: tuple[Alert, ...] = ()


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: the case and its processes, by rank."""

    case: Case
    device: str
    seed: int
    steps: int
    processes: tuple[Watched, ...]


class Watching(OverflowCollector):
    """The collector of the product, which also keeps each record and each alert."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self.records: dict[TargetId, list[Record]] = {}
        self.alerts: list[Alert] = []

        def keep(event: Event) -> None:
            if isinstance(event, Alert):
                self.alerts.append(event)
            publish(event)

        super().__init__(keep)

    def on_record(self, target: TargetId, record: Record) -> None:
        """Keep the record."""
        self.records.setdefault(target, []).append(record)
        super().on_record(target, record)

    def told(self, target: TargetId, offset: float) -> Watched:
        """Return what is known of one process."""
        records = tuple(self.records.get(target, ()))
        alerts = tuple(one for one in self.alerts if one.target == target)
        return Watched(offset, records, self.snapshot(target), alerts)


def plugin() -> Loaded:
    """Return the overflow plugin with the collector that takes notes."""
    return Loaded("overflow", dataclasses.replace(load("overflow"), collector=f"{__name__}:Watching"))


def run(case: Case, device: str, seed: int, steps: int = 0, tick_s: float = 1.0) -> Run:
    """Run a case to its end; raises RunError."""
    steps = steps or case.steps
    folder = Path(tempfile.mkdtemp(prefix="ascend-tui-overflows-"))
    try:
        return _run(case, device, seed, steps, tick_s, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(case: Case, device: str, seed: int, steps: int, tick_s: float, folder: Path) -> Run:
    begin = folder / "begin"
    arguments = [case.target or case.name, "--device", "cpu" if device == "cpu" else "npu:0"]
    arguments += ["--seed", str(seed), "--steps", str(steps), "--onset", str(case.onset)]
    arguments += ["--begin", str(begin), "--period-ms", str(case.period_ms)]
    port = str(_free_port())
    with ExitStack() as stack:
        processes = []
        for rank in range(case.ranks):
            env = _environment(device, folder)
            if case.ranks > 1:
                env.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case.ranks))
                env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            processes.append(stack.enter_context(Process(SCRIPT, folder / f"output-{rank}", env, arguments)))
        for one in processes:
            one.wait_for("ready", START_S)
        watched = _watch(case, processes, begin, tick_s, steps * 0.1 + START_S)
        return Run(case, device, seed, steps, watched)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(device: str, folder: Path) -> dict[str, str]:
    if device == "cpu":
        # Where torch_npu is installed for the tests, `import torch` would fail for want of CANN.
        return {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    soc = "Ascend910A" if device == "910a" else "Ascend910B3"
    return simulator().environment(home=folder, soc=soc)


def _watch(
    case: Case, processes: Sequence[Process], begin: Path, tick_s: float, timeout_s: float
) -> tuple[Watched, ...]:
    """Attach, have the steps begin, and stay until the last one."""
    frames: list[Frame] = []
    # What is judged is what is said, not what is looked at: nothing is to be thinned, but in a healthy one.
    budget = None if case.is_healthy else 0.5
    session = Session([plugin()], name="overflows", tick_s=tick_s, budget_share=budget)
    watching = session._collectors["overflow"]
    assert isinstance(watching, Watching)
    targets = [read_target(one.process.pid) for one in processes]
    session.add(*targets)
    session.start(frames.append)
    try:
        end = time.monotonic() + START_S
        while min(len(watching.records.get(one.id, ())) for one in targets) < PULSES:
            if time.monotonic() > end or any(one.process.poll() is not None for one in processes):
                raise RunError(f"no records came: {_why(frames)}")
            time.sleep(0.05)
        if case.every:
            _command(session, [one.id for one in targets], "modules", {"every": case.every})
        begin.touch()
        if case.drills:
            processes[0].wait_for(f"at {case.onset} ", timeout_s)
            _command(session, [one.id for one in targets], "ops", {})
        for one in processes:
            one.wait_for("end", timeout_s)
        # The last second is still on its way.
        time.sleep(1.5)
    finally:
        session.stop()
    if any(isinstance(one.plugins["overflow"], Failed) for one in frames[-1].targets):
        raise RunError(_why(frames))
    # What came after the last tick is judged too.
    watching.on_tick(time.time())
    try:
        offsets = [_offset(watching.records[at.id], one.lines()) for at, one in zip(targets, processes)]
    except RunError as error:
        raise RunError(f"{error}; {_why(frames)}") from None
    return tuple(watching.told(target.id, offset) for target, offset in zip(targets, offsets))


def _command(session: Session, targets: Sequence[TargetId], name: str, arguments: Mapping[str, Any]) -> None:
    """Start a command of the plugin and wait until it is told to have begun; raises RunError."""
    told: list[Outcome] = []
    for target in targets:
        session._ask(
            target,
            told.append,
            "command",
            plugin="overflow",
            name=name,
            action="start",
            arguments=dict(arguments),
            lease=LEASE if name == "modules" else {"steps": 3, "seconds": 60.0},
        )
    end = time.monotonic() + 20.0
    while len(told) < len(targets):
        if time.monotonic() > end:
            raise RunError(f"{name}: no answer")
        time.sleep(0.02)
    for one in told:
        if not one.ok:
            raise RunError(f"{name}: {one.message.render()}")


def _why(frames: list[Frame]) -> str:
    if not frames or not frames[-1].targets:
        return "the session said nothing"
    said = []
    for one in frames[-1].targets:
        held = one.plugins.get("overflow")
        reason = one.status.reason.render() if one.status.reason else f"step {one.status.step}"
        fault = held.failed if isinstance(held, Failed) else "no fault"
        notes = " / ".join(note.render() for note in one.status.notes)
        said.append(f"{one.status.state}, {reason}, {fault}, {notes}")
    return "; ".join(said)


def _offset(records: Sequence[Record], lines: Sequence[str]) -> float:
    """Return the shim's number of the training's step 0, from the moments of steps that both have noted."""
    told = [(float(line.split()[2]), int(line.split()[1])) for line in lines if line.startswith("at ")]
    apart = []
    for record in records:
        before = [step for at, step in told if at <= record.mono_s]
        if before and record.mono_s < told[-1][0]:
            # A pulse comes at any time: the steps that have ended are those that were told.
            apart.append(record.step - before[-1])
    if not apart:
        raise RunError("no record came while the training told its steps")
    if max(apart) - min(apart) > MOST_APART:
        raise RunError(f"the shim stopped to count steps: {', '.join(map(str, apart))} ahead of the training")
    return float(median(apart))
