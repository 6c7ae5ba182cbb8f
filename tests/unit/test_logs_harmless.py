"""Lines that look alarming and are nothing, and their twins that are not."""

from __future__ import annotations

import time

import pytest
from ascend_tui_plugins.logs.knowledge import harmless, rules
from ascend_tui_plugins.logs.sighting import HARMLESS, Line

NOTHING = (
    "0 errors and 0 warnings",
    "num_errors=0, failed: 0, skipped: 0",
    "Total: 0 failures",
    "no nan found in 3 checkpoints",
    "found_inf: 0.0",
    "overflow: False",
    "root mean squared error of the fit is 0.5",
    "character error rate (CER): 7.1 %",
    "top5_err@1: 8.2",
    "test_error 0.31 val_err=.2",
    "max abs error = 3.1e-5",
    "quant_error=1.2e-4 recon_error: 0.3",
    "'check_for_nan': True, 'overflow_check': False",
    "log_level=ERROR",
    "logging level set to error",
    "ASCEND_GLOBAL_LOG_LEVEL=3 HCCL_CONNECT_TIMEOUT=1800",
    "TrainingArguments(ignore_data_skip=False, log_on_each_node=True, logging_nan_inf_filter=Tr"
    "ue, timeout=1800, dataloader_timeout=30)",
    "  check_for_nan_in_loss_and_grad .................. True",
    "[config.py:1003:print]   fail_on_overflow ............. False",
    "tests/test_inf.py::test_error_path PASSED [ 12%]",
    "PASSED tests/test_inf.py::test_error_path",
    "test_nan_is_caught (tests.Overflow) ... ok",
    "[       OK ] OverflowTest.Nan (3 ms)",
    "read ./logs/crash_report.json and errors.csv",
    "best_metric=-inf, wait=0",
    "padded with -inf",
    "Gradient clipping to avoid overflow",
    "Set this to prevent deadlocks",
    "if an error occurs, the run restarts",
    "On failure: restart",
    "ConnectionError was caught",
    "attempt 1 failed (timeout), attempt 2 succeeded",
    "recovered from a timeout",
    "DEBUG installing signal handlers for SIGTERM, SIGINT",
    "registered an error handler",
    "未检测到溢出",
    "0 个错误，0 个异常",
    "错误数: 0",
    "超时时间为 1800",
    "溢出检测已开启",
    "FutureWarning: np.bool is deprecated and will raise an error in the future",
    "DeprecationWarning: invalid escape sequence",
    "[npu 3][step 8][end]: ------No leaks (HAL)------",
    "No hal memory leaks detected on device 4.",
    "ERROR SUMMARY: 0 errors",
    "==77== ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)",
    "timeout_s=600 timeout set to 30",
    "x = float('nan') ; y = np.nan",
    "The HCCL execution timeout was set to never timeout, so it is bigger than watchdog timeout"
    " 900000ms which is set by init_process_group! The plog may not be recorded.",
    "max_grad_norm=inf",
    "UserWarning: x, errors='ignore'",
    "[W301 04:00:00.1 compiler_depend.ts:62] Warning: Cannot create tensor with NZ format while"
    " dim < 2, tensor will be created with ND format. (function operator())",
)

SOMETHING = (
    "rank 0 error: device lost",
    "rank 0 failed with exit code 1",
    "error code = 0, dump info: pc start",
    "errors: 0x800000",
    "0 errors, then RuntimeError: NPU out of memory",
    "no error code was returned, the process died",
    "lm loss: nan | number of nan iterations:   0 |",
    "number of nan iterations:   3 |",
    "overflow_detected=True",
    "nan_detected: 1",
    "check_failed: 1",
    "HCCL_EXEC_TIMEOUT=1800 exceeded: timeout of AllReduce",
    "TimeoutError handled, but the retry failed with ConnectionError: reset by peer",
    "val_error=nan",
    "val_error: RuntimeError: shapes differ",
    "test error occurred in worker 3",
    "mean squared error is nan",
    "max_grad_norm=inf grad_norm=nan",
    "activation max=inf",
    "Namespace(fail_on_nan=False) failed: out of memory",
    "Namespace(fail_on_nan=False, log_level='error') RuntimeError: boom",
    "test_overflow.py::test_nan_guard FAILED",
    "无错误提示，进程异常退出",
    "发现 3 个错误",
    "检测到梯度溢出",
    "防止溢出失败，检测到 NaN",
    "error rate: 4.8%, loss=nan",
    "on error retry 3 times: all attempts failed",
    "no errors found in rank 0, rank 1: HCCL timeout",
    "ASCEND_LAUNCH_BLOCKING=1 python train.py: Segmentation fault",
    "export ASCEND_RT_VISIBLE_DEVICES=0 ; aclInit failed, error code is 507035",
    "Saved error log to ./err/error.json after crash",
    "FutureWarning: x is deprecated ; RuntimeError: bad",
    "timeout=1800 timed out",
    "watchdog timeout: AllReduce",
    "The HCCL execution timeout 1800 exceeded",
    "WARNING attempt 3/3 failed (timeout), giving up",
    "failed=True",
    "found_inf=1.0",
    "loss_is_finite=False, nan found",
    "without error handling the job was killed",
    "If an error occurs, see above. RuntimeError: x",
    "Exception in thread Thread-3",
    "EZ9999: Inner Error!",
    "if you see this error, rank 3 failed",
    "ERROR SUMMARY: 3 errors",
    "ERROR SUMMARY: 10 errors",
    "100 errors",
    "10 errors found",
    "device 0 errors detected",
    "iteration 0 failed",
    "step 0 nan",
    "step=0 nan",
    "loss scale: 0 overflow",
    "(pid=0 error",
    "errors: 0.5",
    "failed: 0/8? no: failed: 3/8",
    "Collective timeout=600 s was reached: timed out",
)


@pytest.mark.parametrize("text", NOTHING)
def test_what_only_looks_alarming_is_harmless(text: str) -> None:
    assert harmless.sight(Line(text, text)) is HARMLESS
    assert rules.sight(Line(text, text)) is HARMLESS


@pytest.mark.parametrize("text", SOMETHING)
def test_what_is_alarming_is_never_called_harmless(text: str) -> None:
    assert harmless.sight(Line(text, text)) is None


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize(
    "fault",
    [
        "RuntimeError: NPU out of memory",
        "loss: nan",
        "error code = 0",
        "Segmentation fault",
        "EZ9999: Inner Error!",
        "通信超时",
        "rank 0 failed",
    ],
)
def test_a_line_with_both_is_not_harmless(nothing: str, fault: str) -> None:
    for text in (f"{nothing} ; {fault}", f"{fault} ; {nothing}"):
        assert harmless.sight(Line(text, text)) is None, text


@pytest.mark.parametrize(
    "text",
    ["", "step 3 loss 2.31 lr 1e-4", "Loaded nanodet, banana.py, finance and Fernando", "information = INFO"],
)
def test_what_is_not_even_alarming_is_not_counted_as_ignored(text: str) -> None:
    assert harmless.sight(Line(text, text)) is None


def test_a_line_at_the_level_error_may_only_say_that_nothing_was_found() -> None:
    assert harmless.sight(Line("", "0 errors, 0 warnings", level="error")) is HARMLESS
    assert harmless.sight(Line("", "log_level=error", level="error")) is None
    assert harmless.sight(Line("", "log_level=error", level="info")) is HARMLESS


def test_settings_that_never_close_their_bracket_are_settings_to_the_end() -> None:
    text = "Namespace(fail_on_nan=False, log_level='error', on_error='raise', inner=Inner(a=(1, 2))"
    assert harmless.sight(Line(text, text)) is HARMLESS
    text = "Namespace(a=(1, (2, 3)), b='error') and then it crashed"
    assert harmless.sight(Line(text, text)) is None


def test_an_endless_line_is_not_judged_as_a_whole() -> None:
    text = "0 errors " * 2_000
    assert harmless.sight(Line(text, text)) is None


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "a_",
        "Aa",
        "error ",
        "no ",
        "a.",
        "a/",
        "x::",
        "val_",
        "on error ",
        "Error, ",
        "if the ",
        "HCCL_",
        "0 ",
    ],
)
def test_no_line_takes_long(part: str) -> None:
    text = part * (16_000 // len(part) - 1) + " nan"
    since = time.process_time()
    harmless.sight(Line(text, text))
    assert time.process_time() - since < 1.5
