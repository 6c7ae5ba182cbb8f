"""The promise of the injector: killed at any boundary, it leaves the target alive, right and whole."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from victims import RAN, Victim, until

from ascend_tui.inject import area, helper, injector, memory, stage
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.request import Request
from ascend_tui.target import preflight, read_target

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="only the x86_64 frames have run on hardware"
)
PAYLOAD = b"shared[6] += 1  # @AREA@"
NEVER = 1 << 30
ROUNDS = 3


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    with Victim(tmp_path) as running:
        refusal = preflight(read_target(running.pid))
        if refusal is not None:
            pytest.skip(refusal.english())
        yield running


class Boundaries:
    """Counts boundaries and kills at one of them; a wait that is polled many times counts once."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at = kill_at
        self.names: list[str] = []
        self.waiting: set[str] = set()

    def __call__(self, name: str) -> None:
        if "wait" in name:
            if name in self.waiting:
                return
            self.waiting.add(name)
        else:
            self.waiting.clear()
        self.names.append(name)
        if len(self.names) > self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def request(pid: int, method: str) -> Request:
    target = read_target(pid)
    return Request(pid, target.id.start_ticks, target.python, method, PAYLOAD, 5.0)


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked child; returns the wait status (exit status 9: it raised)."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(9)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def die_at(boundary: str) -> None:
    stage.hook = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == boundary else None


def names_of_all(pid: int, method: str) -> list[str]:
    read_end, write_end = os.pipe()

    def work() -> None:
        stage.hook = boundaries = Boundaries(NEVER)
        helper.perform(request(pid, method))
        os.write(write_end, "\n".join(boundaries.names).encode())

    status = in_child(work)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        names = file.read().split("\n")
    assert status == 0
    return names


@pytest.mark.parametrize("method", ["thread", "pending"])
def test_death_at_every_boundary_is_harmless(victim: Victim, method: str) -> None:
    names = names_of_all(victim.pid, method)
    assert len(names) > 20
    assert names.count("after SETREGSET") == 2
    killed = 0
    for at in [*range(len(names))] * ROUNDS:

        def work(at: int = at) -> None:
            stage.hook = Boundaries(at)
            helper.perform(request(victim.pid, method))

        status = in_child(work)
        # A retry or a lucky shortcut may pass fewer boundaries: then it must have ended well.
        assert os.WIFSIGNALED(status) or status == 0, f"at {at} ({names[at]}): {status}"
        killed += os.WIFSIGNALED(status)
        try:
            victim.check()
        except AssertionError as error:
            raise AssertionError(f"killed at {at} ({names[at]}): {error}") from error
    assert killed > 20 * ROUNDS


@pytest.mark.parametrize("method", ["thread", "pending"])
def test_death_after_the_last_register_write_does_not_stop_the_code(victim: Victim, method: str) -> None:
    def die_then() -> None:
        writes = 0

        def hook(name: str) -> None:
            nonlocal writes
            writes += name == "after SETREGSET"
            if writes == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        stage.hook = hook
        helper.perform(request(victim.pid, method))

    assert os.WIFSIGNALED(in_child(die_then))
    assert until(lambda: victim.shared[RAN] == 1)
    victim.check()


def test_an_area_prepared_by_a_dead_injector_is_used_again(victim: Victim) -> None:
    def die_before_the_payload() -> None:
        stage.hook = lambda name: (
            os.kill(os.getpid(), signal.SIGKILL) if name == "before write stubs" else None
        )
        helper.perform(request(victim.pid, "thread"))

    assert os.WIFSIGNALED(in_child(die_before_the_payload))
    before = area.shapes(memory.read_maps(victim.pid))
    assert len(before) == 1
    report = helper.perform(request(victim.pid, "thread"))
    assert report.area == before[0]
    assert area.shapes(memory.read_maps(victim.pid)) == before
    assert until(lambda: victim.shared[RAN] == 1)
    # Now it has been used: the shim may free it at any time, so it is not used a second time.
    assert helper.perform(request(victim.pid, "thread")).area != before[0]
    victim.check()


@pytest.mark.parametrize("method", ["thread", "pending"])
def test_a_call_that_fails_is_reported(victim: Victim, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LIBC_NAMES", (*memory.LIBC_NAMES, "getpid"))
    failing = injector.Injector(request(victim.pid, method))
    name = injector.CALLS[method]
    failing._functions[name] = failing._functions["getpid"]
    with pytest.raises(InjectError, match=f"{name} returned {victim.pid}") as caught:
        failing.run()
    failing.close()
    assert caught.value.code == "call_failed"
    victim.check()
    assert victim.shared[RAN] == 0


def hanging_injector(pid: int, method: str, monkeypatch: pytest.MonkeyPatch) -> injector.Injector:
    """Return an injector whose borrowed call is pause(): it never returns."""
    monkeypatch.setattr(memory, "LIBC_NAMES", (*memory.LIBC_NAMES, "pause"))
    monkeypatch.setattr(injector, "GUARD_S", 0.1)
    hanging = injector.Injector(request(pid, method))
    for name in ("pthread_create", "Py_AddPendingCall"):
        hanging._functions[name] = hanging._functions["pause"]
    return hanging


@pytest.mark.parametrize("method", ["thread", "pending"])
def test_the_watchdog_gives_a_stuck_thread_back(
    victim: Victim, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = hanging_injector(victim.pid, method, monkeypatch)
    with pytest.raises(InjectError) as caught:
        hanging.run()
    hanging.close()
    assert caught.value.code == "call_stuck"
    victim.check()
    assert helper.perform(request(victim.pid, method)).rescued == 0


@pytest.mark.parametrize("method", ["thread", "pending"])
def test_the_next_attach_rescues_a_thread_of_a_dead_injector(
    victim: Victim, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die_while_it_hangs() -> None:
        die_at("wait done")
        hanging_injector(victim.pid, method, monkeypatch).run()

    assert os.WIFSIGNALED(in_child(die_while_it_hangs))
    with pytest.raises(AssertionError):
        # Proof that something hangs: else the rescue below would be tested on nothing.
        quick_check(victim)
    report = helper.perform(request(victim.pid, method))
    assert report.rescued == 1
    victim.check()
    assert until(lambda: victim.shared[RAN] >= 1)


def quick_check(victim: Victim) -> None:
    before = victim.shared[0]
    victim.shared[2] += 1
    moved = until(lambda: victim.shared[0] > before + 50, 0.3)
    woke = until(lambda: all(victim.shared[i] == victim.shared[2] for i in (3, 4, 5)), 0.3)
    assert moved
    assert woke
