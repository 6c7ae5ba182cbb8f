"""The attached targets: records in, events around, snapshots out, and reconnecting.

One thread does all of it.  It waits on the sockets, hands records to the collectors as they come,
and once per tick steps the collectors' clock and delivers one frozen frame.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ascend_tui.attach import Attached
from ascend_tui.controls import Done, Outcome
from ascend_tui.convoy import Convoy
from ascend_tui.decode import residue_lines
from ascend_tui.frame import Failed, Frame, TargetFrame
from ascend_tui.link import Link
from ascend_tui.machine import Ask, Machine
from ascend_tui.marks import mark_of
from ascend_tui.passive import Look, PassiveLink
from ascend_tui.plugin import (
    Alert,
    Collector,
    Event,
    Loaded,
    Mark,
    Message,
    Plugin,
    Record,
    probe_text,
    resolve,
)
from ascend_tui.target import Target, TargetId

WAKE_S = 0.25
MOST_EVENTS = 1000
"""Handed on at once; plugins that answer each other's events for ever must not stop the clock."""
MOST_MARKS = 1000
"""In one frame, the newest: a first attach may bring those of weeks."""


class Session:
    """Several targets and the collectors that watch them all."""

    def __init__(
        self,
        plugins: Sequence[Loaded],
        *,
        name: str = "attach",
        writable: bool = True,
        tick_s: float = 1.0,
        method: str = "auto",
        budget_share: float | None = None,
        autostart: bool = True,
        passive: bool = False,
        settings: Mapping[str, Any] | None = None,
        on_attached: Callable[[Target, Attached], None] = lambda target, attached: None,
    ) -> None:
        self.plugins = list(plugins)
        self._tick_s = tick_s
        self._name, self._writable, self._method = name, writable, method
        self._budget_share, self._autostart = budget_share, autostart
        self._passive = passive
        self._settings = settings or {}
        self._on_attached = on_attached
        self._convoy = Convoy()
        self._links: dict[TargetId, Link | PassiveLink] = {}
        self._collectors: dict[str, Collector] = {}
        self._failed: dict[str, str] = {}
        self._probes: list[tuple[Plugin, str]] = []
        self._looks: list[tuple[str, Look]] = []
        self._asks: list[tuple[str, Ask]] = []
        self._alerts: dict[TargetId, list[Alert]] = {}
        self._marks: dict[TargetId, deque[Mark]] = {}
        self._events: deque[Event] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread: threading.Thread | None = None
        self._stopping = False
        # Held for the moment of a wake-up or of the end, so that no call is written to a closed pipe.
        self._ending = threading.Lock()
        self._ended = False
        self._on_frame: Callable[[Frame], None] = lambda frame: None
        self._load()
        self._machine = Machine(self._asks)

    def _load(self) -> None:
        for one in self.plugins:
            if one.plugin is None:
                self._failed[one.name] = one.failed or "could not be loaded"
                continue
            try:
                collector = resolve(one.plugin.collector)(self._events.append)
                collector.configure(self._settings)
                self._collectors[one.name] = collector
                text = probe_text(one.plugin)
                look = resolve(one.plugin.outside) if self._passive and one.plugin.outside else None
                ask = resolve(one.plugin.machine) if one.plugin.machine else None
            except Exception as error:  # noqa: BLE001 - a third party's fault costs its own pane only
                self._collectors.pop(one.name, None)
                self._failed[one.name] = f"{type(error).__name__}: {error}"
                continue
            if text is not None:
                self._probes.append((one.plugin, text))
            if look is not None:
                self._looks.append((one.name, look))
            if ask is not None:
                self._asks.append((one.name, ask))

    # What others call, from any thread.

    def add(self, *targets: Target) -> None:
        """Begin to attach to `targets`; progress and refusals are in the frames.

        One after the other in this order; the first that is refused stops those behind it.
        """
        # Begun here, so that it is under way while the caller still loads its screen.
        links = [PassiveLink(one, self._looks) if self._passive else self._link(one) for one in targets]
        self._convoy.join([(one.target, one.first_attach) for one in links if isinstance(one, Link)])

        def join() -> None:
            for link in links:
                if link.target.id in self._links or self._stopping:
                    link.close()
                    continue
                self._links[link.target.id] = link
                for name, collector in list(self._collectors.items()):
                    self._guard(name, collector.on_target, link.target.id)

        self._call(join)

    def _link(self, target: Target) -> Link:
        return Link(
            target,
            self._name,
            self._writable,
            self._method,
            self._probes,
            self._budget_share,
            self._autostart,
            self._wake,
            self._on_attached,
        )

    def start(self, on_frame: Callable[[Frame], None]) -> None:
        """Begin to deliver one frame per tick, on the session's thread."""
        self._on_frame = on_frame
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the connections; the shims stay."""
        self._stopping = True
        self._wake()
        if self._thread is None:
            self._end()
        elif self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def set_tick(self, seconds: float) -> None:
        """Change the time between two frames."""
        self._tick_s = seconds
        self._wake()

    def command(self, target: TargetId, plugin: str, name: str, start: bool, done: Done) -> None:
        """Start or stop a plugin's command under its own lease."""
        lease = next(
            (
                {"steps": command.lease.steps, "seconds": command.lease.seconds}
                for one in self.plugins
                if one.plugin and one.name == plugin
                for command in one.plugin.commands
                if command.name == name
            ),
            {"steps": 200, "seconds": 60.0},
        )
        action = "start" if start else "stop"
        self._ask(target, done, "command", plugin=plugin, name=name, action=action, lease=lease)

    def mark(self, target: TargetId) -> None:
        """Note this moment in the target's own record."""
        self._ask(target, lambda outcome: None, "mark", sign="m", label="mark")

    def release(self, target: TargetId, done: Done) -> None:
        """Stop what this monitor started; the idle shim stays for the next attach."""
        self._ask(target, done, "release")

    def remove(self, target: TargetId, done: Done) -> None:
        """Take the shim out of the target; the outcome's lines say what could not be taken out."""

        def finished(outcome: Outcome) -> None:
            link = self._links.get(target)
            if link is not None and outcome.ok:
                link.retire(Message("the shim was removed"))
                lines = residue_lines(target.pid, outcome.lines)
                outcome = Outcome(True, outcome.message, lines)
            done(outcome)

        self._ask(target, finished, "detach")

    def _ask(self, target: TargetId, done: Done, operation: str, **fields: Any) -> None:
        def send() -> None:
            link = self._links.get(target)
            if link is None:
                done(Outcome(False, Message("there is no such target")))
            else:
                link.ask(operation, fields, done)

        self._call(send)

    def _call(self, call: Callable[[], None]) -> None:
        """Have the session's thread do it; after the end, where nothing is left to race with, do it here."""
        with self._ending:
            ended = self._ended
            if not ended:
                self._calls.append(call)
        if ended:
            call()
        else:
            self._wake()

    def _wake(self) -> None:
        with self._ending:
            if not self._ended:
                with contextlib.suppress(BlockingIOError):  # a full pipe has woken the thread already
                    os.write(self._wake_write, b".")

    # The session's thread.

    def _run(self) -> None:
        try:
            next_tick = time.monotonic()
            while not self._stopping:
                self._wait(max(0.0, next_tick - time.monotonic()))
                self._carry_out()
                news = [self._take(link) for link in list(self._links.values())]
                now = time.monotonic()
                if any(news):
                    # An attach that succeeded or a first sample is not kept waiting for the next tick.
                    next_tick = now
                if now >= next_tick and not self._stopping:
                    # A tick that came late is not made up for: the next one is a full period away.
                    next_tick = max(next_tick + self._tick_s, now + self._tick_s / 2)
                    self._tick(time.time())
        finally:
            self._end()

    def _carry_out(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _end(self) -> None:
        # What was asked just before the stop is still sent: "release, then stop" must release.
        self._stopping = True
        self._carry_out()
        for link in self._links.values():
            link.close()
        for name, collector in list(self._collectors.items()):
            self._guard(name, collector.close)
        with self._ending:
            if not self._ended:
                self._ended = True
                os.close(self._wake_read)
                os.close(self._wake_write)
        # What slipped in meanwhile finds its link closed, and its caller gets that for an answer.
        self._carry_out()

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        for link in self._links.values():
            for descriptor in link.descriptors():
                poll.register(descriptor, select.POLLIN)
        poll.poll(min(seconds, WAKE_S) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _take(self, link: Link | PassiveLink) -> bool:
        """Take what came from one target; return whether its state changed or its first record came."""
        before = link.news
        was_gone = link.is_over
        try:
            records = link.pump(time.monotonic())
        except Exception as error:  # noqa: BLE001 - whatever a shim sent, the other targets go on
            link.fail(error)
            records = []
        for record in records:
            collector = self._collectors.get(record.plugin)
            if record.plugin == "core":
                mark = mark_of(link.target.id, record, self.plugins)
                if mark is not None:
                    self._events.append(mark)
            elif collector is not None:
                self._guard(record.plugin, collector.on_record, link.target.id, record)
        if link.is_over and not was_gone:
            for name, collector in list(self._collectors.items()):
                self._guard(name, collector.on_gone, link.target.id)
        self._route()
        return link.news != before

    def _route(self) -> None:
        for _ in range(MOST_EVENTS):
            if not self._events:
                break
            event = self._events.popleft()
            if isinstance(event, Alert) and event.target in self._links:
                self._alerts.setdefault(event.target, []).append(event)
            elif isinstance(event, Mark) and event.target in self._links:
                self._marks.setdefault(event.target, deque(maxlen=MOST_MARKS)).append(event)
            for name, collector in list(self._collectors.items()):
                self._guard(name, collector.on_event, event)

    def _guard(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001 - a collector's fault costs its own pane only
            self._collectors.pop(name, None)
            self._failed[name] = f"{type(error).__name__}: {error}"
            return None

    def _hear_machine(self, now: float) -> None:
        now_mono = time.monotonic()
        for name, data in self._machine.take(now_mono):
            collector = self._collectors.get(name)
            for link in self._links.values():
                if collector is not None and not link.is_over:
                    record = Record(0, name, "machine", link.status(now).step or 0, now, now_mono, data)
                    self._guard(name, collector.on_record, link.target.id, record)

    def _tick(self, now: float) -> None:
        self._hear_machine(now)
        for link in self._links.values():
            step = link.status(now).step
            for name, collector in list(self._collectors.items()):
                if step is not None and not link.is_over:
                    self._guard(name, collector.on_step, link.target.id, step, now)
        for name, collector in list(self._collectors.items()):
            self._guard(name, collector.on_tick, now)
        self._route()
        targets = []
        for link in self._links.values():
            snapshots: dict[str, Any] = {}
            for one in self.plugins:
                if one.name in self._collectors:
                    collector = self._collectors[one.name]
                    snapshots[one.name] = self._guard(one.name, collector.snapshot, link.target.id)
                reason = self._failed.get(one.name) or link.probe_faults.get(one.name)
                if reason is not None:
                    snapshots[one.name] = Failed(reason)
            alerts = tuple(self._alerts.pop(link.target.id, ()))
            marks = tuple(self._marks.pop(link.target.id, ()))
            targets.append(TargetFrame(link.status(now), snapshots, alerts, marks))
        self._on_frame(Frame(now, tuple(targets)))
