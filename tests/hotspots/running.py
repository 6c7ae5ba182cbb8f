"""Run one case and watch it as a monitor does: a real injection, the product's session and collector."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ascend_tui_plugins.hotspots.collector import HotspotsCollector
from ascend_tui_plugins.hotspots.snapshot import HotspotsSnapshot

from ascend_tui.controls import Outcome
from ascend_tui.frame import Failed, Frame
from ascend_tui.plugin import Alert, Event, Loaded, Record, load
from ascend_tui.session import Session
from ascend_tui.target import Target, TargetId, read_target
from tests.cann_sim.simulator import simulator
from tests.hotspots.cases import Case
from tests.targets.process import Process, RunError

SCRIPT = Path(__file__).parent.parent / "targets" / "hotspots.py"
START_S = 120.0
PRESSES, PRESS_S = 5, 15.0
LEASE = {"steps": 1_000_000, "seconds": 3600.0}


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: what was said before the onset, where there is one, and at last; and what is true.

    `offset` is the shim's number of the training's step 0.  `twin` is the hash of the parameters of the same
    training without us, where it was asked for.
    """

    case: Case
    device: str
    seed: int
    truth: Mapping[str, Any]
    offset: float
    snapshot: HotspotsSnapshot
    before: HotspotsSnapshot | None
    alerts: tuple[Alert, ...]
    records: tuple[Record, ...]
    lines: tuple[str, ...]
    twin: str = ""
    presses: int = 0

    @property
    def hash(self) -> str:
        """The hash of the parameters at the end."""
        return next((line.split()[2] for line in self.lines if line.startswith("end ")), "")


class Watching(HotspotsCollector):
    """The collector of the product, which also keeps each record and each alert."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self.records: list[Record] = []
        self.alerts: list[Alert] = []

        def keep(event: Event) -> None:
            if isinstance(event, Alert):
                self.alerts.append(event)
            publish(event)

        super().__init__(keep)

    def on_record(self, target: TargetId, record: Record) -> None:
        """Keep the record."""
        self.records.append(record)
        super().on_record(target, record)


def plugin() -> Loaded:
    """Return the hotspots plugin with the collector that takes notes."""
    return Loaded("hotspots", dataclasses.replace(load("hotspots"), collector=f"{__name__}:Watching"))


def run(case: Case, device: str, seed: int = 1, tick_s: float = 0.5, twin: bool = False) -> Run:
    """Run a case to its end; raises RunError."""
    folder = Path(tempfile.mkdtemp(prefix="ascend-tui-hotspots-"))
    try:
        return _run(case, device, seed, tick_s, folder, twin)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(case: Case, device: str, seed: int, tick_s: float, folder: Path, twin: bool) -> Run:
    env = environment(device, folder, case.costs, case.mspti)
    asked = [case.target or case.name, "--device", "cpu" if device == "cpu" else "npu:0", "--seed", str(seed)]
    with Process(SCRIPT, folder / "output", env, [*asked, "--folder", str(folder)]) as process:
        process.wait_for("ready", START_S)
        watched = Watch(case, process, folder, tick_s)
        watched.to_its_end()
        lines = tuple(process.lines())
    done = watched.run(device, seed, lines)
    if twin:
        calm = [*asked, "--steps", str(done.truth["steps"])]
        with Process(SCRIPT, folder / "twin", env, calm) as process:
            process.wait_for("end ", 4 * START_S)
            last = next(line for line in process.lines() if line.startswith("end "))
        done = dataclasses.replace(done, twin=last.split()[2])
    return done


def environment(device: str, folder: Path, costs: str = "", mspti: bool = True) -> dict[str, str]:
    """Return the environment of a training on this device."""
    if device == "cpu":
        # Where torch_npu is installed for the tests, `import torch` would fail for want of CANN.
        return {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    env = simulator().environment(home=folder, costs=costs)
    if mspti:
        # As people are told to start a training whose kernels are to be timed.
        env["LD_PRELOAD"] = str(Path(env["ASCEND_HOME_PATH"]) / "lib64" / "libmspti.so")
    return env


class Watch:
    """One training, attached to until enough of its steps were looked at."""

    def __init__(self, case: Case, process: Process, folder: Path, tick_s: float) -> None:
        self.case, self.process, self.folder = case, process, folder
        self.frames: list[Frame] = []
        # What is judged is what is said, not how seldom it looks: nothing is to be thinned.
        self.session = Session([plugin()], name="hotspots", tick_s=tick_s, budget_share=0.5, autostart=False)
        self.watching: Watching = self.session._collectors["hotspots"]  # type: ignore[assignment]
        self.target: Target = read_target(process.process.pid)
        self.before: HotspotsSnapshot | None = None
        self.presses = 0

    def to_its_end(self) -> None:
        """Attach, sample, profile once, and end the training."""
        self.session.add(self.target)
        self.session.start(self.frames.append)
        try:
            self.until(lambda one: bool(self.watching.records), "no record came")
            begun = self._step()
            command(self.session, self.target.id, "sample", {"every": self.case.every})
            self.until(lambda one: one.sampling.samples >= self.case.samples, "too few steps were looked at")
            self.until(lambda one: self._step() - begun >= self.case.steps, "too few steps were made")
            if any(one.changed for one in self.case.truths.values()):
                self.until(lambda one: one.baseline_step is not None, "there is no baseline")
                self.before = self._said()
                (self.folder / "onset").touch()
                wanted = self.before.sampling.samples + self.case.samples + 4
                self.until(lambda one: one.sampling.samples >= wanted, "too few steps after the onset")
            for _ in range(self.case.profiles):
                self.profile()
            # What the last tick did not say yet is judged too.
            time.sleep(2.0)
        finally:
            (self.folder / "stop").touch()
            try:
                self.process.wait_for("end ", START_S)
                time.sleep(0.5)
            finally:
                self.session.stop()

    def samples_only(self) -> None:
        """Attach to any training and sample, and leave it."""
        self.session.add(self.target)
        self.session.start(self.frames.append)
        try:
            self.until(lambda one: bool(self.watching.records), "no record came")
            command(self.session, self.target.id, "sample", {"every": self.case.every})
            self.until(lambda one: one.sampling.samples >= self.case.samples, "too few steps were looked at")
        finally:
            self.session.stop()

    def profile(self) -> None:
        """Press the key, and wait for both of its steps; where a step is looked at just then, press again."""
        for _ in range(PRESSES):
            seen = [self._count(kind) for kind in ("sites", "sample")]
            self.presses += 1
            try:
                command(self.session, self.target.id, "profile", {})
                self.until(
                    lambda one, seen=seen: self._is_done(one, *seen),
                    "no line of a synchronising call was looked for",
                    PRESS_S,
                )
                return
            except RunError as error:
                reason = error
                time.sleep(0.3)
        raise reason

    def _is_done(self, said: HotspotsSnapshot, sites: int, samples: int) -> bool:
        looked = said.syncs_known and self._count("sites") > sites
        return self._count("sample") > samples and (looked or not self.case.sites)

    def _count(self, kind: str) -> int:
        return sum(
            one.kind == kind and one.data.get("asked") in (True, None) for one in self.watching.records
        )

    def _step(self) -> int:
        return max((frame.targets[0].status.step or 0 for frame in self.frames if frame.targets), default=0)

    def _held(self) -> Any:
        return (
            self.frames[-1].targets[0].plugins["hotspots"]
            if self.frames and self.frames[-1].targets
            else None
        )

    def _said(self) -> HotspotsSnapshot | None:
        held = self._held()
        return held if isinstance(held, HotspotsSnapshot) else None

    def until(
        self, holds: Callable[[HotspotsSnapshot], bool], else_said: str, seconds: float = START_S
    ) -> None:
        """Wait until it holds for what is said; raises RunError."""
        end = time.monotonic() + seconds
        while True:
            held = self._held()
            said = self._said()
            if said is not None and holds(said):
                return
            if isinstance(held, Failed):
                raise RunError(f"the plugin failed: {held.failed}")
            if time.monotonic() > end or self.process.process.poll() is not None:
                raise RunError(f"{else_said}: {why(self.frames)}")
            time.sleep(0.05)

    def run(self, device: str, seed: int, lines: tuple[str, ...]) -> Run:
        """Return what is known of the training that has ended."""
        truth = json.loads((self.folder / "truth.json").read_text())
        held = self._held()
        if isinstance(held, Failed):
            raise RunError(f"the plugin failed: {held.failed}")
        records = tuple(self.watching.records)
        return Run(
            self.case,
            device,
            seed,
            truth,
            offset(records, truth),
            held,
            self.before,
            tuple(self.watching.alerts),
            records,
            lines,
            presses=self.presses,
        )


def command(session: Session, target: TargetId, name: str, arguments: Mapping[str, Any]) -> None:
    """Start a command of the plugin and wait until it is told to have begun; raises RunError."""
    told: list[Outcome] = []
    lease = LEASE if name == "sample" else {"steps": 3, "seconds": 120.0}
    more = {"plugin": "hotspots", "name": name, "action": "start", "lease": lease}
    session._ask(target, told.append, "command", arguments=dict(arguments), **more)
    end = time.monotonic() + 20.0
    while not told:
        if time.monotonic() > end:
            raise RunError(f"{name}: no answer")
        time.sleep(0.02)
    if not told[0].ok:
        raise RunError(f"{name}: {told[0].message.render()}")


def why(frames: Sequence[Frame]) -> str:
    """Say what the session knows of its target."""
    if not frames or not frames[-1].targets:
        return "the session said nothing"
    (one,) = frames[-1].targets
    held = one.plugins.get("hotspots")
    reason = one.status.reason.render() if one.status.reason else f"step {one.status.step}"
    notes = " / ".join(note.render() for note in one.status.notes)
    said = f"{one.status.state}, {reason}, {notes}"
    if isinstance(held, HotspotsSnapshot):
        told = [*held.missing, *held.notes, *filter(None, (held.reason, held.sampling.why))]
        said += f"; {held.state}, {held.sampling.samples} samples, {' / '.join(m.render() for m in told)}"
    return said


def offset(records: Sequence[Record], truth: Mapping[str, Any]) -> float:
    """Return the shim's number of the training's step 0, from the moments of steps that both have noted."""
    ends, first = truth["ends"], truth["first"]
    apart = []
    for record in records:
        if record.kind != "pulse":
            # A sample is told of in the very moment in which its step ends.
            continue
        made = sum(end <= record.mono_s for end in ends)
        if 0 < made < len(ends):
            apart.append(record.step - (first - 1 + made))
    return float(median(apart)) if apart else 0.0
