"""What launchers, trainers, servers, compilers and checkers write, line by line."""

from __future__ import annotations

import time

import pytest
from ascend_tui_plugins.logs.knowledge import (
    rules,
    rules_compile,
    rules_framework,
    rules_host,
    rules_launchers,
    rules_reports,
)
from ascend_tui_plugins.logs.knowledge.endings import ended
from ascend_tui_plugins.logs.knowledge.rule_table import key_of, masked, number, short
from ascend_tui_plugins.logs.sighting import CONTEXT, GENERIC, HARMLESS, REASON, SPECIFIC, Line, Sighting

LAUNCHED = "multiprocessing.api: [ERROR] failed (exitcode: {code}) local_rank: 3 (pid: 42) of binary: x"
SIZES = (
    "\tsize mismatch for model.embed.weight: copying a param with shape torch.Size([320, 64]) "
    "from checkpoint, the shape in current model is torch.Size([322, 64])."
)
MLIR = 'loc("/tmp/tmpabcdefg1/kernel.ttadapter.mlir":7:3): error: '


def told(text: str) -> Sighting:
    """Return what one line tells, which has to be known as special before."""
    assert rules.is_special(text)
    found = rules.sight(Line(text, text.strip()))
    assert isinstance(found, tuple), text
    return found[0]


@pytest.mark.parametrize(
    ("text", "category", "severity", "knows", "headline"),
    [
        (LAUNCHED.format(code=1), "crash", "error", GENERIC, "exit code 1"),
        (LAUNCHED.format(code=-11), "crash", "fatal", SPECIFIC, "SIGSEGV"),
        ("Root Cause (first observed failure):", "crash", "error", GENERIC, "a process of the job failed"),
        ("  rank      : 3 (local_rank: 3)", "crash", "error", CONTEXT, "a process of the job failed"),
        ("  exitcode  : -9 (pid: 4242)", "crash", "fatal", SPECIFIC, "SIGKILL"),
        ("  traceback : Signal 7 (SIGBUS) received by PID 4242", "crash", "fatal", SPECIFIC, "SIGBUS"),
        ("SignalException: Process 88 got signal: 15", "crash", "error", SPECIFIC, "signal 15 from outside"),
        ("Sending process 4244 closing signal SIGTERM", "crash", "warning", CONTEXT, "stops the other"),
        (
            "[INFO] [launch.py:319:sigkill_handler] Killing subprocess 4245",
            "crash",
            "warning",
            CONTEXT,
            "stops",
        ),
        (
            "[ERROR] [launch.py:325:x] ['python', 't.py'] exits with return code = -11",
            "crash",
            "fatal",
            2,
            "SIGSEGV",
        ),
        (
            "mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9",
            "crash",
            "fatal",
            2,
            "SIGKILL",
        ),
        ("Segmentation fault (core dumped)", "crash", "fatal", SPECIFIC, "SIGSEGV"),
        ("run.sh: line 12: 12345 Killed                  python train.py", "crash", "fatal", 2, "SIGKILL"),
        ("Killed", "crash", "fatal", SPECIFIC, "SIGKILL"),
        ("Aborted (core dumped)", "crash", "fatal", GENERIC, "SIGABRT"),
        ("Fatal Python error: Bus error", "crash", "fatal", SPECIFIC, "SIGBUS"),
        ("free(): invalid pointer", "crash", "fatal", SPECIFIC, "damaged the heap: free(): invalid pointer"),
        (
            "(raylet) A worker died or was killed while executing a task.",
            "crash",
            "error",
            GENERIC,
            "of Ray died",
        ),
        (
            "*** JOB 77 ON n1 CANCELLED AT 2025-03-01T10:00 DUE TO TIME LIMIT ***",
            "other",
            "error",
            2,
            "time was over",
        ),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.",
            "oom",
            "fatal",
            SPECIFIC,
            "memory limit",
        ),
        (
            "Rank 6: found NaN in local forward loss calculation. Device: 6",
            "numeric",
            "error",
            REASON,
            "NaN found in",
        ),
        (
            "Unexpected result nan on rank 3 at iteration #120 (message='loss')",
            "numeric",
            "error",
            3,
            "nan found in loss",
        ),
        ("Monitored metric val_loss = nan is not finite.", "numeric", "error", SPECIFIC, "val_loss = nan"),
        (
            "Current loss scale already at minimum - cannot decrease",
            "numeric",
            "fatal",
            REASON,
            "at its minimum",
        ),
        ("EngineCore encountered a fatal error.", "crash", "fatal", GENERIC, "vLLM's engine died"),
        ("EngineCore failed to start.", "crash", "fatal", GENERIC, "did not start"),
        (
            "The model's max seq len (6553) is larger than the maximum number of tokens that can be "
            "stored in KV cache (204)",
            "configuration",
            "error",
            REASON,
            "sequence of 6553 tokens: it holds 204",
        ),
        ("No available memory for the cache blocks. Try", "oom", "error", REASON, "KV cache"),
        (
            "No available shared memory broadcast block found in 60 seconds.",
            "timeout",
            "warning",
            2,
            "for 60 s",
        ),
        (
            "DataLoader worker (pid 4) is killed by signal: Bus error. It is possible that dataloader's "
            "workers are out of"
            " shared memory.",
            "configuration",
            "error",
            REASON,
            "/dev/shm",
        ),
        (
            "OSError: [Errno 28] No space left on device: '/ckpt/a.pt'",
            "configuration",
            "error",
            REASON,
            "'/ckpt/a.pt'",
        ),
        (
            "PytorchStreamReader failed reading zip archive",
            "configuration",
            "error",
            REASON,
            "cut or damaged",
        ),
        (SIZES, "usage", "error", REASON, "model.embed.weight is [320, 64] there and [322, 64] here"),
        (
            "MindSpore version 2.3.0 and Ascend AI software package version 7.1 does not match, the "
            "version info",
            "configuration",
            "warning",
            SPECIFIC,
            "versions do not fit together: MindSpore version 2.3.0",
        ),
        (
            "[CRITICAL] GE(1,f,python):2025 [x.cc:12] Run] Exec graph failed",
            "other",
            "error",
            GENERIC,
            "could not run a graph",
        ),
        ("Can not select a valid kernel info for [Foo] in AI CORE", "usage", "error", REASON, "operator Foo"),
        (
            f"{MLIR}ub overflow, requires 2097152 bits while 1572864 bits available! (x)",
            "compile",
            "error",
            REASON,
            "compile time: a kernel needs 256 KiB of Unified Buffer (UB), the chip has 192 KiB",
        ),
        (
            "error: L0C overflow, requires 4096 bits while 2048 bits avaliable!",
            "compile",
            "error",
            REASON,
            "512 B of L0C",
        ),
        (f"{MLIR}Failed to run BiShengHIR pipeline", "compile", "error", GENERIC, "BiSheng compiler"),
        (f"{MLIR}'hivm.hir.vadd' op operand types differ", "compile", "error", SPECIFIC, "types differ"),
        (
            "x OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376. R",
            "compile",
            "error",
            REASON,
            "needs 131072 of shared memory, the chip has 101376",
        ),
        (
            "EZ9999: [PID: 7] 2025-02-16-12:18:25.258.321 Cannot find bin of op Foo, integral key 0/1|float|",
            "configuration",
            "error",
            REASON,
            "no compiled kernel of operator Foo",
        ),
        ("ATC run failed, Please check the detail log", "compile", "error", GENERIC, "ATC could not"),
        (
            "Failed to compile Op [Conv2D7]. (oppath: [Compile failed])",
            "compile",
            "error",
            SPECIFIC,
            "operator Conv2D7",
        ),
        (
            "csrc/kernel.cpp:12:5: error: use of undeclared identifier 'foo'",
            "compile",
            "error",
            SPECIFIC,
            "undeclared",
        ),
        (
            "RuntimeError: coreDim=262144 can't be greater than UINT16_MAX.",
            "usage",
            "error",
            REASON,
            "coreDim is 262144, at most UINT16_MAX",
        ),
        (
            "ValueError: To serve at least one request with the model's max seq len (9), 8.00 GiB KV cache "
            "is needed,"
            " which is larger than the available KV cache memory (3.10 GiB). Based on",
            "configuration",
            "error",
            REASON,
            "8.00 GiB needed, 3.10 GiB there",
        ),
        (
            'E loc("/tmp/tmpq/kernel.ttadapter.mlir":2:1): error: Failed to run BishengHIR pipeline',
            "compile",
            "error",
            GENERIC,
            "BiSheng compiler",
        ),
        (
            "RayWorkerProc rank=[3] died unexpectedly, shutting down executor.",
            "crash",
            "error",
            GENERIC,
            "a worker process of vLLM died: RayWorkerProc rank=[3]",
        ),
        ("torch._dynamo hit config.recompile_limit (8)", "usage", "warning", SPECIFIC, "recompilations"),
        (
            "====== ERROR: illegal read of size 96",
            "memory_access",
            "error",
            REASON,
            "illegal read of 96 bytes",
        ),
        (
            "====== WARNING: out of bounds of size 128",
            "memory_access",
            "error",
            REASON,
            "out of bounds of 128 bytes",
        ),
        ("====== ERROR: illegal free()", "memory_access", "error", REASON, "illegal free"),
        (
            "====== ERROR: Potential <WAW> hazard detected at <UB> in <foo> on device <1>:",
            "memory_access",
            "error",
            3,
            "a race at UB in foo (WAW)",
        ),
        (
            "====== WARNING: Unpaired set_flag instructions detected",
            "device",
            "warning",
            REASON,
            "Unpaired set_flag",
        ),
        ("======    Direct leak of 200 byte(s)", "other", "error", REASON, "200 bytes leaked"),
        (
            "====== WARNING: Unused memory of 500 byte(s)",
            "other",
            "warning",
            REASON,
            "500 bytes were allocated",
        ),
        (
            "========= Invalid __global__ read of size 4 bytes",
            "memory_access",
            "error",
            REASON,
            "read of 4 bytes",
        ),
        (
            "==881==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602 at pc 0x4f",
            "memory_access",
            "fatal",
            3,
            "AddressSanitizer: heap-buffer-overflow",
        ),
        (
            "==881==ERROR: LeakSanitizer: detected memory leaks",
            "other",
            "error",
            REASON,
            "detected memory leaks",
        ),
        (
            "Direct PTA leak of 2.500000 Mb(s) at 0x12c041600000 in kernel_7 at step 4.",
            "other",
            "error",
            REASON,
            "kernel_7",
        ),
        (
            "[WARN] [npu 0][step 5]: ptr: 12c04160 has last for 3 steps. Please check",
            "other",
            "warning",
            2,
            "for 3 steps",
        ),
    ],
)
def test_a_line_tells_what_it_means(
    text: str, category: str, severity: str, knows: int, headline: str
) -> None:
    one = told(text)
    assert (one.category, one.severity, one.knows) == (category, severity, knows)
    assert headline in one.headline.render()


@pytest.mark.parametrize(
    "text",
    [
        "huggingface/tokenizers: The current process just got forked, after parallelism has already been "
        "used.",
        "Warning: The /usr/local/Ascend/latest owner does not match the current owner.",
        "========= ERROR SUMMARY: 0 errors",
        "[INFO] [npu 0][step 2][end]: ------No leaks (PTA)------",
    ],
)
def test_what_libraries_print_in_healthy_runs_is_harmless(text: str) -> None:
    assert rules.sight(Line(text, text)) is HARMLESS


@pytest.mark.parametrize(
    "text",
    [
        "Killed 3 stale workers of the last run",
        "Aborted by user? no, resumed",
        "Uvicorn exited with code 0",
        "exit code: 0",
        "decode throughput 123 tokens/s, signal to noise 3.1",
        "Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to 512.0",
        "GPU KV cache usage: 3.4%",
        "Compiling graph 3 took 2.1 s",
        "torch 2.5.1, torch_npu 2.5.1, CANN 8.2, driver 25.0",
        "======    #0 ${ASCEND_HOME_PATH}/compiler/x.h:10:9",
        "====== SUMMARY: 1100 byte(s) leaked in 2 allocation(s)",
        "========= ERROR SUMMARY: 4 errors",
        "==========================================",
        "  | Name | Type | Params",
    ],
)
def test_what_says_nothing_of_its_own(text: str) -> None:
    assert rules.sight(Line(text, text)) in (None, HARMLESS)


def test_an_operator_on_the_cpu_is_a_hint_of_its_own() -> None:
    one = told(
        "[W compiler_depend.ts:51] Warning: CAUTION: The operator 'aten::kthvalue' is not currently "
        "supported on the "
        "NPU backend and will fall back to run on the CPU. This may have performance implications."
    )
    assert (one.severity, one.alone, dict(one.facts)) == ("info", True, {"operator": "aten::kthvalue"})
    assert one.key == "cpu fallback aten::kthvalue"


def test_a_name_of_a_temporary_file_is_in_no_headline() -> None:
    one = told(f'{MLIR}cannot read "/tmp/tmpabcdefg1/part.bin"')
    assert "tmpabcdefg1" not in one.headline.render()
    assert one.key == told(f'{MLIR}cannot read "/tmp/tmpzyxwvut2/part.bin"').key


def test_lines_behind_a_report_add_the_kernel_the_block_and_the_first_frame_of_ones_own() -> None:
    lines = [
        "======    at 0x12c0c0012000 on GM when writing data in Mul_ab1b6750d7f510985325b603cb06dc8b_0",
        "======    by thread (1,0,0) in block aiv(0-3) on device 2",
        "======    #3 /data/job/src/mul.cpp:44:9",
    ]
    facts = {name: value for text in lines for name, value in told(text).facts}
    assert facts == {
        "kernel": "Mul_0",
        "memory": "GM",
        "block": "aiv(0-3)",
        "thread": "1,0,0",
        "device": 2,
        "place": "/data/job/src/mul.cpp:44:9",
    }
    assert {told(text).knows for text in lines} == {CONTEXT}


def test_a_leak_without_a_source_says_how_to_find_it() -> None:
    one = told("======      at 0x124080024000 on GM allocated in <unknown>:0 (serialNo:0)")
    assert "--check-cann-heap" in one.advice[0].render()
    one = told("======      at 0x124080024000 on GM allocated in mul.cpp:17 (serialNo:4)")
    assert dict(one.facts)["place"] == "mul.cpp:17"


def test_host_frames_of_a_sanitizer_are_a_place() -> None:
    assert dict(told("    #0 0x4f2a in fill /src/fill.cpp:9:12").facts) == {
        "place": "/src/fill.cpp:9:12 in fill"
    }


@pytest.mark.parametrize(
    ("code", "headline", "severity", "attribution"),
    [
        (-9, "a process was ended by SIGKILL", "fatal", "likely"),
        (137, "a process was ended by SIGKILL", "fatal", "likely"),
        (139, "a process was ended by SIGSEGV", "fatal", "exact"),
        (-15, "a process was ended by SIGTERM", "warning", "exact"),
        (-40, "a process was ended by signal 40", "fatal", "exact"),
        (1, "a process ended with exit code 1", "error", "exact"),
        (255, "a process ended with exit code 255", "error", "exact"),
        (0, "a process ended with exit code 0", "info", "exact"),
    ],
)
def test_how_a_process_ended(code: int, headline: str, severity: str, attribution: str) -> None:
    one = ended(code, 42)
    assert (one.headline.render(), one.severity, one.attribution) == (headline, severity, attribution)
    assert dict(one.facts)["pid"] == 42


def test_foreign_text_is_bounded_masked_and_never_a_format() -> None:
    assert short("a\x1b[1m  b\n" + "x" * 900, 20).startswith("a␛[1m b xxx")
    assert len(short("x" * 900, 20)) == 20
    assert masked("at 0x7f0011223344 in /tmp/tmpab12cd34/x.py") == "at * in */x.py"
    assert key_of("Step 12 of {n}") == "step # of {n}"
    assert (number("12"), number("-3"), number("9" * 30), number("1.5"), number(None)) == (
        12,
        -3,
        None,
        None,
        None,
    )
    assert told(f"{MLIR}{{x}} {{0}} % s").headline.render() == "compiling a kernel failed: {x} {0} % s"


@pytest.mark.parametrize("part", ["a", ".", "/", "_", " ", "1", "=", "(", "a/", ": ", "not "])
def test_no_rule_takes_long(part: str) -> None:
    since = time.process_time()
    rows = rules_framework.RULES + rules_compile.RULES + rules_reports.RULES
    for needles, rule in rows:
        text = part * (100_000 // len(part)) + needles[0] + part * (100_000 // len(part))
        rule(Line(text, text))
    assert time.process_time() - since < 5


def test_needles_are_there_for_every_rule() -> None:
    for module in (rules_framework, rules_compile, rules_reports, rules_host, rules_launchers):
        assert all(needles and all(len(one) > 2 for one in needles) for needles, _ in module.RULES)
