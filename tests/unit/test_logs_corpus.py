"""Logs of our own with a known answer: what is said of each, and what must not be said.

The files were made for these tests in the grammar of real ones; a healthy one has nothing to say.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ascend_tui_plugins.logs.digest import Digester
from ascend_tui_plugins.logs.from_files import read

from ascend_tui.frame import as_json

CORPUS = Path(__file__).parent.parent / "corpus" / "logs"
SEVERITIES = ("info", "warning", "error", "fatal")


class Told(NamedTuple):
    """One incident that has to be there: `said` in its headline, each of `also` anywhere in it."""

    category: str
    severity: str
    said: str
    also: tuple[str, ...] = ()
    count: tuple[int, int] | None = None
    ranks: tuple[int, ...] | None = None
    attribution: str = ""


TOLD: dict[str, tuple[int, tuple[Told, ...], str]] = {
    # file: (loud incidents at most, those that must be there, what no loud headline may hold)
    "ddr_out_of_range_in_workers.log": (
        1,
        (
            Told(
                "memory_access",
                "fatal",
                r"DDR address of the MTE",
                (r"507015", r"\b31\b", r"blk|block"),
                attribution="async",
            ),
        ),
        r"inner error|dump info|pc start|call acl api",
    ),
    "vector_core_trap_at_item.log": (
        1,
        (Told("device/crash", "error", r"trap|507036", (r"507036", r"pretrain\.py"), attribution="async"),),
        r"call acl api|rectify",
    ),
    "ub_misaligned_by_acl_sample.log": (
        1,
        (Told("memory_access", "error", r"ub address|not aligned"),),
        r"inner error|traceback|dump info",
    ),
    "plog_cube_fault_beside_info.log": (
        1,
        (Told("device/crash", "error", r"cube|instruction param", (r"tile_matmul", r"507015")),),
        r"error code = 0\b|dump host|symbols|error_finder",
    ),
    "ecc_on_one_device.log": (
        3,
        (Told("device", "error", r"ECC|UCE|HBM", (r"\b6\b",), ranks=(6,)),),
        r"call acl api",
    ),
    "hccl_ops_differ_on_ranks.log": (
        1,
        (
            Told(
                "timeout/communication",
                "error",
                r"ReduceScatter|Broadcast|HCCL|collective",
                (r"ReduceScatter", r"Broadcast", r"mismatch|diverg|differ|disagree|not the same"),
                ranks=(2, 5),
            ),
        ),
        "",
    ),
    "watchdog_of_four_ranks.log": (
        1,
        (
            Told(
                "timeout/communication",
                "error",
                r"all.?gather|watchdog|collective",
                (r"5,?012",),
                ranks=(0, 1, 2, 3),
            ),
        ),
        r"corrupt",
    ),
    "sync_timeout_at_level_w.log": (
        1,
        (Told("timeout", "fatal", r"stream|synchroni|time.?out|507046", ranks=()),),
        r"rectify|possible cause",
    ),
    "socket_times_out_on_rank_six.log": (
        1,
        (Told("communication/timeout", "error", r"socket|EI0006|link|connect", (r"EI0006",), ranks=(6,)),),
        r"errors in the cluster|call acl api|TraceBack",
    ),
    "oom_of_a_neighbour.log": (
        1,
        (
            Told(
                "oom",
                "error",
                r"memory",
                (r"25\.9|26\.0", r"outside|another process|other process|others|elsewhere"),
                ranks=(4,),
            ),
        ),
        r"^(?!.*\b(not|no)\b).*(leak|fragment)",
    ),
    "oom_repeated_by_ray.log": (
        1,
        (Told("oom", "error", r"memory|full|capacity", (r"capacity|\bfits?\b|\bfull\b",), count=(3, 4)),),
        r"never time ?out|watchdog|leak",
    ),
    "driver_refuses_memory.log": (
        1,
        (Told("oom", "error", r"memory|alloc|occup", (r"8(\.0+)? ?GiB", r"occup|other process")),),
        r"inner error",
    ),
    "device_full_before_start.log": (
        1,
        (Told("oom", "error", r"memory|alloc|EL0004", (r"device\w*\W{0,6}7\b", r"EL0004")),),
        r"ctx is NULL|device retain",
    ),
    "matmul_shapes_differ.log": (
        1,
        (
            Told(
                "usage",
                "error",
                r"k-axis|matmul|shape",
                (r"1024\W+640", r"512\W+2048", r"EZ1001"),
                attribution="exact",
            ),
        ),
        r"call acl api",
    ),
    "ub_too_small_at_compile_time.log": (
        1,
        (Told("compile", "error", r"\bub\b|unified buffer|compil"),),
        r"tmpq8zk3v_a",
    ),
    "wrong_operator_is_named.log": (
        1,
        (
            Told(
                "device/other/crash",
                "error",
                r"PagedAttention|inner error|reported",
                (r"PagedAttentionOperation", r"npu_grouped_matmul"),
            ),
        ),
        r"call acl api",
    ),
    "stream_destroyed_at_exit.log": (
        1,
        (Told("*", "info", r"CPU|fall.?back|unique2"),),
        r"stream|destroy|EE9999|inner error|107003",
    ),
    "scale_falls_on_two_ranks.log": (
        2,
        (
            Told(
                "numeric",
                "warning",
                r"overflow|scal",
                (r"collaps|keeps|recover|consecutive|in a row|\btimes\b|every step",),
                count=(11, 13),
            ),
        ),
        "",
    ),
    "norm_is_nan_loss_is_not.log": (
        1,
        (Told("numeric", "error", r"grad|nan", (r"loss.{0,20}finite|finite loss|backward|clip",)),),
        "",
    ),
    "loss_is_zero_norm_is_nan.log": (
        1,
        (Told("numeric", "error", r"grad|nan|loss|zero|0\.0", (r"0\.0|zero|logging_nan_inf_filter",)),),
        "",
    ),
    "field_of_the_loss_is_gone.log": (
        4,
        (
            Told("numeric", "error", r"grad.{0,6}norm|nan", (r"9,?110",)),
            Told(
                "numeric",
                "warning",
                r"loss.{0,30}(miss|disappear|gone|no longer|not )|(missing|no) (lm )?loss",
            ),
        ),
        r"nan iterations|\b910[1-9]\b",
    ),
    "overflow_and_still_an_update.log": (
        3,
        (
            Told("numeric", "error", r"overflow|loss|diverg", count=(5, 5)),
            Told("numeric", "warning", r".", (r"lobj",)),
        ),
        "",
    ),
    "nan_at_the_end_of_long_lines.log": (
        1,
        (Told("numeric", "error", r"grad|nan", (r"13,?050",)),),
        r"12,?9",
    ),
    "scale_falls_to_zero.log": (
        4,
        (
            Told("numeric", "error", r"scal|overflow", count=(6, 6)),
            Told("numeric", "error", r".", (r"loss_mask",)),
            Told("numeric/crash", "error", r".", (r"ZeroDivision|division by zero",)),
        ),
        r"loss_rpn_box_reg|loss_objectness|loss_classifier",
    ),
    "colours_chinese_and_garbage.bin.log": (
        4,
        (
            Told("numeric", "error", r"loss|inf", (r"\b43\b",)),
            Told("oom", "error", r"内存不足|memory", (r"设备\s*6|device\w*\W{0,6}6\b",)),
            Told("timeout/communication", "error", r"超时|time.?out|timed out"),
        ),
        r"校验通过|个错误|values:|\x1b|\[\d{1,2}m",
    ),
    "cost_of_a_translator_is_nan.log": (
        2,
        (Told("numeric", "error", r"cost|loss|nan", (r"Up\W{0,4}900|\bcost\b",)),),
        r"Up. [78]00",
    ),
    "loss_explodes_then_nan.log": (
        2,
        (Told("numeric", "error", r"nan|loss", (r"88,?123,?456|8\.81\d*e\+?0?7|spike|explo",)),),
        "",
    ),
    "healthy_words_that_look_bad.log": (0, (), r"."),
    "healthy_metric_logger.log": (0, (), r"."),
}


def told(name: str) -> list[dict[str, Any]]:
    """Return the incidents of a file as the JSON that is printed, with English sentences."""
    found = as_json(read(CORPUS / name))["incidents"]
    assert isinstance(found, list)
    return found


def is_loud(incident: dict[str, Any]) -> bool:
    return SEVERITIES.index(incident["severity"]) >= 1


def fits(incident: dict[str, Any], one: Told) -> bool:
    everything = json.dumps(incident, ensure_ascii=False)
    return (
        (one.category == "*" or incident["category"] in one.category.split("/"))
        and SEVERITIES.index(incident["severity"]) >= SEVERITIES.index(one.severity)
        and re.search(one.said, incident["headline"], re.I) is not None
        and all(re.search(part, everything, re.I) for part in one.also)
        and (one.count is None or one.count[0] <= incident["count"] <= one.count[1])
        and (one.ranks is None or tuple(sorted(incident["ranks"])) == one.ranks)
        and (not one.attribution or incident["attribution"] == one.attribution)
    )


def test_every_file_has_an_answer() -> None:
    of_memory = {"cuda_pieces.log", "device_taken.log", "npu_full.log", "speaks_of_it.log"}
    assert {path.name for path in CORPUS.iterdir()} - of_memory == set(TOLD)


@pytest.mark.parametrize("name", TOLD)
def test_what_is_said_of_a_log(name: str) -> None:
    most, wanted, never = TOLD[name]
    found = told(name)
    loud = [one for one in found if is_loud(one)]
    shown = [(one["category"], one["severity"], one["headline"], one["count"], one["ranks"]) for one in found]
    assert len(loud) <= most, shown
    for one in wanted:
        assert any(fits(incident, one) for incident in found), (one, shown)
    if never:
        assert not [one["headline"] for one in loud if re.search(never, one["headline"], re.I)], shown


@pytest.mark.parametrize("name", [name for name, (most, _, _) in TOLD.items() if most])
def test_lines_of_a_healthy_training_around_an_incident_change_nothing(name: str, tmp_path: Path) -> None:
    calm = b"".join(
        b"[INFO] 2031-01-01 00:00:%02d loader: shard %d read\n" % (n % 60, n) for n in range(3000)
    )
    copy = tmp_path / name
    copy.write_bytes(calm + (CORPUS / name).read_bytes().rstrip(b"\n") + b"\n" + calm)
    before = [(one["category"], one["severity"], one["headline"], one["ranks"]) for one in told(name)]
    after = as_json(read(copy))["incidents"]
    assert [(one["category"], one["severity"], one["headline"], one["ranks"]) for one in after] == before


def digest(*lines: str) -> list[tuple[str, str, str, tuple[int, ...]]]:
    digester = Digester(year=2031)
    digester.feed(0, "\n".join(lines).encode() + b"\n", 0.0)
    digester.settle()
    return [
        (one.severity, one.category, one.headline.render(), one.ranks) for one in digester.result().incidents
    ]


HCCL = "HCCL(33,python3):2031-03-02-01:02:03.111.222 [a.cc:6][33][TaskExecStage]"


def test_a_heartbeat_is_no_part_of_the_timeout_beside_it() -> None:
    assert digest(
        f"[ERROR] {HCCL}[Timeout][Host]Task run failed, base information is streamID:[9], taskID[3],"
        " tag[ReduceScatter_10.1.1.1%eth0_60000_0_170], AlgType(level 0-1-2):[ring].",
        f"[INFO] {HCCL}[HeartbeatAbnormal]local rank [10.1.1.1/6]: crimer rank [10.1.1.2/2] status[LOST]"
        " by informer rank [10.1.1.3/3]",
        f"[ERROR] {HCCL}[Timeout][Host]Task run failed, groupRank information is group:[g], user define"
        " information[], rankSize[16], rankId[6].",
    ) == [
        (
            "warning",
            "communication",
            "heartbeat lost: the process at 10.1.1.2/2 has ended, or its network is down",
            (2,),
        ),
        ("fatal", "timeout", "HCCL operator ReduceScatter timed out: it waited for other ranks", (6,)),
    ]


def test_two_places_whose_heartbeat_is_lost_are_two() -> None:
    found = digest(
        *(
            f"[INFO] {HCCL}[HeartbeatAbnormal]local rank [10.1.1.1/6]: crimer rank [10.1.1.{n}/{n}]"
            " status[LOST] by informer rank [10.1.1.3/3]"
            for n in (2, 4, 2)
        )
    )
    assert [(ranks, "10.1.1.2/2" in said) for _, _, said, ranks in found] == [((2,), True), ((4,), False)]


def test_versions_that_do_not_fit_are_no_part_of_the_fault_behind_them() -> None:
    found = digest(
        "[W a.ts:12] Warning: The NPU driver version 1.0 does not match CANN 9.0.0. (function operator())",
        "RuntimeError: f:a/b.cpp:45 NPU function error: AclrtSynchronizeDevice, error code is 507014",
    )
    assert [(one[0], one[1]) for one in found] == [("warning", "configuration"), ("fatal", "device")]


def test_a_wrapper_of_python_is_not_the_reason() -> None:
    (one,) = digest(
        "Traceback (most recent call last):",
        '  File "/data/job/run.py", line 12, in <module>',
        "    y = torch.nonzero(x)",
        "RuntimeError: call aclnnNonzero failed, detail:EZ9999: Inner Error!",
        "EZ9999: [PID: 7] 2031-02-16-12:18:25.258.321 Cannot find bin of op NonZero, integral key is 0/1/.",
    )
    assert one[2] == "no compiled kernel of operator NonZero is installed for this chip and these types"
    (one,) = digest(
        "[rank5]: RuntimeError: [1] HCCL error in: ../torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64",
        "[rank5]: EI0002: 2031-10-11-09:12:00.412.318 The wait execution of the Notify register times out.",
    )
    assert one[1:] == (
        "timeout",
        "a collective timed out: the notify of another rank did not come (EI0002)",
        (5,),
    )


def test_a_number_of_the_runtime_in_chinese_words() -> None:
    (one,) = digest("2031-01-02 03:06:06 [ERROR] 算子 MatMul 执行失败，错误码 507015，设备 2")
    assert one[:3] == ("fatal", "device", "The aicore execution is abnormal (507015)")
