"""The files that the memory plugin reads: what each says, and that nothing in one can break the reader.

The files of tests/corpus/memory were written for these tests, in the grammar of real ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ascend_tui_plugins.memory.files import columns, sniff
from ascend_tui_plugins.memory.files.columns import number, quantity, unit
from ascend_tui_plugins.memory.files.events import dump, whole
from ascend_tui_plugins.memory.files.lines import cells, lines
from ascend_tui_plugins.memory.files.profiler import nanoseconds
from ascend_tui_plugins.memory.files.series import Table
from ascend_tui_plugins.memory.from_files import read
from ascend_tui_plugins.memory.of_series import MOST_ROWS, MOST_RUNS, Rows, judge_table
from hypothesis import given, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parent.parent / "corpus"
MEMORY = CORPUS / "memory"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

VERDICTS = {
    "cudnn_peak.txt": "steady",
    "events_leak.csv": "leak",
    "events_out_of_order.csv": "undecided",
    "leak_and_flat_runs.csv": "leak",
    "loader_workers.csv": "host_leak",
    "memory_record_flat.csv": "steady",
    "memory_record_leak.csv": "leak",
    "memory_record_three_steps.csv": "undecided",
    "nvidia_smi_query.csv": "leak",
    "operator_memory_kept.csv": "leak",
    "operator_memory_weights.csv": "undecided",
    "stairs_of_lengths.txt": "cache",
    "ten_noisy_points.txt": "undecided",
    "top_once.txt": "undecided",
    "words_only.txt": "undecided",
    "workspace_once.txt": "buffer_growth",
}


def table(text: str) -> Table:
    return Table(text.splitlines())


# What the files of the corpus say.


def test_every_file_of_the_corpus_has_its_verdict() -> None:
    found = {path.name: read(path).verdict.kind for path in sorted(MEMORY.iterdir())}
    assert found == VERDICTS


def test_every_file_of_the_corpus_is_known_by_its_beginning() -> None:
    for path in MEMORY.iterdir():
        assert sniff(path.read_bytes(), "case" + path.suffix) == "memory_series", path.name


def test_runs_are_judged_apart_and_the_gravest_speaks_for_the_file() -> None:
    result = read(MEMORY / "leak_and_flat_runs.csv")
    assert {run.name: run.verdict.kind for run in result.runs} == {"old_loop": "leak", "new_loop": "steady"}
    assert result.slope_bytes_per_step == pytest.approx(1.25 * MIB, rel=0.01)
    # The card's size is not in the file: a forecast for sizes that there are.
    assert result.forecast is None
    assert [one.total_bytes // GIB for one in result.forecast_if] == [8, 12, 16]


def test_a_remark_before_a_label_is_another_run() -> None:
    result = read(MEMORY / "cudnn_peak.txt")
    assert [run.name for run in result.runs] == ["", "second machine"]
    assert result.peak_bytes == pytest.approx(11.2 * GIB)
    assert result.level_bytes == pytest.approx(2.6 * GIB)


def test_the_size_of_the_card_gives_a_forecast_and_times_a_slope_by_the_second() -> None:
    result = read(MEMORY / "nvidia_smi_query.csv")
    assert result.slope_bytes_per_step is None
    assert result.slope_bytes_per_s == pytest.approx(4 * MIB, rel=0.01)
    assert result.forecast is not None
    assert result.forecast.seconds == pytest.approx((16384 - 7000 - 885 * 4) / 4, rel=0.02)
    assert "a second" in result.verdict.reason.render()


def test_processes_of_one_moment_are_shown_and_not_judged() -> None:
    result = read(MEMORY / "top_once.txt")
    assert [one.rss_bytes for one in result.processes][:2] == [int(61.8 * GIB), int(61.7 * GIB)]
    assert result.processes[-1].rss_bytes == 90112 * KIB
    # VIRT is of no meaning and in no number of the result.
    assert result.peak_bytes == int(61.8 * GIB)


def test_words_are_no_series() -> None:
    result = read(MEMORY / "words_only.txt")
    assert result.verdict.confidence == 0
    assert "no column of memory" in result.verdict.reason.render()


def test_a_table_of_names_and_values_is_one_reading() -> None:
    result = judge_table(table("# columns: metric,value\npinned_host_GB,17+"))
    assert result.verdict.kind == "undecided"
    assert result.quantities["pinned"].last_bytes == 17 * GIB


def test_a_profile_is_judged_by_its_valleys() -> None:
    result = read(MEMORY / "memory_record_leak.csv")
    assert [one.name for one in result.components] == ["PTA", "APP"]
    assert result.components[0].cycles >= 10
    assert result.reserved_bytes == 640 * MIB


def test_what_is_held_at_the_end_of_a_profile_is_ranked() -> None:
    result = read(MEMORY / "operator_memory_kept.csv")
    assert [(one.name, one.count, one.spread) for one in result.holders] == [
        ("aten::empty", 20, False),
        ("aten::clone", 14, True),
    ]
    assert result.held_bytes == 20 * 2048 * KIB + int(14 * 96.5 * KIB)


def test_events_are_put_in_order_and_named_by_the_operator_around_them() -> None:
    result = read(MEMORY / "events_out_of_order.csv")
    pool = result.pools[0]
    assert (pool.peak_used_bytes, pool.total_reserved_bytes, pool.unmatched_frees) == (5120, 2097152, 1)
    assert result.first_ns == 1_900_000_000_000_000_001
    assert result.held_bytes == 1024
    assert "whether they are freed later" in result.verdict.reason.render()


def test_events_with_marks_of_steps_are_judged_by_them() -> None:
    result = read(MEMORY / "events_leak.csv")
    assert result.slope_bytes_per_step == pytest.approx(8 * MIB)
    assert result.holders[0].stack == "train.py(31): keep"


# The grammar of tables.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("device_used_MB", "device_used"),
        ("memory.used [MiB]", "device_used"),
        ("memory.total [MiB]", "total"),
        ("hbm_MiB", "device_used"),
        ("reserved_GB", "reserved"),
        ("segment_total_B", "segment"),
        ("Total Allocated(MB)", "allocated"),
        ("leaked_MB_total", "allocated"),
        ("leaked_blocks", ""),
        ("outside_torch_MiB", "outside"),
        ("host_growth_kB", "rss"),
        ("RES_GB", "rss"),
        ("VmRSS", "rss"),
        ("VIRT", ""),
        ("SHR", ""),
        ("host_MB (sum of workers)", "workers"),
        ("pinned_host_accumulated_GB", "pinned"),
        ("cached_large_GB", ""),
        ("inactive_split_MB", "inactive_split"),
        ("gpu_util_%", ""),
        ("loss", ""),
        ("tokens", ""),
    ],
)
def test_a_column_is_known_by_its_name(name: str, expected: str) -> None:
    assert quantity(name) == expected


@pytest.mark.parametrize(
    ("cell", "scale", "expected"),
    [
        ("90+", GIB, 90 * GIB),
        ("8374.9g", 1, 8374.9 * GIB),
        ("11,998", MIB, 11998 * MIB),
        ("512 MiB", GIB, 512 * MIB),
        ("7kB", 1, 7 * KIB),
        ("1e3", 1, 1000),
        ("~3.5", MIB, 3.5 * MIB),
        ("", 1, None),
        ("n/a", 1, None),
        ("OOM", 1, None),
        ("1.2.3", 1, None),
        ("9" * 400, 1, None),
    ],
)
def test_a_number_may_have_a_unit_a_plus_and_commas(cell: str, scale: float, expected: float | None) -> None:
    assert number(cell, scale) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("name", "power"), [("x_B", 0), ("x_bytes", 0), ("x_kB", 1), ("x (KB)", 1), ("x_MiB", 2), ("x_GB", 3)]
)
def test_units_are_powers_of_1024(name: str, power: int) -> None:
    assert unit(name) == 1024**power


def test_a_unit_that_is_not_told_is_named_as_assumed() -> None:
    found = table(
        "step,memory_allocated,rss\n" + "\n".join(f"{i},{5 * 10**9 + i},{9_000_000}" for i in range(20))
    )
    assert found.assumed == ("memory_allocated: bytes", "rss: KiB")
    assert next(iter(found)).values == {"allocated": 5e9, "rss": 9_000_000 * KIB}


@pytest.mark.parametrize("sign", [",", ";", "\t", " "])
def test_cells_may_be_set_apart_by_several_signs(sign: str) -> None:
    # More rows than are looked at to learn what the columns are.
    text = f"step{sign}device_used_MB\n" + "\n".join(f"{i}{sign}{4000 + i % 3}" for i in range(200))
    result = judge_table(table(text))
    assert result.verdict.kind == "steady"
    assert sniff(text.encode(), "case") == "memory_series"


def test_blanks_comments_and_commas_in_a_remark_lose_nothing() -> None:
    text = "step,device_used_MB,note\n1,100\n2,,blank\n\n# a comment\n3,101,a, b, c\n4,n/a,\n5,102,x"
    samples = list(table(text))
    assert [(one.at, one.values["device_used"] / MIB) for one in samples] == [(1, 100), (3, 101), (5, 102)]
    assert samples[1].label == "a, b, c"


def test_an_axis_that_begins_anew_is_another_run_but_goes_on_in_a_new_epoch() -> None:
    again = "step,device_used_MB\n" + "".join(f"{i},{100 * i}\n" for i in (1, 2, 3, 1, 2, 3))
    assert [one.run for one in table(again)] == ["", "", "", "#2", "#2", "#2"]
    epochs = "epoch,step,device_used_MB\n" + "".join(f"{e},{i},100\n" for e in (0, 1) for i in range(4))
    samples = list(table(epochs))
    assert {one.run for one in samples} == {""}
    assert [one.at for one in samples] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_pinned_memory_that_grows_is_named_and_not_taken_for_objects() -> None:
    rows = "".join(f"{i},{2 + i / 2},{30 + i / 2}\n" for i in range(20))
    result = judge_table(table("step,pinned_GB,rss_GB\n" + rows))
    assert result.verdict.kind == "host_leak"
    assert "page-locked" in result.verdict.reason.render()


def test_a_long_run_and_many_runs_are_kept_in_bounded_memory() -> None:
    rows = Rows()
    for at in range(3 * MOST_ROWS):
        rows.add(at, {"allocated": 100 + (at == 7)})
    assert len(rows.at) < 2 * MOST_ROWS
    assert rows.amounts("allocated").peak_bytes == 101
    many = "run,step,device_used_MB\n" + "".join(
        f"r{i},{j},5\n" for i in range(MOST_RUNS + 9) for j in range(3)
    )
    result = judge_table(table(many))
    assert len(result.runs) == MOST_RUNS
    assert "27 rows" in result.notes[0].render()


# Lines, cells and integers.


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbfstep,rss_MB\r\n1,2\r\n",
        "step,rss_MB\n1,2\n".encode("utf-16"),
        b"step,rss_MB\n\x00\x001,\x002\n",
    ],
)
def test_byte_order_marks_line_ends_and_nul_bytes_do_not_show(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "case.csv"
    path.write_bytes(raw)
    assert list(lines(path)) == ["step,rss_MB", "1,2"]
    assert sniff(raw, "case.csv") == "memory_series"


def test_a_line_without_end_costs_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "case.log"
    path.write_bytes(b"x" * (3 << 20) + b"\nlast\n")
    found = list(lines(path))
    assert len(found) == 2
    assert len(found[0]) == 1 << 20
    assert found[1] == "last"


def test_a_row_that_is_no_csv_costs_only_itself() -> None:
    assert list(cells(["a,b", "x" * 200_000 + ",1", "c,d"])) == [["a", "b"], ["c", "d"]]


def test_time_stamps_keep_every_digit() -> None:
    assert nanoseconds("1736413971558972.912\t") == 1736413971558972912
    assert nanoseconds("17") == 17000
    assert nanoseconds("1e9") is None
    assert nanoseconds("-5") is None
    assert whole("1764753365728889760") == 1764753365728889760
    assert whole("0x12c041400000") == 0x12C041400000
    assert whole("²") is None


# Whatever is in a file: a result or a clear error, never another exception.

WORDS = st.sampled_from(
    [
        "# columns: ",
        "step",
        "run",
        "reserved_GB",
        "device_used_MB",
        "epoch",
        "timestamp",
        ",",
        ";",
        "\n",
        "\r\n",
        "\t",
        "90+",
        "-1",
        "nan",
        "1e308",
        "8374.9g",
        "NPU out of memory. Tried to allocate ",
        "(NPU 0; ",
        " GiB total capacity; ",
        "[repeated 9x across cluster]",
        "Component,Timestamp(us),Total Reserved(MB)\n",
        "PTA,17.5,",
        "Name,Size(KB),Allocation Time(us)\n",
        "EL0004",
        "²",
        "٣",
        "ID,Event,Event Type,Timestamp(ns),Ptr,Attr\n",
        "1,MALLOC,PTA,5,0x7,",
        '"{size:',
        '}"',
        '"',
        "metric,value\n",
        "\x1b[31m",
        "\x00",
        "| NPU   Name | Health | Power(W) |\n",
        "| Chip | Bus-Id | HBM-Usage(MB) |\n",
        "| 0 910B | OK | 1 |\n",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(WORDS, st.text(max_size=6), st.integers().map(str)), max_size=60))
def test_any_text_gives_a_result_or_says_that_it_is_nothing(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    _reads("".join(parts).encode("utf-8", "surrogatepass"), tmp_path_factory)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(CORPUS.glob("*/*.*"))), st.data())
def test_any_damaged_file_gives_a_result_or_says_that_it_is_nothing(
    tmp_path_factory: pytest.TempPathFactory, path: Path, data: st.DataObject
) -> None:
    raw = bytearray(path.read_bytes()[:6000])
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        raw[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=20))
    _reads(bytes(raw), tmp_path_factory)


def _reads(raw: bytes, folders: pytest.TempPathFactory) -> None:
    path = folders.getbasetemp() / "garbage.log"
    path.write_bytes(raw)
    sniff(raw, "garbage.log")
    try:
        result = read(path)
    except ValueError as error:
        assert "no series of memory" in str(error)  # noqa: PT017 - one of two legal ends
        return
    from ascend_tui.frame import as_json

    as_json(result)


def test_a_dump_of_nothing_is_nothing() -> None:
    assert dump([]).pools == ()
    assert dump(["ID,Event,Event Type,Ptr,Attr", "1,MALLOC"]).events == 0


def test_a_first_column_that_counts_up_is_the_axis_whatever_its_name() -> None:
    result = judge_table(
        table("images,device_used_MB\n" + "".join(f"{32 * i},{500 + 16 * i}\n" for i in range(20)))
    )
    assert result.axis == "images"
    assert result.slope_bytes_per_step == pytest.approx(MIB / 2)


def test_growth_of_the_card_beside_a_flat_reserve_is_external() -> None:
    rows = "".join(f"{i},{9000 + 20 * i},{6000}\n" for i in range(0, 200, 5))
    result = judge_table(table("step,npu_smi_used_MiB,torch_reserved_MiB\n" + rows))
    assert result.verdict.kind == "external"


@pytest.mark.parametrize(
    ("name", "bytes_"), [("used_MiB", 1 << 20), ("x_ib", None), ("size(B)", 1), ("rss_kB", 1024)]
)
def test_the_unit_in_a_name_is_one_of_bytes(name: str, bytes_: float | None) -> None:
    assert columns.unit(name) == bytes_
