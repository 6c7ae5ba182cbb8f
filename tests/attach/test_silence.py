"""A shim that cannot answer: what is said of the reason is what /proc shows, and no more."""

from __future__ import annotations

import shutil
import time

import pytest
from programs import HASHES, IDLE, WAITS, Program, detach, join, program
from trainings import needs_ptrace, until

from ascend_tui import attach as attaching
from ascend_tui.attach import has_shim
from ascend_tui.inject import choose, silence
from ascend_tui.target import Refusal, RefusedError

pytestmark = needs_ptrace

# Both hold the interpreter's lock: one asleep, one at work.
SLEEPS = IDLE + "import ctypes\nsleep = ctypes.PyDLL(None).usleep\nprint('up', flush=True)\nsleep(2500000)\n"
SLEEPS += "print('on', flush=True)\nwhile True: time.sleep(0.002)"
STAYS = SLEEPS.replace("2500000", "60000000")
MATCHES = IDLE + "import re\nprint('up', flush=True)\nre.match(r'(a+)+$', 'a' * int(sys.argv[1]) + 'b')\n"
MATCHES += "print('on', flush=True)\nwhile True: time.sleep(0.002)"
# The lock is held by another thread than the main one.
BESIDE = IDLE + "import re\nwork = lambda: re.match(r'(a+)+$', 'a' * 60 + 'b')\nprint('up', flush=True)\n"
BESIDE += "threading.Thread(target=work).start()\nthreading.Event().wait()"
ALONE = "import sys\nprint('up', flush=True)\nsys.stdin.readline()"


@pytest.fixture(autouse=True)
def _short_of_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "BOOT_S", 2.0)
    monkeypatch.setattr("ascend_tui.connection.HELLO_S", 0.5)


def silent(one: Program, method: str) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        join(one, method)
    assert caught.value.refusal.code == "silent"
    assert "{" not in caught.value.refusal.english()
    return caught.value.refusal


def test_a_native_call_that_sleeps_with_the_lock_is_told_and_the_shim_comes_later() -> None:
    with program(SLEEPS) as one:
        refusal = silent(one, "thread")
        assert refusal.why == silence.SENTENCES["lock sleeps"]
        assert dict(refusal.params)["call"] == "clock_nanosleep"
        assert f"--pid {one.pid}" in refusal.english()
        one.has_gone_on()
        assert until(lambda: has_shim(one.target))
        detach(join(one))


def test_native_code_that_computes_with_the_lock_is_told_with_its_thread() -> None:
    with program(MATCHES, "60") as one:
        time.sleep(0.1)
        refusal = silent(one, "thread")
        assert refusal.why == silence.SENTENCES["lock computes"]
        values = dict(refusal.params)
        assert values["tid"] == one.pid
        assert 0 <= float(str(values["cpu_s"])) <= 3
    with program(BESIDE) as one:
        time.sleep(0.1)
        refusal = silent(one, "thread")
        assert refusal.why == silence.SENTENCES["lock computes"]
        assert dict(refusal.params)["tid"] != one.pid


def test_a_main_thread_that_runs_no_python_keeps_a_pending_call_waiting() -> None:
    with program(HASHES, "100000000") as one:
        refusal = silent(one, "pending")
        assert refusal.why == silence.SENTENCES["main computes"]
    with program(WAITS) as one:
        assert until(lambda: choose.main_waits(one.pid))
        refusal = silent(one, "pending")
        assert refusal.why == silence.SENTENCES["main waits"]
        assert dict(refusal.params)["call"] == "read"
        # The other way in gets there, and the call that still waits finds its shim.
        attached = join(one, "thread")
        one.go_on()
        time.sleep(0.2)
        again = join(one)
        assert again.client.hello["shim"]["boot"] == attached.client.hello["shim"]["boot"]
        again.client.close()
        detach(attached)
        assert one.said_nothing()


def test_a_lone_thread_in_a_wait_is_offered_the_other_method() -> None:
    with program(ALONE) as one:
        assert until(lambda: choose.main_waits(one.pid))
        assert "--method thread" in silent(one, "auto").english()


def test_a_kernel_that_keeps_no_account_leaves_only_what_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_spent", lambda pid: {})
    with program(STAYS) as one:
        assert silent(one, "thread").why == silence.SENTENCES["lock silent"]
        assert silent(one, "pending").why == silence.SENTENCES["main silent"]


def test_py_spy_is_offered_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with program(STAYS) as one:
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
        words = silent(one, "thread").english()
        assert f"`py-spy dump --nonblocking --pid {one.pid}`" in words
        assert "pip install" not in words
    with program(STAYS) as one:
        monkeypatch.setattr(shutil, "which", lambda name: None)
        words = silent(one, "thread").english()
        assert "pip install py-spy" in words
        assert f"/proc/{one.pid}/stack" in words


def test_a_shim_that_has_begun_is_not_said_to_wait_for_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching.shim, "payload", lambda: "None")
    with program(WAITS) as one:
        assert silent(one, "thread").why == silence.SENTENCES["begun"]
