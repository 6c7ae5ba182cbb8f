"""A session that is a script: the only fake of these tests.

The screen is tested against frames it cannot tell from real ones; that a real attach delivers
such frames is tested where a real training runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from ascend_tui_plugins.memory.snapshot import (
    Block,
    Forecast,
    Holders,
    MemorySnapshot,
    MemoryValues,
    Reuse,
    Segment,
    Segments,
    Site,
    Slope,
    Verdict,
    Worker,
)
from ascend_tui_plugins.stacks.snapshot import NativeThreads, StackFrame, StacksSnapshot, ThreadStack

from ascend_tui.controls import Done, Outcome
from ascend_tui.frame import Cost, Failed, Frame, TargetFrame, TargetStatus
from ascend_tui.plugin import Alert, Command, Lease, Loaded, Message, Plugin
from ascend_tui.series import Series
from ascend_tui.target import TargetId

TARGET = TargetId(41233, 991)
GIB = 2**30
REASON = Message.of("live tensors grow by {rate} a step, all the time: no cache does that", rate="3.10 MiB")
HOST_REASON = Message.of("host memory grows by {rate} a step, all the time", rate="3.10 MiB")
SETTLES = Message.of("press {key}: which lines keep what they allocate", key="w")
FORECAST = Forecast("allocated", 31_240, 28_000, 36_100, 7_800.0, 6_600.0, 9_600.0)
START = 1_790_000_000.0


class FakeControls:
    """Record what the screen asks for and deliver frames when the test says so."""

    def __init__(self, answers: bool = True) -> None:
        self.answers = answers
        self.asked: list[tuple[Any, ...]] = []
        self.deliver: Callable[[Frame], None] | None = None
        self.unanswered: list[Done] = []

    def start(self, on_frame: Callable[[Frame], None]) -> None:
        self.deliver = on_frame
        self.asked.append(("start",))

    def stop(self) -> None:
        self.asked.append(("stop",))

    def set_tick(self, seconds: float) -> None:
        self.asked.append(("tick", seconds))

    def command(self, target: TargetId, plugin: str, name: str, start: bool, done: Done) -> None:
        self.asked.append(("command", target.pid, plugin, name, start))
        self._answer(done, Outcome(True, Message.of("{name} runs", name=name)))

    def mark(self, target: TargetId) -> None:
        self.asked.append(("mark", target.pid))

    def release(self, target: TargetId, done: Done) -> None:
        self.asked.append(("release", target.pid))
        self._answer(done, Outcome(True, Message.of("released")))

    def remove(self, target: TargetId, done: Done) -> None:
        self.asked.append(("remove", target.pid))
        self._answer(done, Outcome(True, Message.of("removed"), ("left behind: one fork sentinel",)))

    def _answer(self, done: Done, outcome: Outcome) -> None:
        if self.answers:
            done(outcome)
        else:
            self.unanswered.append(done)


class Story:
    """A training that leaks slowly on a card with an allocator cache; tick n is always the same."""

    def __init__(self, device: str = "npu:0", steps_per_tick: int = 3) -> None:
        self.device = device
        self.steps_per_tick = steps_per_tick
        self.tick = 0
        names = ("rss",) if device == "cpu" else ("allocated", "reserved", "device_used")
        self.by_step = [Series(name, 1.0) for name in names]
        self.by_time = [Series(name, 1.0) for name in names]
        self.now = self.values(0)

    def values(self, step: int) -> MemoryValues:
        wobble = math.sin(step * 1.7) * 0.4 + math.sin(step * 0.31) * 0.3
        allocated = int((20 + step * 0.0025 + wobble) * GIB)
        if self.device == "cpu":
            return MemoryValues(rss_bytes=allocated // 16)
        reserved = int((28 + 4 * (step // 1500)) * GIB)
        return MemoryValues(
            allocated_bytes=allocated,
            active_bytes=allocated + GIB // 2,
            reserved_bytes=reserved,
            device_used_bytes=reserved + 2 * GIB,
            outside_bytes=2 * GIB,
            device_total_bytes=62 * GIB,
            rss_bytes=9 * GIB,
            inactive_split_bytes=GIB,
        )

    @property
    def step(self) -> int:
        return self.tick * self.steps_per_tick

    def memory(self) -> MemorySnapshot:
        cpu = self.device == "cpu"
        return MemorySnapshot(
            state="live",
            device=self.device.split(":")[0],
            lead="rss" if cpu else "allocated",
            current=self.now,
            peak=self.now,
            slope_bytes_per_step=3.1 * 2**20,
            slope_bytes_per_s=11 * 2**20,
            samples=self.step,
            verdict=Verdict("leak", 0.7, 120, HOST_REASON if cpu else REASON, SETTLES),
            slope=Slope("rss" if cpu else "allocated", 3.1 * 2**20, 2.9 * 2**20, 3.3 * 2**20),
            forecast=None if cpu else FORECAST,
            reuse=Reuse("none" if cpu else "on"),
            time_curves=tuple(series.curve() for series in self.by_time),
            step_curves=tuple(series.curve() for series in self.by_step),
        )

    def forward(self, ticks: int = 1) -> Frame:
        """Let the training run on and return the frame of its last tick."""
        for _ in range(ticks):
            self.tick += 1
            for step in range(self.step - self.steps_per_tick, self.step):
                self.now = self.values(step)
                for series in self.by_step:
                    series.add(step, getattr(self.now, f"{series.name}_bytes"))
                for series in self.by_time:
                    series.add(step / self.steps_per_tick, getattr(self.now, f"{series.name}_bytes"))
        return self.frame()

    def status(self, **changes: Any) -> TargetStatus:
        status = TargetStatus(
            id=TARGET,
            title="train.py",
            state="live",
            rank=0,
            world_size=8,
            device=self.device,
            device_name="" if self.device == "cpu" else "910B3",
            step=self.step,
            step_time_s=0.812 + 0.001 * (self.tick % 7),
            sample_age_s=0.1 * (self.tick % 10),
            cost=Cost(share=0.003, low=0.001, high=0.005),
            python="3.11.9",
            torch="2.13.0",
            torch_npu="" if self.device == "cpu" else "2.13.0",
            method="ptrace",
        )
        return dataclasses.replace(status, **changes)

    def frame(self, alerts: tuple[Alert, ...] = (), plugins: Any = None, **changes: Any) -> Frame:
        """Return the present tick; `changes` are to the status."""
        snapshots = {"memory": self.memory(), "broken": Failed("ValueError: no such field")}
        if plugins is not None:
            snapshots = plugins
        target = TargetFrame(self.status(**changes), snapshots, alerts)
        return Frame(START + self.tick, (target,))


def moving() -> StacksSnapshot:
    """Return the stacks of a training that steps: none."""
    return StacksSnapshot("live", "moving", since_step_s=0.3, since_attach_s=60.0, step_s=0.8)


def still(since_s: float | None = 42.0, workers: int = 7) -> StacksSnapshot:
    """Return the stacks of a training whose loader delivers nothing, with the threads of a pool."""
    python, torch = "/usr/lib/python3.11/", "/opt/venv/lib/python3.11/site-packages/torch/utils/data/"
    start = (
        StackFrame("Thread.run", python + "threading.py", 982),
        StackFrame("Thread._bootstrap_inner", python + "threading.py", 1045),
        StackFrame("Thread._bootstrap", python + "threading.py", 1002),
    )
    main = (
        StackFrame("_PollLikeSelector.select", python + "selectors.py", 415),
        StackFrame("Connection._poll", python + "multiprocessing/connection.py", 440),
        StackFrame("Queue.get", python + "multiprocessing/queues.py", 113),
        StackFrame("_MultiProcessingDataLoaderIter._try_get_data", torch + "dataloader.py", 1291),
        StackFrame("_BaseDataLoaderIter.__next__", torch + "dataloader.py", 725),
        StackFrame("Trainer.train_epoch", "/home/me/long/path/to/a/project/src/trainer.py", 212),
        StackFrame("main", "/home/me/long/path/to/a/project/train.py", 88),
        StackFrame("<module>", "/home/me/long/path/to/a/project/train.py", 120),
    )
    waits = (StackFrame("Condition.wait", python + "threading.py", 327),)
    feeds = (StackFrame("Queue._feed", python + "multiprocessing/queues.py", 231),)
    pool = (StackFrame("_worker", python + "concurrent/futures/thread.py", 81),)
    threads = [ThreadStack("MainThread", 41233, True, False, main, does="poll", cpu_share=0.0, called="poll")]
    threads += [
        ThreadStack("QueueFeederThread", 41300 + n, False, True, waits + feeds + start, does="lock")
        for n in range(2)
    ]
    threads += [
        ThreadStack(f"pool-0_{n}\x1b[31m", 41310 + n, False, True, pool + start, does="lock")
        for n in range(workers)
    ]
    return StacksSnapshot(
        "live",
        "still",
        since_step_s=since_s,
        since_attach_s=63.0,
        step_s=0.812,
        still_s=40.0,
        doing=Message.of("main waits for the data loader, in {place}", place="train_epoch (trainer.py:212)"),
        cause=Message("likely its workers deliver nothing: they wait themselves, or have ended"),
        threads=tuple(threads),
        native_threads=(NativeThreads("pt_autograd_0", 2), NativeThreads("python3.11", 14)),
        reading_us=640.0,
    )


def holders(phase: Any = "done") -> Holders:
    """Return who holds what 20 steps allocated: a list with losses, a hook, and a name that is hostile."""
    place = "/home/me/long/path/to/a/project/"
    stack = (f"{place}train.py:88 log_loss", f"{place}train.py:141 train_epoch", f"{place}train.py:160 main")
    cause = Message("kept with its graph: keep loss.item() or .detach() instead")
    sites = (
        Site("log_loss", place + "train.py", 88, "log_loss", 4.1 * 2**20, 82 * 2**20, 20, 19, cause, stack),
        Site("hook", place + "hooks.py", 12, "Recorder.keep", 96 * 2**10, 1920 * 2**10, 40, 19),
        Site("x", "/tmp/[red]\x1b[31m数据\n集.py", 7, "[bold]进程\u202e", 812.0, 16_240, 20, 20),
    )
    return Holders(phase, "allocator history", 20, 2090, sites, 3 * 2**20)


def segments() -> Segments:
    """Return segments one of which is full, one waits for a stream, one is pinned by 64 KiB, one is free."""
    kib, mib = 2**10, 2**20
    shown = (
        Segment(1024 * mib, 1024 * mib, 0, (Block(1024 * mib, "active"),)),
        Segment(
            512 * mib,
            256 * mib,
            0,
            tuple(Block(128 * mib, state) for state in ("active", "pending", "free", "active")),
        ),
        Segment(
            256 * mib,
            64 * kib,
            0,
            (Block(100 * mib, "free"), Block(64 * kib, "active"), Block(156 * mib - 64 * kib, "free")),
        ),
        Segment(20 * mib, 0, 1, (Block(20 * mib, "free"),)),
    )
    total, used = sum(one.total_bytes for one in shown), sum(one.active_bytes for one in shown)
    return Segments(2080, 9, total, used, 156 * mib - 64 * kib, 20 * mib, 384 * mib, 1, 256 * mib, shown)


WORKERS = (Worker(41300, "pt_data_worker", 2**30), Worker(41301, "pt_data_worker", 900 * 2**20))


def alert(step: int = 18401, plugin: str = "memory") -> Alert:
    """Return one alert."""
    return Alert(
        TARGET, plugin, START + 60, "error", "numeric", Message.of("Inf in {name}", name="mlp.act"), step
    )


COMMANDS = (
    Command("reuse", "reuse", "switches the allocator cache off", Lease(200, 600.0), hotkey="r", slows=True),
    Command("holders", "who holds it", "about 10 % slower", Lease(20, 600.0), hotkey="w", slows=True),
    Command("segments", "segments", "one look, a few ms", Lease(1, 60.0), hotkey="f"),
    Command("watch", "watch", "costs nothing that can be measured", Lease(200, 600.0), hotkey="o"),
)
MEMORY = Loaded(
    "memory",
    Plugin("memory", "Memory", "", "ascend_tui_plugins.memory.pane:MemoryPane", commands=COMMANDS, order=10),
)
STACKS = Loaded(
    "stacks",
    Plugin("stacks", "Stacks", "", "ascend_tui_plugins.stacks.pane:StacksPane", order=90),
)
BROKEN = Loaded("broken", failed="ImportError: no module named 'gone'")
PLAIN = [
    Loaded(name, Plugin(name, title, "", "ascend_tui.widgets.pane:Pane", order=order))
    for order, (name, title) in enumerate([("hot", "Hotspots"), ("logs", "Logs"), ("last", "Sanitizer")], 20)
]
