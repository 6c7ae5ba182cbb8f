"""Exceptions of Python: their kind, their place, and who knows better."""

from __future__ import annotations

import time

import pytest
from ascend_tui_plugins.logs.knowledge import python_errors
from ascend_tui_plugins.logs.sighting import GENERIC, REASON, SPECIFIC, Line, Sighting

OWN = 'File "/data/job/run/train.py", line 12, in main\nloss = step(batch)'
MODULE = (
    'File "/usr/lib/python3.10/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl\n'
    "return forward_call(*args, **kwargs)"
)
CALL = (
    'File "/usr/lib/python3.10/site-packages/mine/attention.py", line 77, in forward\n'
    "return torch_npu.npu_rotary_mul(x, cos, sin)"
)
WAIT = 'File "/data/job/run/train.py", line 40, in log\nvalue = loss.item()'


def seen(exception: str, *frames: str) -> Sighting:
    return python_errors.sight(Line(exception, exception, level="error"), frames, exception)


@pytest.mark.parametrize(
    ("exception", "category"),
    [
        ("AssertionError: Rank 5: found NaN in local grad norm in backward pass. Device: 5", "numeric"),
        ("ValueError: cannot convert float NaN to integer", "numeric"),
        ("ValueError: The loss returned in `training_step` is nan or inf.", "numeric"),
        ("RuntimeError: probability tensor contains either `inf`, `nan` or element < 0", "numeric"),
        ("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", "numeric"),
        ("OverflowError: cannot convert float infinity to integer", "numeric"),
        ("OverflowError: (34, 'Numerical result out of range')", "numeric"),
        ("torch._C._LinAlgError: linalg.cholesky: the input is not positive-definite", "numeric"),
        ("Exception: Current loss scale already at minimum - cannot decrease scale anymore.", "numeric"),
        ("SystemExit: Loss is nan, stopping training", "numeric"),
        ("OverflowError: Python int too large to convert to C long", "crash"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)", "usage"),
        ("RuntimeError: The size of tensor a (3) must match the size of tensor b (4)", "usage"),
        ("RuntimeError: expected scalar type Half but found Float", "usage"),
        ("RuntimeError: Expected all tensors to be on the same device, but found npu:0 and cpu!", "usage"),
        ("RuntimeError: one of the variables has been modified by an inplace operation", "usage"),
        ("TypeError: f() got an unexpected keyword argument 'nan'", "usage"),
        ("KeyError: 'inf'", "usage"),
        ("IndexError: list index out of range", "usage"),
        ("NotImplementedError: Could not run 'aten::foo' with arguments from the 'NPU' backend.", "usage"),
        ("ModuleNotFoundError: No module named 'mindspeed'", "configuration"),
        ("ImportError: libhccl.so: cannot open shared object file: No such file", "configuration"),
        ("ImportError: /x/libtorch_npu.so: undefined symbol: _ZN3c104warn", "configuration"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/x.json'", "configuration"),
        ("PermissionError: [Errno 13] Permission denied: '/data'", "configuration"),
        ("OSError: [Errno 28] No space left on device: '/ckpt/a.pt'", "configuration"),
        ("OSError: [Errno 24] Too many open files: 'shard-3'", "configuration"),
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "configuration"),
        ("safetensors_rust.SafetensorError: Error while deserializing header", "configuration"),
        ("torch.distributed.DistBackendError: [3] store->get('0') failed", "communication"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "communication"),
        ("RuntimeError: The server socket has failed to listen. code: -98, EADDRINUSE", "communication"),
        ("torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients.", "timeout"),
        ("TimeoutError: RPC call to execute_model timed out.", "timeout"),
        ("torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB", "oom"),
        ("MemoryError", "oom"),
        ("RuntimeError: DataLoader worker (pid 412) is killed by signal: Killed.", "crash"),
        ("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.", "crash"),
        ("subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGSEGV: 11>.", "crash"),
        ("torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:", "compile"),
        ("RuntimeError: something odd", "other"),
    ],
)
def test_an_exception_is_of_the_kind_that_its_words_say(exception: str, category: str) -> None:
    told = seen(exception, OWN, MODULE)
    assert told.category == category
    assert told.severity in ("error", "fatal")
    assert python_errors.is_exception(exception)
    is_launcher = category == "crash" and told.knows == GENERIC
    assert dict(told.facts).get("place") == (None if is_launcher else "/data/job/run/train.py:12 in main")


def test_the_headline_is_what_the_exception_says_with_its_numbers() -> None:
    told = seen("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)")
    assert told.headline.render() == "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)"
    assert told.knows == SPECIFIC
    assert told.key == "runtimeerror mat# and mat# shapes cannot be multiplied (#x# and #x#)"


def test_an_assertion_without_words_tells_its_line() -> None:
    told = seen("AssertionError", 'File "/data/job/a.py", line 3, in check\nassert x.shape == y.shape')
    assert told.headline.render() == "AssertionError: assert x.shape == y.shape"


def test_names_of_a_moment_are_no_part_of_the_headline() -> None:
    told = seen("ValueError: cannot read /tmp/tmpab12cd34/part.bin at 0x7f0011223344")
    assert told.headline.render() == "ValueError: cannot read */part.bin at *"


def test_nothing_that_a_terminal_obeys_gets_into_a_headline() -> None:
    told = seen("ValueError: \x1b[31mred\x07 " + "x" * 5_000)
    said = told.headline.render()
    assert "\x1b" not in said
    assert "\x07" not in said
    assert len(said) < 340


def test_a_check_that_names_its_rank_is_of_that_rank() -> None:
    told = seen("AssertionError: Rank 5: found NaN in local grad norm in backward pass. Device: 5", OWN)
    assert (told.rank, told.severity, told.knows) == (5, "error", REASON)
    assert "local grad norm" in told.headline.render()
    assert seen("AssertionError: [Rank 11] wrong group").rank == 11
    assert seen("AssertionError: low-rank 4 is odd").rank is None


@pytest.mark.parametrize(
    ("frames", "category", "attribution"),
    [
        (
            ('File "/x/site-packages/apex/amp/scaler.py", line 9, in unscale\n1. / scale',),
            "numeric",
            "likely",
        ),
        ((), "numeric", "likely"),
        ((OWN,), "crash", "exact"),
    ],
)
def test_a_division_by_zero_is_the_loss_scale_only_where_a_scaler_divides(
    frames: tuple[str, ...], category: str, attribution: str
) -> None:
    told = seen("ZeroDivisionError: float division by zero", *frames)
    assert (told.category, told.attribution) == (category, attribution)


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ((OWN, MODULE), "/data/job/run/train.py:12 in main"),
        ((OWN, CALL, MODULE), "/data/job/run/train.py:12 in main"),
        ((MODULE, CALL, MODULE), "/usr/lib/python3.10/site-packages/mine/attention.py:77 in forward"),
        ((MODULE,), "/usr/lib/python3.10/site-packages/torch/nn/modules/module.py:1553 in _call_impl"),
        (
            ('File "/usr/lib/python3.10/runpy.py", line 86, in _run_code', OWN),
            "/data/job/run/train.py:12 in main",
        ),
        (
            ('File "/opt/vllm/vllm/engine.py", line 5, in run', 'File "<string>", line 1'),
            "/opt/vllm/vllm/engine.py:5 in run",
        ),
        (('File "train.py", line 3, in <module>',), "train.py:3 in <module>"),
        (("nonsense",), ""),
        ((), ""),
    ],
)
def test_the_place_is_the_last_frame_of_the_program_s_own(frames: tuple[str, ...], place: str) -> None:
    assert python_errors.place_of(frames) == place


@pytest.mark.parametrize(
    ("frames", "host_at"),
    [((OWN, CALL, MODULE), "torch_npu.npu_rotary_mul"), ((OWN, WAIT), "loss.item"), ((OWN,), None)],
)
def test_the_frame_of_a_device_fault_is_only_where_the_host_noticed(
    frames: tuple[str, ...], host_at: str | None
) -> None:
    told = seen(
        "RuntimeError: operator():build/CMakeFiles/torch_npu.dir/compiler_depend.ts:25 NPU function error: "
        "c10_npu::acl::AclrtSynchronizeStreamWithTimeout(s), error code is 507035",
        *frames,
    )
    assert (told.category, told.attribution, told.knows) == ("device", "async", GENERIC)
    assert dict(told.facts).get("host_at") == host_at
    assert told.reason is not None
    assert "host noticed" in told.reason.render()


def test_the_operator_that_torch_npu_reports_and_where_the_host_noticed_are_two_names() -> None:
    told = seen(
        "RuntimeError: The Inner error is reported as above. The process exits for this inner error, "
        "and the current working operator name is FlashAttentionScore.",
        OWN,
        CALL,
    )
    facts = dict(told.facts)
    assert (facts["operator"], facts["host_at"]) == ("FlashAttentionScore", "torch_npu.npu_rotary_mul")
    assert told.attribution == "async"


def test_a_check_of_parameters_is_believed() -> None:
    told = seen(
        "RuntimeError: call aclnnAdd failed, detail:EZ1001: [PID: 77] 2025-03-02-02:12:35.294.465 "
        "Size 5 and 6 cannot broadcast",
        OWN,
    )
    assert (told.category, told.attribution) == ("usage", "exact")
    assert told.reason is None or "only where" not in told.reason.render()


@pytest.mark.parametrize(
    "between",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_of_a_chain_the_last_is_told_with_the_first_beside_it(between: str) -> None:
    told = seen(f"KeyError: 'ids'\n\n{between}\n\nValueError: bad batch 7", OWN)
    assert told.headline.render() == "ValueError: bad batch 7"
    assert [one.render() for one in told.evidence] == ["before it: KeyError: 'ids'"]


def test_a_wrapper_at_the_end_of_a_chain_does_not_hide_what_knows_more() -> None:
    told = seen(
        "OSError: [Errno 28] No space left on device: '/ckpt/a.pt'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    )
    assert told.category == "configuration"
    assert told.evidence[0].render() == "before it: EngineDeadError: EngineCore encountered an issue."


@pytest.mark.parametrize("exception", ["KeyboardInterrupt", "SystemExit: 0", "SystemExit"])
def test_what_somebody_asked_for_is_only_told(exception: str) -> None:
    assert seen(exception).severity == "info"


@pytest.mark.parametrize(
    "exception",
    [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "ray.exceptions.RayTaskError(RuntimeError): ray::Trainer.step() (pid=12, ip=10.0.0.1)",
        "subprocess.CalledProcessError: Command '['x']' returned non-zero exit status 1.",
        "SystemExit: 1",
        "RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly",
    ],
)
def test_wrappers_know_little(exception: str) -> None:
    assert seen(exception).knows == GENERIC


def test_a_kill_is_not_called_an_oom_for_sure() -> None:
    told = seen("RuntimeError: DataLoader worker (pid 412) is killed by signal: Killed.")
    assert told.attribution == "likely"
    assert told.reason is not None
    assert "cannot tell" in told.reason.render()


@pytest.mark.parametrize(
    "body",
    [
        "mean squared error: 0.031",
        "MeanSquaredError: 0.031",
        "TestError: 0.5",
        "UserWarning: something",
        "error: no such option",
        "Errors: 0",
        "INFO RuntimeError: not at the start",
        "RuntimeErrors are caught",
        "TimeoutError handled",
        "",
    ],
)
def test_what_is_no_exception(body: str) -> None:
    assert not python_errors.is_exception(body)


@pytest.mark.parametrize(
    "body",
    ["KeyError: 5", "a.b.c.MyError: x", "KeyboardInterrupt", "queue.Empty", "AssertionError", "Exception: x"],
)
def test_what_is_one(body: str) -> None:
    assert python_errors.is_exception(body)


@pytest.mark.parametrize("part", ["a", "a.", "A", "Error:", "inf ", "(", "shape ", " ", "\t", "Rank "])
def test_no_exception_takes_long(part: str) -> None:
    text = "RuntimeError: " + part * (1_000_000 // len(part))
    since = time.process_time()
    python_errors.is_exception(part * 100_000)
    seen(text, 'File "' + "/a" * 200 + '", line 1, in f\n' + "a." * 200)
    assert time.process_time() - since < 3


def test_foreign_text_of_any_kind_is_told_as_it_is() -> None:
    for exception in ("", " ", "\n\n", "no exception at all", ":", "X: {y} {0} %s", "异常：没有"):
        told = seen(exception, "", "\n")
        assert told.category == "other"
        told.headline.render()
