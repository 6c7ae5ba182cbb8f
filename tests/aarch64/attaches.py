"""Attaches, deaths of the injector, and threads that had to be given back."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial

from victims import MAIN, RAN, REQUEST, Victim

from ascend_tui.inject import area, helper, injector, memory, stage
from ascend_tui.inject.errors import InjectError
from tests.aarch64.injecting import (
    COUNTS_AND_FREES,
    MODES,
    NEVER,
    in_child,
    inject,
    inject_and_die_at,
    prepare,
    request,
    until,
    victim,
)

ROUNDS = 3
RANDOM_WITHIN_S = 0.03


def attaches(mode: str, count: int) -> tuple[int, str]:
    """Attach `count` times; every result of main and of the three waiting threads stays right."""
    stops: list[float] = []
    with victim() as target:
        for number in range(1, count + 1):
            report = inject(target.pid, mode, COUNTS_AND_FREES)
            stops += report["stops_ms"]  # type: ignore[operator]
            assert until(lambda: target.shared[RAN] == number), f"attach {number} has not run"  # noqa: B023
            assert report["is_main"] == (mode == "main") or mode == "pending"
            target.check()
        freed = until(lambda: area.shapes(memory.read_maps(target.pid)) == [])
        assert freed, "memory is left"
        loops = target.shared[MAIN]
    stops.sort()
    return count, f"{loops} right results; stops p50 {stops[len(stops) // 2]:.1f}, worst {stops[-1]:.1f} ms"


def deaths(mode: str, count: int) -> tuple[int, str]:
    """Kill the injector at each of its boundaries, some rounds long."""
    with victim() as target:
        status, names = inject_and_die_at(target.pid, mode, NEVER)
        assert status == 0
        assert isinstance(names, list)
        assert names.count("after SETREGSET") == 2
        killed = 0
        for at in [*range(len(names))] * ROUNDS:
            status, said = inject_and_die_at(target.pid, mode, at)
            # A lucky shortcut may pass fewer boundaries: then it must have ended well.
            assert os.WIFSIGNALED(status) or status == 0, f"at {at} ({names[at]}): {status} {said}"
            killed += os.WIFSIGNALED(status)
            still_right(target, f"killed at {at} ({names[at]})")
        left = len(area.shapes(memory.read_maps(target.pid)))
    assert killed > 20 * ROUNDS
    return killed, f"{len(names)} boundaries, {ROUNDS} rounds; {left} mappings of dead injectors left"


def random_deaths(mode: str, count: int) -> tuple[int, str]:
    """Kill the injector at a random instant after it has touched the thread."""
    killed = ran = 0
    with victim() as target:
        for _ in range(count):
            read_end, write_end = os.pipe()
            child = os.fork()
            if child == 0:
                stage.hook = lambda name: os.write(write_end, b"x") if name == "before SEIZE" else None  # noqa: B023
                try:
                    prepare(mode)
                    helper.perform(request(target.pid, mode))
                finally:
                    os._exit(0)
            os.close(write_end)
            os.read(read_end, 1)
            time.sleep(random.uniform(0, RANDOM_WITHIN_S))
            os.kill(child, signal.SIGKILL)
            killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
            os.close(read_end)
            still_right(target, "killed at random")
        ran = target.shared[RAN]
    return killed, f"of {count}; the payload ran {ran} times"


def still_right(target: Victim, when: str) -> None:
    """Check the victim; a failure says after what."""
    try:
        target.check()
    except AssertionError as error:
        raise AssertionError(f"{when}: {error}") from error


def code_runs(mode: str, count: int) -> tuple[int, str]:
    """Kill the injector after its last register write: the payload runs all the same."""

    def work() -> None:
        writes = 0

        def hook(name: str) -> None:
            nonlocal writes
            writes += name == "after SETREGSET"
            if writes == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        prepare(mode)
        stage.hook = hook
        helper.perform(request(target.pid, mode))

    rounds = max(3, count // 20)
    with victim() as target:
        for number in range(1, rounds + 1):
            status, _ = in_child(work)
            assert os.WIFSIGNALED(status)
            assert until(lambda: target.shared[RAN] == number), "the payload has not run"  # noqa: B023
            target.check()
    return rounds, "payload ran each time"


def hang(pid: int, mode: str, dies: bool) -> None:
    """Borrow for pause(), which never returns; the injector waits for it, or dies."""
    prepare(mode)
    memory.LIBC_NAMES = (*memory.LIBC_NAMES, "pause")  # type: ignore[assignment]
    injector.GUARD_S = 0.1
    hanging = injector.Injector(request(pid, mode))
    for name in injector.CALLS.values():
        hanging._functions[name] = hanging._functions["pause"]
    if dies:
        stage.hook = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == "wait done" else None
    hanging.run()


def watchdog(mode: str, count: int) -> tuple[int, str]:
    """Give back a thread whose borrowed call hangs."""
    rounds = max(3, count // 20)
    with victim() as target:
        for _ in range(rounds):
            _, said = in_child(partial(hang, target.pid, mode, False))
            assert str(said).startswith("call_stuck:"), said
            target.check()
            assert inject(target.pid, mode)["rescued"] == 0
    return rounds, "all given back by the injector itself"


def rescue(mode: str, count: int) -> tuple[int, str]:
    """Give back a thread that hangs in the call of an injector that died."""
    rounds = max(3, count // 20)
    with victim() as target:
        for _ in range(rounds):
            status, _ = in_child(partial(hang, target.pid, mode, True))
            assert os.WIFSIGNALED(status)
            assert not well(target), "nothing hangs, so nothing is tested"
            assert inject(target.pid, mode)["rescued"] == 1
            target.check()
    return rounds, "all given back by the next attach"


def well(target: Victim) -> bool:
    """Tell whether main moves and all threads wake, without waiting long."""
    before = target.shared[MAIN]
    target.shared[REQUEST] += 1
    moved = until(lambda: target.shared[MAIN] > before + 5, 1.0)
    woke = until(lambda: all(target.shared[i] == target.shared[REQUEST] for i in (3, 4, 5)), 1.0)
    return moved and woke


def failing_call(mode: str, count: int) -> tuple[int, str]:
    """Report the result of a call that fails, and leave the thread whole."""

    def work() -> None:
        memory.LIBC_NAMES = (*memory.LIBC_NAMES, "getpid")  # type: ignore[assignment]
        prepare(mode)
        failing = injector.Injector(request(target.pid, mode))
        for name in injector.CALLS.values():
            failing._functions[name] = failing._functions["getpid"]
        failing.run()

    with victim() as target:
        _, said = in_child(work)
        assert str(said).endswith(f"returned {target.pid}"), said
        target.check()
        assert target.shared[RAN] == 0
    return 1, str(said)


def busy_elsewhere(count: int) -> tuple[int, str]:
    """Refuse while another injector is at work."""
    with victim() as target:
        first = injector.Injector(request(target.pid, "auto"))
        try:
            inject(target.pid, "auto")
            code = ""
        except InjectError as error:
            code = error.code
        assert code == "busy"
        first.close()
        inject(target.pid, "auto")
        target.check()
    return 1, "busy, then not"


KINDS = {
    "attach": attaches,
    "death at each boundary": deaths,
    "death at random": random_deaths,
    "death after the last write": code_runs,
    "watchdog": watchdog,
    "rescue": rescue,
    "call that fails": failing_call,
}
CHECKS = {
    **{f"{name}, {mode}": partial(check, mode) for name, check in KINDS.items() for mode in MODES},
    "two injectors": busy_elsewhere,
}
