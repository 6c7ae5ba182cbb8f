"""The probes of host memory and of phases, run for real on this process; only the steps are played."""

from __future__ import annotations

import gc
import json
import os
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

MEMORY = Path(__file__).parents[2] / "plugins" / "memory"
MIB = 1 << 20
HOLDS = "import sys; held = b'x' * (int(sys.argv[1]) << 20); print(flush=True); sys.stdin.read()"
NESTS = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], stdin=subprocess.PIPE)
print(flush=True); sys.stdin.read(); child.stdin.close(); child.wait()
"""


def names_of(file: str) -> dict[str, Any]:
    """Return the names of a probe, as the shim has them."""
    space: dict[str, Any] = {"__name__": "_ascend_tui_probe_memory"}
    exec(compile((MEMORY / file).read_text(), file, "exec"), space)
    return space


HOST, PHASES = names_of("probe_host.py"), names_of("probe_phases.py")


class Steps:
    """The steps of a training that only these tests make: a real one has no known times."""

    def __init__(self) -> None:
        self.now, self.step, self.ended, self.took = 1000.0, 0, 1000.0, [0.1]
        self.torch: Any = None

    def go(self, seconds: float) -> None:
        """End a step after so many seconds."""
        self.now += seconds
        self.ended, self.step = self.now, self.step + 1
        self.took.append(seconds)

    @property
    def since_step_s(self) -> float:
        return self.now - self.ended

    @property
    def step_s(self) -> float:
        return sorted(self.took[-50:])[len(self.took[-50:]) // 2]


class Device:
    """A device of a kind; nothing else of it is asked."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Api:
    """What a probe is given, as far as the host's part asks for it."""

    def __init__(self, kind: str = "cpu") -> None:
        self.device = Device(kind)


@contextmanager
def child(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.communicate()


# The processes that the training started.


@pytest.mark.parametrize("has_lists", [True, False])
def test_processes_of_several_generations_and_threads_are_found(has_lists: bool) -> None:
    family = HOST["Family"]()
    family.has_lists = has_lists  # False is a kernel without lists of children: all processes are asked.
    before = {one["pid"] for one in family.read()}
    with child(NESTS, "64", HOLDS) as parent, child(HOLDS, "32") as single:
        found = {one["pid"]: one for one in family.read() if one["pid"] not in before}
        for _ in range(1000):
            if len(found) == 3 and max(one["rss_bytes"] for one in found.values()) > 64 * MIB:
                break
            time.sleep(0.01)
            found = {one["pid"]: one for one in family.read() if one["pid"] not in before}
        assert {parent.pid, single.pid} < set(found)
        assert len(found) == 3
        assert all(one["name"].startswith("python") for one in found.values())
        assert sum(one["rss_bytes"] for one in found.values()) > 96 * MIB
        assert family.has_lists == has_lists
    assert {one["pid"] for one in family.read()} <= before


def test_children_of_other_threads_count_and_the_dead_do_not() -> None:
    family, started, done = HOST["Family"](), threading.Event(), threading.Event()
    made: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        made.append(subprocess.Popen(["sleep", "60"]))
        started.set()
        done.wait(20)

    thread = threading.Thread(target=start)
    thread.start()
    assert started.wait(20)
    try:
        assert made[0].pid in {one["pid"] for one in family.read()}
        made[0].kill()
        os.waitid(os.P_PID, made[0].pid, os.WEXITED | os.WNOWAIT)  # It is a zombie from here on.
        assert made[0].pid not in {one["pid"] for one in family.read()}
    finally:
        made[0].kill()
        made[0].wait()
        done.set()
        thread.join()


def test_a_record_is_bounded_and_can_be_sent() -> None:
    host = HOST["Host"](Api(), HOST["Family"]())
    host.family.read = lambda: [{"pid": n, "name": "w" * 15, "rss_bytes": n} for n in range(1, 1001)]
    record = host.read()
    assert len(json.dumps(record)) < 4096
    assert record["workers_count"] == 1000
    assert record["workers_rss_bytes"] == 500500
    assert [one["pid"] for one in record["workers"]] == list(range(1000, 968, -1))
    assert record["available_bytes"] > 0
    assert record["written_bytes"] > 0
    assert "pinned_bytes" not in record


def test_a_reading_that_costs_much_is_followed_by_a_rest() -> None:
    host = HOST["Host"](Api(), HOST["Family"]())

    def dear() -> list[Any]:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            sum(range(100))
        return []

    host.family.read = dear
    assert host.read() is not None
    assert host.due_s - time.monotonic() > 30.0
    assert host.read() is None


def test_pinned_memory_is_asked_of_the_device_in_use_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch_npu's real answer is in tests/attach/test_host.py; here is what other answers come to.
    def fails() -> dict[str, Any]:
        raise RuntimeError("no host allocator")

    for answer, expected in [
        (lambda: {"allocated_bytes": {"current": 4096, "peak": 8192}}, 4096),
        (dict, None),
        (lambda: {"allocated_bytes": 3}, None),
        (fails, None),
    ]:
        core = type("Core", (), {"_npu_hostMemoryStats": staticmethod(answer)})
        monkeypatch.setitem(sys.modules, "torch_npu", type("Package", (), {"_C": core}))
        assert HOST["Host"](Api("npu"), HOST["Family"]()).pinned() == expected
        assert HOST["Host"](Api("cpu"), HOST["Family"]()).pinned() is None


def test_a_control_group_limits_what_is_available(tmp_path: Path) -> None:
    machine = HOST["available_bytes"]([])
    assert machine > 64 * MIB
    (tmp_path / "limit").write_text("67108864\n")
    (tmp_path / "use").write_text("50331648\n")
    (tmp_path / "stat").write_text("anon 1\ninactive_file 16777216\n")
    group = tuple(str(tmp_path / name) for name in ("limit", "use", "stat"))
    assert HOST["available_bytes"]([(*group, "inactive_file")]) == 32 * MIB
    (tmp_path / "limit").write_text("max\n")
    assert HOST["available_bytes"]([(*group, "inactive_file")]) > 64 * MIB
    assert HOST["number_of"]("9223372036854771712\n") is None


def test_nothing_is_left_open() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    host, checkpoints = HOST["Host"](Api(), HOST["Family"]()), HOST["Checkpoints"](HOST["Family"]())
    for _ in range(20):
        host.read()
        checkpoints.look()
    assert sorted(os.listdir("/proc/self/fd")) == before


# Bursts of writing.


def bursts(seconds: list[float]) -> list[int]:
    """Return in which seconds a burst begins, of a process that writes so many MiB in each."""
    writes, total, found = HOST["Writes"](), 0.0, []
    for tick in range(len(seconds) * 5):
        total += seconds[tick // 5] * MIB / 5
        if writes.add(100 + tick / 5, int(total)):
            found.append(tick // 5)
    return found


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([0] * 10 + [50] + [0] * 20 + [50] + [0] * 20 + [50] + [0] * 5, [10, 31, 52]),
        ([0] * 10 + [50] * 8 + [0] * 20, [10]),
        ([0.2] * 200, []),
        ([0] * 10 + [2] + [0] * 20, []),
        ([0] * 40 + [2] * 10 + [0] * 20, [42]),
        ([30] * 300, []),
        ([30] * 60 + [600] * 3 + [30] * 20, [60]),
        ([30, 5, 60, 20] * 20 + [100] + [30, 5, 60, 20] * 5, []),
        # What begins and goes on for ever is one burst, and then the usual.
        ([0] * 10 + [50] * 200 + [900] + [50] * 20, [10, 210]),
        # It began before we came: only later ones can be told.
        ([50] * 5 + [0] * 130 + [50] + [0] * 5, [135]),
    ],
)
def test_a_burst_is_large_against_what_is_usual(seconds: list[float], expected: list[int]) -> None:
    assert bursts(seconds) == expected


def test_a_reading_that_comes_late_is_no_burst() -> None:
    writes, now, total = HOST["Writes"](), 100.0, 0
    for pause in [0.2] * 50 + [30.0] + [0.2] * 50:
        now, total = now + pause, total + int(pause * MIB)
        assert not writes.add(now, total)


def test_a_checkpoint_of_this_process_is_seen_and_an_ended_child_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = HOST["Family"]()
    checkpoints = HOST["Checkpoints"](family)
    now = [1000.0]
    monkeypatch.setattr(HOST["time"], "monotonic", lambda: now[0])

    def look() -> Any:
        now[0] += 0.2
        return checkpoints.look()

    assert not any(look() for _ in range(30))
    pipes = "import os, sys; [os.write(1, bytes(4096)) for _ in range(4000)]; os.close(1); sys.stdin.read()"
    worker = subprocess.Popen([sys.executable, "-c", pipes], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdout is not None
    assert len(worker.stdout.read()) == 4000 * 4096
    assert worker.pid in {one["pid"] for one in family.read()}
    assert not any(look() for _ in range(5))
    worker.communicate()
    assert not any(look() for _ in range(10))
    (tmp_path / "model.pt").write_bytes(bytes(16 * MIB))
    found = [one for one in (look() for _ in range(10)) if one]
    assert [(one["sign"], one["label"]) for one in found] == [("c", "checkpoint")]


# Steps.


def test_only_an_outlier_is_a_slow_step() -> None:
    steps = Steps()
    pace = PHASES["Pace"](steps)

    def run(*seconds: float, looks: int = 1) -> list[tuple[int, float, float]]:
        found = []
        for at, one in enumerate(seconds):
            steps.go(one)
            slow = pace.look(steps.now) if at % looks == looks - 1 else None
            if slow:
                found.append((steps.step, round(slow[0], 2), round(slow[1], 2)))
        return found

    assert run(9.0, *[0.8] * 30) == []
    assert run(3.6, *[0.8] * 60) == [(32, 3.6, 0.8)]
    assert run(*[0.8, 1.1, 0.7, 1.9] * 20) == []
    # Ten steps between two looks: the others take what they usually take.
    assert run(*[0.01] * 100, looks=10) == []
    assert run(*[0.01] * 14, 0.9, *[0.01] * 85, looks=10) == [(292, 0.9, 0.01)]
    steps.now += 20
    steps.ended = steps.now


def test_what_is_slow_all_the_time_is_usual() -> None:
    steps = Steps()
    pace = PHASES["Pace"](steps)
    found = []
    for step in range(3000):
        steps.go(4.0 if step % 20 == 19 else 0.4)
        found += [step] if pace.look(steps.now) else []
    assert len(found) <= 3


def test_a_slow_step_has_no_mark_of_its_own_where_the_training_evaluated() -> None:
    steps = Steps()
    pace = PHASES["Pace"](steps)
    for _ in range(30):
        steps.go(0.4)
        assert pace.look(steps.now) is None
    pace.excused_s = steps.now + 2.0
    steps.go(5.0)
    assert pace.look(steps.now) is None


# Modules.


class Kept:
    """Something whose end can be seen."""


class Net:
    """The call of a module and nothing else of it: torch's own is in tests/attach/test_host.py."""

    def __init__(self, inner: Net | None = None) -> None:
        self.inner = inner
        self.training = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, given: Any) -> Any:
        made = Kept()
        self.made = weakref.ref(made)
        return self.inner(made) if self.inner else made


def test_the_outermost_modules_are_seen_and_nothing_lives_longer_for_it() -> None:
    inner = Net()
    root = Net(Net(Net(inner)))
    me, code = threading.get_ident(), Net.__call__.__code__
    seen: set[tuple[Any, ...]] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            found = PHASES["outermost"](me, code)
            seen.add(tuple(id(one) for one in found))
            found.clear()

    thread = threading.Thread(target=look)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    gc.disable()
    thread.start()
    try:
        end, wanted = time.monotonic() + 20, {(), (id(root),), (id(root.inner), id(root))}
        while time.monotonic() < end and seen != wanted:
            for _ in range(500):
                given = Kept()
                watched, result = weakref.ref(given), root(given)
                del given, result
                assert watched() is None
                assert inner.made() is None
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
        gc.enable()
    assert seen == wanted


def test_a_thread_that_is_gone_is_no_fault() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    ident = thread.ident
    thread.join()
    assert list(PHASES["outermost"](ident, Net.__call__.__code__)) == []


class Torch:
    """A torch that has modules and nothing else."""

    class nn:
        Module = Net


def known(*modules: Net) -> Any:
    """Return what is known after these modules were seen."""
    steps = Steps()
    steps.torch = Torch
    roots = PHASES["Roots"](steps)
    roots.known = [[weakref.ref(one), False] for one in modules]
    roots.looks_left, roots.look_due_s = 0, float("inf")
    return roots


def test_evaluation_is_a_module_that_trained_and_rests() -> None:
    student, teacher = Net(), Net()
    teacher.training = False
    roots = known(teacher, student)
    assert [roots.look(1.0), roots.training] == [None, True]
    student.training = False
    assert [roots.look(1.1), roots.training, roots.look(1.2)] == ["evaluation", False, None]
    student.training = True
    assert [roots.look(1.3), roots.training] == ["training", True]


def test_a_part_that_rests_while_steps_end_is_trained_no_more() -> None:
    first, second = Net(), Net()
    roots = known(first, second)
    roots.look(1.0)
    first.training = False
    assert roots.look(1.1) == "evaluation"
    roots.api.step += 5
    assert [roots.look(1.2), roots.training] == ["training", True]
    roots.api.step += 5
    assert roots.look(1.3) is None
    second.training = False
    assert roots.look(1.4) == "evaluation"


def test_a_module_that_is_gone_is_forgotten_and_its_successor_looked_for() -> None:
    module = Net()
    roots = known(module)
    roots.look(1.0)
    del module
    assert roots.look(1.1) is None
    assert roots.known == []
    assert roots.training is None
    assert roots.looks_left == PHASES["MOST_LOOKS"]


def test_a_training_that_evaluates_all_the_time_gets_few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    module, now = Net(), [1000.0]
    monkeypatch.setattr(PHASES["time"], "monotonic", lambda: now[0])
    moments = PHASES["Moments"](known(module).api)
    moments.roots = known(module)
    found = []
    for at in range(6000):
        now[0] += 0.1
        module.training = at % 4 < 2
        found += [moments.look() or {}]
    assert 30 <= sum(one.get("sign") == "e" for one in found) <= 44


@pytest.mark.parametrize("torch", [None, object(), type("Half", (), {"nn": type("Empty", (), {})})])
def test_a_torch_that_is_not_there_yet_is_no_fault(torch: Any) -> None:
    roots = PHASES["Roots"](Steps())
    roots.api.torch = torch
    assert roots.look(1.0) is None
    assert roots.known == []


def test_looks_end_where_there_is_nothing_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [0]
    monkeypatch.setitem(PHASES, "outermost", lambda thread, code: looks.__setitem__(0, looks[0] + 1))
    steps = Steps()
    steps.torch = Torch
    roots = PHASES["Roots"](steps)
    for at in range(6000):
        roots.look(at / 10)
    assert looks[0] <= PHASES["MOST_LOOKS"] + 61
