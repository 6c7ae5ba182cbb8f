"""The public `attach`, on a real training: it arrives, changes no bit, and leaves what it says it leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainings import (
    Place,
    Training,
    descriptors,
    needs_ptrace,
    needs_torch,
    plain,
    same_bits,
    threads_of,
    until,
)

from ascend_tui import attach as attaching
from ascend_tui.attach import Attached, attach, has_shim, target_of, why_not
from ascend_tui.connection import ShimClient, ShimError, ShimGone, ShimShut, ShimSilent
from ascend_tui.plugin import load, probe_text
from ascend_tui.target import RefusedError, Target, read_target, socket_path

pytestmark = needs_ptrace


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, place: Place) -> Iterator[Training]:
    with Training(tmp_path_factory.mktemp("training"), place=place) as training:
        yield training


def join(target: Target, **options: Any) -> Attached:
    return attach(target, **{"name": "test", "writable": True, **options})


def load_memory(client: ShimClient) -> None:
    plugin = load("memory")
    client.request("probe", plugin="memory", source=probe_text(plugin), order=1)


def detach(client: ShimClient) -> list[str]:
    """Remove the shim, and wait until it has taken its socket away."""
    path = socket_path(client.target)
    residue = client.request("detach")["residue"]
    client.close()
    assert until(lambda: not path.exists())
    return list(residue)


def refused(target: Target, **options: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        join(target, **options)
    return caught.value.refusal.code


# A real training.


@needs_torch
def test_attaching_again_and_again_leaves_what_it_names_and_nothing_else(training: Training) -> None:
    before = training.outside_view()
    assert before == {"sockets": 0, "executable": [], "path": False}
    rounds = 0
    residue: list[str] = []
    for method in ("thread", "pending", "auto"):
        client = join(training.target, method=method).client
        load_memory(client)
        records: list[dict[str, Any]] = []

        def steps(client: ShimClient = client, records: list[dict[str, Any]] = records) -> list[int]:
            for frame in client.receive():
                records.extend(frame.get("records", []))
            return [one["step"] for one in records if one["kind"] == "step"]

        assert until(lambda: len(steps()) > 3, 30), records[-3:]
        assert steps() == sorted(set(steps()))
        assert {one["kind"] for one in records} >= {"time", "step"}
        readings = [one for one in records if one["kind"] in ("time", "step")]
        assert all(one["data"]["rss_bytes"] > 1 << 20 for one in readings)
        rounds += 1
        # The listener and this connection.
        assert training.outside_view()["sockets"] == 2
        residue = detach(client)
    assert until(lambda: training.outside_view() == before), (training.outside_view(), before)
    inside = training.own_view()
    # What is left is named, and nothing else is left.
    left = [name for name in inside["modules"] if name.startswith("_ascend_tui")]
    assert left == ["_ascend_tui_shim.shim.shell"]
    assert any(left[0] in line for line in residue)
    assert not [name for name in inside["threads"] if "ascend" in name or name.startswith("Dummy")]
    assert (inside["optimizer_hooks"], inside["module_hooks"], inside["modes"]) == (0, 0, 0)
    assert inside["main_names"] == []
    assert rounds == 3
    assert training.goes_on()


@needs_torch
def test_both_ways_in_and_a_second_attach_uses_the_shim_that_is_there(training: Training) -> None:
    for method in ("thread", "pending"):
        first = join(training.target, method=method)
        assert first.method == method
        assert first.reason
        assert len(first.stops_ms) >= 2
        second = join(training.target, method=method)
        assert (second.method, second.stops_ms) == ("reused", ())
        assert second.client.hello["shim"]["boot"] == first.client.hello["shim"]["boot"]
        assert first.client.hello["process"]["start_ticks"] == training.target.id.start_ticks
        second.client.close()
        assert training.own_view()["threads"].count("ascend-tui-shim") == 1
        detach(first.client)
    assert training.goes_on()


@needs_torch
def test_forked_workers_have_nothing_of_the_shim(training: Training) -> None:
    attached = join(training.target)
    ours = [one for one in descriptors(training.pid) if one.startswith("socket:")]
    workers: set[int] = set()

    def new_workers() -> bool:
        for child in children(training.pid):
            if child not in workers:
                workers.add(child)
        return len(workers) >= 4

    # Two epochs: those of the first were forked before the shim came, the others after.
    assert until(new_workers, 60)
    assert until(lambda: all(len(shared(child, ours)) == 0 for child in children(training.pid)))
    assert until(lambda: attached.client.request("status")["step"] > 0)
    detach(attached.client)


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def shared(pid: int, sockets: list[str]) -> list[str]:
    try:
        return [one for one in descriptors(pid) if one in sockets]
    except OSError:
        return []


@needs_torch
def test_a_stopped_training_is_refused_by_name_with_and_without_a_shim(training: Training) -> None:
    attached = None
    for _ in range(2):
        os.kill(training.pid, signal.SIGSTOP)
        try:
            assert until(lambda: read_target(training.pid).state == "T")
            assert refused(training.target) == "stopped"
            assert read_target(training.pid).state == "T"
        finally:
            os.kill(training.pid, signal.SIGCONT)
        if attached is None:
            attached = join(training.target)
    assert attached is not None
    assert attached.client.request("status")["step"] >= 0
    detach(attached.client)
    assert training.goes_on()


@needs_torch
def test_after_all_that_it_has_the_bits_of_an_undisturbed_training(training: Training) -> None:
    # Attached to, detached from, injected by both methods and stopped by the tests above.
    assert training.goes_on()
    same_bits(training)


# Programs without torch.


def test_two_monitors_that_attach_at_the_same_moment_share_one_shim() -> None:
    with plain() as process:
        target = read_target(process.pid)
        found: list[Any] = []

        def go() -> None:
            try:
                found.append(join(target))
            except RefusedError as error:
                found.append(error)

        threads = [threading.Thread(target=go) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [type(one) for one in found] == [Attached] * 3, found
        assert len({one.client.hello["shim"]["boot"] for one in found}) == 1
        assert len(threads_of(process.pid)) == 3
        for one in found[1:]:
            one.client.close()
        detach(found[0].client)
        assert until(lambda: len(threads_of(process.pid)) == 2)


def test_a_shim_with_its_fill_of_monitors_is_said_to_be_full_and_not_injected_again() -> None:
    with plain() as process:
        target = read_target(process.pid)
        boot = join(target).client
        others = [ShimClient.connect(target, name="many", writable=False) for _ in range(15)]
        with pytest.raises(ShimShut, match="16 monitors"):
            join(target)
        others.pop().close()
        again = join(target)
        assert again.client.hello["shim"]["boot"] == boot.hello["shim"]["boot"]
        for client in (boot, again.client, *others):
            client.close()


def test_what_lies_at_the_sockets_place_from_before_does_not_matter() -> None:
    with plain() as process:
        target = read_target(process.pid)
        path = socket_path(target)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(path))
        stale.close()
        error = path.with_name(path.name + ".error")
        error.write_text("of an earlier process with this pid")
        assert not has_shim(target)
        attached = join(target)
        assert attached.method != "reused"
        assert not error.exists()
        detach(attached.client)


def test_a_boot_that_fails_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with plain() as process:
        target = read_target(process.pid)
        error = socket_path(target).with_name(f"{process.pid}.sock.error")
        error.parent.mkdir(mode=0o700, exist_ok=True)
        payload = f"open({str(error)!r}, 'w').write('OSError: no luck today')"
        monkeypatch.setattr(attaching.shim, "payload", lambda: payload)
        with pytest.raises(RefusedError, match="no luck today") as caught:
            join(target)
        assert caught.value.refusal.code == "boot"
        assert not error.exists()
        # And one that never says anything is not waited for without end.
        monkeypatch.setattr(attaching.shim, "payload", lambda: "pass")
        monkeypatch.setattr(attaching, "BOOT_S", 0.3)
        assert refused(target) == "silent"
        assert process.poll() is None


def test_a_program_that_holds_the_interpreter_is_silent_and_gets_its_shim_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # libc.sleep called through PyDLL keeps the lock: no Python code of the process runs meanwhile.
    code = "import ctypes, os, sys, time\nhold = ctypes.PyDLL(None).sleep\n"
    code += "open(sys.argv[1] + '.ready', 'w').close()\n"
    code += "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\nhold(3)\n"
    code += "while True: time.sleep(0.01)"
    go = tmp_path / "go"
    process = subprocess.Popen([sys.executable, "-c", code, str(go)])
    try:
        # An interpreter that still starts cannot be told from one that ends.
        assert until(lambda: go.with_name("go.ready").exists(), 30)
        target = read_target(process.pid)
        client = join(target).client
        go.touch()
        time.sleep(0.1)
        monkeypatch.setattr("ascend_tui.connection.HELLO_S", 0.5)
        with pytest.raises(ShimSilent):
            join(target)
        assert until(lambda: has_shim(target))
        detach(client)
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_gone_is_refused_at_any_moment() -> None:
    with plain() as process:
        target = read_target(process.pid)
    assert refused(target) == "gone"
    refusal = why_not(target)
    assert refusal is not None
    assert refusal.code == "gone"
    assert not has_shim(target)
    with pytest.raises(RefusedError, match="no such process"):
        target_of(process.pid)


def test_a_shim_is_not_injected_where_only_a_present_one_will_do() -> None:
    with plain() as process:
        target = read_target(process.pid)
        with pytest.raises(ShimGone):
            join(target, may_inject=False)
        assert not socket_path(target).exists()


def test_a_probe_that_is_too_large_for_a_frame_is_an_error_and_the_connection_lives() -> None:
    with plain() as process:
        client = join(read_target(process.pid)).client
        with pytest.raises(ShimError, match="too large"):
            client.request("probe", plugin="test", source="#" * (2 << 20))
        assert client.request("status")["step"] == 0
        detach(client)


def test_frames_before_the_end_of_a_connection_are_handed_out_before_the_end() -> None:
    with plain() as process:
        client = join(read_target(process.pid)).client
        client.send_request("detach")
        # The answer and the end of the connection are both there when we look.
        assert until(lambda: not socket_path(client.target).exists())
        time.sleep(0.1)
        frames = client.receive()
        assert [one["ok"] for one in frames if one["type"] == "reply"] == [True]
        with pytest.raises(ShimGone):
            client.receive()
        client.close()
