"""Step traces, communication files and folders of msopprof: what they say, whatever version wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.hotspots.files.communication import is_communication, read_communication
from ascend_tui_plugins.hotspots.files.msopprof import is_msopprof, read_msopprof
from ascend_tui_plugins.hotspots.files.steps import is_steps, read_steps
from ascend_tui_plugins.hotspots.snapshot import ProfileResult, StepTrace


def put(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def step_of(result: ProfileResult, name: str) -> StepTrace:
    return next(step for step in result.steps if step.name == name)


# Step traces.

OLD = "Step,Computing,Communication(Not Overlapped),Communication,Free\n7,300.5,100.25,150.75,99.25"
NEW = (
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing\n"
)
CLUSTER = (
    "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive)\n"
)


def test_the_old_header_without_a_last_newline(tmp_path: Path) -> None:
    assert is_steps(OLD, "case.csv")
    result = read_steps(put(tmp_path / "case.csv", OLD))
    (step,) = result.steps
    assert (result.format, result.read, result.total_time_us) == ("step_trace_time", 1, 500.0)
    assert (step.name, step.step, step.rank, step.device_id) == ("step 7", "7", None, "")
    assert (step.computing_share, step.free_share) == (0.601, 0.1985)
    assert step.communication_not_overlapped_share == 0.2005
    assert (step.overlapped_us, step.bubble_us, step.preparing_us) == (50.5, None, None)


def test_the_newest_header_with_an_empty_step_and_a_tab(tmp_path: Path) -> None:
    text = NEW + "3,\t,400,300,100,400,300,900,100,200,25.5\r\n3,,1,2,3,4,5,N/A,N/A,N/A,N/A\r\n"
    result = read_steps(put(tmp_path / "case.csv", "\ufeff" + text))
    first, second = result.steps
    # The bubble is a part of the communication: computing, communication and free are the whole step.
    assert (first.total_us, first.bubble_us, first.preparing_us) == (1000.0, 100.0, 25.5)
    assert (first.name, first.step, first.device_id) == ("device 3", "", "3")
    assert (second.total_us, second.bubble_us) == (8.0, None)


def test_steps_of_one_device_go_by_their_number_and_those_of_two_by_both(tmp_path: Path) -> None:
    one = read_steps(put(tmp_path / "a.csv", NEW + "0,10,1,1,0,1,2,4,0,1,0\n0,11,2,1,0,1,2,5,0,1,0\n"))
    two = read_steps(put(tmp_path / "b.csv", NEW + "0,10,1,1,0,1,2,4,0,1,0\n1,10,2,1,0,1,2,5,0,1,0\n"))
    assert [step.name for step in one.steps] == ["step 10", "step 11"]
    assert [step.name for step in two.steps] == ["device 0 step 10", "device 1 step 10"]


def test_a_job_has_a_row_for_each_rank_and_none_for_the_stage(tmp_path: Path) -> None:
    text = CLUSTER + ",rank,0,100,600,50,650,300,1000,0,600\n,rank,1,110,90,1,91,800,1000,0,90\n"
    text += ',stage,"(0, 1)",110,600,50,650,800,1000,0,600\n'
    assert is_steps(text, "case.csv")
    result = read_steps(put(tmp_path / "case.csv", text))
    assert (result.format, result.read, result.skipped) == ("cluster_step_trace_time", 2, 0)
    assert [(step.name, step.rank, step.step) for step in result.steps] == [
        ("rank 0", 0, ""),
        ("rank 1", 1, ""),
    ]
    assert step_of(result, "rank 1").free_share == 0.8
    assert "no rank" in result.notes[0].render()


def test_parts_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    text = "Device_id,Step,Computing,Communication,Free,Stage,Bubble\n0,1,400,N/A,300,900,100\n"
    (step,) = read_steps(put(tmp_path / "case.csv", text)).steps
    # Without the communication the stage and its bubble are the step.
    assert (step.total_us, step.computing_share) == (1000.0, 0.4)
    assert (step.communication_us, step.communication_not_overlapped_us) == (None, None)
    assert step.communication_not_overlapped_share is None


def test_what_is_no_step_is_left_out_and_counted(tmp_path: Path) -> None:
    text = OLD + "\n8,x,y,z,-\n9,inf,1,1,1\nnonsense\n10,1,1,1,2\n"
    result = read_steps(put(tmp_path / "case.csv", text))
    assert [step.step for step in result.steps] == ["7", "9", "10"]
    # An infinite time is none: the rest of its row still is.
    assert (result.steps[1].computing_us, result.skipped) == (None, 2)
    with pytest.raises(ValueError, match="no row"):
        read_steps(put(tmp_path / "case.csv", NEW))


def test_other_tables_are_no_step_traces() -> None:
    assert not is_steps(
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB)\n", "memory_record.csv"
    )
    assert not is_steps("step,allocated,reserved,free\n", "series.csv")
    assert not is_steps("Name,Type,Duration(us)\n", "kernel_details.csv")
    assert not is_steps('{"Computing": 1, "Free": 2}', "a.json")


# Communication.


def collective(elapse: float, wait: float, transit: float, **links: tuple[float, float]) -> dict[str, Any]:
    return {
        "Communication Time Info": {
            "Start Timestamp(us)": 1736413971558972.912,
            "Elapse Time(ms)": elapse,
            "Transit Time(ms)": transit,
            "Wait Time(ms)": wait,
            "Synchronization Time(ms)": wait / 2,
            "Idle Time(ms)": elapse - wait - transit,
            "Wait Time Ratio": 0.5,
        },
        "Communication Bandwidth Info": {
            name: {"Transit Size(MB)": size, "Transit Time(ms)": time, "Size Distribution": {}}
            for name, (size, time) in links.items()
        },
    }  # fmt: skip


TOTAL = collective(999.0, 999.0, 999.0, HCCS=(999.0, 999.0))
OPERATORS = {
    "hcom_allReduce__548_0_1@1368136920": collective(4.0, 3.0, 0.75, HCCS=(20.0, 0.5), RDMA=(0.0, 0.0)),
    "hcom_allReduce__548_1_1@1368136920": collective(2.0, 0.5, 1.25, HCCS=(20.0, 1.5), SDMA=(40.0, 2.0)),
    "hcom_broadcast__548_2_1@1368136920": collective(1.0, 0.5, 0.5, RDMA=(5.0, 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("layout", ["torch_npu", "msprof"])
def test_collectives_by_name_and_transports(tmp_path: Path, layout: str) -> None:
    send = {"hcom_send__1_0_1@2": collective(1.0, 0.0, 1.0), "Total Op Info": TOTAL}
    by_step: dict[str, Any] = {"step12": {"p2p": send, "collective": {**OPERATORS, "Total Op Info": TOTAL}}}
    flat = {**OPERATORS, **send}
    text = json.dumps(by_step if layout == "torch_npu" else flat)
    assert is_communication(text, "communication.json")
    result = read_communication(put(tmp_path / "communication.json", text))
    assert (result.format, result.read, result.total_time_us) == ("communication", 4, 8000.0)
    assert [(row.name, row.kind, row.calls, row.self_time_us, row.wait_us) for row in result.rows] == [
        ("hcom_allReduce_", "communication", 2, 6000.0, 3500.0),
        ("hcom_broadcast_", "communication", 1, 1000.0, 500.0),
        ("hcom_send_", "communication", 1, 1000.0, 0.0),
    ]
    assert (result.rows[0].share, result.rows[0].min_us, result.rows[0].max_us) == (0.75, 2000.0, 4000.0)
    assert [
        (one.name, one.size_mb, one.time_ms, one.bandwidth_gb_s, one.wait_ms) for one in result.links
    ] == [
        ("HCCS", 40.0, 2.0, 20.0, None),
        ("SDMA", 40.0, 2.0, 20.0, None),
        ("RDMA", 5.0, 0.5, 10.0, None),
        ("collective", None, 2.5, None, 4.0),
        ("p2p", None, 1.0, None, 0.0),
    ]
    notes = " ".join(note.render() for note in result.notes)
    assert "4.000 of 7.500 ms of collectives was waiting for other ranks (53.3 %)" in notes
    assert "SDMA is the sum" in notes


def link(transport: str, size: float, time: float) -> dict[str, Any]:
    return {
        "Transport Type": transport,
        "Transit Size(MB)": size,
        "Transit Time(ms)": time,
        "Bandwidth(GB/s)": 1,
    }


def test_a_matrix_counts_the_sums_of_torch_npu_once(tmp_path: Path) -> None:
    ring = {"0-1": link("HCCS", 30.0, 1.5), "0-0": link("LOCAL", 8.0, 0.5)}
    matrix = {
        "step": {
            "p2p": {},
            "collective": {
                "allreduce-top1@77": {"0-1": {**link("HCCS", 10.0, 0.25), "Op Name": "hcom_allReduce__1"}},
                "allreduce-middle@77": {"0-1": link("HCCS", 10.0, 0.5)},
                "allreduce-bottom1@77": {"0-1": link("HCCS", 10.0, 0.75)},
                "allreduce-total@77": ring,
                "Total Op Info": {"0-1": link("HCCS", 999.0, 999.0)},
            },
        }
    }
    result = read_communication(put(tmp_path / "communication_matrix.json", json.dumps(matrix)))
    assert result.format == "communication_matrix"
    assert [(row.name, row.self_time_us) for row in result.rows] == [("allreduce", 1500.0)]
    assert [(one.name, one.size_mb, one.bandwidth_gb_s) for one in result.links] == [
        ("HCCS", 30.0, 20.0), ("LOCAL", 8.0, 16.0), ("HCCS 0-1", 30.0, 20.0), ("LOCAL 0-0", 8.0, 16.0)
    ]  # fmt: skip
    assert "at least as long as its slowest link" in " ".join(note.render() for note in result.notes)


def test_a_cut_communication_file_is_read_up_to_there(tmp_path: Path) -> None:
    text = json.dumps({"step": {"collective": OPERATORS}})
    result = read_communication(put(tmp_path / "c.json", text[: text.index("hcom_broadcast") + 40]))
    assert [row.name for row in result.rows] == ["hcom_allReduce_"]
    assert "ends too early: the 2 operators" in " ".join(note.render() for note in result.notes)


@pytest.mark.parametrize("times", [None, 3, {}, {"Elapse Time(ms)": "x"}, {"Elapse Time(ms)": -1}, []])
def test_foreign_collectives_are_skipped(tmp_path: Path, times: Any) -> None:
    text = json.dumps({"step": {"collective": {**OPERATORS, "odd": {"Communication Time Info": times}}}})
    result = read_communication(put(tmp_path / "c.json", text))
    assert (result.read, result.skipped) == (3, 1)


def test_what_communication_is_not() -> None:
    assert not is_communication('{"task": "statistics", "data": {}}', "dump.json")
    assert not is_communication('{"traceEvents": []}', "trace_view.json")
    with pytest.raises(ValueError, match="no collective"):
        read_communication(Path("/dev/null"))


# Folders of msopprof.

BASIC = (
    "Op Name,Op Type,Task Duration(us),Block Dim,Mix Block Dim,Device Id,Pid,Current Freq,Rated Freq\n"
    "flash_score_mix_aic,mix,64.5,2,4,0,4711,1650,1650\n"
)
PIPES = (
    "block_id,sub_block_id,aic_time(us),aic_total_cycles,aiv_time(us),aiv_total_cycles,aiv_vec_time(us),aiv_vec_ratio,"
    "aic_cube_time(us),aic_cube_ratio,aic_scalar_ratio,aiv_scalar_ratio,aic_mte2_ratio,aiv_mte2_ratio,aiv_mte3_ratio\n"
    "0,cube0,60,1,NA,NA,NA,NA,6,0.125,0.25,NA,0.75,NA,NA\n"
    "0,vector0,NA,NA,50,1,10,0.25,NA,NA,NA,0.5,NA,0.25,0.0625\n"
    "1,cube0,60,1,NA,NA,NA,NA,6,0.375,0.25,NA,0.875,NA,NA\n"
    "1,vector0,NA,NA,50,1,10,0.125,NA,NA,NA,0.25,NA,0.125,0.0625\n"
)


@pytest.mark.parametrize("stamp", ["", "_20260605155140"])
def test_a_folder_is_one_kernel_with_the_means_of_its_blocks(tmp_path: Path, stamp: str) -> None:
    basic = put(tmp_path / f"OpBasicInfo{stamp}.csv", BASIC)
    pipes = put(tmp_path / f"PipeUtilization{stamp}.csv", PIPES)
    put(tmp_path / f"MemoryL0{stamp}.csv", "block_id,sub_block_id,aic_l0a_read_bw(GB/s)\n0,cube0,12\n")
    put(tmp_path / "train.csv", "step,loss\n1,2\n")
    assert is_msopprof(BASIC, basic.name)
    assert is_msopprof(PIPES, "case.csv")
    result = read_msopprof(basic)
    (row,) = result.rows
    assert (result.format, row.name, row.kind, row.core, row.calls) == (
        "msopprof", "flash_score_mix_aic", "compute", "mix", 1
    )  # fmt: skip
    assert (row.self_time_us, row.share, result.total_time_us) == (64.5, 1.0, 64.5)
    units = row.units
    assert units is not None
    # N/A of the other core takes no part: the means are of two blocks each.
    assert (units.cube_ratio, units.vector_ratio, units.scalar_ratio) == (0.25, 0.1875, 0.375)
    assert (units.mte2_ratio, units.mte3_ratio, units.mte1_ratio) == (0.8125, 0.0625, None)
    assert (units.bound, units.memory_bound, units.block_num) == ("mte2", 3.25, 2.0)
    assert result.files == (basic.name, f"MemoryL0{stamp}.csv", pipes.name)
    # What stands beside it has its result there.
    beside = read_msopprof(pipes)
    assert (beside.rows, beside.read) == ((), 4)
    assert basic.name in beside.notes[0].render()


def test_a_table_of_blocks_alone_says_what_it_can(tmp_path: Path) -> None:
    result = read_msopprof(put(tmp_path / "PipeUtilization_20260605.csv", PIPES))
    (row,) = result.rows
    assert (row.name, row.calls, row.self_time_us) == ("PipeUtilization", 0, 0.0)
    assert row.units is not None
    assert row.units.bound == "mte2"
    assert "OpBasicInfo.csv that is missing" in result.notes[0].render()


def test_a_kernel_without_its_blocks_and_a_slow_clock(tmp_path: Path) -> None:
    text = (
        BASIC.replace("1650,1650", "800,1650")
        + "flash_score_mix_aic,mix,35.5,2,4,0,4711,800,1650\nbad,mix,NA,1,1,0,1,1,1\n"
    )
    result = read_msopprof(put(tmp_path / "OpBasicInfo.csv", text))
    (row,) = result.rows
    assert (row.calls, row.self_time_us, row.min_us, row.max_us, row.avg_us) == (2, 100.0, 35.5, 64.5, 50.0)
    assert result.skipped == 1
    notes = " ".join(note.render() for note in result.notes)
    assert "800 MHz, rated 1650 MHz" in notes


def test_tables_of_msprof_are_not_those_of_msopprof() -> None:
    assert not is_msopprof(
        "Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)\n", "a.csv"
    )
    assert not is_msopprof("Device_id,Task ID,Stream ID,Op Name,Task Duration(us)\n", "a.csv")
    assert not is_msopprof("block_id,loss\n", "a.csv")
