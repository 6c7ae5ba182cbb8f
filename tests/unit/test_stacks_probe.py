"""The probe of the stacks, run for real: what it reads, what it must not do, and its bounds."""

from __future__ import annotations

import _thread
import functools
import gc
import json
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROBE = Path(__file__).parents[2] / "plugins" / "stacks" / "probe.py"
MOST_RECORD_BYTES = 128 << 10

HUNG = """
import dis, json, sys, threading, time
space = {"__name__": "probe"}
exec(compile(open(sys.argv[1]).read(), "<ascend-tui-probe-stacks>", "exec"), space)

class Api:
    since_step_s = step_s = None

def read():
    reader = space["Reader"](Api())
    for _ in range(3):
        time.sleep(0.05)
        record = reader.read()
    print(json.dumps(record))
    sys.stdout.flush()
    lock.release()

def take():
    lock.acquire()

lock = threading.Lock()
lock.acquire()
threading.Thread(target=read, name="reader").start()
take()
"""


class Api:
    """What a probe may look at."""

    since_step_s: float | None = None
    step_s: float | None = None


@pytest.fixture
def space() -> dict[str, Any]:
    """Return the names of the probe, as the shim has them."""
    names: dict[str, Any] = {"__name__": "_ascend_tui_probe_stacks"}
    exec(compile(PROBE.read_text(), "<ascend-tui-probe-stacks>", "exec"), names)
    return names


def elsewhere(call: Any) -> Any:
    """Return what `call()` returns on a thread of its own, as the shim's is."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), name="shim")
    thread.start()
    thread.join(20)
    return found[0]


@contextmanager
def threads(count: int, depth: int, name: str = "worker") -> Iterator[None]:
    """Run so many threads that wait so deep."""
    done = threading.Event()

    def wait(left: int) -> None:
        if left:
            wait(left - 1)
        else:
            done.wait()

    started = [threading.Thread(target=wait, args=(depth,), name=name, daemon=True) for _ in range(count)]
    for one in started:
        one.start()
    time.sleep(0.1)
    try:
        yield
    finally:
        done.set()
        for one in started:
            one.join(20)


def test_while_steps_end_no_stack_is_read(space: dict[str, Any]) -> None:
    api = Api()
    reader = space["Reader"](api)
    api.since_step_s, api.step_s = 4.9, 0.1
    assert set(elsewhere(reader.read)) == {"since_step_s", "step_s", "attached_s"}
    api.since_step_s = 5.1
    assert elsewhere(reader.read)["threads"]
    # Ten steps of a slow training are no hang.
    api.since_step_s, api.step_s = 95.0, 10.0
    assert "threads" not in elsewhere(reader.read)
    api.since_step_s = 101.0
    assert "threads" in elsewhere(reader.read)


def test_a_reading_is_bounded_however_many_and_deep_the_threads_are(space: dict[str, Any]) -> None:
    with threads(80, 60):
        record = elsewhere(space["Reader"](Api()).read)
    assert len(record["threads"]) == 64
    # Those of the tests' own framework stand aside too.
    assert record["threads_left_out"] >= 80 + 1 - 64
    assert record["threads"][0]["main"]
    workers = [one for one in record["threads"] if one["name"] == "worker"]
    assert {len(one["stack"]) for one in workers} == {40}
    assert all(one["is_cut"] for one in workers)
    assert all(one["stack"][0] < len(record["frames"]) for one in workers)
    assert len(json.dumps(record)) < MOST_RECORD_BYTES


def test_long_and_foreign_names_are_cut_and_fit_into_one_record(space: dict[str, Any]) -> None:
    lines = [f"def {'函' * 300}{number}(next):\n    next()\n" for number in range(300)]
    names: dict[str, Any] = {}
    exec(compile("\n".join(lines), "/数据" * 2000 + "/model.py", "exec"), names)
    functions = [one for name, one in names.items() if "函" in name]
    done = threading.Event()
    started = []
    for number in range(20):
        call: Any = done.wait
        for function in functions[number * 14 : number * 14 + 34]:
            call = functools.partial(function, call)
        started.append(threading.Thread(target=call, name="名" * 1000, daemon=True))
    for one in started:
        one.start()
    time.sleep(0.1)
    record = elsewhere(space["Reader"](Api()).read)
    done.set()
    assert len(json.dumps(record)) < MOST_RECORD_BYTES
    named = [one for one in record["threads"] if one["name"].startswith("名")]
    assert len(named) == 20
    assert max(len(one["name"]) for one in named) <= 80
    files = [file for file, _, _ in record["frames"] if file.endswith("/model.py")]
    assert files
    assert max(len(file) for file in files) <= 160
    for one in started:
        one.join(20)


def test_no_frame_and_no_variable_outlives_the_reading(space: dict[str, Any]) -> None:
    class Tensor:
        """Stands for what must be freed in time."""

    done = threading.Event()
    gone: list[Any] = []

    def hold() -> None:
        tensor = Tensor()
        gone.append(weakref.ref(tensor))
        done.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    time.sleep(0.1)
    reader = space["Reader"](Api())
    gc.disable()
    try:
        for _ in range(5):
            elsewhere(reader.read)
        done.set()
        thread.join(20)
        assert gone[0]() is None
    finally:
        gc.enable()


def test_a_lock_of_threading_that_is_held_for_ever_stops_nothing(space: dict[str, Any]) -> None:
    reader = space["Reader"](Api())
    found: list[Any] = []
    go = threading.Event()

    def read() -> None:
        go.wait()
        found.append(reader.read())

    thread = threading.Thread(target=read)
    thread.start()
    with threading._active_limbo_lock:  # type: ignore[attr-defined]
        go.set()
        end = time.monotonic() + 20
        while not found and time.monotonic() < end:
            time.sleep(0.01)
        assert found
    thread.join(20)


def test_a_thread_that_threading_does_not_know_is_read_too(space: dict[str, Any]) -> None:
    lock = threading.Lock()
    lock.acquire()
    _thread.start_new_thread(lock.acquire, ())
    time.sleep(0.1)

    def unknown() -> None:
        lock.acquire()

    _thread.start_new_thread(unknown, ())
    time.sleep(0.1)
    record = elsewhere(space["Reader"](Api()).read)
    nameless = [one for one in record["threads"] if not one["name"] and one["stack"]]
    functions = [record["frames"][one["stack"][0]][1] for one in nameless]
    assert any(name.endswith("unknown") for name in functions)
    lock.release()
    time.sleep(0.05)
    lock.release()


def pythons() -> list[str]:
    """Return this Python and one of each other version that a training may have."""
    found = [sys.executable]
    for version in ("3.8", "3.9", "3.10", "3.12", "3.13", "3.14"):
        candidates = [*map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
        candidates += filter(None, [shutil.which("python" + version)])
        for one in candidates:
            # A shim of a version manager is there also for what is not.
            if subprocess.run([one, "-V"], capture_output=True, check=False).returncode == 0:
                found.append(one)
                break
    return found


@pytest.mark.parametrize("python", pythons())
def test_each_python_tells_where_its_main_thread_stands_and_what_it_called(
    python: str, tmp_path: Path
) -> None:
    program = tmp_path / "hung.py"
    program.write_text(HUNG)
    done = subprocess.run([python, str(program), str(PROBE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    (main,) = record["threads"]
    file, function, line = record["frames"][main["stack"][0]]
    assert (file, function) == (str(program), "take")
    assert HUNG.splitlines()[line - 1].strip() == "lock.acquire()"
    assert main["called"] == "acquire"
    assert main["state"] == "S"
    assert main["cpu_share"] < 0.5
    assert record["native"] == {"names": {}, "left_out": 0}
