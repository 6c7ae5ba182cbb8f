"""Several monitors on one training: who may do what, what ends by itself, and third parties' plugins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from third_party import install
from trainings import (
    Training,
    Watcher,
    cli,
    needs_ptrace,
    needs_torch,
    plain,
    same_bits,
    start_cli,
    strict,
    until,
)

from ascend_tui.attach import attach
from ascend_tui.frame import Failed, TargetFrame
from ascend_tui.plugin import Loaded, load_all
from ascend_tui.target import read_target, socket_path

pytestmark = [needs_ptrace, needs_torch]

HOLDING = """
import sys, threading, time
from ascend_tui.plugin import load_all
from ascend_tui.session import Session
from ascend_tui.target import read_target

target = read_target(int(sys.argv[1]))
live = threading.Event()

def look(frame):
    if frame.targets and frame.targets[0].status.state == "live":
        live.set()

session = Session([one for one in load_all() if one.name == "test"], name="doomed", tick_s=0.1)
session.add(target)
session.start(look)
live.wait()
session.command(target.id, "test", "watch", True, lambda outcome: print(outcome.ok, flush=True))
time.sleep(60)
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    with Training(tmp_path_factory.mktemp("training")) as training:
        yield training


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("site"))


@pytest.fixture
def plugins(site: Path, monkeypatch: pytest.MonkeyPatch) -> list[Loaded]:
    monkeypatch.syspath_prepend(str(site))
    return load_all()


@pytest.fixture
def env(site: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(site)}


def only(plugins: list[Loaded], *names: str) -> list[Loaded]:
    return [one for one in plugins if one.name in names]


def phase(frame: TargetFrame, name: str = "watch") -> str:
    found = [one.phase for one in frame.status.commands if (one.plugin, one.name) == ("test", name)]
    return found[0] if found else "off"


def holder(frame: TargetFrame) -> str:
    return next((one.holder for one in frame.status.commands if one.name == "watch"), "")


def events(training: Training) -> Iterator[dict[str, Any]]:
    """Give what the shim says about commands from the first `next` on."""
    client = attach(training.target, name="listener", writable=False).client
    end = time.monotonic() + 30
    try:
        yield {}
        while time.monotonic() < end:
            yield from (one for one in client.receive() if one.get("event") == "command")
            time.sleep(0.02)
    finally:
        client.close()


def hooks(training: Training) -> tuple[int, int]:
    seen = training.own_view()
    return seen["module_hooks"], seen["modes"]


def test_third_parties_plugins_are_panes_and_a_broken_one_costs_only_its_own(
    training: Training, plugins: list[Loaded]
) -> None:
    with Watcher(training.target, plugins=plugins) as watcher:
        good = watcher.until(
            training.target,
            lambda one: (
                one.plugins["test"].records > 3
                and one.plugins["memory"].samples > 3
                and isinstance(one.plugins["sulky"], Failed)
                and isinstance(one.plugins["clumsy"], Failed)
            ),
        )
        assert set(good.plugins) >= {"memory", "test", "sulky", "clumsy", "broken"}
        assert good.plugins["broken"] == Failed("RuntimeError: no luck at import")
        assert good.plugins["sulky"] == Failed("KeyError: 'what it counted on'")
        assert "a probe falls in the training" in good.plugins["clumsy"].failed
        later = watcher.until(
            training.target, lambda one: one.plugins["test"].records > good.plugins["test"].records + 3
        )
        assert later.plugins["memory"].samples > good.plugins["memory"].samples
        assert later.status.step > (good.status.step or 0) or training.goes_on()
        watcher.ask("remove", training.target.id)


def test_monitors_share_a_training_and_a_refusal_names_the_owner(
    training: Training, plugins: list[Loaded], env: dict[str, str]
) -> None:
    target = training.target
    some = only(plugins, "test", "memory")
    with (
        Watcher(target, plugins=some, name="first") as first,
        Watcher(target, plugins=some, name="second") as second,
    ):
        for one in (first, second):
            one.until(
                target, lambda frame: frame.status.state == "live" and frame.plugins["test"].records > 0
            )
        assert first.ask("command", target.id, "test", "watch", True).ok
        seen = second.until(target, lambda frame: phase(frame) == "on")
        assert "first" in holder(seen)
        assert str(os.getpid()) in holder(seen)
        again = second.ask("command", target.id, "test", "watch", True)
        assert not again.ok
        assert "test.watch is held by first" in again.message.render()
        done = cli("do", str(training.pid), "test.watch", "--json", env=env)
        assert done.returncode == 3
        (refused,) = strict(done.stdout)
        assert "held by first" in refused["refused"]["why"]
        assert "Traceback" not in done.stderr
        # The other command is free meanwhile, and ends by its own lease.
        done = cli("do", str(training.pid), "test.ops", "steps=3", "--json", env=env)
        assert done.returncode == 0, done.stderr
        (answer,) = strict(done.stdout)
        assert (answer["ended"], answer["phase"], answer["steps"]) == ("lease over", "off", 3)
        watched = second.until(target, lambda frame: frame.plugins["test"].ops > 0)
        assert watched.plugins["test"].modules > 0
        # Stopping is always safe, so anybody may.
        assert second.ask("command", target.id, "test", "watch", False).ok
        first.until(target, lambda frame: phase(frame) == "off")
        assert until(lambda: hooks(training) == (0, 0))


def test_do_ends_by_its_lease_and_says_so(training: Training, env: dict[str, str]) -> None:
    pid = str(training.pid)
    done = cli("do", pid, "test.watch", "steps=5", "colour=blue", "--json", env=env)
    assert done.returncode == 0, done.stderr
    (answer,) = strict(done.stdout)
    assert answer["command"] == "test.watch"
    assert answer["action"] == "start"
    assert (answer["ended"], answer["phase"], answer["steps"]) == ("lease over", "off", 5)
    assert answer["result"] == {"colour": "blue"}
    assert hooks(training) == (0, 0)
    # Without waiting, what was started outlives the one that started it, by its lease and no longer.
    listener = events(training)
    next(listener)
    done = cli("do", pid, "test.watch", "seconds=1.5", "--no-wait", env=env)
    assert done.returncode == 0, done.stderr
    assert "its lease ends after 100000 steps or 2 s" in done.stdout
    reasons = []
    for event in listener:
        reasons.append(event["reason"])
        if event["reason"] != "started":
            break
    assert reasons == ["started", "lease over"]
    assert until(lambda: hooks(training) == (0, 0))


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["nowhere.watch"], 3, "no plugin named 'nowhere'"),
        (["broken.watch"], 3, "no luck at import"),
        (["test.nothing"], 3, "it has: ops, watch"),
        (["test.watch", "refuse=1"], 3, "it was asked to"),
        (["core.nothing"], 3, "core has one command: mark"),
        (["test"], 2, "say it as"),
        (["test.watch", "steps"], 2, "say it as"),
        (["test.watch", "steps=many"], 2, "whole number"),
        (["test.watch", "seconds=nan"], 2, "above 0"),
        (["test.watch", "steps=-1"], 2, "above 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_said(
    training: Training, env: dict[str, str], words: list[str], code: int, why: str
) -> None:
    done = cli("do", str(training.pid), *words, "--json", env=env)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert why in done.stderr
    assert [set(line) for line in strict(done.stdout)] == ([{"schema", "refused"}] if code == 3 else [])


def test_what_cannot_be_done_puts_nothing_into_the_process(env: dict[str, str]) -> None:
    with plain() as process:
        for words in (["nowhere.watch"], ["broken.watch"], ["test.watch", "steps=x"]):
            assert cli("do", str(process.pid), *words, env=env).returncode in (2, 3)
        assert not socket_path(read_target(process.pid)).exists()


def test_a_readonly_monitor_is_refused(training: Training, plugins: list[Loaded]) -> None:
    target = training.target
    with Watcher(target, plugins=only(plugins, "test"), writable=False) as watcher:
        watcher.state(target, "live")
        for asked in (("command", target.id, "test", "watch", True), ("remove", target.id)):
            outcome = watcher.ask(*asked)
            assert not outcome.ok
            assert "read-only" in outcome.message.render()
        assert watcher.frame(target).status.state == "live"


def test_what_was_released_before_the_stop_is_released(training: Training, plugins: list[Loaded]) -> None:
    target = training.target
    listener = events(training)
    next(listener)
    with Watcher(target, plugins=only(plugins, "test")) as watcher:
        watcher.state(target, "live")
        assert watcher.ask("command", target.id, "test", "watch", True).ok
        told: list[Any] = []
        busy, go_on = threading.Event(), threading.Event()
        # The session's thread is at work elsewhere while both are asked of it.
        watcher.session._on_frame = lambda frame: busy.set() or go_on.wait(10)  # type: ignore[func-returns-value]
        assert busy.wait(10)
        watcher.session.release(target.id, told.append)
        threading.Timer(0.3, go_on.set).start()
        watcher.session.stop()
    assert len(told) == 1
    reasons = []
    for event in listener:
        reasons.append(event["reason"])
        if event["reason"] != "started":
            break
    assert reasons == ["started", "released"]


def test_a_monitor_that_is_killed_leaves_nothing_on(
    training: Training, plugins: list[Loaded], env: dict[str, str]
) -> None:
    listener = events(training)
    next(listener)
    doomed = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(training.pid)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    try:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "True\n"
        assert until(lambda: training.own_view()["module_hooks"] > 0)
        began = time.monotonic()
    finally:
        doomed.send_signal(signal.SIGKILL)
        doomed.communicate()
    reasons = []
    for event in listener:
        reasons.append((event["reason"], event["holder"].partition(" ")[0]))
        if event["reason"] != "started":
            break
    assert reasons == [("started", "doomed"), ("its monitor is gone", "doomed")]
    # Not at once: a monitor that comes back after a broken line has some seconds to say so.
    assert time.monotonic() - began > 3
    assert until(lambda: hooks(training) == (0, 0))
    assert training.goes_on()


def test_a_headless_monitor_that_is_killed_costs_the_next_one_nothing(training: Training) -> None:
    monitor = start_cli("attach", str(training.pid), "--headless", "--json", "--tick", "0.1")
    assert monitor.stdout is not None
    lines = [monitor.stdout.readline() for _ in range(5)]
    monitor.kill()
    monitor.communicate()
    (first, *_) = strict("".join(lines))
    assert first["target"]["id"]["pid"] == training.pid
    done = cli("attach", str(training.pid), "--headless", "--json", "--seconds", "1.5", "--tick", "0.1")
    last = strict(done.stdout)[-1]
    assert (done.returncode, last["target"]["state"], last["target"]["method"]) == (0, "live", "reused")


def test_after_all_that_it_has_the_bits_of_an_undisturbed_training(training: Training) -> None:
    # Hooked by module and by operator, its probes failed, its monitors were killed.
    done = cli("detach", str(training.pid), "--json")
    assert strict(done.stdout)[0]["removed"] is True
    assert training.goes_on()
    same_bits(training)
