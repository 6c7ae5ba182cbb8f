"""Timed waits under attaches: never early, and no later than those of a process that nobody touches."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from ascend_tui.inject.errors import InjectError
from tests.aarch64 import targets
from tests.aarch64.injecting import inject, until

EARLY_S, LATE_MS = 0.001, 100.0


@contextmanager
def waiting(kind: str, results: list[dict[str, list[float]]]) -> Iterator[int]:
    """Start a process that waits; on leaving it is stopped and what it measured is added to `results`."""
    path = Path(mkdtemp(), "waits")
    with subprocess.Popen([sys.executable, targets.__file__, "wait", kind, str(path)]) as process:
        try:
            assert until(Path(f"{path}.started").exists)
            yield process.pid
            Path(f"{path}.stop").touch()
            assert process.wait(60) == 0, f"it ended with {process.returncode}"
        finally:
            process.kill()
    results.append(json.loads(path.read_text()))


def check(kind: str, count: int) -> tuple[int, str]:
    """Attach again and again while two threads wait, with an untouched process beside."""
    results: list[dict[str, list[float]]] = []
    rounds, waiters, refused = max(10, count // 10), 0, 0
    with waiting(kind, results), waiting(kind, results) as pid:
        for number in range(rounds):
            try:
                waiters += not inject(pid, ("thread", "pending")[number % 2], "# @AREA@")["is_main"]
            except InjectError as error:
                if error.code != "no_usable_thread":
                    raise
                refused += 1
    touched, control = (result["late"] for result in results)
    told = ", ".join(f"{_most(one):.1f} and {one[-1] * 1e3:.1f} ms" for one in (touched, control))
    for result in results:
        assert not result["wrong"], result["wrong"]
        assert result["late"][0] > -EARLY_S, f"a wait ended {-result['late'][0] * 1e3} ms early"
    # Half of the waits were borrowed. One that began anew would be late by half its length; the worst of all
    # tells of the host's load.
    assert _most(touched) < _most(control) + LATE_MS, told
    return rounds, (
        f"{waiters} borrowed a waiting thread, {refused} refused; late (of 3 in 4, worst) of {len(touched)}"
        f" waits, and of {len(control)} untouched: {told}"
    )


def _most(late: list[float]) -> float:
    """Return within how many milliseconds three of four have ended."""
    return late[len(late) * 3 // 4] * 1e3


CHECKS = {f"waits, {kind}": partial(check, kind) for kind in targets.WAITS}
