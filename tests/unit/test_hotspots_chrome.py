"""Chrome traces: own times by our nesting, device lanes counted once, any order, any damage."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.hotspots.files import chrome, lanes
from ascend_tui_plugins.hotspots.files.chrome import is_chrome, read_chrome
from ascend_tui_plugins.hotspots.files.json_stream import (
    CHUNK,
    BrokenJson,
    JsonStream,
    head_text,
    nanoseconds,
)
from ascend_tui_plugins.hotspots.snapshot import ProfileResult, Row

BASE = 5_209_646_050_788
"""Microseconds, as large as kineto's."""


def op(name: str, start: float, taken: float, **more: Any) -> dict[str, Any]:
    """Return a complete event, at first an operator on the host."""
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 7, "ts": BASE + start, "dur": taken, **more
    }  # fmt: skip


def write(path: Path, events: list[Any], **head: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": events, "traceName": "x"}))
    return path


def row_of(result: ProfileResult, name: str) -> Row:
    return next(row for row in result.rows if row.name == name)


# Its own time.

NESTED = [
    op(
        "aten::linear", 0, 100,
        args={"Input Dims": [[8, 16], [16, 4], []], "Input type": ["float", "float", "Scalar"]},
    ),
    op("aten::t", 5, 10),
    op("aten::transpose", 6, 8),
    op("aten::addmm", 20, 70.5),
    op("aten::linear", 200, 50, args={"Input Dims": [[4, 16], [16, 4]], "Input type": ["float", "float"]}),
    op("aten::addmm", 210, 30),
]  # fmt: skip


@pytest.mark.parametrize("turn", ["as it was", "backwards", "interleaved"])
def test_own_time_is_without_what_was_called_in_any_order(tmp_path: Path, turn: str) -> None:
    events = {"as it was": NESTED, "backwards": NESTED[::-1], "interleaved": NESTED[::2] + NESTED[1::2]}
    result = read_chrome(write(tmp_path / "t.json", events[turn]))
    linear, addmm, t = (row_of(result, name) for name in ("aten::linear", "aten::addmm", "aten::t"))
    assert (linear.self_time_us, linear.total_time_us, linear.calls) == (39.5, 150.0, 2)
    assert (addmm.self_time_us, addmm.min_us, addmm.max_us) == (100.5, 30.0, 70.5)
    assert (t.self_time_us, row_of(result, "aten::transpose").self_time_us) == (2.0, 8.0)
    assert (result.total_time_us, result.clock, result.format) == (150.0, "host", "chrome_trace")
    assert sum(row.share for row in result.rows) == pytest.approx(1.0)
    assert [use.shapes for use in linear.uses] == ["4,16;16,4", "8,16;16,4"]
    assert (linear.shapes_seen, linear.uses[1].dtypes) == (2, "float;float;Scalar")


def test_threads_do_not_nest_in_each_other(tmp_path: Path) -> None:
    events = [op("aten::mm", 0, 100), op("aten::add", 10, 50, tid=8)]
    result = read_chrome(write(tmp_path / "t.json", events))
    assert [(row.name, row.self_time_us) for row in result.rows] == [("aten::mm", 100.0), ("aten::add", 50.0)]


def test_begin_and_end_events_make_one(tmp_path: Path) -> None:
    def part(ph: str, at: float, **more: Any) -> dict[str, Any]:
        return {"ph": ph, "pid": 1, "tid": 1, "ts": BASE + at, **more}

    events = [
        part("B", 0, name="aten::conv2d", cat="cpu_op"),
        part("B", 10, name="aten::relu", cat="cpu_op"),
        part("E", 25),
        part("E", 100),
        part("E", 120),
        part("B", 130, name="aten::never_ends", cat="cpu_op"),
    ]
    result = read_chrome(write(tmp_path / "t.json", events))
    assert {row.name: row.self_time_us for row in result.rows} == {"aten::conv2d": 85.0, "aten::relu": 15.0}
    assert (result.read, result.skipped) == (2, 2)


def test_nanoseconds_survive(tmp_path: Path) -> None:
    # As a 64-bit float 1790857026000788.074 us is .0, and .077 is .0 or .25.
    text = '[{"ph":"X","name":"k","cat":"kernel","pid":0,"tid":7,"ts":1790857026000788.074,"dur":0.003},'
    text += '{"ph":"X","name":"k","cat":"kernel","pid":0,"tid":7,"ts":"1790857026000788.080","dur":"0.004"}]'
    (tmp_path / "t.json").write_text(text)
    use = read_chrome(tmp_path / "t.json").device
    assert use is not None
    assert (use.busy_us, use.idle_us, use.longest_idle_us) == (0.007, 0.003, 0.003)
    assert nanoseconds("1.79e15") == 1_790_000_000_000_000_000
    assert [nanoseconds(value) for value in ("-1.5", 3, True, None, "x", "1e999999999", "nan", [])] == [
        -1500, 3000, None, None, None, None, None, None
    ]  # fmt: skip


# Kernels.


def kernel(name: str, start: float, taken: float, **more: Any) -> dict[str, Any]:
    return op(name, start, taken, **{"cat": "kernel", "pid": 0, "tid": 7, **more})


def test_kernels_are_the_table_where_there_are_any(tmp_path: Path) -> None:
    events = [
        *NESTED,
        op("cudaLaunchKernel", 21, 5, cat="cuda_runtime"),
        kernel("sgemm_128x64", 100, 40),
        kernel("ncclDevKernel_AllReduce_Sum_f32", 120, 60, tid=9),
        kernel("Memcpy HtoD (Pageable -> Device)", 200, 10, cat="gpu_memcpy"),
        op("train", 90, 200, cat="gpu_user_annotation", pid=0, tid=7),
        {"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts": BASE + 21, "cat": "ac2g", "name": "ac2g"},
    ]
    result = read_chrome(write(tmp_path / "t.json", events))
    assert [(row.name, row.kind, row.self_time_us) for row in result.rows] == [
        ("ncclDevKernel_AllReduce_Sum_f32", "communication", 60.0),
        ("sgemm_128x64", "compute", 40.0),
        ("Memcpy HtoD (Pageable -> Device)", "movement", 10.0),
    ]
    use = result.device
    assert use is not None
    assert (result.clock, use.kernels) == ("device", 3)
    # 100 to 180 and 200 to 210: what runs side by side is busy once.
    assert (use.busy_us, use.idle_us, use.communication_us) == (90.0, 20.0, 60.0)
    assert use.idle_share == pytest.approx(20 / 110)


def named(pid: int, process: str, label: str, threads: dict[int, str]) -> list[dict[str, Any]]:
    found = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": process}},
        {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}},
    ]
    return found + [
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}}
        for tid, thread in threads.items()
    ]


def lane(pid: int, tid: int, name: str, start: float, taken: float, task: str = "") -> dict[str, Any]:
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{BASE + start:.3f}", "dur": taken}
    return {**event, "args": {"Task Type": task} if task else {}}


def ascend() -> list[dict[str, Any]]:
    """Return a trace as torch_npu writes it: kernels, a collective with its insides, the analysis."""
    return [
        op("aten::matmul", 0, 40),
        op("Enqueue@aclnnMatmul", 5, 10, cat="enqueue"),
        op("Dequeue@aclnnMatmul", 20, 10, cat="dequeue", tid=8),
        lane(90, 1, "AscendCL@aclrtLaunchKernel", 22, 3),
        lane(91, 3, "aclnnMatmul_MatMulCommon_MatMulV2", 100, 200, "AI_CORE"),
        lane(91, 3, "Cast16", 300, 30, "AI_VECTOR_CORE"),
        lane(91, 3, "EVENT_WAIT", 330, 500, "EVENT_WAIT_SQE"),
        lane(91, 5, "Notify_Wait", 250, 60, "NOTIFY_WAIT_SQE"),
        lane(91, 5, "Memcpy", 310, 90, "SDMA_SQE"),
        lane(92, 0, "hcom_allReduce__548_0_1", 250, 150),
        lane(92, 1, "Notify_Wait", 250, 60),
        lane(92, 1, "Memcpy", 310, 90),
        lane(93, 1, "Computing", 100, 230),
        lane(93, 2, "Communication", 250, 150),
        lane(93, 3, "Communication(Not Overlapped)", 330, 70),
        lane(93, 4, "Free", 400, 100),
        {"ph": "C", "name": "AI Core Freq", "pid": 94, "tid": 0, "ts": BASE, "args": {"MHz": 1800}},
        # The names come last: nothing before may depend on them.
        *named(7, "Python", "CPU", {7: "Thread 7"}),
        *named(90, "CANN", "CPU", {1: "Thread 1"}),
        *named(91, "Ascend Hardware", "NPU 3", {3: "Stream 3", 5: "Stream 5"}),
        *named(92, "Communication", "NPU 3", {0: "Group 0 Communication", 1: "Plane 0"}),
        *named(93, "Overlap Analysis", "NPU 3", {1: "Computing"}),
    ]


def test_a_trace_of_ascend_counts_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(ascend()))
    result = read_chrome(path)
    assert (result.format, result.clock) == ("trace_view", "device")
    assert [(row.name, row.kind, row.self_time_us, row.core) for row in result.rows] == [
        ("aclnnMatmul_MatMulCommon_MatMulV2", "compute", 200.0, "AI_CORE"),
        ("hcom_allReduce_", "communication", 150.0, ""),
        ("Cast", "movement", 30.0, "AI_VECTOR_CORE"),
    ]
    assert result.total_time_us == 380.0
    use = result.device
    assert use is not None
    # Waiting for an event is not busy; the collective runs from 250 to 400.
    assert (use.busy_us, use.idle_us, use.communication_us, use.kernels) == (300.0, 0.0, 150.0, 3)
    (step,) = result.steps
    assert (step.name, step.device_id, step.total_us, step.free_us) == ("device 3", "3", 400.0, 100.0)
    assert (step.computing_share, step.communication_not_overlapped_share) == (0.575, 0.175)
    assert any("insides of collectives" in note.render() for note in result.notes)


def test_operators_of_a_trace_without_a_device_leave_the_queue_out(tmp_path: Path) -> None:
    events = [event for event in ascend() if event["pid"] in (7, 90)]
    result = read_chrome(write(tmp_path / "t.json", events))
    assert [(row.name, row.self_time_us) for row in result.rows] == [("aten::matmul", 40.0)]


# Parts of a step.


def test_annotations_tell_the_parts_of_the_steps(tmp_path: Path) -> None:
    events = []
    for number in range(2):
        at = number * 1000
        events += [
            op(f"ProfilerStep#{number + 3}", at, 1000, cat="user_annotation"),
            op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 100),
            op("aten::stack", at + 10, 50),
            op("forward", at + 100, 300, cat="user_annotation"),
            op("aten::linear", at + 120, 200),
            op("autograd::engine::evaluate_function: AddmmBackward0", at + 450, 300),
            op("aten::mm", at + 460, 250),
            op("aten::norm", at + 760, 20),
            op("Optimizer.step#AdamW.step", at + 800, 100, cat="user_annotation"),
            op("aten::add_", at + 810, 80),
        ]
    result = read_chrome(write(tmp_path / "t.json", events))
    assert {one.name: (one.time_us, one.share) for one in result.phases} == {
        "data": (200.0, 0.1),
        "forward": (400.0, 0.2),
        "backward": (600.0, 0.3),
        "optimizer": (200.0, 0.1),
        "other": (600.0, 0.3),
    }
    assert [(step.name, step.total_us) for step in result.steps] == [("step 3", 1000.0), ("step 4", 1000.0)]
    assert not any(row.name.startswith("ProfilerStep") for row in result.rows)
    assert row_of(result, "forward").self_time_us == 200.0


def test_no_annotation_no_phases(tmp_path: Path) -> None:
    assert read_chrome(write(tmp_path / "t.json", NESTED)).phases == ()


# Damage.


def test_a_cut_trace_is_read_up_to_there(tmp_path: Path) -> None:
    text = write(tmp_path / "t.json", [op("aten::mm", at * 10, 5) for at in range(100)]).read_text()
    for share in (0.5, 0.7):
        (tmp_path / "t.json").write_text(text[: int(len(text) * share)])
        result = read_chrome(tmp_path / "t.json")
        assert abs(result.read - 100 * share) < 3
        assert "ends in the middle" in result.notes[0].render()


def test_a_cut_compressed_trace_too(tmp_path: Path) -> None:
    events = [op(f"aten::op{at}", at * 10, 5 + at % 3) for at in range(3000)]
    packed = gzip.compress(json.dumps({"traceEvents": events}).encode())
    (tmp_path / "t.json.gz").write_bytes(packed)
    assert read_chrome(tmp_path / "t.json.gz").read == 3000
    assert is_chrome(head_text(packed[:2000]), "t.json.gz")
    (tmp_path / "t.json.gz").write_bytes(packed[: len(packed) // 2])
    result = read_chrome(tmp_path / "t.json.gz")
    assert 500 < result.read < 3000
    assert "ends in the middle" in result.notes[0].render()


def test_what_is_no_json_costs_itself(tmp_path: Path) -> None:
    good = json.dumps(op("aten::mm", 0, 5))
    path = tmp_path / "t.json"
    bad = '{"ph": "X", "name": "a "quoted" one", "ts": 1}'
    path.write_text('{"traceEvents": [' + f"{good},\n{bad},\n{good}]}}")
    result = read_chrome(path)
    assert (result.read, result.skipped) == (2, 1)
    assert "1 events are no JSON" in result.notes[0].render()


@pytest.mark.parametrize(
    "event",
    [
        None, 3, [], {}, {"ph": "X"}, {"ph": "X", "ts": "x", "dur": 1}, {"ph": "X", "ts": 1, "dur": -1},
        {"ph": "X", "ts": None, "dur": None}, {"ph": ["X"]}, {"ph": "M", "args": 3}, {"ph": "E"},
        {"ph": "X", "ts": 1, "dur": 1, "name": {"a": 1}, "cat": ["b"], "args": [1], "pid": {}, "tid": []},
        {"ph": "X", "ts": 1, "dur": 1, "name": "\x1b[31m", "cat": "cpu_op", "args": {"Input Dims": {}}},
        {"ph": "X", "ts": 1, "dur": 1, "cat": "cpu_op", "args": {"Input Dims": [[[[1]]], None, 3]}},
    ],
)  # fmt: skip
def test_foreign_events_never_raise(tmp_path: Path, event: Any) -> None:
    result = read_chrome(write(tmp_path / "t.json", [event, op("aten::mm", 0, 5)]))
    assert row_of(result, "aten::mm").calls == 1


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    for text in ('{"traceEvents": []}', "[]", '{"a": 1}', "", "[1, 2"):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(ValueError, match="no event"):
            read_chrome(tmp_path / "t.json")


def test_values_go_on_over_pieces_of_any_size() -> None:
    class Slow(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            return super().read(min(3, size or 3))

    value = {"a": [1, 2.5, 'é\\"x', None, {"b": 12345678901234567890}], "traceEvents": [{"n": 1}, {"n": 22}]}
    stream = JsonStream(Slow(json.dumps(value, indent=1)))
    found = {}
    for key in stream.members():
        found[key] = list(stream.items()) if key == "traceEvents" else stream.value()
    assert found["traceEvents"] == value["traceEvents"]
    assert found["a"] == [1, "2.5", 'é\\"x', None, {"b": 12345678901234567890}]
    with pytest.raises(BrokenJson) as raised:
        list(JsonStream(Slow("[1, 2, 34")).items())
    assert raised.value.cut


def test_a_deep_value_is_no_crash() -> None:
    with pytest.raises(BrokenJson):
        JsonStream(io.StringIO("[" * 200_000)).value()


# Which files.


def test_what_a_trace_is_and_what_not() -> None:
    assert is_chrome('{"schemaVersion": 1, "traceEvents": [', "a.json")
    assert is_chrome('  [{"ph": "M", "pid": 1, "args": {}}', "trace_view.json")
    assert is_chrome('[\n{"name": "x", "ph": "X", "ts": 1', "a.json")
    assert not is_chrome('{"task": "statistics", "dump_data_dir": null, "data": {}}', "dump.json")
    assert not is_chrome('[{"loss": 1.0, "ts": 3}]', "metrics.json")
    assert not is_chrome('"traceEvents" is a word', "a.log")
    assert not is_chrome("Step,Computing,Free\n", "a.csv")


# What is bounded.


def test_late_events_are_counted_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "HELD", 10)
    events = [op("aten::mm", 100 + at * 10, 5) for at in range(50)]
    result = read_chrome(write(tmp_path / "t.json", [*events, op("aten::late", 101, 2)]))
    assert row_of(result, "aten::late").self_time_us == 2.0
    assert row_of(result, "aten::mm").self_time_us == 250.0
    assert "1 events came more than" in " ".join(note.render() for note in result.notes)


def test_a_parent_after_its_children_is_found_within_the_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome, "HELD", 40)
    events = []
    for at in range(0, 1000, 100):
        events += [op("aten::mm", at + 10 + 5 * one, 4) for one in range(10)] + [op("aten::linear", at, 90)]
    result = read_chrome(write(tmp_path / "t.json", events))
    assert row_of(result, "aten::linear").self_time_us == 10 * (90 - 40)
    assert result.notes == ()


def test_idle_gaps_beyond_the_bound_are_filled_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_SPANS", 20)
    busy = lanes.Busy()
    for at in range(200):
        busy.add(at * 100, at * 100 + (90 if at % 2 else 60))
    spans = busy.spans()
    assert len(spans) <= 20
    assert spans[0][0] == 0
    assert spans[-1][1] == 19_990
    exact = 100 * 90 + 100 * 60
    assert sum(end - start for start, end in spans) == exact + busy.filled_ns


def test_more_names_than_are_kept_are_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "MOST_KEYS", 5)
    result = read_chrome(write(tmp_path / "t.json", [op(f"op{at}", at * 10, 5) for at in range(20)]))
    assert row_of(result, "(other names)").calls == 15
    assert "more than 5 names" in result.notes[0].render()


def test_a_large_trace_takes_little_memory(tmp_path: Path) -> None:
    """What is kept of the events does not grow with their number: pieces of the file, and the buffer."""
    path = tmp_path / "t.json"
    line = json.dumps(op("aten::mm", 0, 5, args={"filler": "x" * 300})).replace(f"{BASE}", "%d")
    with path.open("w") as file:
        file.write('{"traceEvents": [\n')
        for at in range(60_000):
            file.write(line % (BASE + at * 10) + ",\n")
        file.write(line % (BASE + 600_000) + "]}")
    code = (
        "import sys,tracemalloc\nfrom pathlib import Path\n"
        "from ascend_tui_plugins.hotspots.files import chrome\nchrome.HELD = 5000\n"
        "tracemalloc.start()\nresult = chrome.read_chrome(Path(sys.argv[1]))\n"
        "print(result.read, tracemalloc.get_traced_memory()[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    read, peak = map(int, done.stdout.split())
    assert read == 60_001
    assert path.stat().st_size > 20e6
    assert peak < 12 * CHUNK


# The truth.

TRAINING = """
import json, sys
import torch
from torch.profiler import ProfilerActivity, profile
torch.manual_seed(0)
from torch import nn
model = nn.Sequential(nn.Linear(96, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(512, 96)), batch_size=64)
stack = sys.argv[2] == "stack"
with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=stack) as one:
    for (batch,) in data:
        loss = torch.nn.functional.cross_entropy(model(batch), batch.argmax(1) % 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        one.step()
one.export_chrome_trace(sys.argv[1])
truth = {event.key: [event.self_cpu_time_total, event.count] for event in one.key_averages()}
print("TRUTH" + json.dumps(truth))
"""


@pytest.mark.parametrize(("name", "stack"), [("t.json", ""), ("t.json.gz", "stack")])
def test_shares_are_those_of_torch_profiler(tmp_path: Path, name: str, stack: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, str(tmp_path / name), stack],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    if "No module named 'torch'" in done.stderr:
        pytest.skip("torch is not installed")
    assert done.returncode == 0, done.stderr
    line = next(one for one in done.stdout.splitlines() if one.startswith("TRUTH"))
    # With stacks torch nests Python's functions too: what an annotation around them took is theirs then.
    counted = "aten::" if stack else ""
    truth = {
        key: value
        for key, value in json.loads(line[5:]).items()
        if key.startswith(counted) and not key.startswith("ProfilerStep")
    }
    result = read_chrome(tmp_path / name)
    ours = {row.name: row for row in result.rows if row.name.startswith(counted)}
    assert set(ours) == set(truth)
    assert {key: row.calls for key, row in ours.items()} == {key: count for key, (_, count) in truth.items()}
    whole, all_ours = sum(own for own, _ in truth.values()), sum(row.self_time_us for row in ours.values())
    apart = {key: abs(own / whole - ours[key].self_time_us / all_ours) for key, (own, _) in truth.items()}
    assert max(apart.values()) < 0.005, apart
    assert all_ours == pytest.approx(whole, rel=0.005)
    assert sum(row.share for row in result.rows) == pytest.approx(1.0)
    assert {phase.name for phase in result.phases} >= {"data", "forward", "backward", "optimizer"}
