"""torch's record of the operators of a step, on real torch: what it keeps, and that it is in no way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.autograd import profiler  # noqa: E402
from torch.profiler import profile, record_function  # noqa: E402

from ascend_tui.shim import modes  # noqa: E402
from ascend_tui.shim.recorder import BEGINNINGS, Recorder  # noqa: E402

ORIGINALS = {name: getattr(profiler, name) for name in BEGINNINGS[0][1]}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    one = Recorder()
    yield one
    one.stop()
    assert not torch.autograd._profiler_enabled()
    assert {name: getattr(profiler, name) for name in ORIGINALS} == ORIGINALS
    assert not modes.recorded


def names(threads: list[list[Any]] | None) -> list[str]:
    assert threads is not None
    return [one.name() for events in threads for one in events if one.kind() == "push"]


def test_it_keeps_the_operators_between_start_and_stop(recorder: Recorder) -> None:
    torch.ones(2) + 1
    assert recorder.start(False, 10.0) is None
    assert recorder.is_on
    torch.ones(2).mul(3)
    found = names(recorder.stop())
    assert not recorder.is_on
    torch.ones(2) - 1
    assert found[0] == "aten::ones"
    assert "aten::mul" in found
    assert "aten::add" not in found
    assert recorder.stop() is None


def test_shapes_are_kept_only_when_asked_for(recorder: Recorder) -> None:
    for asked, want in ((True, [[2, 3], []]), (False, [])):
        assert recorder.start(asked, 10.0) is None
        torch.ones(2, 3).mul(3)
        threads = recorder.stop()
        assert threads is not None
        assert [one.shapes() for one in threads[0] if one.name() == "aten::mul"] == [want]


def test_the_backward_is_in_it(recorder: Recorder) -> None:
    weight = torch.ones(3, requires_grad=True)
    assert recorder.start(False, 10.0) is None
    (weight * 2).sum().backward()
    found = names(recorder.stop())
    assert "autograd::engine::evaluate_function: MulBackward0" in found


def test_operators_of_ours_are_not_in_it(recorder: Recorder) -> None:
    assert recorder.start(False, 10.0) is None
    with modes.unseen():
        torch.ones(2).exp()
    torch.ones(2).mul(3)
    found = names(recorder.stop())
    assert "aten::exp" not in found
    assert "aten::mul" in found


def test_it_refuses_while_the_training_profiles_and_harms_nothing(recorder: Recorder) -> None:
    with profile() as theirs:
        torch.ones(2).mul(3)
        why = recorder.start(False, 10.0)
        torch.ones(2).mul(4)
    assert why is not None
    assert "the training's own profiler is on" in why
    assert sum(one.name == "aten::mul" for one in theirs.events()) == 2


@pytest.mark.parametrize("theirs", [profile, profiler.profile])
def test_a_profiler_of_the_trainings_own_begins_as_without_us(recorder: Recorder, theirs: Any) -> None:
    assert recorder.start(False, 10.0) is None
    torch.ones(2).exp()
    with theirs() as seen:
        assert not recorder.is_on
        torch.ones(2).mul(3)
    events = seen.events() if hasattr(seen, "events") else seen.function_events
    assert [one.name for one in events if one.name in ("aten::exp", "aten::mul")] == ["aten::mul"]
    assert recorder.stop() is None
    assert profiler._enable_profiler is ORIGINALS["_enable_profiler"]


def test_a_profiler_of_another_thread_goes_on_beside_it(recorder: Recorder) -> None:
    assert recorder.start(False, 10.0) is None
    seen: list[int] = []

    def work() -> None:
        with profile() as theirs:
            torch.ones(2).mul(3)
        seen.append(sum(one.name == "aten::mul" for one in theirs.events()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert recorder.is_on
    torch.ones(2).exp()
    assert "aten::exp" in names(recorder.stop())
    assert seen == [1]


def test_a_range_that_outlives_it_and_closes_in_the_next_one_is_no_harm(recorder: Recorder) -> None:
    assert recorder.start(False, 10.0) is None
    long = record_function("epoch")
    long.__enter__()
    recorder.stop()
    assert recorder.start(False, 10.0) is None
    long.__exit__(None, None, None)
    torch.ones(2).mul(3)
    assert "aten::mul" in names(recorder.stop())


def test_only_its_own_thread_can_stop_it_and_it_ends_there_when_due(recorder: Recorder) -> None:
    assert recorder.start(False, 0.05) is None
    assert recorder.start(False, 10.0) == "the operators are recorded already"
    assert not recorder.is_due()
    time.sleep(0.06)
    assert recorder.is_due()
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend([recorder.stop(), recorder.end_if_due()]))
    thread.start()
    thread.join()
    assert seen == [None, False]
    assert recorder.end_if_due()
    assert not recorder.is_on


def test_a_forked_child_records_nothing_and_can_profile(recorder: Recorder) -> None:
    assert recorder.start(False, 10.0) is None
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            recorder.after_fork_in_child()
            torch.ones(2).exp()
            with profiler.profile() as theirs:
                torch.ones(2).mul(3)
            code = 0 if [one.name for one in theirs.function_events].count("aten::mul") == 1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    torch.ones(2).sub(1)
    assert "aten::sub" in names(recorder.stop())


def test_a_torch_without_this_recorder_is_told(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._autograd, "_enable_profiler_legacy")
    assert "this torch has no recorder" in str(recorder.start(False, 10.0))


def test_nothing_is_printed(recorder: Recorder, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        assert recorder.start(False, 10.0) is None
        torch.ones(2).mul(3)
        recorder.stop()
    assert capfd.readouterr() == ("", "")


def test_a_record_of_another_kind_is_held_in_its_place(recorder: Recorder) -> None:
    ended: list[str] = []
    recorder.hold(lambda: ended.append("ended"), 10.0)
    assert recorder.is_on
    assert recorder.start(False, 10.0) == "the operators are recorded already"
    with profile() as theirs:
        torch.ones(2).mul(3)
    assert ended == ["ended"]
    assert not recorder.is_on
    assert any(one.name == "aten::mul" for one in theirs.events())
    recorder.hold(lambda: ended.append("again"), 10.0)
    recorder.release()
    assert ended == ["ended"]
    assert not recorder.is_on


ENDS = """
import torch
from types import SimpleNamespace
from ascend_tui.shim import shell
from ascend_tui.shim.recorder import Recorder

one = Recorder()
shell.agent = SimpleNamespace(probes=SimpleNamespace(recorder=one))
assert one.start(False, 60.0) is None
torch.ones(2).mul(3)
"""


def test_a_training_that_ends_while_it_records_prints_nothing() -> None:
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", ENDS], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
