"""Looking from outside only: what is seen, and that nothing at all is done to the process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainings import PLAIN, Watcher, cli, descriptors, plain, strict, threads_of, until

from ascend_tui.attach import has_shim
from ascend_tui.plugin import Loaded, load_all
from ascend_tui.target import read_target

GROWS = """
import threading, time
threading.Thread(target=threading.Event().wait, daemon=True).start()
kept = []
while True:
    kept.append(bytearray(1 << 20)); time.sleep(0.05)
"""


@pytest.fixture
def grows() -> Iterator[subprocess.Popen[bytes]]:
    with plain(GROWS) as process:
        yield process


def outside(pid: int) -> dict[str, Any]:
    """Return what an attach would change, as far as nobody but the process itself changes it too."""
    with open(f"/proc/{pid}/maps") as file:
        code = [line for line in file if "x" in line.split()[1]]
    return {"threads": len(threads_of(pid)), "files": descriptors(pid), "code": code}


def test_memory_is_seen_and_nothing_is_put_in(grows: subprocess.Popen[bytes]) -> None:
    before = outside(grows.pid)
    done = cli(
        "attach", str(grows.pid), "--passive", "--headless", "--json", "--seconds", "4", "--tick", "0.5"
    )
    assert done.returncode == 0, done.stderr
    lines = strict(done.stdout)
    assert {line["target"]["state"] for line in lines} == {"passive"}
    assert lines[-1]["target"]["method"] == "passive"
    assert "looked at from outside only; state" in lines[-1]["target"]["reason"]
    seen = [line["plugins"]["memory"]["current"]["rss_bytes"] for line in lines if line["plugins"]["memory"]]
    numbers = [one for one in seen if one]
    assert numbers[-1] > numbers[0] > 1 << 20
    assert lines[-1]["step"] is None
    assert outside(grows.pid) == before
    assert not has_shim(read_target(grows.pid))


def test_what_refuses_an_attach_can_still_be_looked_at() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        refused = cli("attach", str(sleeper.pid), "--headless")
        assert refused.returncode == 3
        assert f"ascend-tui attach {sleeper.pid} --passive" in refused.stderr
        done = cli("attach", str(sleeper.pid), "--passive", "--headless", "--json", "--seconds", "1.5")
        assert done.returncode == 0, done.stderr
        assert strict(done.stdout)[-1]["plugins"]["memory"]["current"]["rss_bytes"] > 0
        sleeper.send_signal(signal.SIGSTOP)
        done = cli("attach", str(sleeper.pid), "--passive", "--headless", "--json", "--seconds", "2.5")
        assert "state T, CPU 0 %" in strict(done.stdout)[-1]["target"]["reason"]
    finally:
        sleeper.kill()
        sleeper.wait()


def test_the_end_is_seen_and_requests_are_answered() -> None:
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target, plugins=load_all(), passive=True) as watcher:
            watcher.state(target, "passive")
            assert watcher.ask("release", target.id).ok
            refused = watcher.ask("remove", target.id)
            assert not refused.ok
            assert "nothing is put into this process" in refused.message.render()
            process.terminate()
            process.wait()
            frame = watcher.state(target, "exited")
            assert frame.status.reason is not None
            assert "signal 15" in frame.status.reason.render()


def test_a_look_that_fails_costs_its_own_pane_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import ascend_tui_plugins.memory.outside as memory

    def broken(pid: int) -> None:
        raise RuntimeError("no such file")

    monkeypatch.setattr(memory, "outside", broken)
    plugins: list[Loaded] = load_all()
    with plain() as process:
        target = read_target(process.pid)
        with Watcher(target, plugins=plugins, passive=True) as watcher:
            found = watcher.until(target, lambda one: hasattr(one.plugins.get("memory"), "failed"))
            assert found.plugins["memory"].failed == "RuntimeError: no such file"
            assert found.status.state == "passive"


def test_twenty_looks_leave_no_descriptor(tmp_path: Path) -> None:
    with plain(PLAIN) as process:
        target = read_target(process.pid)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with Watcher(target, passive=True):
                time.sleep(0.01)
        assert until(lambda: len(os.listdir("/proc/self/fd")) == before)
