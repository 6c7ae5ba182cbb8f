"""`ascend-tui inspect` on profiles: folders of a profiler, tables in text, two profiles beside each other."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ascend_tui import baseline, plugin
from ascend_tui.baseline import Baseline
from ascend_tui.cli import main
from ascend_tui.commands import FINDINGS, OK, USAGE

CORPUS = Path(__file__).parent.parent / "corpus"


class Done:
    """What a call of the command left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    def call(*words: object) -> Done:
        code = main(["inspect", *map(str, words)])
        out, err = capfdbinary.readouterr()
        return Done(code, out.decode(), err.decode())

    return call


STATISTIC = "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
CLUSTER = (
    "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive)\n"
)


def statistic(path: Path, **times: tuple[int, float]) -> Path:
    """Write an op_statistic: of each type the calls and the average."""
    whole = sum(n * avg for n, avg in times.values())
    rows = [
        f"{name},AI_CORE,{n},{n * avg},{avg},{avg},{avg},{100 * n * avg / whole:.3f}\n"
        for name, (n, avg) in times.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(STATISTIC + "".join(rows))
    return path


OLD = {"MatMulV3": (332, 54.1), "Cast": (1000, 10.0), "Softmax": (10, 20.0)}
NEW = {"MatMulV3": (332, 63.8), "Cast": (1000, 9.0), "Gelu": (100, 30.0)}


def trace(path: Path, slow: float = 1.0, packed: bool = False) -> Path:
    events = [
        {
            "ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "pid": 1, "tid": 1,
            "ts": 1_000_000 + 1000 * at + 100 * number, "dur": taken * (slow if name == "mm" else 1),
        }
        for at in range(50)
        for number, (name, taken) in enumerate((("mm", 40.0), ("add", 9.0), ("relu", 11.0)))
    ]  # fmt: skip
    data = json.dumps({"traceEvents": events}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


# One profile.


def test_a_job_points_at_the_rank_that_others_wait_for(run: Any, tmp_path: Path) -> None:
    rows = [
        f",rank,{rank},80,{600 if rank != 2 else 90},5,605,{300 if rank != 2 else 810},980,0,600\n"
        for rank in range(4)
    ]
    text = CLUSTER + "".join(rows) + ',stage,"(0, 1, 2, 3)",80,600,5,605,810,980,0,600\n'
    path = tmp_path / "cluster_step_trace_time.csv"
    path.write_text(text.replace("80,", "80000,").replace(",600", ",600000").replace(",90,", ",90000,"))
    (one,) = run(path, "--json").objects
    assert (one["kind"], one["plugin"], one["result"]["format"]) == (
        "profile",
        "hotspots",
        "cluster_step_trace_time",
    )
    assert [step["name"] for step in one["result"]["steps"]] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    text = run(path).out
    assert "rank 2" in text
    assert "free is neither" in text


def test_a_table_in_text(run: Any, tmp_path: Path) -> None:
    done = run(statistic(tmp_path / "op_statistic.csv", **OLD))
    lines = done.out.splitlines()
    assert done.code == OK
    assert lines[0].endswith("op_statistic.csv: profile op_statistic")
    assert lines[1].split() == ["3", "rows,", "28.16", "ms", "of", "device", "time", "in", "all"]
    assert lines[2].split() == ["operator", "kind", "time", "share", "sum", "calls", "average"]
    assert lines[3].split() == [
        "MatMulV3",
        "compute",
        "17.96",
        "ms",
        "63.8",
        "%",
        "63.8",
        "%",
        "332",
        "54.1",
        "us",
    ]
    assert lines[4].split() == [
        "Cast",
        "movement",
        "10.00",
        "ms",
        "35.5",
        "%",
        "99.3",
        "%",
        "1,000",
        "10.0",
        "us",
    ]
    # Columns stand below each other.
    assert len({len(line) for line in lines[2:6]}) == 1


def test_more_rows_than_fit_are_counted(run: Any, tmp_path: Path) -> None:
    times = {f"Kernel{chr(65 + at)}": (10, 10.0 + at) for at in range(20)}
    assert "and 5 more (--json has 20)" in run(statistic(tmp_path / "op_statistic.csv", **times)).out


def test_a_compressed_trace_is_a_profile(run: Any, tmp_path: Path) -> None:
    (one,) = run(trace(tmp_path / "worker.pt.trace.json.gz", packed=True), "--json").objects
    assert (one["kind"], one["result"]["format"]) == ("profile", "chrome_trace")
    assert [row["name"] for row in one["result"]["rows"]] == ["aten::mm", "aten::relu", "aten::add"]
    assert one["result"]["rows"][0]["share"] == pytest.approx(2 / 3)


def ascend(root: Path, slow: float = 1.0, stamp: str = "20260101000000") -> Path:
    """Make the folder that torch_npu's profiler leaves, and one of msprof, with what lies around."""
    output = root / f"host_{stamp}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    statistic(output / "op_statistic.csv", MatMulV3=(100, 50.0 * slow), Cast=(100, 5.0))
    (output / "step_trace_time.csv").write_text(
        f"Device_id,Step,Computing,Communication(Not Overlapped),Free\n0,10,{6000 * slow},1000,3000\n"
    )
    collective = {"Elapse Time(ms)": 4.0, "Wait Time(ms)": 3.0, "Transit Time(ms)": 1.0}
    (output / "communication.json").write_text(
        json.dumps(
            {"step10": {"collective": {"hcom_allReduce__1_0_1@5": {"Communication Time Info": collective}}}}
        )
    )
    trace(output / "trace_view.json", slow)
    msprof = root / "PROF_000001_20260101_ABC" / "mindstudio_profiler_output"
    statistic(msprof / f"op_statistic_{stamp}.csv", Conv2D=(10, 70.0))
    (msprof / "README.txt").write_text("op_statistic: times by type of operator\n")
    (root / "loss.csv").write_text("name,colour\na,red\n")
    (root / "npu_full.log").write_bytes((CORPUS / "logs" / "npu_full.log").read_bytes())
    (root / "memory_record.csv").write_bytes((CORPUS / "memory" / "memory_record_flat.csv").read_bytes())
    return root


def test_a_folder_of_many_files_reads_each_and_folds(run: Any, tmp_path: Path) -> None:
    done = run(ascend(tmp_path), "--json")
    *files, digest = done.objects
    known = {
        Path(one["file"]).name: (one["plugin"], one["kind"], one["result"].get("format")) for one in files
    }
    assert known == {
        "op_statistic.csv": ("hotspots", "profile", "op_statistic"),
        "op_statistic_20260101000000.csv": ("hotspots", "profile", "op_statistic"),
        "step_trace_time.csv": ("hotspots", "profile", "step_trace_time"),
        "communication.json": ("hotspots", "profile", "communication"),
        "trace_view.json": ("hotspots", "profile", "chrome_trace"),
        "npu_full.log": ("logs", "log", None),
        "memory_record.csv": ("memory", "memory_series", None),
    }
    assert (digest["kind"], digest["files"], digest["unknown"]) == ("digest", 9, 2)
    assert digest["kinds"] == {"profile": 5, "log": 1, "memory_series": 1}
    assert done.code == OK
    text = run(tmp_path).out
    assert "hcom_allReduce_" in text
    assert "step 10" in text
    assert text.splitlines()[-1].startswith("in all: 9 files")


@pytest.mark.parametrize("part", ["logs", "memory", "npu_smi", "overflow"])
def test_files_of_the_other_plugins_stay_theirs(run: Any, part: str) -> None:
    *files, digest = run(CORPUS / part, "--json").objects
    assert files
    assert not [one["file"] for one in files if one["plugin"] == "hotspots"]
    assert "profile" not in digest["kinds"]


# Two profiles.


def test_a_baseline_shows_what_became_slower(run: Any, tmp_path: Path) -> None:
    before, now = statistic(tmp_path / "a.csv", **OLD), statistic(tmp_path / "b.csv", **NEW)
    done = run(now, "--baseline", before)
    assert done.code == OK
    assert "MatMulV3 +18 % (avg 54.1 -> 63.8 us, 332 calls, +3.22 ms)" in done.out
    assert "Cast -10 % (avg 10.0 -> 9.0 us, 1,000 calls, -1.00 ms)" in done.out
    lines = [line.strip() for line in done.out.splitlines()]
    assert "new: Gelu 3.00 ms, 100 calls" in lines
    assert "gone: Softmax 200.0 us, 10 calls" in lines
    assert lines.index("new: Gelu 3.00 ms, 100 calls") > [line[:10] for line in lines].index("MatMulV3 +")
    (one,) = run(now, "--baseline", before, "--json").objects
    change = next(row["change"] for row in one["result"]["rows"] if row["name"] == "MatMulV3")
    assert (change["baseline_avg_us"], change["since_step"]) == (54.1, None)
    assert change["avg_ratio"] == pytest.approx(63.8 / 54.1)
    assert (one["result"]["baseline"], [row["name"] for row in one["result"]["gone"]]) == (
        "a.csv",
        ["Softmax"],
    )


def test_twice_the_steps_are_no_change(run: Any, tmp_path: Path) -> None:
    before = statistic(tmp_path / "a.csv", **OLD)
    now = statistic(tmp_path / "b.csv", **{name: (2 * n, avg) for name, (n, avg) in OLD.items()})
    out = run(now, "--baseline", before).out
    assert "no operator changed by more than 0.5 % of all time" in out


def test_folders_are_compared_file_by_file(run: Any, tmp_path: Path) -> None:
    old, new = ascend(tmp_path / "old"), ascend(tmp_path / "new", slow=1.5, stamp="20260202000000")
    done = run(new, "--baseline", old, "--json")
    *files, _ = done.objects
    assert done.code == OK
    by = {Path(one["file"]).name: one["result"] for one in files if one["plugin"] == "hotspots"}
    slow = {
        name: {row["name"]: row["change"] and round(row["change"]["avg_ratio"], 3) for row in one["rows"]}
        for name, one in by.items()
    }
    assert slow["op_statistic.csv"] == {"MatMulV3": 1.5, "Cast": 1.0}
    assert slow["op_statistic_20260202000000.csv"] == {"Conv2D": 1.0}
    assert slow["trace_view.json"] == {"aten::mm": 1.5, "aten::add": 1.0, "aten::relu": 1.0}
    steps = " ".join(by["step_trace_time.csv"]["notes"])
    assert "a step takes 13.000 ms on average, 10.000 ms in the baseline (+30.0 %)" in steps
    assert "computing 60.0 -> 69.2 %" in steps
    assert all(one["baseline"] for one in by.values())


def test_a_file_is_compared_with_the_same_table_of_a_folder(run: Any, tmp_path: Path) -> None:
    old = ascend(tmp_path / "old")
    done = run(trace(tmp_path / "now.json", 2.0), "--baseline", old)
    assert "aten::mm +100 % (avg 40.0 -> 80.0 us, 50 calls" in done.out
    assert "compared with" in done.out.splitlines()[0]


@pytest.mark.parametrize("as_data", [[], ["--json"]])
def test_nothing_to_compare_is_said_and_exits_2(run: Any, tmp_path: Path, as_data: list[str]) -> None:
    now = statistic(tmp_path / "op_statistic.csv", **NEW)
    done = run(now, "--baseline", trace(tmp_path / "old.json"), *as_data)
    assert done.code == USAGE
    assert "nothing was compared" in done.err
    assert "old.json" in done.err


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.write_text("words\n"), "is nothing that an installed plugin reads"),
        (lambda path: path.mkdir(), "holds no file"),
        (
            lambda path: [path.mkdir(), (path / "a").write_text("x")],
            "holds nothing that an installed plugin reads",
        ),
    ],
)
def test_a_baseline_that_is_none_exits_2_and_says_why(
    run: Any, tmp_path: Path, make: Any, words: str
) -> None:
    make(tmp_path / "old")
    done = run(statistic(tmp_path / "b.csv", **NEW), "--baseline", tmp_path / "old", "--json")
    assert (done.code, done.out) == (USAGE, "")
    assert words in done.err


def test_fail_on_wins_over_nothing_compared(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "npu_full.log"
    log.write_bytes((CORPUS / "logs" / "npu_full.log").read_bytes())
    done = run(log, "--baseline", trace(tmp_path / "old.json"), "--fail-on", "warning")
    assert done.code == FINDINGS
    assert "nothing was compared" in done.err


class Picky(plugin.Collector):
    """A collector whose comparison fails, or never is possible."""

    def on_record(self, target: Any, record: Any) -> None:
        raise NotImplementedError

    def snapshot(self, target: Any) -> None:
        return None

    def compare(self, result: Any, baseline: Any) -> Any:
        raise RuntimeError("no way")


def test_a_plugin_that_fails_to_compare_costs_its_file_only(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = statistic(tmp_path / "a.csv", **OLD)
    before = Baseline(one)
    monkeypatch.setattr(baseline.plugin, "resolve", lambda reference: Picky)
    from ascend_tui.inspect import Inspected

    found = before.beside(Inspected(str(one), "profile", "hotspots", {}), "a.csv")
    assert found.trouble == "the plugin hotspots failed: RuntimeError: no way"
    assert Picky(lambda event: None).read.__name__ == "read"
    assert plugin.Collector.compare(Picky(lambda event: None), 1, 2) is None


@pytest.mark.parametrize(
    ("place", "best"),
    [
        ("rank1/op_statistic.csv", "rank1/op_statistic.csv"),
        ("host_77_ascend_pt/OUT/a_20260202.csv", "host_12_ascend_pt/OUT/a_20250101.csv"),
        ("OUT/b.csv", "other/OUT/b.csv"),
    ],
)
def test_the_most_similar_place_is_taken(place: str, best: str) -> None:
    places = [
        "rank0/op_statistic.csv", "rank1/op_statistic.csv", "host_12_ascend_pt/OUT/a_20250101.csv",
        "x/a_20250101.csv", "other/OUT/b.csv", "b.csv"
    ]  # fmt: skip
    assert max(places, key=lambda other: baseline._likeness(place, other)) == best
