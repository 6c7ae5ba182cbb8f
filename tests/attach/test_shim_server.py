"""The shim's socket: who gets in, what bad frames cost, and what several monitors may do."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from client import Client

from ascend_tui import wire
from ascend_tui.shim import agent as shim_agent
from ascend_tui.shim import requests, server, shell
from ascend_tui.shim.agent import Agent

PROBE = """
def setup(api):
    state = {"api": api}

    def start(arguments, steps, seconds):
        if arguments.get("refuse"):
            api.refuse("not now")
        if arguments.get("fail"):
            raise ValueError("no")
        if "flood" in arguments:
            for number in range(arguments["flood"]):
                api.emit("flood", {"n": number, "text": "x" * 1000})
        return {"got": arguments}

    api.command("go", start, lambda: api.emit("stopped", {}))
    api.command("other", start)
"""


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr(shim_agent, "LONELY_TICK_S", 0.05)
    one = Agent(str(tmp_path / "s" / "x.sock"), "1", None)
    one.start()
    yield one
    assert one.is_alive(), one.notes
    assert one.notes == []
    thread = one._thread
    one._stop = True
    assert thread is not None
    thread.join(5)
    assert not thread.is_alive()
    one._take_hooks_out()
    one.device.close()
    shell.agent = None


@pytest.fixture
def client(agent: Agent) -> Iterator[Client]:
    with Client(agent.server.path) as one:
        assert one.hello("first")["ok"]
        yield one


def test_hello_tells_who_it_is(agent: Agent) -> None:
    with Client(agent.server.path) as one:
        answer = one.hello("a", id=7)
        assert answer["process"]["pid"] == os.getpid()
        assert answer["protocol"] == 1
        assert answer["shim"]["boot"] == agent.boot
        with Client(agent.server.path) as two:
            others = two.hello("b")["others"]
            assert [one["name"] for one in others] == ["a"]
            assert others[0]["pid"] == os.getpid()


HOSTILE = {
    "huge length": struct.pack(">I", 0xFFFFFFFF) + b"x",
    "zero length": struct.pack(">I", 0),
    "not json": struct.pack(">I", 4) + b"}{}{",
    "binary": struct.pack(">I", 64) + bytes(range(64)),
    "not utf-8": struct.pack(">I", 4) + b'"\xff\xfe"',
    "not an object": struct.pack(">I", 2) + b"[]",
    "no type": struct.pack(">I", 2) + b"{}",
    "type is no text": struct.pack(">I", 10) + b'{"type":1}',
    "nested": struct.pack(">I", 200_000) + b"[" * 200_000,
    "long number": struct.pack(">I", 5013)
    + b'{"type":"a","n":%s}'[:0]
    + b'{"type": "'
    + b"9" * 5000
    + b'":1',
    "constant": struct.pack(">I", 22) + b'{"type":"a","n":   NaN}'[:22],
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "request before hello": struct.pack(">I", 32) + b'{"type":"request","op":"detach"}',
}


@pytest.mark.parametrize("hello_first", [False, True])
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_frame_closes_its_own_connection_and_nothing_else(
    client: Client, agent: Agent, name: str, hello_first: bool
) -> None:
    if hello_first and name == "request before hello":
        pytest.skip("that one is legal after a hello")
    with Client(agent.server.path) as bad:
        if hello_first:
            assert bad.hello("bad")["ok"]
        bad.socket.sendall(HOSTILE[name])
        while (frame := bad.frame()) is not None:
            assert frame["type"] in ("bye", "beat")
    assert client.ask("status")["ok"]
    assert len(agent.server.connections) == 1


@pytest.mark.parametrize(
    "protocols",
    [[2], [], None, "1", [[1]], {"1": 1}],
    ids=["newer", "none", "null", "text", "nested", "object"],
)
def test_wrong_version_is_told_what_there_is(agent: Agent, protocols: object) -> None:
    with Client(agent.server.path) as one:
        one.send({"type": "hello", "id": 1, "protocols": protocols})
        answer = one.frame()
        assert answer["ok"] is False
        assert answer["protocols"] == [1]
        assert one.frame() is None


def test_truncated_frame_waits_and_costs_nobody(client: Client, agent: Agent) -> None:
    with Client(agent.server.path) as slow:
        slow.socket.sendall(struct.pack(">I", 100) + b'{"type":')
        assert client.ask("status")["ok"]
        assert len(agent.server.connections) == 2


def test_silent_connection_is_closed(agent: Agent, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HELLO_S", 0.2)
    with Client(agent.server.path) as silent:
        assert silent.frame(5) is None
    assert client.ask("status")["ok"]


def test_second_hello_and_unknown_things_are_answered(client: Client) -> None:
    client.send({"type": "hello", "id": 5, "protocols": [1]})
    answer = client.until(lambda frame: frame["type"] == "reply")
    assert answer["ok"] is False
    assert "unknown frame type" in answer["error"]
    answer = client.ask("nonsense")
    for known in requests.OPERATIONS:
        assert known in answer["error"]


@pytest.mark.parametrize(
    "frame",
    [
        {"op": "command"},
        {"op": "command", "plugin": "p", "name": "go"},
        {"op": "command", "plugin": "p", "name": "go", "lease": 3},
        {"op": "command", "plugin": "p", "name": "go", "lease": {"steps": "x", "seconds": 1}},
        {"op": "command", "plugin": "p", "name": "go", "lease": {"steps": None, "seconds": []}},
        {"op": "command", "plugin": "p", "name": "go", "lease": {"steps": 1, "seconds": 1}, "arguments": 5},
        {"op": "probe"},
        {"op": "probe", "plugin": "q", "source": "def setup(", "order": 1},
        {"op": "probe", "plugin": "q", "source": "raise SystemExit", "order": 1},
        {"op": "probe", "plugin": "q", "source": "\x00"},
        {"op": "probe", "plugin": "q", "source": "\ud800"},
        {"op": "probe", "plugin": "q", "source": "x = 1"},
        {"op": "probe", "plugin": "q", "source": "", "order": "first"},
        {"op": "budget", "share": 7},
        {"op": "budget"},
        {"op": ["status"]},
        {"op": None},
        {"id": None},
    ],
)
def test_malformed_request_is_answered(client: Client, frame: dict[str, object]) -> None:
    client.probe("p", PROBE)
    client.send({"type": "request", "id": 99, **frame})
    answer = client.until(lambda one: one["type"] == "reply")
    assert answer["ok"] is False
    assert answer["error"]
    assert client.ask("status")["ok"]


@pytest.mark.parametrize("steps", [b"1e999", b"-5", b"9" * 39, b"1e300", b"-1e300"])
def test_numbers_out_of_all_bounds(agent: Agent, client: Client, steps: bytes) -> None:
    client.probe("p", PROBE)
    with Client(agent.server.path) as odd:
        odd.hello("odd")
        lease = b'"lease":{"seconds":1e300,"steps":' + steps + b"}"
        odd.raw(b'{"type":"request","id":1,"op":"command","plugin":"p","name":"go",' + lease + b"}")
        while (frame := odd.frame()) is not None and frame["type"] != "reply":
            continue
        # An infinite number is no JSON, and ends the connection.
        assert (frame is None) == (steps == b"1e999")
        if frame is not None:
            assert frame["result"]["seconds"] == 3600
            assert 1 <= frame["result"]["steps"] <= 1_000_000
    assert client.ask("status")["ok"]


def test_deeply_nested_id_is_answered_or_closed_but_survived(client: Client, agent: Agent) -> None:
    with Client(agent.server.path) as bad:
        bad.hello("bad")
        depth = 600
        bad.raw(b'{"type":"request","op":"status","id":' + b"[" * depth + b"]" * depth + b"}")
        bad.raw(json.dumps({"type": "request", "op": "status", "id": 3}).encode())
        frame = bad.frame()
        assert frame is None or frame["type"] in ("reply", "bye", "beat")
    assert client.ask("status")["ok"]


def test_seventeenth_connection_is_refused(agent: Agent) -> None:
    clients = [Client(agent.server.path) for _ in range(server.MOST_CONNECTIONS)]
    try:
        for one in clients:
            assert one.hello()["ok"]
        with Client(agent.server.path) as extra:
            assert extra.frame(5) is None
        assert agent.server.refused == 1
        clients.pop().close()
        clients[0].beat(lambda _: len(agent.server.connections) == len(clients))
        with Client(agent.server.path) as again:
            assert again.hello()["ok"]
    finally:
        for one in clients:
            one.close()


def test_slow_reader_loses_records_and_is_told_while_others_get_all(
    agent: Agent, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BACKLOG_BYTES", 600_000)
    client.probe("p", PROBE)
    with Client(agent.server.path) as slow:
        slow.hello("slow")
        (connection,) = [one for one in agent.server.connections.values() if one.name == "slow"]
        sent = 0
        while not connection.dropped:
            assert client.start("p", "go", arguments={"flood": 200})["ok"]
            sent += 200
            client.until(lambda _, sent=sent: sum(one["kind"] == "flood" for one in client.records) == sent)
            assert len(connection.out) < server.BACKLOG_BYTES + (700 << 10)
            assert sent < 20_000
        # What it asks meanwhile is not read either: no answer piles up.
        for number in range(20):
            slow.send({"type": "request", "id": number, "op": "status"})
        assert client.ask("status")["ok"]
        assert len(connection.out) < server.BACKLOG_BYTES + (700 << 10)
        dropped = connection.dropped
        slow.until(lambda one: one["type"] == "reply" and one["id"] == 19)
        assert client.start("p", "go", arguments={"flood": 1})["ok"]
        gap = slow.event(event="gap")
        assert gap["records"] == dropped
        got = [one["seq"] for one in slow.records if one["kind"] == "flood"]
        assert len(got) < sent
        assert got == sorted(got)
    seqs = [one["seq"] for one in client.records]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


def test_resume_gives_exactly_what_was_missed(agent: Agent, client: Client) -> None:
    client.probe("p", PROBE)
    client.start("p", "go", arguments={"flood": 100})
    client.until(lambda _: len(client.records) >= 100)
    boot, last = agent.boot, client.records[-1]["seq"]
    client.start("p", "go", arguments={"flood": 50})
    client.until(lambda _: len(client.records) >= 150)
    with Client(agent.server.path) as again:
        again.hello(resume={"boot": boot, "seq": last})
        missed = [one["seq"] for one in client.records if one["seq"] > last]
        assert [one["seq"] for one in again.records] == list(range(last + 1, last + 1 + len(missed)))
        assert len(missed) >= 50
    for resume in ({"boot": "another", "seq": last}, {"boot": boot, "seq": "x"}, {"boot": boot}, 5, None):
        with Client(agent.server.path) as fresh:
            fresh.hello(resume=resume)
            assert [one["seq"] for one in fresh.records] == list(range(1, last + 1 + len(missed)))


def test_command_is_held_by_one_and_stopped_by_anyone(agent: Agent, client: Client) -> None:
    client.probe("p", PROBE)
    reply = client.start("p", "go", arguments={"a": 1})
    assert reply["result"]["phase"] == "on"
    assert reply["result"]["result"] == {"got": {"a": 1}}
    with Client(agent.server.path) as other:
        other.hello("second")
        refused = other.start("p", "go")
        assert not refused["ok"]
        assert f"held by first (pid {os.getpid()}" in refused["error"]
        assert other.start("p", "other")["ok"]
        states = other.ask("status")["result"]["commands"]
        assert {(one["name"], one["phase"]) for one in states} == {("go", "on"), ("other", "on")}
        assert other.stop("p", "go")["result"]["phase"] == "off"
        event = client.event(event="command", name="go", phase="off")
        assert event["reason"] == "stopped by second"
        assert other.ask("release")["result"]["ended"] == ["p.other"]
        assert other.stop("p", "go")["ok"]
        assert "known" in other.stop("x", "go")["error"] or "no probe" in other.stop("x", "go")["error"]
        assert "it has: go, other" in other.stop("p", "nothing")["error"]


def test_refusal_of_a_probe_leaves_it_in_use_and_a_fault_switches_it_off(client: Client) -> None:
    client.probe("p", PROBE)
    assert client.start("p", "go", arguments={"refuse": 1})["error"] == "not now"
    assert client.start("p", "go")["ok"]
    assert "ValueError" in client.start("p", "go", arguments={"fail": 1})["error"]
    assert "off after a fault" in client.start("p", "go")["error"]
    assert "its probe is off" in client.event(event="command", name="go", phase="off")["reason"]
    assert client.probe("p", PROBE)["result"]["again"] is False
    assert client.start("p", "go")["ok"]
    assert client.probe("p", PROBE)["result"]["again"] is True


def test_read_only_connection_may_look_and_nothing_else(agent: Agent, client: Client) -> None:
    client.probe("p", PROBE)
    with Client(agent.server.path) as looker:
        looker.hello("looker", writable=False)
        assert looker.ask("status")["ok"]
        for op in sorted(requests.OPERATIONS):
            if op not in requests.HARMLESS:
                assert looker.ask(op)["error"] == "this connection is read-only"
    assert client.ask("status")["ok"]


def test_lease_of_seconds_and_of_a_lost_monitor(
    agent: Agent, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "ORPHAN_S", 0.3)
    client.probe("p", PROBE)
    client.start("p", "go", seconds=0.2)
    assert client.event(event="command", phase="off")["reason"] == "lease over"
    client.events.clear()
    with Client(agent.server.path) as lost:
        lost.hello("lost")
        lost.start("p", "go", seconds=60)
        lost.start("p", "other", seconds=60, keep=True)
    assert client.event(event="command", name="go", phase="off")["reason"] == "its monitor is gone"
    states = client.ask("status")["result"]["commands"]
    assert [one["name"] for one in states] == ["other"]


def test_status_of_a_foreign_holder_is_in_every_beat(client: Client) -> None:
    client.probe("p", PROBE)
    client.start("p", "go")
    assert client.beat(lambda beat: beat["commands"])["commands"][0]["holder"].startswith("first")


# The place of the socket.


def test_socket_is_private_and_gone_after_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s" / "x.sock"
    one = server.Server(str(path), lambda *_: None, lambda *_: None, lambda *_: None)
    one.open()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    one.close_all(unlink=True)
    assert not path.parent.exists()


def plain(path: Path) -> server.Server:
    return server.Server(str(path), lambda *_: None, lambda *_: None, lambda *_: None)


def test_last_words_are_read_although_nothing_can_be_sent_any_more(tmp_path: Path) -> None:
    heard: list[str] = []
    gone: list[str] = []

    def greet(connection: server.Connection, frame: dict[str, object]) -> None:
        connection.greeted = True

    carrier = server.Server(
        str(tmp_path / "private" / "1.sock"),
        greet,
        lambda connection, frame: heard.append(str(frame["op"])),
        lambda connection: gone.append(connection.name),
    )
    carrier.open()
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(carrier.path)
        monitor.sendall(wire.encode({"type": "hello"}, wire.MAX_TO_SHIM_BYTES))
        while not any(one.greeted for one in carrier.connections.values()):
            carrier.poll(1.0)
        monitor.sendall(wire.encode({"type": "request", "op": "release"}, wire.MAX_TO_SHIM_BYTES))
    # The shim's next act is to send, to a socket that is closed: what came before that must not be lost.
    carrier.broadcast({"type": "beat"})
    assert not gone
    carrier.poll(1.0)
    carrier.poll(1.0)
    carrier.close_all(unlink=True)
    assert heard == ["release"]
    assert gone == ["unknown"]


def test_directory_of_a_wrong_mode_or_kind_is_refused_with_the_reason(tmp_path: Path) -> None:
    wide, link, file = tmp_path / "wide", tmp_path / "link", tmp_path / "file"
    wide.mkdir(mode=0o755)
    (tmp_path / "true").mkdir(mode=0o700)
    link.symlink_to(tmp_path / "true")
    file.write_text("")
    for directory in (wide, link, file):
        with pytest.raises(OSError, match=r"is not a directory of uid .* with mode 0700"):
            plain(directory / "x.sock").open()
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir(mode=0o700)
        os.chown(foreign, 12345, 12345)
        with pytest.raises(OSError, match="is not a directory of uid"):
            plain(foreign / "x.sock").open()
    with pytest.raises(OSError, match="107 bytes"):
        plain(tmp_path / "s" / ("x" * 200)).open()
    with pytest.raises(OSError, match="No such file"):
        plain(tmp_path / "none" / "s" / "x.sock").open()


def test_stale_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    directory.mkdir(mode=0o700)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(directory / "x.sock"))
    stale.close()
    first = plain(directory / "x.sock")
    first.open()
    with pytest.raises(OSError, match="another process listens"):
        plain(directory / "x.sock").open()
    assert first.is_in_place()
    first.close_all(unlink=True)


def test_removed_socket_comes_back(agent: Agent, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    os.unlink(agent.server.path)
    os.rmdir(os.path.dirname(agent.server.path))
    agent._next_check = 0.0
    with Client(agent.server.path) as again:
        assert again.hello()["ok"]
    assert client.ask("status")["ok"]
    # A directory that is no longer safe is said, and tried again.
    os.chmod(os.path.dirname(agent.server.path), 0o755)
    os.unlink(agent.server.path)
    agent._next_check = 0.0
    assert client.beat(lambda beat: beat["notes"])["notes"][0].startswith("the socket is gone")
    os.chmod(os.path.dirname(agent.server.path), 0o700)
    agent._next_check = 0.0
    with Client(agent.server.path) as again:
        assert again.hello()["ok"]
    agent.notes.clear()


def test_other_user_is_refused(agent: Agent, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # He sees the socket only because this test opens the way for him.
    for part in [Path(agent.server.path), *Path(agent.server.path).parents][:-1]:
        if part.stat().st_uid == 0 and part != Path("/tmp"):
            os.chmod(part, part.stat().st_mode | 0o007)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(12345)
            os.setuid(12345)
            with socket.socket(socket.AF_UNIX) as other:
                other.settimeout(5)
                other.connect(agent.server.path)
                os.write(writer, b"got %r" % other.recv(9))
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "got b''"
    os.waitpid(child, 0)
    assert agent.server.refused == 1


def test_no_descriptors_left_is_survived_without_spinning(agent: Agent, client: Client) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = socket.socket(socket.AF_UNIX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
    try:
        waiting.connect(agent.server.path)
        start = agent.beat
        assert start
        polls = []
        original = agent.server._accept
        agent.server._accept = lambda: polls.append(original())  # type: ignore[method-assign]
        time.sleep(0.5)
        agent.server._accept = original  # type: ignore[method-assign]
        assert len(polls) < 30
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        waiting.close()
    assert client.ask("status")["ok"]


def test_too_large_answer_becomes_an_error(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    client.probe("p", PROBE)
    monkeypatch.setattr(wire, "MAX_TO_MONITOR_BYTES", 20_000)
    answer = client.start("p", "go", arguments={"text": "x" * 30_000})
    assert not answer["ok"]
    assert "too large" in answer["error"]
    assert client.ask("mark")["ok"]


@pytest.mark.parametrize("data", ["[1]", "None and 1 or 5", "loop"])
def test_probe_that_emits_no_object_is_switched_off(client: Client, data: str) -> None:
    source = f"def setup(api):\n loop = {{}}\n loop['me'] = loop\n api.emit('k', {data}, 'v')\n"
    client.probe("bad", source)
    event = client.event(event="probe", plugin="bad", phase="failed")
    assert "emit" in event["reason"]
    assert client.ask("status")["result"]["faults"]["bad"]


@pytest.mark.parametrize(
    "line",
    [
        "api.sample(20, lambda: 1 / 0)",
        "api.sample(20, lambda: __import__('sys').exit(3))",
        "api.sample(20, lambda: [][1])",
        "api.sample(20, lambda: (_ for _ in ()).throw(Rude()))",
    ],
)
def test_sampler_that_fails_is_switched_off_and_closed(client: Client, line: str) -> None:
    source = (
        "class Rude(Exception):\n def __repr__(self):\n  raise ValueError\n __str__ = __repr__\n"
        "def setup(api):\n api.on_close(lambda: api.emit('closed', {}))\n api.on_close(lambda: 1 / 0)\n "
        + line
        + "\n"
    )
    assert client.probe("bad", source)["ok"]
    assert "sampler" in client.event(event="probe", plugin="bad", phase="failed")["reason"]
    client.until(lambda _: any(one["kind"] == "closed" for one in client.records))
    assert client.event(event="probe", plugin="bad", reason="close: ZeroDivisionError('division by zero')")
    assert client.ask("status")["ok"]


def test_second_start_wakes_the_first(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "agent", agent)
    shim_agent.begin(agent.server.path, "1", None)
    assert shell.agent is agent
