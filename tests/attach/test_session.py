"""The session: several targets, ends, lost connections, and whatever may sit at the other end of a socket."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trainings import (
    Training,
    Watcher,
    descriptors,
    kill_group,
    needs_ptrace,
    needs_torch,
    plain,
    same_bits,
    threads_of,
    until,
)

from ascend_tui.attach import attach, has_shim
from ascend_tui.connection import ShimClient
from ascend_tui.frame import Failed, json_lines
from ascend_tui.plugin import Alert, Collector, Loaded, Message, Plugin, load, load_all
from ascend_tui.session import Session
from ascend_tui.target import Target, TargetId, read_target, socket_path

pytestmark = needs_ptrace

# Ends by itself once the file is there, with the code that the file names.
ENDING = """
import os, sys, threading, time
threading.Thread(target=threading.Event().wait, daemon=True).start()
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
sys.exit(int(open(sys.argv[1]).read()))
"""

# A process with something else than a shim at the place of its shim's socket.
FAKE = """
import json, os, socket, struct, sys, threading, time
from ascend_tui.target import read_target, socket_path

def frame(value):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack(">I", len(body)) + body

def read(connection):
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    return json.loads(data[4 : 4 + struct.unpack(">I", data[:4])[0]])

ticks = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
HELLO = {
    "type": "hello", "id": 0, "ok": True, "protocol": 1, "protocols": [1], "shim": {"boot": "b"},
    "process": {"pid": os.getpid(), "start_ticks": ticks}, "torch": {}, "device": {}, "last_seq": 0,
}
MODE = sys.argv[1]

def serve(connection):
    read(connection)
    if MODE == "silent":
        time.sleep(60)
    elif MODE == "shut":
        connection.close()
    elif MODE == "wrong process":
        connection.sendall(frame(dict(HELLO, process={"pid": 1, "start_ticks": ticks - 1})))
    elif MODE == "no version":
        connection.sendall(frame({"type": "hello", "id": 0, "ok": False, "protocols": [99]}))
    elif MODE == "garbage":
        connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    elif MODE == "bare":
        connection.sendall(frame(dict(HELLO, process=[])))
    elif MODE == "hostile":
        odd = [None, True, -1, 1e308, "x" * 10000, [], [[]], {}, {"a": {}}, 10**39, "\\udcff", "{0} {a}"]
        connection.sendall(frame(dict(HELLO, shim="text", torch=[1], device={"kind": 3, "index": "x"})))
        for one in odd:
            connection.sendall(frame({"type": "records", "records": one}))
            connection.sendall(frame({"type": "records", "records": [one, {"seq": one}]}))
            connection.sendall(frame({"type": "beat", **{
                name: one for name in ("step", "skipped", "step_s", "cost", "dropped", "commands", "faults",
                "notes", "torch", "device")}}))
            connection.sendall(frame({"type": "reply", "id": one, "ok": one, "result": one, "error": one}))
            connection.sendall(frame({"type": "event", "event": one}))
            connection.sendall(frame({"type": "no such type", "id": one}))
            time.sleep(0.15)  # Long enough for a tick to look at it.
        connection.sendall(frame({"type": "beat", "step": 7}))
    elif MODE == "full":
        # It reads nothing more and never answers.
        connection.sendall(frame(HELLO))
        connection.sendall(frame({"type": "beat", "step": 7}))
    time.sleep(60)

path = socket_path(read_target(os.getpid()))
os.makedirs(path.parent, 0o700, exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(str(path))
listener.listen(16)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@contextlib.contextmanager
def fake(mode: str) -> Iterator[Target]:
    process = subprocess.Popen([sys.executable, "-c", FAKE, mode], start_new_session=True)
    path = socket_path(read_target(process.pid))
    try:
        assert until(path.exists)
        yield read_target(process.pid)
    finally:
        kill_group(process)
        path.unlink(missing_ok=True)


class Recorder(Collector):
    """Keep the numbers of the records of each target, and what its faults are to be."""

    raises: str = ""

    def __init__(self, publish: Callable[..., None]) -> None:
        super().__init__(publish)
        self.seqs: dict[TargetId, list[int]] = {}
        self.gone: list[TargetId] = []

    def _fall(self, where: str) -> None:
        if self.raises == where:
            raise RuntimeError(f"fell in {where}")

    def on_record(self, target: TargetId, record: Any) -> None:
        self._fall("on_record")
        self.seqs.setdefault(target, []).append(record.seq)

    def on_event(self, event: Any) -> None:
        self._fall("on_event")

    def on_tick(self, now: float) -> None:
        self._fall("on_tick")

    def on_gone(self, target: TargetId) -> None:
        self._fall("on_gone")
        self.gone.append(target)

    def snapshot(self, target: TargetId) -> Any:
        self._fall("snapshot")
        return list(self.seqs.get(target, ()))


class Echo(Recorder):
    """Answer each event with another one."""

    def on_event(self, event: Any) -> None:
        if isinstance(event, Alert):
            self.publish(event)

    def on_record(self, target: TargetId, record: Any) -> None:
        if not self.gone:
            self.gone.append(target)
            self.publish(Alert(target, "memory", record.wall_s, "info", "other", Message("again and again")))


for _where in ("init", "on_record", "on_event", "on_tick", "on_gone", "snapshot"):
    globals()[f"Falls_{_where}"] = type(f"Falls_{_where}", (Recorder,), {"raises": _where})


def recorder(collector: str = "Recorder", name: str = "memory") -> Loaded:
    """Return a plugin of the memory probe's records with a collector of this file."""
    probe = "ascend_tui_plugins.memory:probe.py" if name == "memory" else None
    return Loaded(name, Plugin(name, name, f"{__name__}:{collector}", "nowhere:Pane", probe=probe))


def drop(watcher: Watcher, target: Target) -> None:
    """Have the shim end the connection: a frame of one byte breaks the protocol."""
    link = watcher.session._links[target.id]
    assert link._client is not None
    link._client._sock.sendall(b"\0\0\0\1x")


def reason(frame: Any) -> str:
    return frame.status.reason.render() if frame.status.reason else ""


# Several targets and their ends.


@needs_torch
def test_two_trainings_at_once_and_one_of_them_ends(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        # Both import torch at the same time.
        pair = [Training(tmp_path / name, *more) for name, more in (("a", ("--exit", "3")), ("b", ()))]
        ends, stays = (stack.enter_context(one) for one in pair)
        one, other = ends.target, stays.target
        watcher = stack.enter_context(Watcher(one, other, plugins=load_all()))
        for target in (one, other):
            seen = watcher.until(
                target, lambda frame: frame.status.state == "live" and frame.plugins["memory"].samples > 5
            )
            assert seen.status.step
            assert seen.status.id == target.id
        assert set(watcher.session._links) == {one.id, other.id}
        assert str(one.id) == f"{ends.pid}@{one.id.start_ticks}"
        lines = {line["target"]["id"]["pid"]: line for line in json_lines(watcher.frames[-1])}
        assert lines[ends.pid]["target"]["id"]["start_ticks"] == one.id.start_ticks
        (ends.folder / "stop").touch()
        gone = watcher.state(one, "exited")
        assert reason(gone) == "target exited (code 3)"
        # What was known of it stays.
        assert gone.plugins["memory"].samples > 5
        assert gone.status.step
        before = watcher.frame(other).plugins["memory"].samples
        after = watcher.until(other, lambda frame: frame.plugins["memory"].samples > before + 5)
        assert after.status.state == "live"
        assert watcher.frame(one).status.state == "exited"
        assert watcher.ask("remove", other.id).ok
        same_bits(ends)
        same_bits(stays)


@pytest.mark.parametrize(("end", "said"), [("3", "code 3"), ("0", "code 0"), ("KILL", "signal 9")])
def test_how_a_target_ended_is_said_and_its_last_picture_stays(tmp_path: Path, end: str, said: str) -> None:
    go = tmp_path / "go"
    with plain(ENDING, str(go)) as process:
        target = read_target(process.pid)
        with Watcher(target, plugins=[recorder()]) as watcher:
            watcher.until(target, lambda frame: len(frame.plugins["memory"]) > 3)
            if end == "KILL":
                process.send_signal(signal.SIGKILL)
            else:
                # Renamed, so that it is never there without its text.
                (tmp_path / "text").write_text(end)
                (tmp_path / "text").rename(go)
            gone = watcher.state(target, "exited")
            assert reason(gone) == f"target exited ({said})"
            assert len(gone.plugins["memory"]) > 3
            assert watcher.session._collectors["memory"].gone == [target.id]
            # And it is not asked for anything any more.
            outcome = watcher.ask("release", target.id)
            assert (outcome.ok, outcome.message.render()) == (False, f"target exited ({said})")
            count = len(watcher.frames)
            assert until(lambda: len(watcher.frames) > count + 3)
            assert watcher.session._collectors["memory"].gone == [target.id]
        # Not reaped by us: its exit code is its parent's.
        assert process.wait(5) == {"3": 3, "0": 0, "KILL": -9}[end]


def test_an_answer_that_never_comes_is_answered_when_the_target_ends() -> None:
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target) as watcher:
            watcher.state(target, "waiting")
            process.send_signal(signal.SIGSTOP)
            told: list[Any] = []
            watcher.session.release(target.id, told.append)
            time.sleep(0.2)
            assert told == []
            process.send_signal(signal.SIGKILL)
            assert until(lambda: told)
            assert not told[0].ok
            assert reason(watcher.state(target, "exited")) == "target exited (signal 9)"


def test_a_target_that_ended_before_it_was_added() -> None:
    with plain() as process:
        target = read_target(process.pid)
    with Watcher(target) as watcher:
        assert reason(watcher.state(target, "exited")).startswith("target exited")


# Connections that are lost, and shims that are removed.


def test_a_lost_connection_comes_back_by_itself_without_a_hole_in_the_records() -> None:
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target, plugins=[recorder()]) as watcher:
            first = watcher.until(target, lambda frame: len(frame.plugins["memory"]) > 5)
            for _ in range(2):
                before = len(watcher.frame(target).plugins["memory"])
                drop(watcher, target)
                lost = watcher.state(target, "disconnected")
                assert "the shim closed the connection: frame length 1" in reason(lost)
                assert not watcher.ask("release", target.id).ok
                back = watcher.state(target, "waiting", "live")
                watcher.until(target, lambda frame: len(frame.plugins["memory"]) > before + 6)  # noqa: B023
            seqs = watcher.frame(target).plugins["memory"]
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
            assert back.status.method == first.status.method
            assert watcher.ask("release", target.id).ok


def test_a_monitor_that_comes_back_gets_the_past_from_where_it_was() -> None:
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target, plugins=[recorder()]) as watcher:
            seqs = watcher.until(target, lambda frame: len(frame.plugins["memory"]) > 5).plugins["memory"]
            boot = watcher.session._links[target.id]._hello["shim"]["boot"]
        # Nobody is connected for a while; the shim goes on.
        time.sleep(1.2)
        for last, wanted in ((seqs[-1], seqs[-1] + 1), (0, 1)):
            resume = {"boot": boot, "seq": last}
            client = ShimClient.connect(target, name="back", writable=False, resume=resume)
            found = [one["seq"] for frame in client.receive() for one in frame.get("records", [])]
            assert found == list(range(wanted, wanted + len(found)))
            assert found
            client.close()


def test_a_shim_that_somebody_removed_is_not_put_back_by_a_monitor_that_watches() -> None:
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target) as watcher, Watcher(target) as other:
            for one in (watcher, other):
                one.state(target, "waiting")
            outcome = other.ask("remove", target.id)
            assert outcome.ok
            assert f"removed from {process.pid}; what stays" in outcome.lines[0]
            assert any("empty shell" in line for line in outcome.lines)
            assert reason(other.state(target, "refused")) == "the shim was removed"
            gone = watcher.until(target, lambda frame: "the shim is gone" in reason(frame))
            assert gone.status.state == "disconnected"
            time.sleep(1.5)
            assert not has_shim(target)
            assert len(threads_of(process.pid)) == 2
            # When the user attaches again, the one that still watches is with it.
            back = attach(target, name="again", writable=True).client
            watcher.state(target, "waiting", "live")
            assert reason(other.frame(target)) == "the shim was removed"
            assert not other.ask("remove", target.id).ok
            back.close()
        assert process.poll() is None


def test_a_stopped_target_is_refused_in_the_frame_and_the_others_go_on() -> None:
    with plain() as stopped, plain() as process:
        stopped.send_signal(signal.SIGSTOP)
        one, other = read_target(stopped.pid), read_target(process.pid)
        with Watcher(other, one) as watcher:
            assert "it is stopped" in reason(watcher.state(one, "refused"))
            watcher.state(other, "waiting")


def test_of_those_asked_for_together_the_first_refusal_stops_those_behind_it() -> None:
    with plain() as first, plain() as stopped, plain() as last:
        stopped.send_signal(signal.SIGSTOP)
        one, two, three = (read_target(process.pid) for process in (first, stopped, last))
        with Watcher(one, two, three) as watcher:
            watcher.state(one, "waiting")
            watcher.state(two, "refused")
            assert f"the attach to process {two.id.pid} before it" in reason(watcher.state(three, "refused"))
            assert not has_shim(three)
            # Asked for again, and alone, it is tried.
            watcher.state(one, "waiting")
        with Watcher(three) as watcher:
            watcher.state(three, "waiting")


# Whatever else may sit at the socket.


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("silent", "did not answer within"),
        ("shut", "hung up at once"),
        ("wrong process", "another process answers"),
        ("no version", "speaks protocols [99]"),
        ("garbage", "broken frame"),
        ("bare", "another process answers"),
    ],
)
def test_what_is_no_shim_is_refused_with_the_reason(
    mode: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "silent":
        # The others answer, which on a busy machine takes its time.
        monkeypatch.setattr("ascend_tui.connection.HELLO_S", 0.5)
    monkeypatch.setattr("ascend_tui.attach.SHUT_S", 0.2)
    with fake(mode) as target, Watcher(target) as watcher:
        assert why in reason(watcher.state(target, "refused"))
        assert threads_of(target.id.pid)
        assert len([one for one in descriptors() if "socket" in one]) < 20


def test_hostile_frames_reach_nobody_and_the_session_lives() -> None:
    with fake("hostile") as target, plain() as process:
        other = read_target(process.pid)
        with Watcher(target, other, plugins=[recorder()]) as watcher:
            live = watcher.until(target, lambda frame: frame.status.step == 7)
            assert live.status.state == "live"
            assert live.plugins["memory"] == []
            states = {one.status.state for frame in watcher.frames for one in frame.targets}
            assert states <= {"attaching", "waiting", "live"}
            watcher.until(other, lambda frame: len(frame.plugins["memory"]) > 2)
            # Its notes are text, whatever they hold.
            assert all(isinstance(note.render(), str) for note in live.status.notes)
            assert json_lines(watcher.frames[-1])


def test_a_fault_of_our_own_over_one_target_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ascend_tui import link

    with plain() as process, plain() as second:
        target, other = read_target(process.pid), read_target(second.pid)
        with Watcher(target, other, plugins=[recorder()]) as watcher:
            for one in (target, other):
                watcher.until(one, lambda frame: len(frame.plugins["memory"]) > 2)
            once, real = iter([True]), link.records_of

            def fall(raw: Any) -> Any:
                if next(once, False):
                    raise ArithmeticError("a slip of ours")
                return real(raw)

            monkeypatch.setattr(link, "records_of", fall)
            assert until(
                lambda: any("a slip of ours" in reason(watcher.frame(one)) for one in (target, other))
            )
            for one in (target, other):
                before = len(watcher.frame(one).plugins["memory"])
                watcher.until(one, lambda frame: len(frame.plugins["memory"]) > before + 3)  # noqa: B023


def test_a_shim_that_reads_nothing_does_not_hold_the_session_up() -> None:
    with fake("full") as target, plain() as process:
        other = read_target(process.pid)
        with Watcher(target, other, plugins=[recorder()]) as watcher:
            watcher.state(target, "live")
            told: list[Any] = []
            for _ in range(200):
                watcher.session.release(target.id, told.append)
            watcher.until(other, lambda frame: len(frame.plugins["memory"]) > 5)
        assert len(told) == 200
        assert not any(outcome.ok for outcome in told)


# Collectors that fall.


@pytest.mark.parametrize("where", ["on_record", "on_event", "on_tick", "on_gone", "snapshot"])
def test_a_collector_that_raises_costs_its_own_pane_only(where: str) -> None:
    with plain() as process:
        target = read_target(process.pid)
        plugins = [recorder(f"Falls_{where}"), recorder(name="other")]
        with Watcher(target, plugins=plugins) as watcher:
            if where in ("on_event", "on_gone"):
                watcher.state(target, "waiting")
                watcher.session.mark(target.id)
            if where == "on_gone":
                process.kill()
            seen = watcher.until(target, lambda frame: isinstance(frame.plugins["memory"], Failed))
            assert seen.plugins["memory"].failed == f"RuntimeError: fell in {where}"
            assert seen.plugins["other"] == []
            count = len(watcher.frames)
            assert until(lambda: len(watcher.frames) > count + 2)


def test_a_collector_that_cannot_be_made_or_found_is_a_failed_pane() -> None:
    plugins = [
        recorder("NoSuchName"),
        recorder(name="fine"),
        Loaded("bare", failed="OSError: unreadable"),
        Loaded("blind", Plugin("blind", "b", f"{__name__}:Recorder", "nowhere:Pane", probe="os:none.py")),
    ]
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target, plugins=plugins) as watcher:
            seen = watcher.state(target, "waiting").plugins
    assert "NoSuchName" in seen["memory"].failed
    assert seen["bare"] == Failed("OSError: unreadable")
    assert isinstance(seen["blind"], Failed)
    assert seen["fine"] == []


def test_plugins_that_answer_each_others_events_for_ever_do_not_stop_the_clock() -> None:
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target, plugins=[recorder("Echo")]) as watcher:
            watcher.until(target, lambda frame: len(frame.alerts) > 10)
            count = len(watcher.frames)
            assert until(lambda: len(watcher.frames) > count + 5)


# The life of a session.


def test_ticks_come_when_nothing_is_watched() -> None:
    with Watcher() as watcher:
        assert until(lambda: len(watcher.frames) > 3)
        assert watcher.frames[-1].targets == ()
        outcome = watcher.ask("release", TargetId(4_000_000, 1))
        assert (outcome.ok, outcome.message.render()) == (False, "there is no such target")
        watcher.session.set_tick(60)
        time.sleep(0.3)
        count = len(watcher.frames)
        time.sleep(0.4)
        assert len(watcher.frames) <= count + 1


def test_twenty_sessions_leave_no_descriptor_and_no_thread() -> None:
    with plain() as process:
        target = read_target(process.pid)
        attach(target, name="first", writable=True).client.close()
        with Watcher(target, plugins=load_all()) as watcher:
            watcher.state(target, "waiting")
        before, threads = len(descriptors()), threading.active_count()
        for number in range(20):
            with Watcher(target, plugins=load_all(), tick_s=0.05) as watcher:
                # Some are stopped while they still attach, some before they were started.
                if number % 3 == 0:
                    watcher.state(target, "waiting")
                watcher.session.add(target)
        for _ in range(5):
            unused = Session([])
            unused.add(target)
            unused.stop()
            unused.add(target)
        assert until(lambda: threading.active_count() == threads)
        assert until(lambda: len(descriptors()) == before), descriptors()


def test_a_session_that_is_stopped_while_it_injects_lets_go_of_the_shim() -> None:
    with plain() as process:
        target = read_target(process.pid)
        before = len(descriptors())
        with Watcher(target):
            time.sleep(0.05)
        # The injection runs to its end, as it must; the connection it gave is closed.
        assert until(lambda: has_shim(target))
        client = ShimClient.connect(target, name="look", writable=False)
        others = [one["name"] for one in client.hello["others"]]
        client.close()
        assert others == [] or until(lambda: not _others(target))
        assert until(lambda: len(descriptors()) == before)
        assert process.poll() is None


def _others(target: Target) -> list[str]:
    client = ShimClient.connect(target, name="look", writable=False)
    client.close()
    return [one["name"] for one in client.hello["others"]]


def test_what_is_asked_of_a_stopped_session_is_answered() -> None:
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target) as watcher:
            watcher.state(target, "waiting")
        for name in ("release", "remove"):
            assert not watcher.ask(name, target.id).ok
        watcher.session.set_tick(1.0)
        watcher.session.stop()
        assert socket_path(target).exists()
        assert load("memory").name == "memory"
