"""Run one case and watch it as a monitor does: a real injection, the product's session and collector."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from ascend_tui_plugins.memory.collector import MemoryCollector
from ascend_tui_plugins.memory.snapshot import MemorySnapshot

from ascend_tui.frame import Failed, Frame
from ascend_tui.plugin import Event, Loaded, Record, load
from ascend_tui.session import Session
from ascend_tui.target import TargetId, read_target
from tests.cann_sim.simulator import simulator
from tests.targets.process import Process, RunError
from tests.verdicts.cases import Case

SCRIPT = Path(__file__).parent.parent / "targets" / "memory.py"
START_S = 90.0
SAMPLES = 15
"""Samples that a monitor has before the steps of a case begin."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was on the screen at one tick; `step` is the shim's number."""

    step: int
    snapshot: MemorySnapshot


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: its records, what was said at each tick, and the shim's number of the training's step 0."""

    case: Case
    device: str
    seed: int
    steps: int
    offset: float
    records: tuple[Record, ...]
    seen: tuple[Seen, ...]


class Watching(MemoryCollector):
    """The collector of the product, which also keeps each record and what it says at each tick.

    The kernels of a simulated card use the host's memory, and more of it for larger tensors.  In such a case
    `holds_host` holds the resident memory at its first value, as if the card had memory of its own.
    The records are kept as they came.
    """

    holds_host = False

    def __init__(self, publish: Callable[[Event], None]) -> None:
        super().__init__(publish)
        self.records: list[Record] = []
        self.seen: list[Seen] = []
        self.target: TargetId | None = None

    def on_record(self, target: TargetId, record: Record) -> None:
        """Keep the record."""
        self.target = target
        self.records.append(record)
        if self.holds_host and "rss_bytes" in record.data:
            first = next(one.data for one in self.records if "rss_bytes" in one.data)
            held = {name: first[name] for name in ("rss_bytes", "rss_peak_bytes")}
            record = dataclasses.replace(record, data={**record.data, **held})
        super().on_record(target, record)

    def on_tick(self, now: float) -> None:
        """Note what is said now."""
        super().on_tick(now)
        if self.target is not None:
            self.seen.append(Seen(self.records[-1].step, self.snapshot(self.target)))


def plugin() -> Loaded:
    """Return the memory plugin with the collector that takes notes."""
    return Loaded("memory", dataclasses.replace(load("memory"), collector=f"{__name__}:Watching"))


def run(case: Case, device: str, seed: int, steps: int = 0, tick_s: float = 1.0) -> Run:
    """Run a case to its end; raises RunError."""
    steps = steps or case.steps
    folder = Path(tempfile.mkdtemp(prefix="ascend-tui-verdicts-"))
    try:
        return _run(case, device, seed, steps, tick_s, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(case: Case, device: str, seed: int, steps: int, tick_s: float, folder: Path) -> Run:
    # What another process may take has to last until the end.
    hbm_mib = 4096 if case.neighbour_onset is None else 16384
    env, begin = _environment(device, folder, hbm_mib), folder / "begin"
    place = ("--device", "cpu" if device == "cpu" else "npu:0", "--seed", str(seed))
    pace = ("--begin", str(begin), "--steps", str(steps), "--period-ms", str(case.period_ms))
    with ExitStack() as stack:
        if case.neighbour_onset is not None:
            # It goes on however slow the training is.
            words = ("neighbour", *place, *pace, "--steps", "1000000", "--onset", str(case.neighbour_onset))
            stack.enter_context(Process(SCRIPT, folder / "output-neighbour", env, words)).wait_for(
                "ready", START_S
            )
        planted = ("--onset", str(case.onset), "--lasts", str(case.lasts))
        words = (case.target or case.name, *place, *pace, *planted)
        training = stack.enter_context(Process(SCRIPT, folder / "output-training", env, words))
        training.wait_for("ready", START_S)
        watching = _watch(training, begin, tick_s, case.truths[device].holds_host, steps * 0.1 + START_S)
        records, seen = tuple(watching.records), tuple(watching.seen)
        return Run(case, device, seed, steps, _offset(records, training.lines()), records, seen)


def _environment(device: str, folder: Path, hbm_mib: int) -> dict[str, str]:
    if device == "cpu":
        # Where torch_npu is installed for the tests, `import torch` would fail for want of CANN.
        return {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    # Processes that name the same ledger are on the same card.
    return simulator().environment(home=folder, ledger=folder / "ledger", hbm_mib=hbm_mib)


def _watch(training: Process, begin: Path, tick_s: float, holds_host: bool, timeout_s: float) -> Watching:
    """Attach, have the steps begin, and stay until the last one."""
    frames: list[Frame] = []
    session = Session([plugin()], name="verdicts", tick_s=tick_s)
    watching = session._collectors["memory"]
    assert isinstance(watching, Watching)
    watching.holds_host = holds_host
    session.add(read_target(training.process.pid))
    session.start(frames.append)
    try:
        end = time.monotonic() + START_S
        while sum(one.kind == "step" for one in watching.records) < SAMPLES:
            if time.monotonic() > end or training.process.poll() is not None:
                raise RunError(f"no steps came: {_why(frames)}")
            time.sleep(0.05)
        begin.touch()
        training.wait_for("end", timeout_s)
    finally:
        session.stop()
    if isinstance(frames[-1].targets[0].plugins["memory"], Failed):
        raise RunError(_why(frames))
    # What came after the last tick is judged too.
    watching.on_tick(watching.records[-1].wall_s + tick_s)
    return watching


def _why(frames: list[Frame]) -> str:
    if not frames or not frames[-1].targets:
        return "the session said nothing"
    one = frames[-1].targets[0]
    memory = one.plugins.get("memory")
    reason = one.status.reason.render() if one.status.reason else f"step {one.status.step}"
    return f"{one.status.state}, {reason}, {memory.failed if isinstance(memory, Failed) else 'no fault'}"


def _offset(records: tuple[Record, ...], lines: list[str]) -> float:
    """Return the shim's number of the training's step 0, from the moments of steps that both have noted."""
    told = [(float(line.split()[2]), int(line.split()[1])) for line in lines if line.startswith("at ")]
    apart = []
    for record in records:
        if record.kind == "step" and told and told[0][0] <= record.mono_s <= told[-1][0]:
            # A record is made inside its step, which is told of when it has ended.
            apart.append(record.step - min(step for at, step in told if at >= record.mono_s))
    if not apart:
        raise RunError("no step record came while the training told its steps")
    return float(median(apart))
