"""What a capture wrote becomes rows in the monitor; the command is refused where it cannot be."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.hotspots import PLUGIN, captured, decode
from ascend_tui_plugins.hotspots.captured import Captures, read_folder
from ascend_tui_plugins.hotspots.collector import HotspotsCollector
from ascend_tui_plugins.hotspots.snapshot import HotspotsSnapshot

from ascend_tui.frame import as_json
from ascend_tui.plugin import Record, probe_text
from ascend_tui.target import TargetId

TARGET = TargetId(pid=os.getpid(), start_ticks=9)
KERNELS = """\
Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num
0,aclnnMatmul_1,MatMulV3,AI_CORE,"1700000000000100.100\t",300.5,2.0,20
0,aclnnMatmul_2,MatMulV3,AI_CORE,"1700000000000500.100\t",100.5,2.0,20
0,aclnnAdd_3,Add,AI_VECTOR_CORE,"1700000000000700.100\t",99,2.0,8
"""
STATISTIC = """\
OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)
Add,AI_VECTOR_CORE,3,60,10,20,30,100
"""
OPERATORS = """\
Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),\
Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us)
aten::addmm,"4,8",,25,30,0,0,0,0
aten::add,"4",,75,80,0,0,0,0
"""


def write(folder: Path, **tables: str) -> Path:
    """Make a folder as torch_npu's analysis leaves it."""
    output = folder / "host_7_20250101_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    for name, text in tables.items():
        (output / f"{name}.csv").write_text(text)
    return output.parent


def record(folder: Path, state: str = "analysed", step: int = 40, **more: Any) -> dict[str, Any]:
    told = {"state": state, "step": step, "folder": str(folder), "pause_us": 12_000.0, "step_us": 9000.0}
    return {**told, "files": ["kernel_details.csv"], "cpu_s": 2.5, "analysis_s": 4.0, "why": "", **more}


class Watched:
    """A collector whose ticks are the test's."""

    def __init__(self) -> None:
        self.collector = HotspotsCollector(lambda event: None)
        self._seq = 0

    def tell(self, kind: str, data: Any) -> HotspotsSnapshot:
        self._seq += 1
        self.collector.on_record(TARGET, Record(self._seq, "hotspots", kind, self._seq, 100.0, 100.0, data))
        return self.collector.snapshot(TARGET)

    def until(self, state: str) -> HotspotsSnapshot:
        """Let ticks go by until the capture is in this state."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            self.collector.on_tick(0.0)
            told = self.collector.snapshot(TARGET)
            if told.captured is not None and told.captured.state == state:
                return told
            time.sleep(0.005)
        raise AssertionError(self.collector.snapshot(TARGET).captured)

    def sample(self, step: int, **more: Any) -> HotspotsSnapshot:
        rows = [{"name": "aten::mm", "self_us": 50, "total_us": 50, "max_us": 50, "calls": 1}]
        sums = {"self_us": 50, "count": 1, "window_us": 100, "device": "npu"}
        return self.tell("sample", {"step": step, "rows": rows, **sums, **more})


def notes(told: HotspotsSnapshot) -> str:
    return "\n".join(one.render() for one in told.notes)


def test_kernels_come_first_and_the_operators_beside_them(tmp_path: Path) -> None:
    folder = write(tmp_path, kernel_details=KERNELS, op_statistic=STATISTIC, operator_details=OPERATORS)
    read = read_folder(str(folder))
    assert read.clock == "device"
    assert [(row.name, row.calls, row.self_time_us) for row in read.rows] == [
        ("MatMulV3", 2, 401.0),
        ("Add", 1, 99.0),
    ]
    assert [(row.name, row.share) for row in read.host_rows] == [("aten::add", 0.75), ("aten::addmm", 0.25)]


def test_without_kernels_the_next_best_table_is_taken(tmp_path: Path) -> None:
    read = read_folder(str(write(tmp_path / "a", op_statistic=STATISTIC)))
    assert [(row.name, row.self_time_us) for row in read.rows] == [("Add", 60)]
    assert (read.clock, read.host_rows) == ("device", ())
    read = read_folder(str(write(tmp_path / "b", operator_details=OPERATORS)))
    assert (read.clock, [row.name for row in read.rows]) == ("host", ["aten::add", "aten::addmm"])


def test_a_folder_is_found_where_the_training_has_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "root" / "tmp", kernel_details=KERNELS)
    inside = "/" + str(folder.relative_to(tmp_path / "root"))
    assert read_folder(inside).rows == ()
    assert read_folder(inside, lambda path: tmp_path / "root" / path[1:]).rows[0].name == "MatMulV3"


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    folder = write(tmp_path, operator_details=OPERATORS)
    output = folder / "ASCEND_PROFILER_OUTPUT"
    # Opening it would wait for a writer.
    os.mkfifo(output / "kernel_details.csv")
    (output / "op_statistic.csv").symlink_to("/dev/zero")
    assert [row.name for row in read_folder(str(folder)).rows] == ["aten::add", "aten::addmm"]
    (output / "operator_details.csv").unlink()
    why = read_folder(str(folder)).why
    assert "kernel_details.csv: no plain file" in why
    assert "op_statistic.csv: no plain file" in why


def test_a_table_that_is_too_large_or_junk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, kernel_details=KERNELS, op_statistic="\0\1\2", operator_details="")
    monkeypatch.setattr(captured, "MOST_BYTES", 100)
    why = read_folder(str(folder)).why
    assert "kernel_details.csv: no plain file of at most" in why
    assert "op_statistic.csv is no profile that is known" in why


def test_a_capture_becomes_the_table_and_says_when_it_is_old(tmp_path: Path) -> None:
    one = Watched()
    assert one.sample(30).rows[0].name == "aten::mm"
    folder = write(tmp_path, kernel_details=KERNELS)
    told = one.tell("captured", record(folder, "recorded"))
    assert told.rows[0].name == "aten::mm"
    assert f"step 40 is captured into {folder}" in notes(told)
    one.tell("captured", record(folder))
    told = one.until("read")
    assert (told.source, told.clock, told.rows[0].name) == ("torch_npu.profiler", "device", "MatMulV3")
    # Times of the step are those of the live sample, and so are the operators on the host.
    assert (told.step, told.step_time_us, told.host_rows[0].name) == (30, 100, "aten::mm")
    assert "captured at step 40" in notes(told)
    assert "the pause was 12 ms, the analysis took 2.5 s of a core" in notes(told)
    assert "older than the live sample" not in notes(told)
    assert told.captured is not None
    assert (told.captured.clock, told.captured.step_time_us) == ("device", 9000)
    told = one.sample(50)
    assert (told.step, told.rows[0].name) == (50, "MatMulV3")
    assert "captured at step 40: older than the live sample" in notes(told)
    assert as_json(told)["captured"]["state"] == "read"


def test_newer_kernels_are_better_than_captured_ones(tmp_path: Path) -> None:
    one = Watched()
    one.tell("captured", record(write(tmp_path, kernel_details=KERNELS)))
    told = one.until("read")
    # No live sample: the step is the captured one.
    assert (told.state, told.step, told.step_time_us) == ("live", 40, 9000)
    kernels = {"rows": [{"name": "Cast", "self_us": 9, "calls": 1}], "self_us": 9, "count": 1, "busy_us": 9}
    told = one.sample(50, kernels={**kernels, "kernels": 1, "idle_us": 1})
    assert (told.source, told.rows[0].name) == ("msPTI", "Cast")
    assert "captured at step 40" in notes(told)


def test_times_on_the_host_give_way_to_newer_ones_and_are_called_so(tmp_path: Path) -> None:
    one = Watched()
    one.sample(30)
    folder = write(tmp_path, operator_details=OPERATORS)
    one.tell("captured", record(folder, why="CANN Profiling data does not exist."))
    told = one.until("read")
    assert (told.clock, told.rows[0].name) == ("host", "aten::add")
    assert "its times are those on the host; the library says: CANN Profiling data" in notes(told)
    assert one.sample(50).rows[0].name == "aten::mm"


def test_a_capture_that_failed_says_why(tmp_path: Path) -> None:
    one = Watched()
    told = one.tell("captured", {"state": "failed", "why": "no step began in time"})
    assert "the capture failed: no step began in time" in notes(told)
    one.tell("captured", record(tmp_path / "gone"))
    assert "there is no table in it" in notes(one.until("failed"))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"state": "analysed"},
        {"state": "analysed", "folder": "relative"},
        {"state": "analysed", "folder": "/tmp/\x1b[31m"},
        {"state": ["analysed"], "folder": 7, "step": "x", "files": 3, "pause_us": [], "why": {}},
        {"state": "read", "folder": "/tmp"},
    ],
)
def test_what_no_probe_sends_reads_nothing(data: dict[str, Any]) -> None:
    found = decode.captured(data, 3)
    assert (found.state, found.step) == ("failed", 3)
    one = Watched()
    assert one.tell("captured", data).rows == ()
    one.collector.on_tick(0.0)


def test_the_newest_capture_counts_and_reading_never_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    original: Callable[..., Any] = captured.read_folder

    def slow(*arguments: Any) -> Any:
        while not gate.exists():
            time.sleep(0.005)
        return original(*arguments)

    monkeypatch.setattr(captured, "read_folder", slow)
    one = Captures()
    old, new = write(tmp_path / "a", op_statistic=STATISTIC), write(tmp_path / "b", kernel_details=KERNELS)
    began = time.monotonic()
    for step, folder in ((40, old), (50, old), (60, new)):
        one.take(decode.captured(record(folder, step=step), step), os.getpid())
        assert not one.poll()
    assert time.monotonic() - began < 2
    gate.touch()
    while not one.poll():
        time.sleep(0.005)
        assert time.monotonic() - began < 10
    assert one.present is not None
    assert (one.present.step, one.rows[0].name) == (60, "MatMulV3")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reader_that_fails_is_told_as_a_capture_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "read_folder", lambda *_: 1 / 0)
    one = Watched()
    one.tell("captured", record(tmp_path))
    assert "could not be read" in notes(one.until("failed"))


def test_without_an_npu_the_command_is_refused() -> None:
    pytest.importorskip("torch")
    from probed import Shim

    from ascend_tui.shim.api import Refused

    shim = Shim()
    try:
        shim.probes.load("hotspots", probe_text(PLUGIN) or "", 30)
        with pytest.raises(Refused, match="does not use an NPU"):
            shim.probes.start("hotspots", "capture", {}, 3, 60, {"name": "test"}, None, False)
        assert shim.probes.faults() == {}
    finally:
        shim.end()
