"""Failing devices, and what torch_npu makes of them: codes, texts, where it raises, and the log of CANN."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from plogs import LINE, logs
from running import Run, cases

SCRIPT = Path(__file__).with_name("faults.py")
TIME = r"\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d"
TRAILER = re.compile(
    rf"\[ERROR\] {TIME} \(PID:\d+, Device:0, RankID:-1\) ERR00100 PTA call acl api failed\.?"
)
BODY = re.compile(
    rf"^(E[A-Z]9999): Inner Error!\n\1\[PID: \d+\] {TIME}\.\d{{3}}\.\d{{3}} \(\1\):  (.*)\[FUNC:", re.M
)

Told = dict[str, Any]
Processes = dict[str, subprocess.CompletedProcess[str]]

# name: cases, variables.  An import of torch takes seconds, so each process does much.
PROCESSES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "plain": (
        ("failures", "waits", "counting", "rejected", "hangs", "full_queue", "time_limits", "words"),
        {},
    ),
    "blocking": (("blocking",), {"ASCEND_LAUNCH_BLOCKING": "1", "ASCEND_GLOBAL_LOG_LEVEL": "0"}),
    "compact": (("compact",), {"TORCH_NPU_COMPACT_ERROR_OUTPUT": "1", "ASCEND_SLOG_PRINT_TO_STDOUT": "1"}),
    "refused": (("refused",), {}),
}


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return where the processes leave their logs."""
    return {name: tmp_path_factory.mktemp(name) for name in PROCESSES}


@pytest.fixture(scope="module")
def processes(npu: Run, homes: dict[str, Path]) -> Processes:
    """Return how the processes ended, run two at a time."""
    with ThreadPoolExecutor(2) as pool:
        started = {
            name: pool.submit(npu, SCRIPT, *wanted, extra=extra, home=homes[name])
            for name, (wanted, extra) in PROCESSES.items()
        }
        return {name: one.result() for name, one in started.items()}


def told_by(done: subprocess.CompletedProcess[str]) -> Told:
    return {case: line["told"] for case, line in cases(done).items()}


@pytest.fixture(scope="module")
def told(processes: Processes) -> Told:
    """Return what one process said that met every fault it can survive."""
    return told_by(processes["plain"])


# ---- device failures


@pytest.mark.parametrize(
    ("words", "code", "meaning", "reason"),
    [
        ("exception op=aclnnRelu", 507035, "The vector core execution is abnormal.", "vector core exception"),
        (
            "exception op=aclnnRelu code=507015",
            507015,
            "The aicore execution is abnormal.",
            "aicore exception",
        ),
        (
            "exception op=aclnnRelu code=507011",
            507011,
            "Model execution failed.",
            "the model stream execute failed",
        ),
        ("timeout op=aclnnRelu", 507014, "The aicore execution times out.", "aicore timeout"),
        (
            "timeout op=aclnnRelu code=507034",
            507034,
            "Vector core execution timed out.",
            "vector core timeout",
        ),
    ],
)
def test_a_device_failure_is_raised_by_the_wait(
    told: Told, words: str, code: int, meaning: str, reason: str
) -> None:
    found = next(one for one in told["failures"] if one["words"] == words)
    first, second = found["first"]["said"], found["second"]["said"]
    # At the wait, never at the op.
    assert "y.sum().item()" in found["first"]["lines"][-1]
    for said in (first, second):
        head, trailer, rest = said.splitlines()[0], said.splitlines()[1], said.split(f"[Error]: {meaning}")[1]
        assert head.endswith(f"error code is {code}")
        assert TRAILER.fullmatch(trailer)
        assert f" execute failed, reason=[{reason}]" in rest
    assert "AclrtSynchronizeStreamWithTimeout(copy_stream)" in first
    assert "AclrtSynchronizeDeviceWithTimeout" in second
    # Only the first says which kernel it was.
    assert [one[0] for one in BODY.findall(first)] == ["EZ9999"]
    assert "fault kernel_name=Relu_0_mix_aiv" in first
    assert [one[0] for one in BODY.findall(second)] == ["EE9999"]
    assert "fault kernel_name" not in second
    assert found["healed"] == 10


def test_the_core_is_named_where_one_is_to_blame(told: Told) -> None:
    by_words = {one["words"]: one["first"]["said"] for one in told["failures"]}
    core = re.compile(
        r"device\(chipId:0, dieId:0\), serial number is \d+, there is an exception of (\S+) error, core id"
    )
    assert core.search(by_words["exception op=aclnnRelu"]).group(1) == "aivec"  # type: ignore[union-attr]
    assert core.search(by_words["exception op=aclnnRelu code=507015"]).group(1) == "aicore"  # type: ignore[union-attr]
    assert core.search(by_words["timeout op=aclnnRelu"]) is None


def test_broken_memory_takes_torch_npus_own_way(told: Told) -> None:
    found = next(one for one in told["failures"] if one["words"] == "ecc op=aclnnRelu")
    first = found["first"]["said"]
    assert "NPU function error: HBM MULTI BIT ECC ERROR.EL9999: Inner Error!" in first
    assert "reason=[hbm Multi-bit ECC error]" in first
    when = re.search(r"time us= (\d+)\.", first)
    assert when is not None
    assert f"time is {when.group(1)}, error code is 507054\n" in first
    assert TRAILER.search(first)
    assert "HBM MULTI BIT ECC ERROR" in found["second"]["said"]
    assert found["healed"] == 10


def test_every_way_to_wait_raises(told: Told) -> None:
    calls = {
        "item": "AclrtSynchronizeStreamWithTimeout(copy_stream)",
        "cpu": "aclrtMemcpy",
        "device": "AclrtSynchronizeDeviceWithTimeout",
        "stream": "AclrtSynchronizeStreamWithTimeout(stream())",
        "event": "aclrtSynchronizeEvent(event_)",
        "query": "acl::AclQueryEventRecordedStatus(event_, &currStatus)",
    }
    for name, call in calls.items():
        said = told["waits"][name]["said"]
        assert call in said.splitlines()[0], name
        assert said.splitlines()[0].endswith("error code is 507035"), name


def test_a_fault_comes_at_the_run_that_was_asked_for(told: Told) -> None:
    assert told["counting"] == {
        "third": [False, False, True, True],
        "any": [False, True, True],
        "given up": 10,
    }


def test_words_that_mean_nothing_are_refused(told: Told) -> None:
    blank = told["words"].pop(" ; ")
    assert blank == 0
    assert set(told["words"].values()) == {1}


def test_words_that_mean_nothing_end_the_program_at_its_start(npu: Run) -> None:
    done = npu(
        "import ctypes; ctypes.CDLL('libascendcl.so'); print('started')", faults="exception op=aclnnAdd att=2"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "[cann_sim] faults: not understood: att=2\n"


# ---- launch errors and parameter errors


def test_a_parameter_error_is_raised_where_it_is(told: Told) -> None:
    said = told["rejected"]["error"]["said"]
    assert "torch.relu(x)" in told["rejected"]["error"]["lines"][-1]
    assert said.splitlines()[0].endswith("NPU function error: call aclnnRelu failed, error code is 161002")
    assert TRAILER.fullmatch(said.splitlines()[1])
    assert re.match(r"EZ1001: \[PID: \d+\] ", said.splitlines()[2])
    assert told["rejected"]["after"] == 10


def test_a_launch_error_comes_later_and_ends_the_queue(processes: Processes) -> None:
    done = processes["refused"]
    found = told_by(done)["refused"]
    assert "call aclnnRelu failed, error code is 561002" in done.stderr
    assert TRAILER.search(done.stderr)
    assert BODY.search(done.stderr)
    said = found["later"]["said"]
    assert said.startswith(
        "The Inner error is reported as above. The process exits for this inner error, and the current"
    )
    assert "working operator name is aclnnRelu." in said
    assert "561002" not in said
    assert "EZ9999" not in said
    # The process does not exit, whatever the text says; but from now on its ops do nothing, in silence.
    assert found["again"]["said"] == ""
    assert found["value"] == [-4, -3, -2, -1, 0, 1, 2, 3, 4]


# ---- hangs


@pytest.mark.parametrize("wait", ["item", "cpu", "device", "stream", "event"])
def test_other_threads_go_on_while_a_wait_hangs(told: Told, wait: str) -> None:
    found = told["hangs"][wait]
    assert found["seconds"] >= 0.28
    assert found["ticks"] >= 5
    assert told["hangs"]["after"] == 10


def test_a_full_queue_stops_the_training_at_an_op(told: Told) -> None:
    found = told["full_queue"]
    assert found["longest"] > 0.5
    assert 4000 < found["at"] < 4100
    assert found["sum"] == 5000


@pytest.mark.parametrize("wait", ["stream", "device"])
def test_a_wait_with_a_time_limit(told: Told, wait: str) -> None:
    said = told["time_limits"][wait]["said"]
    assert said.splitlines()[0].endswith("error code is 507046")
    assert "[Error]: In the specified timeout waiting event, all tasks in the specified stream are" in said
    assert re.search(
        r"^EE1002: .* Stream synchronize timeout\. .*reason=\[stream sync timeout\]$", said, re.M
    )
    assert told["time_limits"]["after"] == 10


# ---- other ways to run


def test_blocking_launches_raise_at_the_op_and_log_everything(
    processes: Processes, homes: dict[str, Path]
) -> None:
    found = told_by(processes["blocking"])["blocking"]
    assert "torch.relu(x)" in found["failure"]["lines"][-1]
    assert "error code is 507035" in found["failure"]["said"]
    assert "fault kernel_name=Relu_0_mix_aiv" in found["failure"]["said"]
    assert "torch.relu(x)" in found["refusal"]["lines"][-1]
    assert "call aclnnRelu failed, error code is 561002" in found["refusal"]["said"]
    assert BODY.search(found["refusal"]["said"])
    assert found["after"] == 10
    (log,) = logs(homes["blocking"] / "ascend" / "log")
    lines = [LINE.fullmatch(line) for line in log.read_text().splitlines()]
    assert all(lines), "a line without a head"
    own = [one for one in lines if one is not None and one.group(2) == "APP"]
    assert {one.group(1) for one in own} >= {"DEBUG", "INFO", "WARNING"}
    # "file:function:line: "[PTA]:…"": torch_npu gives the two in this order.
    assert all(re.fullmatch(r'[\w.]+:[^:]+:\d+: "\[PTA\]:.*"', one.group(9)) for one in own)


def test_compact_errors_leave_the_details_to_the_log(processes: Processes, homes: dict[str, Path]) -> None:
    done = processes["compact"]
    told = told_by(done)["compact"]
    said = told["failure"]["said"]
    assert said.startswith(
        "CANN error: CANN Inner Error. Please rectify the fault based on the error information"
    )
    assert "ERR00100" not in said
    # torch_npu keeps the first text of a thread for all later ones.
    assert told["rejected"]["said"] == said
    # The log was asked for on stdout: it is there, and nowhere else.
    heads = [one for one in map(LINE.fullmatch, done.stdout.splitlines()) if one is not None]
    assert any("error code is 507035" in one.group(9) for one in heads if one.group(2) == "APP")
    assert any(
        "fault kernel_name=Relu_0_mix_aiv" in one.group(9) for one in heads if one.group(2) == "RUNTIME"
    )
    assert not (homes["compact"] / "ascend").exists()


def test_the_plain_run_left_a_log(told: Told, homes: dict[str, Path]) -> None:
    (log,) = logs(homes["plain"] / "ascend" / "log")
    assert re.fullmatch(r"plog-\d+_\d{17}\.log", log.name)
    assert log.stat().st_mode & 0o777 == 0o640
    lines = [one for one in map(LINE.fullmatch, log.read_text().splitlines()) if one is not None]
    assert {one.group(1) for one in lines} == {"ERROR"}
    assert {one.group(3) for one in lines} == {log.name.split("_")[0].removeprefix("plog-")}
    texts = [one.group(9) for one in lines if one.group(2) == "RUNTIME"]
    for start in (
        "ProcessStarsCoreErrorInfo:The error from device(chipId:0, dieId:0), serial number is ",
        "PreCheckTaskErr:Kernel task happen error, retCode=0x31, [vector core exception].",
        "PrintErrorInfoForDavinciTask:[DFX_INFO]Aicore kernel execute failed, device_id=0, stream_id=",
        "rtStreamSynchronize:ErrCode=507035, desc=[vector core exception], InnerCode=0x715005e",
        "FuncErrorReason:rtStreamSynchronize execute failed, reason=[vector core exception]",
        "rtStreamSynchronizeWithTimeout:ErrCode=507046, desc=[stream sync timeout], InnerCode=",
    ):
        assert any(text.startswith(start) for text in texts), start
    assert told["failures"]
