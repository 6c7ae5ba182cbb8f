"""One target of a session: attaching, its pulse, its requests, and what happened when it fell silent."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ascend_tui.attach import Attached, attach
from ascend_tui.autostart import Autostart
from ascend_tui.connection import ShimClient, ShimError, ShimGone
from ascend_tui.controls import Done, Outcome
from ascend_tui.decode import dict_of, outcome_of, records_of, status_of
from ascend_tui.frame import TargetState, TargetStatus
from ascend_tui.passive import how_it_ended
from ascend_tui.plugin import Message, Plugin, Record
from ascend_tui.target import (
    Exit,
    ExitWatch,
    RefusedError,
    Target,
    TargetGone,
    forget_socket,
    socket_path,
    state_of,
)

RETRY_S = 1.0
SILENT_S = 5.0
"""A shim says something every second; after so long without a word the screen says why that may be."""
SHIM_GONE = Message(
    "the shim is gone: it was removed, or it ended after a fault; attach again to put it back"
)
NO_ANSWER = Outcome(False, Message("the connection was lost before the answer came"))


class Link:
    """Keep one shim connected.  Everything but the attach itself runs on the session's thread.

    `first_attach` is for the owner to call, on a thread of its own; `wake` and `tell` are called from there.
    """

    def __init__(
        self,
        target: Target,
        name: str,
        writable: bool,
        method: str,
        probes: Sequence[tuple[Plugin, str]],
        budget_share: float | None,
        autostart: bool = True,
        wake: Callable[[], None] = lambda: None,
        tell: Callable[[Target, Attached], None] = lambda target, attached: None,
    ) -> None:
        self.target = target
        self._name, self._writable, self._method = name, writable, method
        self._probes = probes
        self._budget_share = budget_share
        self._autostart = Autostart([plugin for plugin, _ in probes] if autostart and writable else ())
        self._loaded: set[str] = set()
        self._wake, self._tell = wake, tell
        self._client: ShimClient | None = None
        self._state: TargetState = "attaching"
        self._reason: Message | None = None
        self._how: Attached | None = None
        self._hello: Mapping[str, Any] = {}
        self._beat: Mapping[str, Any] = {}
        self._faults: dict[str, str] = {}
        self._bye = ""
        self._last_seq = 0
        self._last_wall: float | None = None
        self._heard_mono = 0.0
        self._pending: dict[int, Done] = {}
        self._retry_at = 0.0
        # What the attaching thread hands over; it closes its connection itself when nobody waits any more.
        self._handover = threading.Lock()
        self._closed = False
        # Named while /proc still tells where the target's /tmp is.
        self._socket = socket_path(target)
        self._result: Attached | Exception | None = None
        self._is_attaching = True
        try:
            self._watch: ExitWatch | None = ExitWatch(target)
        except TargetGone:
            self._watch = None
            self._over(Exit(None, None))

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more will come of this target."""
        return self._state in ("exited", "refused")

    @property
    def news(self) -> tuple[TargetState, bool]:
        """What a frame is due for at once when it changes: the state, and whether a record has come."""
        return self._state, self._last_wall is not None

    @property
    def probe_faults(self) -> Mapping[str, str]:
        """The plugins whose probe is not at work in this target, with the reason."""
        told = {str(name): str(why) for name, why in dict_of(self._beat.get("faults")).items()}
        return {**self._faults, **told}

    def first_attach(self, given_up: Exception | None) -> bool:
        """Attach, or take the reason why that is not tried; tell whether a shim greeted."""
        result = given_up or self._attach(None, self._writable)
        if isinstance(result, Attached):
            self._tell(self.target, result)
        self._hand_over(result)
        return isinstance(result, Attached)

    def _reconnect(self) -> None:
        self._is_attaching = True
        resume = {"boot": _boot(self._hello), "seq": self._last_seq}
        work = lambda: self._hand_over(self._attach(resume, False))  # noqa: E731
        threading.Thread(target=work, name="reconnect", daemon=True).start()

    def _attach(self, resume: Mapping[str, Any] | None, may_inject: bool) -> Attached | Exception:
        if self._closed:
            return ShimError("nobody waits for this attach any more")
        try:
            return attach(
                self.target,
                name=self._name,
                writable=self._writable,
                method=self._method,
                resume=resume,
                may_inject=may_inject,
            )
        except Exception as error:  # noqa: BLE001 - whatever it was, the screen has to say it
            return error

    def _hand_over(self, result: Attached | Exception) -> None:
        with self._handover:
            self._result = result
            if self._closed and isinstance(result, Attached):
                result.client.close()
        self._wake()

    def descriptors(self) -> Iterable[int]:
        """Return what wakes the session up."""
        if self._client is not None:
            yield self._client.fileno()
        if self._watch is not None and self._watch.fileno() >= 0 and not self.is_over:
            yield self._watch.fileno()

    def pump(self, now_mono: float) -> list[Record]:
        """Take what came, notice what ended, and return the records."""
        records: list[Record] = []
        # Asked first: what the target said before its end is then in the socket already.
        ended = self._watch.poll() if self._watch is not None else None
        if self._result is not None:
            self._is_attaching = False
            self._settle()
        while self._client is not None:
            try:
                frames = self._client.receive()
            except ShimError as error:
                self._lost(self._bye or str(error), now_mono)
                break
            for frame in frames:
                self._heard_mono = now_mono
                records += self._frame(frame)
            if not frames or (ended is None and self._client is not None and not self._client.has_ended):
                break
        if ended is not None and self._state != "refused":
            self._over(ended)
        elif self._state == "disconnected" and not self._is_attaching and now_mono >= self._retry_at:
            self._retry_at = now_mono + RETRY_S
            self._reconnect()
        return records

    def _settle(self) -> None:
        result, self._result = self._result, None
        if isinstance(result, Attached):
            if self.is_over:
                result.client.close()
                return
            self._client = result.client
            self._heard_mono = time.monotonic()
            if _boot(self._hello) != _boot(result.client.hello):
                self._last_seq = 0
            self._hello = result.client.hello
            self._how = self._how or result
            self._bye = ""
            self._state, self._reason = "waiting", Message("waiting for the first step")
            self._loaded.clear()
            self._autostart.reset()
            if self._writable:
                self._send_probes(result.client)
        elif result is not None and not self.is_over:
            ended = self._watch.poll() if self._watch is not None else None
            if ended is not None:
                self._over(ended)
                return
            # After it was once attached, what refuses may pass (stopped, being debugged): try again.
            # But a shim that was taken out is put back by nobody but the user.
            why = result.refusal.english() if isinstance(result, RefusedError) else str(result)
            self._state = "disconnected" if self._hello else "refused"
            removed = self._hello and isinstance(result, ShimGone)
            self._reason = SHIM_GONE if removed else Message.of("{why}", why=why or type(result).__name__)

    def fail(self, error: Exception) -> None:
        """Give the connection up after a fault of our own, and try again with a new one."""
        self._lost(f"{type(error).__name__}: {error}", time.monotonic())

    def _send_probes(self, client: ShimClient) -> None:
        if self._budget_share is not None:
            self.ask("budget", {"share": self._budget_share}, lambda outcome: None)
        for plugin, text in self._probes:
            if self._client is None:
                return  # Lost already; they are sent again with the next connection.
            fields = {"plugin": plugin.name, "source": text, "order": plugin.order}
            self.ask("probe", fields, self._probe_loaded(plugin.name))

    def _probe_loaded(self, name: str) -> Done:
        def done(outcome: Outcome) -> None:
            if outcome.ok:
                self._faults.pop(name, None)
                self._loaded.add(name)
                self._start_due(time.monotonic())
            elif outcome is not NO_ANSWER:
                self._faults[name] = outcome.message.render()

        return done

    def _start_due(self, now_mono: float) -> None:
        for fields in self._autostart.due(self._beat, self._loaded, now_mono):
            self.ask("command", fields, lambda outcome: None)

    def _lost(self, why: str, now_mono: float) -> None:
        self._drop()
        self._state, self._reason = "disconnected", Message.of("{why}", why=why)
        self._retry_at = now_mono + RETRY_S

    def _over(self, ended: Exit) -> None:
        self._state, self._reason = "exited", how_it_ended(ended)
        self._drop()
        forget_socket(self._socket)

    def retire(self, reason: Message) -> None:
        """End this link on purpose: the shim was removed."""
        self._state, self._reason = "refused", reason
        self._drop()

    def close(self) -> None:
        """Give the descriptors back, also that of an attach that is still under way."""
        with self._handover:
            self._closed = True
            if isinstance(self._result, Attached):
                self._result.client.close()
        self._drop()
        if self._watch is not None:
            self._watch.close()

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
        pending, self._pending = self._pending, {}
        for done in pending.values():
            done(NO_ANSWER)

    # Frames and requests.

    def ask(self, operation: str, fields: Mapping[str, Any], done: Done) -> None:
        """Send a request; `done` gets its outcome."""
        if self._client is None:
            done(Outcome(False, self._reason or Message("not attached yet")))
            return
        try:
            self._pending[self._client.send_request(operation, **fields)] = done
        except ShimError as error:
            if not isinstance(error, ShimGone):
                done(Outcome(False, Message.of("{why}", why=str(error))))
                return
            self._lost(str(error), time.monotonic())
            done(NO_ANSWER)

    def _frame(self, frame: dict[str, Any]) -> list[Record]:
        kind = frame["type"]
        if kind == "records":
            return self._records(frame.get("records"))
        if kind == "beat":
            self._beat = frame
            self._start_due(time.monotonic())
        elif kind == "bye":
            self._bye = f"the shim closed the connection: {frame.get('reason')}"
        elif kind == "reply":
            identity = frame.get("id")
            done = self._pending.pop(identity, None) if isinstance(identity, int) else None
            if done is not None:
                done(outcome_of(frame))
        return []

    def _records(self, raw: Any) -> list[Record]:
        records = records_of(raw)
        for record in records:
            self._last_seq = max(self._last_seq, record.seq)
            self._last_wall = record.wall_s
            self._autostart.learn(record)
        return records

    def status(self, now: float) -> TargetStatus:
        """Return the pulse at `now` (Unix seconds)."""
        state, reason = self._state, self._reason
        if state == "waiting" and self._beat.get("step"):
            state, reason = "live", None
        age_s = None if self._last_wall is None else max(0.0, now - self._last_wall)
        status = status_of(self.target, state, reason, self._hello, self._beat, age_s)
        silent_s = time.monotonic() - self._heard_mono
        if self._client is not None and silent_s > SILENT_S:
            status = dataclasses.replace(status, notes=(silence(self.target, silent_s), *status.notes))
        how = self._how
        if how is None:
            return status
        stop_ms = max(how.stops_ms, default=None)
        return dataclasses.replace(
            status, method=how.method, method_reason=how.reason, stop_ms=stop_ms, hello_ms=how.hello_ms
        )


def silence(target: Target, seconds: float) -> Message:
    """Say why a connected shim may be silent: its thread needs the interpreter, and a process that runs."""
    pid, whole = target.id.pid, int(seconds)
    if state_of(pid) in ("T", "t"):
        return Message.of(
            "no word for {seconds} s: the process is stopped; kill -CONT {pid} lets it go on",
            seconds=whole,
            pid=pid,
        )
    return Message.of(
        "no word for {seconds} s: likely native code holds the interpreter; "
        "py-spy dump --nonblocking --pid {pid} shows where",
        seconds=whole,
        pid=pid,
    )


def _boot(hello: Mapping[str, Any]) -> Any:
    return dict_of(hello.get("shim")).get("boot")
