"""The promise of the injector: killed at any boundary, it leaves the target alive, right and whole."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from victims import RAN, Victim, until

from ascend_tui.inject import area, choose, helper, inject, injector, memory, stage
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.request import Report, Request
from ascend_tui.target import RefusedError, preflight, read_target
from soak.killing import kill_helper, start_of_a_helper_s

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="only the x86_64 frames have run on hardware"
)
PAYLOAD = b"shared[6] += 1  # @AREA@"
NEVER = 1 << 30
ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))
"""More for a long run: KILL_ROUNDS=100."""
MODES = ["thread", "pending", "main"]
"""The last one is `pending` on a main thread wherever it is: in the middle of its computation."""
RANDOM_KILLS = 8
"""For each round and mode."""


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


def perform(pid: int, mode: str) -> Report:
    """Inject; to be called in a child, because `main` changes how a thread is chosen."""
    if mode == "main":
        choose._for_pending = lambda pid, *_: (choose.Candidate(pid, True, None),)
    return helper.perform(request(pid, "pending" if mode == "main" else mode))


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


def names_of_all(pid: int, mode: str) -> list[str]:
    read_end, write_end = os.pipe()

    def work() -> None:
        stage.hook = boundaries = Boundaries(NEVER)
        report = perform(pid, mode)
        assert mode != "main" or (report.tid, report.is_main) == (pid, True)
        os.write(write_end, "\n".join(boundaries.names).encode())

    status = in_child(work)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        names = file.read().split("\n")
    assert status == 0
    return names


@pytest.mark.timeout(100 + 20 * ROUNDS)
@pytest.mark.parametrize("mode", MODES)
def test_death_at_every_boundary_is_harmless(victim: Victim, mode: str) -> None:
    names = names_of_all(victim.pid, mode)
    assert len(names) > 20
    assert names.count("after SETREGSET") == 2
    killed = [0, 0]
    for turn, at in [(turn, at) for turn in range(ROUNDS) for at in range(len(names))]:

        def work(turn: int = turn, at: int = at) -> None:
            stage.hook = Boundaries(at)
            if turn % 2 == 0:
                # The area of the one that died before is left alone: it would spare half of the boundaries.
                injector.Injector._reusable = lambda self: None
            perform(victim.pid, mode)

        status = in_child(work)
        # A retry or a lucky shortcut may pass fewer boundaries: then it must have ended well.
        assert os.WIFSIGNALED(status) or status == 0, f"at {at} ({names[at]}): {status}"
        killed[turn % 2] += os.WIFSIGNALED(status)
        try:
            victim.check()
        except AssertionError as error:
            raise AssertionError(f"killed at {at} ({names[at]}): {error}") from error
    print(f"{mode}: {sum(killed)} deaths at {len(names)} boundaries")
    assert killed[0] > 0.8 * len(names) * ((ROUNDS + 1) // 2)
    assert killed[1] > 10 * (ROUNDS // 2)


@pytest.mark.timeout(100 + 20 * ROUNDS)
@pytest.mark.parametrize("mode", ["thread", "pending"])
def test_death_of_the_real_helper_at_a_random_instant_is_harmless(victim: Victim, mode: str) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    dice, target = random.Random(seed), read_target(victim.pid)
    start_s, killed = start_of_a_helper_s(), 0
    lived_s, done = kill_helper(lambda: inject(target, PAYLOAD.decode(), mode), 60.0)
    assert lived_s is not None, done
    lives_s = [lived_s]
    for _ in range(RANDOM_KILLS * ROUNDS):
        lived_s = sum(lives_s[-3:]) / len(lives_s[-3:])
        delay_s = dice.uniform(min(start_s, 0.7 * lived_s), lived_s)
        life_s, outcome = kill_helper(lambda: inject(target, PAYLOAD.decode(), mode), delay_s)
        killed += life_s is None
        # The machine may be busier or less busy than at first.
        lives_s += [] if life_s is None else [life_s]
        if life_s is None and isinstance(outcome, RefusedError):
            assert outcome.refusal.code == "helper_failed"
        elif isinstance(outcome, Exception):
            raise outcome
        try:
            victim.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, killed after {delay_s * 1e3:.2f} ms: {error}") from error
    print(f"{mode}: {killed} deaths at random instants")
    assert killed > ROUNDS
    inject(target, PAYLOAD.decode(), mode)


def test_an_area_that_was_never_marked_is_used_again(victim: Victim) -> None:
    # Mapped by the thread, and the injector dead before it could write a word there.
    def work() -> None:
        die_at("before write header")
        helper.perform(request(victim.pid, "thread"))

    assert os.WIFSIGNALED(in_child(work))
    assert until(lambda: len(area.shapes(memory.read_maps(victim.pid))) == 1)
    before = area.shapes(memory.read_maps(victim.pid))
    assert helper.perform(request(victim.pid, "thread")).area == before[0]
    assert until(lambda: victim.shared[RAN] == 1)
    victim.check()


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
