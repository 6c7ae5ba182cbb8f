"""Injection into real processes: it runs, it says how, it changes no result, it refuses with the reason."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import victims
from trainings import Place
from victims import RAN, Victim, until

from ascend_tui.inject import api, area, helper, inject, injector, memory
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.request import Request
from ascend_tui.target import RefusedError, read_target

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="only the x86_64 frames have run on hardware"
)
MARK = "import threading; open({path!r}, 'a').write(threading.current_thread().name + ' @AREA@\\n')"


@pytest.fixture(autouse=True)
def _may_trace(tmp_path: Path) -> None:
    probe = subprocess.Popen(["sleep", "5"])
    try:
        os.close(os.open(f"/proc/{probe.pid}/mem", os.O_RDWR))
    except PermissionError:
        pytest.skip("this machine does not allow tracing")
    finally:
        probe.kill()
        probe.wait()


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "calm"])
@pytest.mark.parametrize("method", ["auto", "thread", "pending"])
def test_the_payload_runs_where_it_should(tmp_path: Path, method: str, busy: bool) -> None:
    mark = tmp_path / "mark"
    with Victim(tmp_path, busy) as victim:
        done = inject(read_target(victim.pid), MARK.format(path=str(mark)), method)
        assert until(lambda: mark.exists() and mark.read_text().endswith("\n"))
        victim.check()
    thread, _, literal = mark.read_text().strip().partition(" ")
    assert done.method == ("pending" if method == "pending" else "thread")
    assert thread.startswith("MainThread" if done.method == "pending" else "Dummy")
    assert literal == str(done.area)
    assert done.reason
    assert len(done.stops_ms) >= 2
    assert 0 < max(done.stops_ms) < done.elapsed_ms < 10_000


def test_a_process_with_one_thread_gets_a_pending_call(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = "import time\nwhile True: time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            assert until(lambda: read_target(process.pid).python is not None)
            time.sleep(0.2)
            done = inject(read_target(process.pid), f"open({str(mark)!r}, 'w').write('x')")
            assert (done.method, done.is_main) == ("pending", True)
            assert "one thread" in done.reason
            assert until(mark.exists)
        finally:
            process.kill()


def test_a_hanging_main_thread_is_reached(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = "import threading, time\nthreading.Thread(target=threading.Event().wait).start()\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            assert until(lambda: read_target(process.pid).thread_count == 2)
            time.sleep(0.1)
            done = inject(read_target(process.pid), f"open({str(mark)!r}, 'w').write('x')")
            assert (done.method, done.is_main) == ("thread", False)
            assert until(mark.exists, 2.0)
        finally:
            process.kill()


def test_a_lone_waiting_main_is_borrowed_for_a_thread_when_asked(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = "import threading, time\nprint(flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            done = inject(read_target(process.pid), f"open({str(mark)!r}, 'w').write('x')", "thread")
            assert (done.method, done.is_main) == ("thread", True)
            assert until(mark.exists, 2.0)
            assert read_target(process.pid).state == "S"
        finally:
            process.kill()


def test_a_payload_of_a_megabyte_and_a_broken_one(tmp_path: Path) -> None:
    with Victim(tmp_path) as victim:
        target = read_target(victim.pid)
        filler = "# " + "x" * 98 + "\n"
        inject(target, "shared[6] += 1\n" + filler * 10_000)
        assert until(lambda: victim.shared[RAN] == 1)
        inject(target, "shared[6] += 1; 1/0")
        assert until(lambda: victim.shared[RAN] == 2)
        victim.check()
        with pytest.raises(ValueError, match="payload"):
            inject(target, filler * 11_000)


def test_the_shim_can_free_its_area_once_the_stub_has_returned(tmp_path: Path) -> None:
    free = """
import ctypes, threading, time
def _free(rw, rw_size, rx, rx_size):
    while ctypes.c_uint32.from_address(rw + 44).value != 1:
        time.sleep(0.01)
    time.sleep(0.1)
    munmap = ctypes.CDLL(None).munmap
    munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    assert munmap(rw, rw_size) == 0 and munmap(rx, rx_size) == 0
    shared[6] += 1
threading.Thread(target=_free, args=@AREA@, daemon=True).start()
"""
    with Victim(tmp_path) as victim:
        for count, method in enumerate(("thread", "pending"), 1):
            inject(read_target(victim.pid), free, method)
            assert until(lambda: victim.shared[RAN] == count)  # noqa: B023
        assert area.shapes(memory.read_maps(victim.pid)) == []
        victim.check()


def test_two_injectors_do_not_meet(tmp_path: Path) -> None:
    with Victim(tmp_path) as victim:
        target = read_target(victim.pid)
        first = injector.Injector(Request(victim.pid, target.id.start_ticks, "3.11", "auto", b"", 1.0))
        with pytest.raises(RefusedError) as caught:
            inject(target, "")
        assert caught.value.refusal.code == "busy"
        first.close()
        inject(target, "")


def test_a_reused_pid_is_not_touched(tmp_path: Path) -> None:
    with Victim(tmp_path) as victim:
        target = read_target(victim.pid)
        other = injector.Injector(Request(victim.pid, target.id.start_ticks - 1, "3.11", "auto", b"", 1.0))
        with pytest.raises(InjectError) as caught:
            other.run()
        other.close()
        assert caught.value.code == "gone"
        assert area.shapes(memory.read_maps(victim.pid)) == []


def test_a_target_that_ends_meanwhile_is_gone(tmp_path: Path) -> None:
    with Victim(tmp_path) as victim:
        target = read_target(victim.pid)
        asked = Request(victim.pid, target.id.start_ticks, target.python, "auto", b"", 1.0)
        victim.process.kill()
        assert until(lambda: read_target(victim.pid).state == "Z")
        with pytest.raises(InjectError) as caught:
            helper.perform(asked)
    assert caught.value.code == "gone"


def test_a_helper_that_fails_is_reported_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('out of luck')"]
    with Victim(tmp_path) as victim:
        monkeypatch.setattr(api, "helper_command", lambda: command)
        with pytest.raises(RefusedError, match="out of luck"):
            inject(read_target(victim.pid), "")


def test_a_stopped_target_stays_stopped_and_is_refused(tmp_path: Path) -> None:
    with Victim(tmp_path) as victim:
        os.kill(victim.pid, signal.SIGSTOP)
        assert until(lambda: read_target(victim.pid).state == "T")
        with pytest.raises(RefusedError) as caught:
            inject(read_target(victim.pid), "")
        assert caught.value.refusal.code == "stopped"
        assert read_target(victim.pid).state == "T"
        os.kill(victim.pid, signal.SIGCONT)
        victim.check()


def test_timed_waits_keep_their_time(tmp_path: Path) -> None:
    out, stop = tmp_path / "waits", tmp_path / "stop"
    code = f"""
import os, threading, time
late = []
def wait():
    while not os.path.exists({str(stop)!r}):
        start = time.monotonic()
        threading.Event().wait(0.25)
        late.append(time.monotonic() - start - 0.25)
threads = [threading.Thread(target=wait) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
open({str(out)!r}, 'w').write(repr((min(late), max(late))))
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        assert until(lambda: read_target(process.pid).thread_count == 3)
        for _ in range(12):
            inject(read_target(process.pid), "pass", "thread")
        stop.touch()
    low, high = (float(word) for word in out.read_text().strip("()").split(","))
    assert low > -0.001, "a wait ended early"
    assert high < 0.2, "a wait ended late"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_training_gives_the_same_bits(tmp_path: Path, place: Place) -> None:
    disturbed_out, calm_out = tmp_path / "disturbed", tmp_path / "calm"

    def start(out: Path, steps: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, victims.__file__, "train", str(out), steps, place.device]
        return subprocess.Popen(command, env=place.environment())

    with start(disturbed_out, "0") as disturbed:
        try:
            assert until(Path(f"{disturbed_out}.started").exists, 60)
            for _ in range(8):
                for method in ("thread", "pending"):
                    inject(read_target(disturbed.pid), "import time", method)
        finally:
            Path(f"{disturbed_out}.enough").touch()
    assert disturbed.returncode == 0
    steps, _ = disturbed_out.read_text().split()
    # No step is made for nothing: it ends where the other one did.
    with start(calm_out, steps) as calm:
        pass
    assert calm.returncode == 0
    assert disturbed_out.read_text() == calm_out.read_text()
