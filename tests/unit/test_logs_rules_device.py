"""What single lines of CANN, torch_npu, HCCL and NCCL tell: constructed lines in the grammar of real ones."""

from __future__ import annotations

import time

import pytest
from ascend_tui_plugins.logs.knowledge import codes, rules
from ascend_tui_plugins.logs.knowledge.needles import Needles
from ascend_tui_plugins.logs.knowledge.rules_facts import demangled, error_code_of, facts_of
from ascend_tui_plugins.logs.lines import parse_text
from ascend_tui_plugins.logs.sighting import (
    CONTEXT,
    GENERIC,
    HARMLESS,
    REASON,
    SPECIFIC,
    Harmless,
    Line,
    Sighting,
)

PLOG = "[ERROR] RUNTIME(4711,python3):2026-02-03-04:05:06.007.008 "


def sight(text: str) -> Sighting:
    assert rules.is_special(text), text
    found = rules.sight(parse_text(text))
    assert isinstance(found, tuple), (text, found)
    assert len(found) == 1
    return found[0]


def nothing(text: str) -> None:
    found = rules.sight(parse_text(text))
    assert found is None or isinstance(found, Harmless), (text, found)


def facts(text: str) -> dict[str, object]:
    return dict(sight(text).facts)


# Faults of the device.

CORE = (
    "        The error from device(chipId:3, dieId:1), serial number is 9, there is an exception of"
    " fftsplus aivector error,"
    " core id is 7, error code = 0x2000000, dump info: pc start: 0x12c0a0000460, current: 0x12c0a0003a3c,"
    " vec error info: 0x51, mte error info: 0x8e, para base:"
    " 0x12c1.[FUNC:PrintCoreInfo][FILE:device_error.cc][LINE:3]"
)
EXTENDED = (
    "        The extend info: errcode:(0, 0x8000, 0) errorStr: {why}. fixp_error0 info: 0x6, fixp_error1"
    " info: 0x8,"
    " fsmId:0, tslot:4, thread:0, ctxid:0, blk:21, sublk:0,"
    " subErrType:4.[FUNC:PrintCoreInfo][FILE:d.cc][LINE:4]"
)


def test_the_core_is_named_and_the_dump_is_not() -> None:
    seen = sight(CORE)
    assert seen.headline.render() == "fftsplus aivector error on the device, core 7"
    assert (seen.category, seen.severity, seen.attribution, seen.knows) == (
        "device",
        "fatal",
        "async",
        SPECIFIC,
    )
    assert dict(seen.facts) == {"chip": 3, "die": 1, "core": 7, "error_code": "0x2000000"}
    assert seen.advice == (codes.EAGER, codes.BLOCKING, codes.MEMCHECK, codes.PLOG)


@pytest.mark.parametrize(
    ("why", "category", "headline"),
    [
        (
            "The DDR address of the MTE instruction is out of range",
            "memory_access",
            "illegal device memory access: The DDR address of the MTE instruction is out of range",
        ),
        (
            "VEC instruction error: the ub address out of bounds",
            "memory_access",
            "illegal device memory access: VEC instruction error: the ub address out of bounds",
        ),
        (
            "The address for scalar to access GM is invalid",
            "memory_access",
            "illegal device memory access: The address for scalar to access GM is invalid",
        ),
        (
            "The CUBE instruction parameter is invalid",
            "device",
            "device fault: The CUBE instruction parameter is invalid",
        ),
        ("timeout or trap error", "device", "device fault: timeout or trap error"),
        (
            "A multi-bit ECC error occurs when CUBE reads L0A",
            "device",
            "memory error of the device's hardware: A multi-bit ECC error occurs when CUBE reads L0A",
        ),
    ],
)
def test_the_error_string_is_the_reason(why: str, category: str, headline: str) -> None:
    seen = sight(EXTENDED.format(why=why))
    assert (seen.category, seen.knows, seen.attribution) == (category, REASON, "async")
    assert seen.headline.render() == headline
    assert dict(seen.facts)["block"] == 21
    assert dict(seen.facts)["error_code"] == "0x8000"


def test_error_code_0_with_another_word_is_no_success() -> None:
    line = (
        PLOG
        + "[device_error_core_proc.cc:12]4712 PrintCoreInfo:An error occurs on the device(chipId:1, dieId:0),"
        " the serial number is 4, the error is aicore error, core id is 11, error code = 0, dump info: pc"
        " start: 0x1. The"
        " extend info: errcode:(0, 0x40000, 0) errorStr: The VEC instruction is illegal. fixp_error0"
        " info: 0x1, blk:2"
    )
    seen = sight(line)
    assert seen.headline.render() == "device fault: The VEC instruction is illegal"
    assert dict(seen.facts) == {"chip": 1, "die": 0, "core": 11, "block": 2, "error_code": "0x40000"}
    assert error_code_of("error code = 0, x") == ""


def test_the_kernel_is_named_as_people_know_it() -> None:
    seen = sight(
        PLOG + "[davinci_kernel_task.cc:97]4712 PrintErrorInfo:[DFX_INFO]AI Core kernel"
        " execution failed, device_id=2, stream_id=31, report_stream_id=31, task_id=8, flip_num=0, fault"
        " kernel_name=_Z9my_kernelPDhS_, program id=1"
    )
    assert seen.headline.render() == "kernel my_kernel failed on the device"
    assert dict(seen.facts) == {
        "stream": 31,
        "task": 8,
        "kernel": "my_kernel",
        "mangled": "_Z9my_kernelPDhS_",
        "device": 2,
    }
    assert seen.device == 2


def test_a_compiled_kernel_tells_its_operator() -> None:
    seen = sight(
        "       Aicore kernel execute failed, device_id=1, stream_id=2, report_stream_id=2, task_id=5,"
        " flip_num=2,"
        " fault kernel_name=GatherV3_00112233445566778899aabbccddeeff_high_performance_8, program id=3"
        "[FUNC:GetError][FILE:stream.cc][LINE:11]"
    )
    assert seen.headline.render() == "kernel GatherV3 failed on the device"
    assert dict(seen.facts)["operator"] == "GatherV3"


def test_an_operator_of_the_aicpu() -> None:
    seen = sight(
        "Aicpu kernel execute failed, device_id=0, stream_id=7, task_id=2, flip_num=0, fault so_name=,"
        " fault kernel_name=, fault op_name=Unique, extend_info=(info_type:4)."
    )
    assert seen.headline.render() == "kernel Unique failed on the device"


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z12error_kernelPDhS_S_", "error_kernel"),
        ("_ZN4aten3ops6gatherEPKvm", "aten::ops::gather"),
        ("_ZNK3abc4loadEv", "abc::load"),
        ("_ZN3abcI3defE4loadEv", "abc"),
        ("plain_kernel_0", "plain_kernel_0"),
        ("_Z", "_Z"),
        ("_Z99short", "_Z99short"),
        ("_Z0x", "_Z0x"),
    ],
)
def test_demangled(mangled: str, name: str) -> None:
    assert demangled(mangled) == name


def test_a_symbol_goes_with_the_fault() -> None:
    seen = sight(
        "[ERROR] IDEDD(47,python):2026-02-03-04:05:06.007.008 [kernel_symbol_locator.cpp:7][tid:48]"
        " [Dump][Exception]"
        " Error symbol information. coreId=24, coreType=0, symbol=_Z7my_mmadPU3AS5fDhttt.cube+0x1c."
    )
    assert seen.knows == CONTEXT
    assert dict(seen.facts)["symbol"] == "my_mmad+0x1c"


def test_the_number_of_a_wrapper_is_told_in_words() -> None:
    seen = sight(
        "RuntimeError: synchronize:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:361 NPU function"
        " error:"
        " c10_npu::acl::AclrtSynchronizeStreamWithTimeout(stream()), error code is 507015"
    )
    assert (
        seen.headline.render()
        == "The aicore execution is abnormal (507015, AclrtSynchronizeStreamWithTimeout)"
    )
    assert (seen.knows, seen.code, seen.severity, seen.attribution) == (GENERIC, "507015", "fatal", "async")
    assert seen.reason == codes.NOT_THE_LINE


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        (
            "[W614 19:45:30.60 compiler_depend.ts:545] Warning: NPU warning, error code is 507035[Error]:",
            "507035",
            "fatal",
        ),
        (
            "        synchronize stream failed, runtime result = 507018[FUNC:Report][FILE:log.cpp][LINE:1]",
            "507018",
            "fatal",
        ),
        (
            PLOG
            + "[api_c_stream.cc:1]4 rtStreamSynchronize:ErrCode=507014, desc=[aicore timeout], InnerCode=0x7",
            "507014",
            "fatal",
        ),
        ("[ERROR] aclrtSynchronizeStream(stream) failed: 507034 (/w/main.cpp:134)", "507034", "fatal"),
        ("[Error]: The aicpu execution is abnormal.", "507018", "fatal"),
        (
            "RuntimeError: copy: NPU function error: call aclnnAdd failed, error code is 161002",
            "161002",
            "error",
        ),
        ("W NPUStream.cpp:409] Warning: NPU warning, error code is 507046[Error]: ", "507046", "fatal"),
    ],
)
def test_a_number_in_its_many_places(text: str, code: str, severity: str) -> None:
    seen = sight(text)
    assert (seen.code, seen.severity, seen.knows) == (code, severity, GENERIC)


def test_the_result_of_a_task() -> None:
    seen = sight(
        "       Kernel task happen error, retCode=0x31, [vector core exception].[FUNC:Pre][FILE:d.cc][LINE:1]"
    )
    assert (seen.headline.render(), seen.knows) == ("vector core exception", SPECIFIC)
    bare = sight("       AIV Kernel happen error, retCode=0x30.[FUNC:GetError][FILE:stream.cc][LINE:1]")
    assert bare.headline.render() == "vector core timeout"
    model = sight(
        "model execute error, retCode=0x91, [the model stream execute failed].[FUNC:R][FILE:t.cc][LINE:2]"
    )
    assert model.knows == GENERIC


def test_a_reason_is_taken_with_and_without_brackets() -> None:
    old = sight("rtDeviceSynchronize execute failed, reason=[sdma copy error][FUNC:F][FILE:e.cc][LINE:1]")
    new = sight(
        "rtDeviceSynchronizeWithTimeout execution failed, reason=sdma copy error[FUNC:F][FILE:e.cc][LINE:1]"
    )
    assert old.headline.render() == new.headline.render() == "sdma copy error"
    assert (old.category, old.knows) == ("device", GENERIC)
    nothing("INFO request 7 finished, finish_reason=length, reason=stop")


def test_a_task_without_more_is_a_wrapper() -> None:
    seen = sight(
        PLOG + "[engine.cc:1]47 ProcLogicCqReport:Task run failed, device_id=4, stream_id=5, task_id=6"
    )
    assert (seen.knows, seen.device, seen.category) == (GENERIC, 4, "device")
    assert facts(PLOG + "[e.cc:1]4 x:Task run failed, device_id=4, stream_id=5, task_id=6") == {
        "stream": 5,
        "task": 6,
        "device": 4,
    }


def test_the_operator_that_torch_npu_reports() -> None:
    seen = sight(
        "RuntimeError: The Inner error is reported as above. The process exits for this inner error, and"
        " the current"
        " working operator name is FlashAttentionOperation."
    )
    assert seen.headline.render() == (
        "inner error, reported by torch_npu at the operator FlashAttentionOperation"
    )
    assert dict(seen.facts) == {"operator": "FlashAttentionOperation"}
    assert (seen.attribution, seen.severity) == ("async", "fatal")
    assert "above" in seen.evidence[0].render()


def test_hardware() -> None:
    ecc = sight(
        "HBM MULTI BIT ECC, Uncorrectable ECC, device_id=5, event_id=0x80e01801, time"
        " us=1.[FUNC:P][FILE:s.cc]"
    )
    assert (ecc.category, ecc.severity, ecc.knows, ecc.device) == ("device", "fatal", REASON, 5)
    assert codes.HARDWARE in ecc.advice
    stop = sight("RuntimeError: FORCE STOP")
    assert (stop.severity, stop.knows) == ("warning", GENERIC)
    assert "consequence" in stop.headline.render()
    for text in (
        "RuntimeError: UCE ERROR",
        "RuntimeError: HCCS LINK ERROR",
        "execution failed, reason=[device mem error]",
    ):
        assert sight(text).category == "device", text
    nothing("[INFO] AclrtGetMemUceInfo get UCE ERROR, retSize is 0")
    nothing("Uncorrectable ECC errors: 0")


def test_teardown_is_no_fault() -> None:
    for text in (
        "EE9999: [PID: 77] 2026-02-03-04:05:06.816.143 Stream destroy failed, stream is not in current"
        " ctx, stream_id=4."
        "[FUNC:StreamDestroy][FILE:api_impl.cc][LINE:1]",
        "       destroy stream force failed, runtime result = 107003[FUNC:R][FILE:log.cpp][LINE:1]",
        "[Error]: The stream is not in the current context.",
        "[W1 ProcessGroup.cpp:9] Warning: WARNING: destroy_process_group() was not called before program"
        " exit",
    ):
        assert sight(text).severity == "info", text
    wrong = sight("RuntimeError: f NPU function error: aclrtRecordEvent(e, s), error code is 107003")
    assert (wrong.severity, wrong.category) == ("error", "usage")


def test_advice_and_headings_are_context() -> None:
    for text in (
        "        Rectify the fault based on the error information in the ascend log.",
        "        Possible Cause: 1. The timeout interval may be improperly set.",
        "        Solution: 1. Check the rank service processes with other errors or no errors in the"
        " cluster.",
        "        TraceBack (most recent call last):",
        "EZ9999: Inner Error!",
        "[ERROR] RecentErrMsg: EZ9999: Inner Error!",
        "EZ9999: Inner Error, Please contact support engineer!",
        "ERROR 02-03 04:05:06 [core.py:1] Since the operator is called asynchronously, the stacktrace"
        " may be inaccurate.",
    ):
        found = rules.sight(parse_text(text))
        assert isinstance(found, tuple), text
        assert (found[0].knows, found[0].severity) == (CONTEXT, "info"), text


def test_a_trailer_knows_no_more_than_who_called() -> None:
    text = "[ERROR] 2026-02-03-04:05:06 (PID:47, Device:6, RankID:-1) ERR01100 OPS call acl api failed"
    seen = sight(text)
    assert (seen.knows, seen.code) == (GENERIC, "ERR01100")
    line = parse_text(text)
    assert (line.device, line.rank) == (6, None)


# Codes of CANN.


def test_a_check_of_parameters_keeps_both_shapes() -> None:
    seen = sight(
        "RuntimeError: call aclnnBatchMatMul failed, detail:EZ1001: [PID: 47]"
        " 2026-02-03-04:05:06.294.465 The k-axis of"
        " the two inputs are different [512,64], [128,32]"
    )
    assert seen.headline.render() == (
        "aclnnBatchMatMul: The k-axis of the two inputs are different [512,64], [128,32] (EZ1001)"
    )
    assert (seen.category, seen.attribution, seen.knows, seen.code) == ("usage", "exact", REASON, "EZ1001")
    other = (
        "call aclnnBatchMatMul failed, detail:EZ1001: [PID: 5] 2026-02-03-04:05:07.1 The k-axis of"
        " the two inputs are"
    )
    assert sight(other + " different [8,6], [4,2]").key == seen.key


@pytest.mark.parametrize(
    "text",
    [
        "EE1002: 2026-02-03-04:05:06.041.231 Stream synchronize timeout. rtDeviceSynchronize execute failed",
        "EE1002: [PID: 47] 2026-02-03-04:05:06.041.231 Stream synchronize timeout.",
        "[PID: 47] 2026-02-03-04:05:06.041.231 Execution_Error_Stream_Synchronize_Timeout(EE1002):"
        " Stream synchronize timeout",
        "EE1002[PID: 47] 2026-02-03-04:05:06.041.231 (EE1002):  Stream synchronize timeout.",
    ],
)
def test_a_code_in_its_many_forms(text: str) -> None:
    seen = sight(text)
    assert (seen.code, seen.category, seen.severity) == ("EE1002", "timeout", "fatal")
    assert seen.headline.render() == "the stream did not finish in time (EE1002)"
    assert seen.reason is not None
    assert seen.reason.render().startswith("Stream synchronize timeout")


def test_an_inner_error_shows_its_words_where_nothing_knows_better() -> None:
    seen = sight(
        "EZ9999: [PID: 47] 2026-02-03-04:05:06.1 Something of its own went wrong.[FUNC:F][FILE:f.cc][LINE:1]"
    )
    assert (seen.headline.render(), seen.knows) == ("Something of its own went wrong. (EZ9999)", GENERIC)
    old = sight("EH9999  [Init][Env]init env failed![FUNC:ReportInnerError][FILE:log_inner.cpp][LINE:145]")
    assert old.headline.render() == "[Init][Env]init env failed! (EH9999)"


def test_codes_of_other_programs_are_none_of_cann() -> None:
    nothing("EP0012: loss=0.7 lr=1e-4")
    nothing("E10001: the order was shipped")
    nothing("stage W11002: done")
    assert sight("E30008: AI CPU operator execution time out.").code == "E30008"


def test_what_a_program_counts_is_no_number_of_an_error() -> None:
    nothing("eval result: 100000 samples, failed: 200000")
    nothing("error rate = 0.1, result = 300000")
    nothing("INFO upload done, retcode: 200000")
    nothing("processed 507035 rows, failed: 0")


# Memory.


@pytest.mark.parametrize(
    ("text", "device", "knows"),
    [
        (
            "RuntimeError: NPU out of memory. Tried to allocate 8.00 MiB (NPU 5; 60.97 GiB total capacity)",
            5,
            REASON,
        ),
        ("Memory_Allocation_Failure(EL0004): Failed to allocate memory.", None, SPECIFIC),
        (
            "[driver interface] halMemAlloc failed: device_id=3, size=1024000, type=2, drvRetCode=6!",
            3,
            REASON,
        ),
        (
            "Malloc device memory failed, size[2048000], ret[207001], Device 1 may be other processes",
            1,
            REASON,
        ),
        ("2026-02-03 04:05:06 [ERROR] 内存不足：申请 3.00 GiB 失败，设备 2", 2, REASON),
        ("Out of memory: Killed process 4711 (python3) total-vm:1kB", None, REASON),
    ],
)
def test_memory_that_ran_out(text: str, device: int | None, knows: int) -> None:
    seen = sight(text)
    assert (seen.category, seen.key, seen.device, seen.knows) == ("oom", "oom", device, knows)


def test_the_allocator_says_itself_that_it_is_nothing() -> None:
    text = (
        "torch_npu.memory: [ERROR] [26] Get a block from the existing pool failed. This error log can"
        " be ignored."
    )
    assert rules.sight(parse_text(text)) is HARMLESS


# Ranks.

HANDLER = (
    "[ERROR] HCCL(47,train):2026-02-03-04:05:06.499.235 [task_exception_handler.cc:9]"
    " [47][TaskExecStage][Timeout][Host]"
)


def test_each_rank_tells_what_it_was_doing() -> None:
    base = sight(
        HANDLER + "Task run failed, base information is streamID:[5], taskID[9], "
        "tag[ReduceScatter_10.0.0.1%eth0_6_0_17], AlgType(level 0-1-2):[ring-NHR]."
    )
    assert (base.doing, base.category, base.severity, base.key) == (
        "ReduceScatter",
        "timeout",
        "fatal",
        "hccl task",
    )
    assert base.headline.render() == "HCCL operator ReduceScatter timed out: it waited for other ranks"
    assert dict(base.facts) == {"stream": 5, "task": 9, "operator": "ReduceScatter"}
    group = sight(
        HANDLER
        + "Task run failed, groupRank information is group:[10.0.0.1%eth0_6_0_17], user define information[],"
        " rankSize[8], rankId[6]."
    )
    assert (group.rank, group.knows, group.key) == (6, GENERIC, "hccl task")
    assert dict(group.facts) == {"group": "10.0.0.1%eth0_6_0_17"}


@pytest.mark.parametrize(
    ("status", "says", "level"),
    [
        ("LOST", "has ended", "warning"),
        ("STUCK", "is stuck", "warning"),
        ("ERROR CQE", "has errors", "warning"),
    ],
)
def test_a_heartbeat_is_told_at_any_level(status: str, says: str, level: str) -> None:
    seen = sight(
        "[INFO] HCCL(6,python):2026-02-03-04:05:06.191.363 [heartbeat.cc:9]"
        " [8][TaskExecStage][HeartbeatAbnormal]local rank"
        f" [10.0.0.1/1]: crimer rank [10.0.0.2/5] status[{status}] by informer rank [10.0.0.3/3]"
    )
    assert (seen.rank, seen.severity, seen.category) == (5, level, "communication")
    assert seen.key == "heartbeat 10.0.0.2/5"
    assert says in seen.headline.render()
    assert dict(seen.facts) == {"first_bad": "10.0.0.2/5", "informer": "10.0.0.3/3"}


def test_the_handler_names_where_it_began() -> None:
    seen = sight(
        "[ERROR]HCCL(8,train):2026-02-03-04:05:06.049.385[task_exception_handler.cc:6][8][TaskExecStage][HeartbeatAbnormal]"
        "Cluster Exception Location[IP/ID]:[10.0.0.1/7], Arrival Time:[Tue Feb 03 04:05:06 2026],"
        " Discoverer:[10.0.0.1/2],"
        " ExceptionType:[Stuck Occurred], Possible Reason:1.Host process is stuck, 2.Device task is stuck"
    )
    assert (seen.rank, seen.severity) == (7, "error")
    assert "stuck" in seen.headline.render()


WORK = (
    "[Rank 4] Watchdog caught collective operation timeout: Work{lib}(SeqNum=77, OpType={op},"
    " Timeout(ms)=600000) ran for"
)


@pytest.mark.parametrize(
    ("lib", "op", "name"), [("HCCL", "ALLREDUCE", "AllReduce"), ("NCCL", "_ALLGATHER_BASE", "AllGather")]
)
def test_the_watchdog(lib: str, op: str, name: str) -> None:
    seen = sight(
        "[rank4]:[E324 13:00:25.4 c.ts:5] "
        + WORK.format(lib=lib, op=op)
        + " 600185 milliseconds before timing out."
    )
    assert (seen.rank, seen.doing, seen.severity, seen.key) == (4, name, "fatal", "collective timeout")
    assert seen.headline.render() == f"collective {name} timed out (SeqNum 77)"
    assert dict(seen.facts) == {"operator": name, "sequence": 77, "timeout_ms": 600000}
    assert seen.evidence[0].render() == "it ran for 600.2 s"


def test_a_watchdog_that_names_numbers_only() -> None:
    seen = sight(
        "[rank2]:[E607 21:52:16.2 ProcessGroupNCCL.cpp:1] [PG ID 1 PG GUID 1 Rank 2] Timeout at NCCL"
        " work: 31, last enqueued"
        " NCCL work: 36, last completed NCCL work: 30."
    )
    assert (seen.rank, dict(seen.facts)) == (2, {"sequence": 31})
    assert seen.evidence[0].render() == "last completed collective 30, last enqueued 36"


def test_corrupted_data_is_a_warning_and_no_finding() -> None:
    seen = sight(
        "[rank1]:[E324 13:00:25.4 c.ts:6] Some HCCL operations have failed or timed out. Due to the"
        " asynchronous nature of"
        " ASCEND kernels, subsequent NPU operations might run on corrupted/incomplete data."
    )
    assert seen.knows == CONTEXT


def test_results_of_hccl() -> None:
    seen = sight("RuntimeError: Inner:f.cpp:281 OPS function error: HcclAllGather, error code is 9")
    assert seen.headline.render() == "HcclAllGather failed: timeout (HCCL result 9)"
    assert (seen.category, seen.doing, seen.attribution) == ("timeout", "AllGather", "async")
    begun = sight(
        "RuntimeError: create_config:f.ts:148 HCCL function error: hcclCommInitRootInfoConfig(numRanks,"
        " &rootInfo, rank,"
        " config, &(comm->hcclComm_)), error code is 7"
    )
    assert (
        begun.headline.render() == "hcclCommInitRootInfoConfig failed: resource unavailable (HCCL result 7)"
    )
    assert (begun.category, begun.attribution, begun.doing) == ("communication", "exact", "")


def test_codes_of_hccl() -> None:
    wait = sight(
        "EI0002: [PID: 29] 2026-02-03-04:05:06.713.335 The wait execution of the Notify register times"
        " out. Reason: The"
        " Notify register has not received the Notify record from remote rank: [24]. base information:"
        " [streamID:[109],"
        " taskID[38], taskType[Notify Wait], tag[AllReduce_group_name_16NHR_device], AlgType(level"
        " 0-1-2):[ring].]. group"
        " information: [group:[group_name_16], user define information[Unspecified], rankSize[32],"
        " rankId[25 24]]"
    )
    assert (wait.code, wait.doing, wait.rank, wait.category, wait.severity) == (
        "EI0002",
        "AllReduce",
        25,
        "timeout",
        "fatal",
    )
    assert dict(wait.facts)["waited_for_rank"] == 24
    assert dict(wait.facts)["group"] == "group_name_16"
    link = sight(
        "[rank1]: EI0006: [PID: 12] 2026-02-03-04:05:06.444.436 Getting socket times out. Reason: Remote"
        " rank is late"
    )
    assert (link.code, link.category) == ("EI0006", "timeout")
    assert link.reason is not None
    assert link.reason.render() == "Remote rank is late"
    port = sight(
        "[PID: 5] 2026-02-03-04:05:06.897.463 Communication_Error_Bind_IP_Port(EJ0003): Failed to bind"
        " the IP port."
    )
    assert (port.code, port.category) == ("EJ0003", "communication")


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("【错误】集合通信超时，请检查网络", "timeout"),
        ("2026-02-03 [ERROR] 通信链路异常，rank 3", "communication"),
        ("无法继续训练：心跳丢失", "communication"),
    ],
)
def test_chinese(text: str, category: str) -> None:
    assert sight(text).category == category


def test_chinese_settings_are_none() -> None:
    nothing("通信超时时间设置为 1800 秒")
    nothing("未发现通信异常")


def test_what_a_message_holds_is_not_markup_and_is_bounded() -> None:
    seen = sight(EXTENDED.format(why="[red]x[/red] \x1b[31m" + "y" * 5000))
    assert "\x1b" not in seen.headline.render()
    assert len(seen.headline.render()) < 400
    assert len(seen.key) < 200


# The dispatcher.


def test_an_unknown_error_is_shown_by_its_loggers_level() -> None:
    told = sight("2026-02-03 04:05:06,007 - mylib - ERROR - cannot open the flux capacitor 4711")
    assert (told.category, told.severity, told.knows) == ("other", "warning", GENERIC)
    fatal = sight("2026-02-03 04:05:06,007 - mylib - CRITICAL - cannot open the flux capacitor 12")
    assert fatal.severity == "error"
    assert fatal.key == told.key
    nothing("2026-02-03 04:05:06,007 - mylib - INFO - opened the flux capacitor 12")
    nothing('ERROR 02-03 04:05:06 [core.py:1]   File "/a/b.py", line 2, in c')


def test_whether_a_line_is_special_does_not_depend_on_its_digits() -> None:
    for text in (
        CORE,
        HANDLER + "Task run failed, base information is streamID:[5]",
        "EZ1001: [PID: 1] 2026 x",
        "error code is 507035",
    ):
        other = "".join("7" if letter.isdigit() else letter for letter in text)
        assert rules.is_special(text)
        assert rules.is_special(other)


def test_healthy_lines_are_not_special() -> None:
    for text in (
        "iteration     182/  250000 | consumed samples:       186368 | lm loss: 2.38E+00 | grad norm:"
        " 0.227 |",
        "[2026-02-03 04:05:06] step 12 lr 1e-4 throughput 123.4 tokens/s",
        "Epoch 3: 12%|#2        | 120/1000 [00:10<01:10, 12.3it/s]",
    ):
        assert not rules.is_special(text), text


def test_needles_find_what_a_search_finds() -> None:
    needles = Needles([("abc", "EZ:"), ("通信",), ("ab", "xyz ")])
    assert needles.rows_of("an abc") == [0, 2]
    assert needles.rows_of("EZ: x") == [0]
    assert needles.rows_of("建立通信") == [1]
    assert needles.rows_of("") == []
    assert needles.any_in("xyz 1")
    assert not needles.any_in("xyz1")


def test_a_line_of_a_megabyte_takes_no_time() -> None:
    for text in ("a" * 1_000_000, "error " * 160_000, "[" * 1_000_000):
        line = Line(text + " errorStr: the end. fixp_error", text)
        begun = time.perf_counter()
        rules.is_special(line.text)
        rules.sight(line)
        assert time.perf_counter() - begun < 10


def test_facts_of_nothing() -> None:
    assert facts_of("") == ()
    assert facts_of("device chipId:x core id is y") == ()
