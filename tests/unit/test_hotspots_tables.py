"""Tables of profiles: each variant with the right numbers, and nothing in a file that breaks its reader.

The tables are written here, in the grammar of the real ones with values of their own.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import random
from pathlib import Path

import pytest
from ascend_tui_plugins.hotspots.files import read, sniff
from ascend_tui_plugins.hotspots.files import reader as reader_module
from ascend_tui_plugins.hotspots.files import tasks as tasks_module
from ascend_tui_plugins.hotspots.files.columns import Header, count, nanoseconds, number, time_us, word
from ascend_tui_plugins.hotspots.files.stacks import site_of
from ascend_tui_plugins.hotspots.files.usage import Busy
from ascend_tui_plugins.hotspots.snapshot import ProfileResult, Row, Use

from bench.profiles import lines

PIPES = (
    "aicore_time(us),aic_mac_time(us),aic_mac_ratio,aic_scalar_ratio,aic_mte2_ratio,"
    "aiv_time(us),aiv_vec_ratio,aiv_scalar_ratio,aiv_mte2_ratio,cube_utilization(%)"
)
DETAILS = (
    "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
    f"Input Shapes,Input Data Types,{PIPES}"
)
API = "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance"
STATISTIC = (
    "Device_id,Model Name,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us)"
)
OPERATORS = (
    "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),"
    "Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us)"
)


def of(folder: Path, text: str | bytes) -> ProfileResult:
    path = folder / "case.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


def said(result: ProfileResult) -> str:
    return "\n".join(note.render() for note in result.notes)


def by_name(result: ProfileResult) -> dict[str, Row]:
    return {row.name: row for row in result.rows}


def detail(*cells: object) -> str:
    """Return a row of kernel_details; what is not given of its metrics is N/A."""
    given = [str(cell) for cell in cells]
    return ",".join([*given, *["N/A"] * (len(DETAILS.split(",")) - len(given))]) + "\n"


MIXED = (
    DETAILS
    + "\n"
    + detail(3, "MatMul12", "MatMulV3", "AI_CORE", '"1800000000000000.123\t"', 100, 5, 24)[:-1].replace(
        ",N/A" * 12, ',"""64,32;32,8""",DT_BF16;DT_BF16,90,72,0.8,0.1,0.4,0,0,0,0,81.5'
    )
    + "\n"
    + detail(3, "MatMul13", "MatMulV3", "AI_CORE", '"1800000000000110.5\t"', 300, 15, 8)[:-1].replace(
        ",N/A" * 12, ',"""64,64;64,8""",DT_BF16;DT_BF16,280,140,0.5,0.2,0.9,0,0,0,0,61.5'
    )
    + "\n"
    + detail(4, "hcom_allReduce__77_0", "hcom_allReduce_", "HCCL", "1800000000000450", 600, 2, 0)
    + detail(4, "trans_Cast_5", "N/A", "AI_CPU", "1800000000001100", 7, 1.5, 1)
    + detail(4, "trans_Cast_9", "N/A", "AI_CPU", "1800000000001110", 3, 0.5, 1)
)


def test_kernels_are_grouped_by_type_and_by_stem_where_there_is_none(tmp_path: Path) -> None:
    result = of(tmp_path, MIXED)
    assert (result.format, result.read, result.skipped, result.total_time_us) == (
        "kernel_details",
        5,
        0,
        1010,
    )
    assert [row.name for row in result.rows] == ["hcom_allReduce_", "MatMulV3", "trans_Cast"]
    product = result.rows[1]
    assert (product.calls, product.self_time_us, product.avg_us) == (2, 400, 200)
    assert (product.min_us, product.max_us, product.wait_us) == (100, 300, 20)
    assert (product.core, product.kind, product.clock) == ("AI_CORE", "compute", "device")
    assert product.uses == (
        Use("64,64;64,8", "DT_BF16;DT_BF16", 1, 300),
        Use("64,32;32,8", "DT_BF16;DT_BF16", 1, 100),
    )
    assert product.shapes_seen == 2
    cast = result.rows[2]
    assert (cast.calls, cast.self_time_us, cast.core, cast.kind) == (2, 10, "AI_CPU", "movement")
    assert "2 steps" in said(result)


def test_units_are_weighted_by_time_and_name_what_limits(tmp_path: Path) -> None:
    units = by_name(of(tmp_path, MIXED))["MatMulV3"].units
    assert units is not None
    assert units.cube_ratio == pytest.approx((72 + 140) / 370)
    assert units.mte2_ratio == pytest.approx((0.4 * 90 + 0.9 * 280) / 370)
    assert units.vector_ratio is None
    assert units.cube_utilization == pytest.approx((0.815 * 100 + 0.615 * 300) / 400)
    assert units.memory_bound == pytest.approx((36 + 252) / (72 + 140))
    assert units.block_num == 12
    assert units.bound == "mte2"


def test_what_is_not_available_is_none_and_never_nought(tmp_path: Path) -> None:
    result = of(tmp_path, MIXED)
    talk = by_name(result)["hcom_allReduce_"]
    assert talk.kind == "communication"
    assert (talk.units, talk.uses, talk.shapes_seen) == (None, (), None)
    assert talk.share == pytest.approx(600 / 1010)
    assert "MatMulV3 is first, with 97.6 %" in said(result)
    without = of(tmp_path, MIXED.replace(",5,24,", ",N/A,24,").replace(",15,8,", ",N/A,8,"))
    assert by_name(without)["MatMulV3"].wait_us is None


def test_stamps_keep_their_nanoseconds(tmp_path: Path) -> None:
    assert nanoseconds("1800000000000000.123\t") == 1_800_000_000_000_000_123
    assert nanoseconds("1800000000000000") == 1_800_000_000_000_000_000
    assert nanoseconds("17.5", 1e3) == 17_500_000
    assert [nanoseconds(text) for text in ("N/A", "", "-1", "1.2.3", "1e5", "٣")] == [None] * 6
    use = of(tmp_path, MIXED).device
    assert use is not None
    # The first begins at .123, the last ends 1113 us after its second.
    assert use.busy_us == pytest.approx(1010)
    assert use.busy_us + use.idle_us == pytest.approx(1112.877)
    assert (use.kernels, use.communication_us) == (5, 600)
    assert use.longest_idle_us == pytest.approx(50)


def test_a_table_out_of_order_tells_of_no_idle_time(tmp_path: Path) -> None:
    head, *rows = MIXED.splitlines(keepends=True)
    late = [row.replace("18000000000", "18000010000") for row in rows]
    assert of(tmp_path, head + "".join(late + rows)).device is None


def test_tasks_that_run_at_once_are_busy_once() -> None:
    busy = Busy()
    for start, end in ((0, 10_000), (5_000, 8_000), (20_000, 30_000), (25_000, 40_000)):
        busy.add(start, end)
    use = busy.result(0.0)
    assert use is not None
    assert (use.busy_us, use.idle_us, use.longest_idle_us) == (30, 10, 10)


@pytest.mark.parametrize(
    ("columns", "values", "bound", "ratios"),
    [
        ("aicore_time(us),mac_ratio,vec_ratio,scalar_ratio,mte1_ratio,mte2_ratio", "9,0.9,0,0.1,0.3,0.5",
         "cube", {"cube_ratio": 0.9, "vector_ratio": 0}),
        ("aic_time(us),aic_cube_ratio,aic_scalar_ratio,aic_mte2_ratio,aic_fixpipe_ratio", "9,0.1,0.2,0.3,0.7",
         "fixpipe", {"fixpipe_ratio": 0.7, "cube_ratio": 0.1}),
        ("aiv_time(us),aiv_vec_time(us),aiv_scalar_time(us),aiv_mte2_time(us),aiv_mte3_time(us)",
         "10,1,2,3,7", "mte3", {"vector_ratio": 0.1, "mte3_ratio": 0.7}),
        ("aiv_time(us),aiv_vec_ratio,aiv_scalar_ratio,aiv_mte2_ratio", "9,0.3,0.2,0.4",
         "latency", {"mte2_ratio": 0.4}),
        ("vec_ratio,scalar_ratio,mte2_ratio", "0.75,0.2,0.4", "vector", {"vector_ratio": 0.75}),
        ("aicore_time(us),aic_mac_fp16_ratio,aic_mac_int8_ratio", "9,0.5,0.2", "", {"cube_ratio": 0.7}),
        ("aicore_time(us),aic_mac_fp16_ratio,aic_mac_int8_ratio", "9,0.85,0", "cube", {"cube_ratio": 0.85}),
        ("aic_time(us),aic_scalar_ratio,aic_mac_ratio,aic_mte2_ratio,aiv_time(us),aiv_scalar_ratio",
         "1,0.9,0.6,0.1,100,0.99", "scalar", {"scalar_ratio": 0.99, "cube_ratio": 0.006}),
        ("aicore_time(us),aic_mac_ratio,aic_scalar_ratio,aic_mte2_ratio", "N/A,N/A,N/A,N/A", None, {}),
        ("aicore_time(us),aic_mac_ratio,aic_scalar_ratio,aic_mte2_ratio", "0,0,0,0", None, {}),
    ],
)  # fmt: skip
def test_the_metrics_of_every_version(
    tmp_path: Path, columns: str, values: str, bound: str | None, ratios: dict[str, float]
) -> None:
    head = f"Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),{columns}"
    result = of(tmp_path, f"{head}\n0,a,Add,AI_CORE,5,10,{values}\n")
    assert result.format == "op_summary"
    units = result.rows[0].units
    if bound is None:
        assert units is None
        return
    assert units is not None
    assert units.bound == bound
    for name, value in ratios.items():
        assert getattr(units, name) == pytest.approx(value)


@pytest.mark.parametrize("block", ["Block Dim,Mix Block Dim", "Block Num,Mix Block Num"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("first", ["", "\ufeff"])
def test_op_summary_by_its_names_only(tmp_path: Path, block: str, end: str, first: str) -> None:
    head = f"{block} , OP  type, op name, Task Duration(US),Stream ID,Task Type"
    text = first + end.join(
        (head, '40,80,Add, "a, b" ,2.5,7,AI_VECTOR_CORE', "20,0,Add,a,7.5,7,AI_VECTOR_CORE", "")
    )
    row = of(tmp_path, text).rows[0]
    assert (row.name, row.calls, row.self_time_us, row.wait_us) == ("Add", 2, 10, None)
    assert row.units is not None
    assert (row.units.block_num, row.units.bound, row.units.cube_ratio) == (25, "", None)


def test_seven_columns_are_enough(tmp_path: Path) -> None:
    head = "Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"
    result = of(
        tmp_path, f"{head}\nCast16,N/A,N/A,17,9.5,0,0\nMatMulV2,N/A,N/A,27,3,1,0\nCast7,,,37,0.5,0,0\n"
    )
    assert [(row.name, row.calls, row.core, row.units) for row in result.rows] == [
        ("Cast", 2, "", None),
        ("MatMulV2", 1, "", None),
    ]
    assert "no metrics of the AI Core" in said(result)


def test_a_core_of_two_kinds_keeps_both_names(tmp_path: Path) -> None:
    text = MIXED + detail(4, "Cast3", "trans_Cast", "AI_VECTOR_CORE", "1800000000001200", 50, 0, 8)
    assert by_name(of(tmp_path, text))["trans_Cast"].core == "AI_VECTOR_CORE/AI_CPU"


def test_times_of_several_devices_are_said_to_be(tmp_path: Path) -> None:
    head = "Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)"
    result = of(tmp_path, f"{head}\n0,a,Add,AI_CORE,10,10\n1,a,Add,AI_CORE,10,10\n0,a,Add,AI_CORE,30,10\n")
    assert "2 devices" in said(result)
    assert result.device is not None
    assert (result.device.busy_us, result.device.idle_us) == (30, 10)


def test_task_time_leaves_out_what_is_no_kernel(tmp_path: Path) -> None:
    head = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
    rows = "0,N/A,PROFILING_ENABLE,1,4,0.5,90,90.5\n0,N/A,EVENT_WAIT,1,5,800,91,891\n"
    rows += "0,mine,MIX_AIC,2,0,40,1000,1040\n0,mine,MIX_AIC,2,1,60,1040,1100\n"
    result = of(tmp_path, f"{head}\n{rows}")
    assert [(row.name, row.calls, row.self_time_us, row.core) for row in result.rows] == [
        ("mine", 2, 100, "MIX_AIC")
    ]
    assert (result.format, result.total_time_us, result.read) == ("task_time", 100, 4)
    assert (
        "2 tasks without a name are no operators (EVENT_WAIT, PROFILING_ENABLE): left out, 800.5 us"
        in said(result)
    )
    assert result.device is not None
    assert result.device.idle_us == 0


def test_op_statistic_with_blanks_a_mark_and_no_ratio(tmp_path: Path) -> None:
    text = f"\ufeff{STATISTIC.replace(',', ', ')}\r\n" + "0, m, Cast, AI_VECTOR_CORE, 20, 300, 1, 15, 200\r\n"
    result = of(tmp_path, text + '0, m, "MatMulV3", AI_CORE, 5, 100, 10, 20, 30\r\n')
    assert [(row.name, row.calls, row.self_time_us, row.share) for row in result.rows] == [
        ("Cast", 20, 300, 0.75),
        ("MatMulV3", 5, 100, 0.25),
    ]
    first = result.rows[0]
    assert (first.min_us, first.max_us, first.avg_us, first.core) == (1, 200, 15, "AI_VECTOR_CORE")
    assert "no column Ratio" in said(result)


def test_the_ratios_of_a_cut_table_do_not_add_up_to_all(tmp_path: Path) -> None:
    text = f"{STATISTIC},Ratio(%)\n0,m,Cast,AI_CORE,20,300,1,15,200,30\n0,m,Add,AI_CORE,20,100,1,5,9,10\n"
    result = of(tmp_path, text)
    assert [row.share for row in result.rows] == [pytest.approx(0.3), pytest.approx(0.1)]
    assert result.total_time_us == pytest.approx(1000)
    assert "make up 40.0 %: others are missing" in said(result)
    whole = of(tmp_path, text.replace("200,30\n", "200,75\n").replace("9,10\n", "9,25\n"))
    assert whole.total_time_us == 400
    assert "Ratio" not in said(whole)


def test_types_of_two_devices_are_one_row(tmp_path: Path) -> None:
    head = "Device_id,OP Type,Core Type,Count,Total Time(us),Ratio(%)"
    result = of(tmp_path, f"{head}\n0,Add,AI_VECTOR_CORE,2,60,100\n1,Add,AI_VECTOR_CORE,4,40,100\n")
    assert [(row.name, row.calls, row.self_time_us, row.share) for row in result.rows] == [("Add", 6, 100, 1)]


def test_layers_of_the_api_are_not_added(tmp_path: Path) -> None:
    rows = (
        "host,runtime,StreamSynchronize,900,3,300,1,500,7\nhost,runtime,KernelLaunch,90,30,3,1,9,7\n"
        "host,acl,aclrtSynchronizeStream,910,3,303.3,2,505,7\nhost,node,launch,95,30,3.2,1,9,7\n"
        "host,runtime,KernelLaunch,10,10,1,0.5,2,7\nhost,runtime,StreamSyncTaskFinish,0,4,0,0,0,0\n"
    )
    result = of(tmp_path, f"{API}\n{rows}")
    assert result.total_time_us == 1000
    assert [(row.name, row.calls, row.self_time_us, row.level) for row in result.rows] == [
        ("StreamSynchronize", 3, 900, "runtime"),
        ("KernelLaunch", 40, 100, "runtime"),
        ("StreamSyncTaskFinish", 4, 0, "runtime"),
    ]
    first = result.rows[0]
    assert (first.kind, first.clock, first.min_us, first.max_us) == ("synchronisation", "host", 1, 500)
    assert "layer acl, 910.0 us in 1 APIs" in said(result)
    assert "layer node, 95.0 us" in said(result)


def test_operators_by_device_time_with_their_lines(tmp_path: Path) -> None:
    stack = '"/lib/python3.11/site-packages/torch/functional.py(9): linear;\n /home/me/net.py(31): forward;"'
    rows = (
        f'aten::mm,"64,32;32,8",{stack},10,12,500,510,490,490\n'
        f'aten::mm,"64,32;32,8",{stack},20,22,300,310,290,290\n'
        'aten::add,"8;8",,40,41,25,25,0,0\n'
        "aten::view,,,70,71,0,0,0,0\n"
    )
    result = of(tmp_path, f"{OPERATORS}\n{rows}")
    assert (result.format, result.clock, result.read, result.total_time_us) == (
        "operator_details",
        "device",
        4,
        825,
    )
    first = result.rows[0]
    assert (first.name, first.calls, first.self_time_us, first.total_time_us) == ("aten::mm", 2, 800, 820)
    assert first.uses == (Use("64,32;32,8", "", 2, 800),)
    site = first.sites[0]
    assert (site.file, site.line, site.function, site.calls, site.time_us) == (
        "/home/me/net.py",
        31,
        "forward",
        2,
        800,
    )
    assert site.stack.count("\n") == 1
    assert "140.0 us of their own, most of it aten::view with 70.0 us" in said(result)
    host = of(tmp_path, f"{OPERATORS}\n" + "aten::mm,,,10,12,0,0,0,0\naten::add,,,30,30,N/A,N/A,N/A,N/A\n")
    assert (host.clock, [(row.name, row.self_time_us) for row in host.rows]) == (
        "host",
        [("aten::add", 30), ("aten::mm", 10)],
    )


def test_the_line_of_a_stack() -> None:
    site = site_of('File "/a/b c.py", line 7, in step\n  File "<string>", line 1', 1, 2)
    assert (site.file, site.line, site.function) == ("/a/b c.py", 7, "step")
    assert site_of("no frames here", 1, 2).file == ""
    assert site_of("<string>(1): x;\n/lib/torch/y.py(2): z", 1, 2).file == "<string>"
    assert "\x1b" not in site_of("/a\x1b[31m.py(3): f", 1, 2).stack


def test_cells() -> None:
    assert [number(text) for text in ("1.5", " 2 ", "1,234.5", "N/A", "", "nan", "inf", "1_0", "x")] == [
        1.5, 2, 1234.5, None, None, None, None, None, None,
    ]  # fmt: skip
    assert [time_us(text) for text in ("-1", "1e300", "0")] == [None, None, 0]
    assert time_us("1.5", 1e3) == 1500
    assert [count(text) for text in ("3", "3.0", "2.5", "-1", "N/A")] == [3, 3, None, None, None]
    assert [word(text) for text in ('""', '"4,8"', " N/A ", "n/a", "-")] == ["", "4,8", "", "", ""]
    header = Header(["A_b (MS)", "a  B(us)", '"Ratio(%)"', "", ""])
    assert (header.names, header.scales[0], header.scales[2]) == (("a b", "a b", "ratio"), 1e3, 0.01)
    assert (header.at("no", "a b"), header.at("no"), len(header)) == (0, -1, 3)


def test_times_in_other_units(tmp_path: Path) -> None:
    text = "Op Name,OP Type,Task Type,Task Duration(ms),Task Wait Time(ns)\na,Add,AI_CORE,1.5,500\n"
    row = of(tmp_path, text).rows[0]
    assert (row.self_time_us, row.wait_us) == (1500, 0.5)


# What is wrong with a file.


def test_a_bad_row_costs_only_itself(tmp_path: Path) -> None:
    head, *rows = MIXED.splitlines(keepends=True)
    bad = (
        "3,short\n",
        rows[0].replace(",100,", ",a lot,", 1),
        rows[0].replace(",100,", ",-5,", 1),
        rows[0].replace(",100,", ",1e400,", 1),
        rows[0].replace("AI_CORE", "AI_CORE,one too many", 1),
        "x" * 3_000_000 + "\n",
        "\x01\x02\xff\n",
    )
    for wrong in bad:
        result = of(tmp_path, (head + rows[0] + wrong + "".join(rows[1:])).encode("latin-1"))
        assert (result.read, result.skipped, result.total_time_us) == (5, 1, 1010), wrong[:80]
        assert "1 rows could not be read" in said(result) or "longer than 1 MiB" in said(result)
    plain = of(tmp_path, head + "".join(row.replace("AI_", "A\0I_") for row in rows))
    assert (plain.read, plain.total_time_us) == (5, 1010)
    again = of(tmp_path, head + rows[0] + head + "\n\n" + "".join(rows[1:]))
    assert (again.read, again.skipped) == (5, 0)


def test_a_quote_without_an_end_swallows_no_other_row(tmp_path: Path) -> None:
    head, *rows = MIXED.splitlines(keepends=True)
    for place in range(len(rows) + 1):
        text = head + "".join(rows[:place]) + '3,"MatMul,MatMulV3\n' + "".join(rows[place:] * 200)
        result = of(tmp_path, text)
        assert (result.read, result.skipped) == (place + 200 * (5 - place), 1), place


def test_a_cell_may_hold_line_ends(tmp_path: Path) -> None:
    rows = "".join(f'aten::mm,,"/a.py({line}): f;\n/b.py(2): g",1,1,{line},5,0,0\n' for line in range(1, 50))
    result = of(tmp_path, f"{OPERATORS}\n{rows}")
    assert (result.read, result.skipped, result.rows[0].calls) == (49, 0, 49)
    assert [site.line for site in result.rows[0].sites] == [49, 48, 47, 46, 45]


@pytest.mark.parametrize(
    "text", [MIXED, f'{OPERATORS}\naten::mm,"2,3","/a.py(1): f;\n/b.py(2): g",1,1,5,5,0,0\n']
)
def test_a_file_that_is_cut_anywhere_says_so(tmp_path: Path, text: str) -> None:
    head = text.index("\n") + 1
    whole = of(tmp_path, text)
    assert whole.notes == of(tmp_path, text).notes
    assert "cut" not in said(whole)
    ends = {at + 1 for at, letter in enumerate(text) if letter == "\n"}
    for length in range(head, len(text)):
        result = of(tmp_path, text[:length])
        assert result.read <= whole.read
        if length not in ends or text[:length].count('"') % 2:
            assert "cut" in said(result), text[:length][-40:]
        assert result.total_time_us <= whole.total_time_us
    for length in range(1, head):
        if sniff(text[:length].encode(), "x.csv"):
            assert of(tmp_path, text[:length]).rows == ()


def test_nothing_in_a_file_breaks_its_reader(tmp_path: Path) -> None:
    chooser = random.Random(3)
    good = MIXED.encode()
    start = good.index(b"\n") + 1
    for _ in range(300):
        spoiled = bytearray(good)
        for _ in range(chooser.randrange(1, 6)):
            spoiled[chooser.randrange(start, len(spoiled))] = chooser.choice(b'",\n\r\0\xff\x1b0-eN')
        result = of(tmp_path, bytes(spoiled))
        assert result.read + result.skipped <= 12
        assert all(row.self_time_us >= 0 and "\x1b" not in row.name for row in result.rows)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ascend_tui_plugins.hotspots.files.groups.MOST_GROUPS", 10)
    monkeypatch.setattr("ascend_tui_plugins.hotspots.files.groups.MOST_SHAPES", 3)
    rows = "".join(
        detail(1, f"n{n}", f"T{chr(65 + n)}x", "AI_CORE", 10 * n, 5, 0, 1, f'"{n}"', "F") for n in range(20)
    )
    rows += "".join(detail(1, "a", "TAx", "AI_CORE", 500 + n, 1, 0, 1, f'"{n},1"', "F") for n in range(9))
    result = of(tmp_path, f"{DETAILS}\n{rows}")
    assert (len(result.rows), result.total_time_us) == (11, 109)
    assert by_name(result)["(others)"].calls == 10
    assert by_name(result)["TAx"].shapes_seen == 3
    assert "more than 10 operators" in said(result)


def test_other_tables_are_left_to_others(tmp_path: Path) -> None:
    for head in (
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Stream Ptr,Device Type",
        "Name,Size(KB),Allocation Time(us),Release Time(us),Duration(us),Device Type",
        "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr",
        "step,loss,lr",
        "Name,Duration",
        "just a line of a log, with a comma",
        "",
    ):
        assert sniff(f"{head}\n1,2,3\n".encode(), "x.csv") is None, head
    (tmp_path / "x").write_text("nothing\n")
    with pytest.raises(ValueError, match="no profile"):
        read(tmp_path / "x")
    for coding in ("utf-16", "utf-8-sig"):
        assert sniff(MIXED.encode(coding), "x.csv") == "profile"
        assert of(tmp_path, MIXED.encode(coding)).rows == of(tmp_path, MIXED).rows


def test_foreign_text_is_made_harmless(tmp_path: Path) -> None:
    rows = detail(1, "a", "Bad\x1b[31m" + "x" * 500, "AI_CORE\x1b", 10, 5, 0, 1)
    row = of(tmp_path, f"{DETAILS}\n{rows}").rows[0]
    assert "\x1b" not in row.name + row.core
    assert len(row.name) <= 200


# Large files.


def alike(one: ProfileResult, other: ProfileResult) -> None:
    assert (one.read, one.skipped, one.notes, len(one.rows)) == (
        other.read,
        other.skipped,
        other.notes,
        len(other.rows),
    )
    assert one.device is not None
    assert other.device is not None
    same_talk = dataclasses.replace(one.device, communication_us=other.device.communication_us)
    assert same_talk == other.device
    assert one.device.communication_us == pytest.approx(other.device.communication_us)
    for row, same in zip(one.rows, other.rows):
        assert (row.name, row.calls, row.core, row.kind) == (same.name, same.calls, same.core, same.kind)
        assert (row.min_us, row.max_us, row.shapes_seen) == (same.min_us, same.max_us, same.shapes_seen)
        assert row.self_time_us == pytest.approx(same.self_time_us)
        assert row.wait_us == pytest.approx(same.wait_us)
        assert [use.shapes for use in row.uses] == [use.shapes for use in same.uses]
        assert (row.units is None) == (same.units is None)
        if row.units is not None and same.units is not None:
            assert row.units.bound == same.units.bound
            for name in (
                "cube_ratio",
                "vector_ratio",
                "scalar_ratio",
                "mte2_ratio",
                "icache_miss_rate",
                "block_num",
            ):
                assert getattr(row.units, name) == pytest.approx(getattr(same.units, name)), name
            assert row.units.cube_utilization == pytest.approx(same.units.cube_utilization)


def test_blocks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(lines(400))
    whole = of(tmp_path, text)
    assert (whole.read, whole.skipped) == (400, 0)
    assert whole.device is not None
    for size in (7, 100, 4096):
        monkeypatch.setattr(tasks_module, "BLOCK", size)
        assert of(tmp_path, text) == whole


@pytest.mark.skipif(importlib.util.find_spec("polars") is None, reason="polars is not installed")
@pytest.mark.parametrize("spoil", ["", "3,short\n", '3,"open\n', "\x00\n"])
@pytest.mark.parametrize("untyped", [False, True])
def test_many_rows_at_once_are_the_same_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str, untyped: bool
) -> None:
    from ascend_tui_plugins.hotspots.files.fast import Blocks

    rows = list(lines(3000))
    if untyped:
        rows = [
            row.replace(",Add,dynamic", ",N/A,dynamic").replace(",aclnnMul_MulAiCore_Mul,Mul", ",N/A,N/A")
            for row in rows
        ]
    text = "".join(rows[:1500]) + spoil + "".join(rows[1500:])
    slow = of(tmp_path, text)
    taken: list[int] = []
    take = Blocks.take
    monkeypatch.setattr(Blocks, "take", lambda self, block: taken.append(take(self, block)) or taken[-1])
    monkeypatch.setattr(tasks_module, "LARGE", 1)
    monkeypatch.setattr(tasks_module, "LARGE_BLOCK", 50_000)
    alike(of(tmp_path, text), slow)
    assert sum(taken) > 2000
    assert (min(taken) == 0) == bool(spoil)
    assert reader_module.LARGE_BLOCK > reader_module.BLOCK
