"""From readings of the stacks to a word and a sentence, without any process."""

from __future__ import annotations

from typing import Any

import pytest
from ascend_tui_plugins.stacks.collector import StacksCollector
from ascend_tui_plugins.stacks.kernel import does
from ascend_tui_plugins.stacks.snapshot import StacksSnapshot

from ascend_tui.frame import as_json
from ascend_tui.plugin import Alert, Record
from ascend_tui.target import TargetId

TORCH = "/usr/lib/python3.11/site-packages/torch/"
PYTHON = "/usr/lib/python3.11/"
USER = ("/job/train.py", "train", 88)


class Case:
    """One collector with one target, fed a reading every second."""

    def __init__(self, target: TargetId) -> None:
        self.target = target
        self.told: list[Any] = []
        self.collector = StacksCollector(self.told.append)
        self.now = 0.0

    def take(self, data: dict[str, Any], step: int = 100) -> StacksSnapshot:
        """Deliver one record."""
        self.now += 1.0
        self.collector.on_record(
            self.target, Record(int(self.now), "stacks", "stacks", step, self.now, self.now, data)
        )
        return self.collector.snapshot(self.target)

    def stuck(self, *frames: tuple[str, str, int], since: float | None = 20.0, **main: Any) -> StacksSnapshot:
        """Deliver a reading with the main thread in these frames, innermost first."""
        rows = [list(frame) for frame in frames or (USER,)]
        thread = {"name": "MainThread", "tid": 7, "main": True, "stack": list(range(len(rows))), **main}
        waits = {"state": "S", "wchan": "futex_do_wait", "syscall": 202, "cpu_share": 0.0}
        return self.take(
            {
                "since_step_s": since,
                "step_s": 0.1,
                "attached_s": 50.0,
                "machine": "x86_64",
                "frames": rows,
                "threads": [{"name": "other", "tid": 8, "stack": [0]}, {**waits, **thread}],
            }
        )

    def still(self, *frames: tuple[str, str, int], **more: Any) -> StacksSnapshot:
        """Deliver as many readings of the same as it takes."""
        return [self.stuck(*frames, **more) for _ in range(8)][-1]


@pytest.fixture
def case(target: TargetId) -> Case:
    return Case(target)


def test_before_the_first_reading_it_waits(case: Case) -> None:
    now = case.collector.snapshot(case.target)
    assert (now.state, now.stuck) == ("waiting", "unknown")


def test_while_steps_end_there_are_no_stacks(case: Case) -> None:
    now = case.take({"since_step_s": 0.1, "step_s": 0.2, "attached_s": 5.0})
    assert (now.state, now.stuck, now.threads, now.doing) == ("live", "moving", (), None)


def test_at_an_attach_three_readings_at_one_place_are_still(case: Case) -> None:
    assert [case.stuck(since=None).stuck for _ in range(3)] == ["busy", "busy", "still"]
    now = case.collector.snapshot(case.target)
    assert now.still_s == 2.0
    assert now.threads[0].is_main
    assert [one.name for one in now.threads] == ["MainThread", "other"]


def test_where_steps_were_seen_it_takes_longer(case: Case) -> None:
    assert [case.stuck().stuck for _ in range(8)] == ["busy"] * 7 + ["still"]


def test_one_that_goes_on_after_all_is_believed_more_slowly(case: Case) -> None:
    """A validation of long batches, met by an attach: the screen must not come and go with each of them."""
    words = []
    for _ in range(20):
        words += [case.stuck(since=None, cpu_share=share).stuck for share in (0.0, 0.0, 0.0, 0.0, 0.03)]
    assert words.count("still") == 2
    assert "still" not in words[5:]


def test_a_main_thread_that_moves_is_busy_however_long_no_step_ends(case: Case) -> None:
    words = {case.stuck(("/job/evaluate.py", "evaluate", line)).stuck for line in range(300)}
    assert words == {"busy"}
    assert not case.told


def test_one_that_runs_at_one_line_is_busy_for_a_minute_and_then_still(case: Case) -> None:
    words = [case.stuck(state="R", cpu_share=0.9).stuck for _ in range(70)]
    assert words.index("still") == 60
    assert case.collector.snapshot(case.target).doing.render().startswith("main computes")  # type: ignore[union-attr]


def test_waiting_for_data_at_one_line_between_work_is_no_standstill(case: Case) -> None:
    # A validation with a slow loader: seen at the same line each time, but it worked in between.
    assert {case.stuck(cpu_share=0.2).stuck for _ in range(50)} == {"busy"}


def test_a_step_ends_the_episode(case: Case) -> None:
    case.still()
    assert case.take({"since_step_s": 0.1, "step_s": 0.1, "attached_s": 60.0}, step=101).stuck == "moving"
    assert case.stuck().stuck == "busy"


def test_a_step_between_two_readings_is_none_of_the_same_place(case: Case) -> None:
    case.still()
    frames = [list(USER)]
    thread = {"name": "MainThread", "main": True, "stack": [0], "cpu_share": 0.0}
    now = case.take({"since_step_s": 9.0, "frames": frames, "threads": [thread]}, step=101)
    assert now.stuck == "busy"


def test_one_alert_per_episode_and_only_when_it_lasts(case: Case) -> None:
    for second in range(100):
        case.stuck(since=6.0 + second)
    (alert,) = case.told
    assert isinstance(alert, Alert)
    assert (alert.severity, alert.category, alert.attribution) == ("warning", "timeout", "likely")
    assert alert.headline.render() == (
        "no step has ended for 36 s: the main thread stands still in train (train.py:88)"
    )
    assert alert.step == 100
    case.take({"since_step_s": 0.1, "step_s": 0.1}, step=101)
    for second in range(40):
        case.stuck(since=6.0 + second)
    assert len(case.told) == 2


def test_no_alert_for_what_never_stepped_under_our_eyes(case: Case) -> None:
    words = {case.stuck(since=None).stuck for _ in range(200)}
    assert "still" in words
    assert not case.told


def test_what_computes_or_writes_to_disk_is_given_more_time(case: Case) -> None:
    for _ in range(200):
        case.stuck(since=1000.0, state="D", wchan="folio_wait_bit")
    assert not case.told
    for _ in range(150):
        case.stuck(since=1000.0, state="D", wchan="folio_wait_bit")
    assert len(case.told) == 1


LOADER = (
    (PYTHON + "selectors.py", "_PollLikeSelector.select", 415),
    (TORCH + "utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", 1291),
    (TORCH + "utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 725),
    USER,
)
POLL = {"wchan": "poll_schedule_timeout", "syscall": 7}


@pytest.mark.parametrize(
    ("frames", "main", "words", "cause"),
    [
        (LOADER, POLL, "main waits for the data loader, in train (train.py:88)", "its workers"),
        (
            ((TORCH + "distributed/distributed_c10d.py", "barrier", 4000), USER),
            {},
            "main waits in a collective (barrier), in train (train.py:88)",
            "another rank",
        ),
        ((USER,), {"called": "wait"}, "main waits in a collective (wait), in train (train.py:88)", "rank"),
        (
            ((TORCH.replace("torch/", "torch_npu/") + "npu/utils.py", "synchronize", 50), USER),
            {},
            "main waits for the device (synchronize), in train (train.py:88)",
            "kernel on the device",
        ),
        ((USER,), {"called": "item"}, "main waits for the device (item), in train (train.py:88)", "device"),
        (
            ((TORCH + "autograd/graph.py", "_engine_run_backward", 800), USER),
            {},
            "main waits in the backward pass, in train (train.py:88)",
            "device",
        ),
        (
            ((PYTHON + "threading.py", "Condition.wait", 327), USER),
            {"called": "acquire"},
            "main waits for a lock or another thread, in train (train.py:88)",
            "",
        ),
        ((USER,), {"wchan": "sk_wait_data"}, "main waits for data from a socket, in train (train.py:88)", ""),
        ((USER,), {"wchan": "", "syscall": 230}, "main sleeps, in train (train.py:88)", ""),
        ((USER,), {"wchan": "do_wait"}, "main waits for another process to end, in train (train.py:88)", ""),
        ((USER,), {"syscall": 16}, "main waits in a call of a driver (ioctl), in train (train.py:88)", ""),
        (
            (USER,),
            {"state": "D", "wchan": "0", "syscall": None},
            "main waits in the kernel and cannot be interrupted, in train (train.py:88)",
            "disk",
        ),
        (
            (USER,),
            {"wchan": "__do_sys_pause", "syscall": 34},
            "main stands in native code, called from train (train.py:88)",
            "",
        ),
        (
            (("<frozen importlib._bootstrap>", "_find_and_load", 1176), USER),
            {},
            "main imports a module, called from train (train.py:88)",
            "",
        ),
        (
            ((TORCH + "_inductor/async_compile.py", "wait", 400), USER),
            {},
            "main compiles, called from train (train.py:88)",
            "",
        ),
        (  # A compiled model that runs.
            (("/tmp/torchinductor/x.py", "call", 9), (TORCH + "_dynamo/eval_frame.py", "_fn", 700), USER),
            {},
            "main waits for a lock or another thread, in call (x.py:9)",
            "",
        ),
        (  # The wrapper of sharded models is on the stack of whatever the model does.
            (("/job/model.py", "forward", 5), (TORCH + "distributed/fsdp/fsdp.py", "forward", 8), USER),
            {},
            "main waits for a lock or another thread, in forward (model.py:5)",
            "",
        ),
        (
            ((TORCH + "nn/parallel/distributed.py", "DistributedDataParallel._pre_forward", 1600), USER),
            {"called": "_rebuild_buckets"},
            "main waits in a collective (_pre_forward), in train (train.py:88)",
            "another rank",
        ),
        (
            ((TORCH + "nn/modules/module.py", "Module._call_impl", 1700),),
            {},
            "main waits for a lock or another thread, in _call_impl (module.py:1700)",
            "",
        ),
    ],
)
def test_what_main_does_is_one_sentence(
    case: Case, frames: Any, main: dict[str, Any], words: str, cause: str
) -> None:
    now = case.still(*frames, **main)
    assert now.doing is not None
    assert now.doing.render() == words
    said = now.cause.render() if now.cause else ""
    assert cause in said
    assert bool(said) == bool(cause)
    # What is only inferred says so.
    assert not said or "likely" in said or "or" in said


@pytest.mark.parametrize(
    ("state", "function", "call", "machine", "word"),
    [
        ("R", "", None, "x86_64", "runs"),
        ("S", "futex_wait_queue_me", 202, "x86_64", "lock"),
        ("S", "0", 98, "aarch64", "lock"),
        ("S", "", 202, "aarch64", "network"),
        ("S", "hrtimer_nanosleep", 230, "x86_64", "sleep"),
        ("S", "unix_stream_read_generic", 45, "x86_64", "network"),
        ("S", "anon_pipe_read", 0, "x86_64", "pipe"),
        ("D", "", None, "x86_64", "disk"),
        ("D", "some_driver_wait", 29, "aarch64", "driver"),
        ("S", "", 202, "riscv64", "unknown"),
        ("S", "__do_sys_pause", 34, "x86_64", "unknown"),
    ],
)
def test_the_kernels_word(state: str, function: str, call: int | None, machine: str, word: str) -> None:
    assert does(state, function, call, machine) == word


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"threads": 5, "frames": "x", "native": []},
        {"threads": [None, {}, {"stack": [True, -1, 10**30, "a"]}], "frames": [1, [], ["a", "b", "c"]]},
        {"threads": [{"main": True, "stack": [0]}], "frames": [[1, None, "x"]]},
        {"since_step_s": float("nan"), "step_s": 10**400, "attached_s": True, "threads": [{"main": True}]},
        {"threads": [{"main": True, "name": "a" * 10**6, "state": 5, "cpu_share": "x"}] * 1000},
        {"threads": [{"main": True}], "native": {"names": {"a": "b", "c": -1}, "left_out": None}},
    ],
)
def test_whatever_is_sent_the_snapshot_is_one_that_json_can_hold(case: Case, data: dict[str, Any]) -> None:
    for _ in range(4):
        now = case.take(data)
    assert len(str(as_json(now))) < 100_000
    assert len(now.threads) <= 64
