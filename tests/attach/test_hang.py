"""Attach to processes whose main thread stands still: the first word is where, and nothing is touched."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hung
import pytest
from ascend_tui_plugins.stacks import collector
from client import Client
from trainings import (
    Training,
    Watcher,
    kill_group,
    needs_ptrace,
    needs_torch,
    same_bits,
    start_cli,
    strict,
    threads_of,
    until,
)

from ascend_tui.frame import Failed, Frame
from ascend_tui.plugin import load
from ascend_tui.target import read_target, socket_path

pytestmark = needs_ptrace

PROBE = Path(__file__).parents[2] / "plugins" / "stacks" / "probe.py"
QUICK = ("lock", "recv", "sleep", "native")
SAYS = {
    "lock": "main waits for a lock or another thread, in wait_for_lock (hung.py:{line})",
    "recv": "main waits for data from a socket, in wait_for_bytes (hung.py:{line})",
    "sleep": "main sleeps, in sleep_long (hung.py:{line})",
    "native": "main stands in native code, called from wait_in_native_code (hung.py:{line})",
}


@contextmanager
def started(kind: str, folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run hung.py."""
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, hung.__file__, kind, str(folder), *more], start_new_session=True
    )
    try:
        yield process
    finally:
        kill_group(process)


def stacks_of(frame: Frame, pid: int) -> Any:
    """Return the stacks of one target in a frame."""
    return next(one.plugins.get("stacks") for one in frame.targets if one.status.id.pid == pid)


def seconds_to_see(watcher: Watcher, pid: int) -> float:
    """Return the time from the first frame after the shim's greeting to the first that says `still`."""
    states = [
        (frame.wall_s, one.status.state, one.plugins["stacks"].stuck)
        for frame in watcher.frames
        for one in frame.targets
        if one.status.id.pid == pid
    ]
    greeted = next(wall for wall, state, _ in states if state != "attaching")
    return next(wall for wall, _, stuck in states if stuck == "still") - greeted


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return what is known of one process of each kind once its main thread is known to stand still."""
    place = tmp_path_factory.mktemp("hung")
    with ExitStack() as stack:
        processes = {kind: stack.enter_context(started(kind, place / kind)) for kind in QUICK}
        for process in processes.values():
            assert until(lambda: len(threads_of(process.pid)) > 2)  # noqa: B023
        time.sleep(0.3)
        targets = {kind: read_target(process.pid) for kind, process in processes.items()}
        watcher = stack.enter_context(Watcher(*targets.values(), plugins=[load_stacks()], tick_s=1.0))
        seen = {}
        for kind, target in targets.items():
            frame = watcher.until(target, lambda one: one.plugins["stacks"].stuck == "still")
            assert frame.status.method == "thread"
            seen[kind] = (frame.plugins["stacks"], seconds_to_see(watcher, target.id.pid))
        for kind, target in targets.items():
            assert watcher.ask("remove", target.id).ok, kind
            (place / kind / "go").touch()
        after = {}
        for kind in QUICK:
            assert until((place / kind / "after").exists, 20), kind
            after[kind] = (place / kind / "after").read_text()
        yield {kind: (*seen[kind], after[kind]) for kind in QUICK}


def load_stacks() -> Any:
    """Return the plugin as the session wants it."""
    from ascend_tui.plugin import Loaded

    return Loaded("stacks", load("stacks"))


@pytest.mark.parametrize("kind", QUICK)
def test_the_first_thing_known_is_the_line_where_main_stands(still: dict[str, Any], kind: str) -> None:
    stacks, seconds, _ = still[kind]
    main = stacks.threads[0]
    assert main.is_main
    assert main.frames[0].function == hung.KINDS[kind].__name__
    assert main.frames[0].file == hung.__file__
    assert main.frames[0].line == hung.line_of(kind)
    assert stacks.doing.render() == SAYS[kind].format(line=hung.line_of(kind))
    # No step was seen, so nothing is claimed of the time before the attach.
    assert stacks.since_step_s is None
    assert stacks.since_attach_s > 0
    # Readings come every 0.8 s and frames every second; the third reading tells.
    assert seconds < 4.0
    others = [one for one in stacks.threads if not one.is_main]
    assert [one.name for one in others] == ["releaser", "idle"]


@pytest.mark.parametrize(
    ("kind", "found"), [("lock", "went on"), ("recv", "went on"), ("native", "went on with -1")]
)
def test_released_it_goes_on_as_if_nobody_had_looked(still: dict[str, Any], kind: str, found: str) -> None:
    assert still[kind][2] == found


def test_a_sleep_takes_its_time_to_the_end(still: dict[str, Any]) -> None:
    assert 0.0 <= float(still["sleep"][2]) - hung.SLEEP_S < 0.5


@needs_torch
def test_workers_that_deliver_nothing_are_a_hang_until_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "ALERT_S", 2.0)
    source = PROBE.read_text().replace("PATIENCE_S = 5.0", "PATIENCE_S = 1.0")
    monkeypatch.setattr("ascend_tui.session.probe_text", lambda plugin: source)
    folder = tmp_path / "one"
    with started("loader", tmp_path / "calm", "hurry") as calm, started("loader", folder) as process:
        assert until((folder / "started").exists, 60)
        assert until(lambda: len(threads_of(process.pid)) > 2)
        target = read_target(process.pid)
        with Watcher(target, plugins=[load_stacks()]) as watcher:
            moving = watcher.until(target, lambda one: one.plugins["stacks"].stuck == "moving")
            assert not moving.plugins["stacks"].threads
            (folder / "block").touch()
            hangs = watcher.until(target, lambda one: one.plugins["stacks"].stuck == "still")
            found = hangs.plugins["stacks"]
            place = f"train_until_workers_block (hung.py:{hung.line_of('loader')})"
            assert found.doing.render() == f"main waits for the data loader, in {place}"
            assert "its workers" in found.cause.render()
            assert found.since_step_s > 1.0
            names = [frame.function.rpartition(".")[2] for frame in found.threads[0].frames]
            assert "_try_get_data" in names
            watcher.until(target, lambda one: bool(one.alerts))
            (folder / "go").touch()
            again = watcher.until(target, lambda one: one.plugins["stacks"].stuck == "moving")
            assert not again.plugins["stacks"].threads
            alerts = [alert for frame in watcher.frames for one in frame.targets for alert in one.alerts]
            assert [(one.severity, one.category, one.attribution) for one in alerts] == [
                ("warning", "timeout", "likely")
            ]
            assert watcher.ask("remove", target.id).ok
        for one in ("calm", "one"):
            assert until((tmp_path / one / "after").exists, 60)
        assert (folder / "after").read_text() == (tmp_path / "calm" / "after").read_text()
        assert calm.wait(20) == process.wait(20) == 0


def eager(source: str) -> str:
    """Return the probe so that it reads all stacks, twenty times a second, whether steps end or not."""
    changed = source
    for before, after in (
        ("PATIENCE_S = 5.0", "PATIENCE_S = -1.0"),
        ("PATIENCE_STEPS = 10", "PATIENCE_STEPS = 0"),
        ("READINGS_HZ = 1.25", "READINGS_HZ = 20.0"),
    ):
        assert before in changed
        changed = changed.replace(before, after)
    return changed


@needs_torch
def test_reading_the_stacks_changes_no_bit_and_leaves_nothing(tmp_path: Path) -> None:
    source = PROBE.read_text()
    faulty = source.replace("frames = sys._current_frames()", "raise RuntimeError('fell')")
    assert faulty != source
    with Training(tmp_path / "t") as training, Watcher(training.target) as watcher:
        before = training.own_view()
        watcher.state(training.target, "live")
        with Client(socket_path(training.target)) as client:
            client.hello()
            client.probe("stacks", eager(source))
            client.probe("faulty", eager(faulty))
            fault = client.event(event="probe", plugin="faulty", phase="failed")
            assert "fell" in fault["reason"]
            assert training.goes_on(40)
            client.until(lambda frame: len(client.records) > 20)
            read = [one["data"] for one in client.records if one["plugin"] == "stacks"]
            assert all(one["threads"][0]["main"] and one["threads"][0]["stack"] for one in read)
            # Our own thread is not among them, and the training's are.
            threads = {thread["name"] for one in read for thread in one["threads"]}
            assert "MainThread" in threads
            assert "ascend-tui-shim" not in threads
            beat = client.beat()
            assert set(beat["faults"]) == {"faulty"}
        assert watcher.ask("remove", training.target.id).ok
        assert training.goes_on()
        after = training.own_view()
        assert after["threads"] == before["threads"]
        assert after["optimizer_hooks"] == before["optimizer_hooks"]
        assert not [name for name in after["modules"] if "probe" in name]
        same_bits(training)


@needs_torch
def test_a_probe_that_fails_is_a_pane_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ascend_tui.session.probe_text", lambda plugin: "def setup(api):\n    1 / 0\n")
    with started("lock", tmp_path / "lock") as process:
        assert until(lambda: len(threads_of(process.pid)) > 2)
        target = read_target(process.pid)
        with Watcher(target, plugins=[load_stacks()]) as watcher:
            seen = watcher.until(target, lambda one: isinstance(one.plugins["stacks"], Failed))
            assert "ZeroDivisionError" in seen.plugins["stacks"].failed


@needs_torch
def test_the_demo_hangs_in_its_loader_and_says_so() -> None:
    with start_cli("demo", "--fault", "hang", "--headless", "--json", "--tick", "0.25") as demo:
        assert demo.stdout is not None
        try:
            for line in demo.stdout:
                (frame,) = strict(line)
                stacks = frame["plugins"]["stacks"]
                if stacks["stuck"] == "still":
                    break
        finally:
            demo.terminate()
            demo.communicate(timeout=20)
    threads = {one["name"]: [frame["function"] for frame in one["frames"]] for one in stacks["threads"]}
    assert threads["MainThread"][0].endswith("next_batch")
    assert any(name.endswith("wait_until_all_taken") for name in threads["batch-reader"])
    assert stacks["doing"].startswith("main waits for a lock or another thread, in next_batch")
