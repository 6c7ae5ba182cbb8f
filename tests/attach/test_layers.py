"""The way in that stops nothing, and when it is not the one that is taken."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from programs import (
    HASHES,
    PYTHON_314,
    RUNS,
    WAITS,
    Program,
    detach,
    join,
    needs_python_314,
    program,
    refusal,
)
from trainings import needs_ptrace, threads_of, until

from ascend_tui import shim
from ascend_tui.inject import choose, remote_exec
from ascend_tui.inject import script as scripts
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.script import Script
from ascend_tui.target import socket_path

pytestmark = needs_ptrace


@needs_python_314
def test_remote_exec_is_taken_first_and_stops_nothing() -> None:
    with program(RUNS, python=PYTHON_314) as one:
        assert until(lambda: choose.snapshot(one.pid).keys() - {one.pid})
        idle = min(choose.snapshot(one.pid).keys() - {one.pid})
        switches = switches_of(one, idle)
        attached = join(one)
        assert (attached.method, attached.stops_ms, attached.longest_stop_ms) == ("remote_exec", (), 0.0)
        assert attached.reason == "the main thread runs Python, and no thread has to be stopped for it"
        assert one.left() == [f"{one.pid}.sock"]
        assert not any("mapped pages" in line for line in detach(attached))
        # A stop would have woken the thread that waits for ever.
        assert switches_of(one, idle) == switches
        assert until(lambda: not one.left())
        assert one.said_nothing()


def switches_of(one: Program, tid: int) -> list[str]:
    lines = Path(f"/proc/{one.pid}/task/{tid}/status").read_text().splitlines()
    return [line for line in lines if "ctxt_switches" in line]


@needs_python_314
def test_a_main_thread_in_a_native_wait_is_seen_from_outside_and_reached_by_another_thread() -> None:
    with program(WAITS, python=PYTHON_314) as one:
        assert until(lambda: choose.main_waits(one.pid))
        began = time.monotonic()
        attached = join(one)
        assert time.monotonic() - began < remote_exec.RUN_S
        assert attached.method == "thread"
        assert attached.reason == (
            "remote_exec passed over: the main thread waits in a native call; "
            "an idle thread other than the main one exists"
        )
        one.go_on()
        detach(attached)
        assert one.said_nothing()


def refusal_of_remote_exec(one: Program) -> str:
    with pytest.raises(InjectError) as caught:
        remote_exec.run(one.target, "")
    return caught.value.detail


@needs_python_314
def test_a_script_that_does_not_run_in_time_is_taken_back_without_a_word_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_exec, "RUN_S", 0.3)
    with program(HASHES, "5000000", python=PYTHON_314) as one:
        attached = join(one)
        assert attached.method == "thread"
        assert attached.reason.startswith("remote_exec passed over: the main thread ran no Python within")
        assert one.left() == [f"{one.pid}.sock"]
        one.has_gone_on()
        boot = attached.client.hello["shim"]["boot"]
        time.sleep(0.2)
        again = join(one)
        assert (again.method, again.client.hello["shim"]["boot"]) == ("reused", boot)
        again.client.close()
        detach(attached)
        # Without the second call CPython prints that it cannot open the first script.
        assert one.said_nothing()


@needs_python_314
def test_a_main_thread_that_begins_to_wait_meanwhile_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "main_waits", lambda pid: False)
    with program(WAITS, python=PYTHON_314) as one:
        began = time.monotonic()
        assert refusal_of_remote_exec(one) == remote_exec.WAITS
        assert time.monotonic() - began < remote_exec.RUN_S
        one.go_on()
        assert one.left() == []
        assert one.said_nothing()


@needs_python_314
def test_a_script_that_runs_late_finds_the_shim_and_does_nothing() -> None:
    with program(WAITS, python=PYTHON_314) as one:
        with Script(one.target, shim.payload().replace("@AREA@", "None"), "test") as script:
            remote_exec._call(one.target, script.path)
            attached = join(one, "thread")
            assert not script.has_run()
            one.go_on()
            assert until(script.has_run)
            time.sleep(0.3)
        again = join(one)
        assert again.client.hello["shim"]["boot"] == attached.client.hello["shim"]["boot"]
        # The main thread, the idle one, and one of the shim.
        assert until(lambda: len(threads_of(one.pid)) == 3)
        again.client.close()
        detach(attached)
        assert one.said_nothing()


@needs_python_314
@pytest.mark.parametrize("is_seen", [True, False], ids=["known before", "told by the call"])
def test_remote_debugging_that_is_switched_off_is_respected(
    monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    env = {**os.environ, "PYTHON_DISABLE_REMOTE_DEBUG": "1"}
    if not is_seen:
        monkeypatch.setattr(remote_exec, "read_environ", lambda pid: None)
    words = "switched off" if is_seen else "Remote debugging is not enabled"
    with program(RUNS, python=PYTHON_314, env=env) as one:
        assert words in refusal(one, "remote_exec")
        assert one.left() == []
        attached = join(one)
        assert attached.method == "thread"
        assert words in attached.reason
        detach(attached)
        assert one.said_nothing()


@needs_python_314
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program as another user")
def test_another_users_training_gets_its_script_as_that_user() -> None:
    with program(RUNS, python=PYTHON_314, user=12345, group=12345, extra_groups=[]) as one:
        more = remote_exec._as_user_of(one.target)
        assert (more["user"], more["group"], more["extra_groups"]) == (12345, 12345, [])
        attached = join(one, "remote_exec")
        assert socket_path(one.target).parent.stat().st_uid == 12345
        detach(attached)
        assert one.said_nothing()


@needs_python_314
def test_a_training_that_sees_other_files_is_reached_by_ptrace() -> None:
    wrapped = ["unshare", "--mount", PYTHON_314]
    probe = subprocess.run([*wrapped, "-c", ""], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("this machine does not allow unshare")
    with program(RUNS, command=wrapped) as one:
        attached = join(one)
        assert attached.method == "thread"
        assert "remote_exec passed over: the training sees other files" in attached.reason
        detach(attached)
        assert one.said_nothing()


def test_remote_exec_on_an_older_python_is_refused_by_name_and_auto_does_not_speak_of_it() -> None:
    with program(RUNS) as one:
        if one.target.python == "3.14":
            pytest.skip("this interpreter is no older one")
        assert "older than 3.14" in refusal(one, "remote_exec")
        attached = join(one)
        assert "remote_exec" not in attached.reason
        detach(attached)


def test_a_folder_that_is_not_the_users_own_gets_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "private"
    monkeypatch.setattr(scripts, "socket_path_inside", lambda target: f"{folder}/1.sock")
    with program(RUNS) as one:
        with Script(one.target, "", "test") as script:
            path = Path(script.path)
            assert (path.parent, path.stat().st_mode & 0o777) == (folder, 0o600)
            assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, one.target.uid)
            assert not script.has_run()
        # What was made for it goes with it.
        assert not folder.exists()
        folder.mkdir(mode=0o755)
        with pytest.raises(InjectError, match="not a private folder"):
            Script(one.target, "", "test")
        folder.rmdir()
        folder.symlink_to("/")
        with pytest.raises(InjectError, match="cannot be written"):
            Script(one.target, "", "test")


def test_a_loop_that_sleeps_is_no_wait_and_a_long_wait_is_one() -> None:
    with program(RUNS) as one:
        assert not choose.main_waits(one.pid)
    with program(WAITS) as one:
        assert until(lambda: choose.main_waits(one.pid))
        assert choose.waits_in(one.pid, one.pid) == "read"
        one.go_on()
        assert until(lambda: not choose.main_waits(one.pid))
    with program(HASHES, "100000000") as one:
        assert not choose.main_waits(one.pid)
        assert until(lambda: choose.waits_in(one.pid, one.pid) == "")
    assert not choose.main_waits(one.pid)
