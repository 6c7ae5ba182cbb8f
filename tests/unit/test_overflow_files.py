"""The files that the overflow plugin reads: first bad output and source of each, and that none can break it.

The files of tests/corpus/overflow were written for these tests, in the grammar of msprobe 26.2.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.overflow.dump_rows import look
from ascend_tui_plugins.overflow.files import sniff
from ascend_tui_plugins.overflow.files.metrics import metrics
from ascend_tui_plugins.overflow.files.msprobe import BEFORE, frames, module_of, read_dump
from ascend_tui_plugins.overflow.files.stream import LARGEST, Members
from ascend_tui_plugins.overflow.from_files import OverflowFile, read
from hypothesis import given, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parent.parent / "corpus" / "overflow"
BAD = CORPUS / "step12" / "rank1" / "dump.json"
CALM = CORPUS / "step12" / "rank0" / "dump.json"
ANALYSIS = CORPUS / "anomaly_analyze_1700000000000000000.json"
ZERO_LOSS = CORPUS / "zero_loss.txt"
NAN_NORM = CORPUS / "nan_norm.jsonl"
INF, NAN = math.inf, math.nan


def tensor(
    low: Any, high: Any, shape: tuple[int, ...] = (4, 8), dtype: str = "torch.float16"
) -> dict[str, Any]:
    size = math.prod(shape)
    finite = isinstance(high, float) and math.isfinite(low) and math.isfinite(high)
    norm = max(abs(low), abs(high)) * size**0.5 / 3 if finite else high
    return {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": list(shape),
        "Max": high,
        "Min": low,
        "Mean": norm,
        "Norm": norm,
    }


def api(inputs: list[Any], output: Any) -> dict[str, Any]:
    return {"input_args": inputs, "input_kwargs": {}, "output": [output]}


def write(
    folder: Path, data: dict[str, Any], construct: dict[str, Any] | None = None, level: str = "L1"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    head = {"task": "statistics", "level": level, "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**head, "data": data}, indent=1))
    if construct is not None:
        (folder / "construct.json").write_text(json.dumps(construct))
    return folder / "dump.json"


def only(result: OverflowFile) -> Any:
    (incident,) = result.incidents
    return incident


# What the files of the corpus say.


def test_every_file_is_known_by_its_beginning_alone() -> None:
    for path in (BAD, CALM, ANALYSIS, ZERO_LOSS, NAN_NORM):
        assert sniff(path.read_bytes()[:4096], "case" + path.suffix) == "overflow_evidence", path
    for name in ("construct.json", "stack.json"):
        assert sniff(BAD.with_name(name).read_bytes(), name) is None


def test_a_dump_names_the_first_bad_output_and_its_source() -> None:
    found = only(read(BAD))
    assert (found.kind, found.severity, found.category) == ("inf", "error", "numeric")
    assert (found.step, found.ranks, found.level) == (12, (1,), "ops")
    first, source = found.first_seen, found.source
    assert (first.path, first.op, first.dtype) == (
        "layers.1.mlp.down_proj",
        "Functional.linear.3.forward",
        "float16",
    )
    assert (source.path, source.high) == ("layers.1.mlp.up_proj", 60928.0)
    # Equal statistics are no proof.
    assert found.attribution == "likely"
    told = [one.render() for one in found.evidence]
    assert "in the dump: Functional.linear.3.forward, likely from Functional.linear.2.forward" in told
    assert [(line.file, line.line) for line in found.stack] == [("/job/train.py", 88), ("/job/model.py", 41)]
    assert first in found.window
    assert source in found.window
    # Ten before it, itself, three after it.
    assert len(found.window) == 14
    assert found.keep_fp32.startswith("self.up_proj.float()")


def test_a_mask_on_the_way_is_no_incident_and_a_calm_dump_has_none() -> None:
    result = read(CALM)
    assert result.incidents == ()
    (note,) = result.notes
    assert note.render() == (
        "8 modules and operators were looked at: none holds a value that is bad or near its limit"
    )
    masked = [row for row in only(read(BAD)).window if row.low == -INF]
    assert [row.op for row in masked] == ["Tensor.__add__.3.forward"]


def test_an_analysis_of_two_ranks_is_one_incident() -> None:
    result = read(ANALYSIS)
    found = only(result)
    assert (found.ranks, found.count, found.kind) == ((0, 2), 2, "inf")
    assert found.first_seen.path == "layers.1.mlp.down_proj"
    assert "60,928" in found.source_reason.render()
    assert [line.line for line in found.stack] == [88, 41]
    assert any("step" in note.render() for note in result.notes)


def test_a_loss_of_zero_with_a_nan_norm_is_a_nan_that_was_logged_as_zero() -> None:
    result = read(ZERO_LOSS)
    found = only(result)
    assert (found.kind, found.severity, found.step, found.count) == ("gradient", "error", 3, 2)
    assert "zero" in found.headline.render()
    assert [note.render() for note in result.notes] == ["the lines do not tell their steps: they are counted"]


def test_a_nan_norm_beside_a_finite_loss_arose_in_backward() -> None:
    result = read(NAN_NORM)
    found = only(result)
    assert found.step == 300
    assert found.headline.render() == "the gradient norm is NaN while the loss is finite"
    assert "backward" in found.source_reason.render()
    assert result.notes == ()


# Dumps in other shapes.


def test_modules_that_are_written_where_they_begin_come_after_what_they_call(tmp_path: Path) -> None:
    x, near, bad = tensor(-2.0, 3.0), tensor(-1.0, 61000.0), tensor(INF, INF)
    data = {
        "Module.net.Net.forward.0": api([x], bad),
        "Module.net.fc1.Linear.forward.0": api([x], near),
        "Module.net.fc2.Linear.forward.0": api([near], bad),
    }
    construct = {
        "Module.net.Net.forward.0": None,
        "Module.net.fc1.Linear.forward.0": "Module.net.Net.forward.0",
        "Module.net.fc2.Linear.forward.0": ["Module.net.Net.forward.0"],
    }
    found = only(read(write(tmp_path / "step0" / "rank0", data, construct, "L0")))
    assert (found.first_seen.path, found.source.path, found.level) == ("net.fc2", "net.fc1", "modules")
    assert any("level mix" in one.render() for one in found.advice)


def test_without_construct_the_entry_is_named(tmp_path: Path) -> None:
    x, near = tensor(-2.0, 3.0), tensor(-1.0, 61000.0)
    data = {
        "Functional.linear.0.forward": api([x], near),
        "Functional.linear.1.forward": api([near], tensor(NAN, NAN)),
    }
    result = read(write(tmp_path, data))
    assert only(result).first_seen.path == ""
    assert only(result).keep_fp32 == ""
    told = [note.render() for note in result.notes]
    assert any("construct.json" in one for one in told)
    assert any("no folder tells the step" in one for one in told)


def test_the_logarithm_of_zero_and_a_masked_row(tmp_path: Path) -> None:
    x, zero = tensor(-2.0, 3.0, dtype="torch.float32"), tensor(0.0, 3.0, dtype="torch.float32")
    log = {
        "Functional.relu.0.forward": api([x], zero),
        "Torch.log.0.forward": api([zero], tensor(-INF, 1.1, dtype="torch.float32")),
        "Tensor.mul.0.forward": api([tensor(-INF, 1.1, dtype="torch.float32")], tensor(NAN, NAN)),
    }
    found = only(read(write(tmp_path / "log", log)))
    assert (found.first_seen.op, found.source.op) == ("Torch.log.0.forward", "Functional.relu.0.forward")
    assert "the logarithm of zero" in found.source_reason.render()
    mask = tensor(-INF, 2.0)
    row = {
        "Tensor.masked_fill.0.forward": api([tensor(-1.0, 2.0)], mask),
        "Torch.softmax.0.forward": api([mask], tensor(NAN, NAN)),
    }
    assert only(read(write(tmp_path / "row", row))).kind == "masked_row"
    row["Torch.softmax.0.forward"] = api([mask], tensor(0.0, 1.0))
    assert read(write(tmp_path / "fine", row)).incidents == ()


def test_a_root_at_zero_is_bad_in_backward_only(tmp_path: Path) -> None:
    root = tensor(0.0, 1.5, dtype="torch.float32")
    data = {
        "Torch.sqrt.0.forward": api([tensor(0.0, 2.25, dtype="torch.float32")], root),
        "Torch.sqrt.0.backward": {
            "input": [tensor(0.1, 0.4, dtype="torch.float32")],
            "output": [tensor(0.03, INF, dtype="torch.float32")],
        },
    }
    found = only(read(write(tmp_path, data)))
    assert (found.first_seen.phase, found.source.op) == ("backward", "Torch.sqrt.0.forward")
    assert "root at zero" in found.source_reason.render()


def test_bad_gradients_alone_name_the_last_layer(tmp_path: Path) -> None:
    data: dict[str, Any] = {"Module.a.Linear.forward.0": api([tensor(-1.0, 1.0)], tensor(-2.0, 2.0))}
    for name in ("c", "b"):
        data[f"Module.{name}.Linear.parameters_grad.0"] = {"weight": [tensor(-1.0, INF)]}
    found = only(read(write(tmp_path, data, level="L0")))
    assert (found.kind, found.first_seen.path) == ("gradient", "c.weight")


def test_bad_weights_are_the_source(tmp_path: Path) -> None:
    bad = {**tensor(NAN, NAN), "requires_grad": True}
    data = {
        "Functional.embedding.0.forward": api([tensor(0, 3, dtype="torch.int64"), bad], tensor(NAN, NAN)),
        "Module.emb.Embedding.forward.0": api([], tensor(NAN, NAN)),
    }
    construct = {"Functional.embedding.0.forward": "Module.emb.Embedding.forward.0"}
    found = only(read(write(tmp_path, data, construct, "mix")))
    assert (found.kind, found.first_seen.path, found.keep_fp32) == ("parameter", "emb.weight", "")


def test_uninitialised_memory_is_not_the_first_bad_output(tmp_path: Path) -> None:
    data = {
        "Torch.empty.0.forward": api([], tensor(NAN, NAN)),
        "Tensor.add.0.forward": api([tensor(-1.0, 1.0)], tensor(-2.0, 2.0)),
    }
    assert read(write(tmp_path, data)).incidents == ()


def test_mindspore_names_and_types_are_read(tmp_path: Path) -> None:
    data = {
        "Cell.net.fc.Dense.forward.0": api(
            [tensor(-1.0, 1.0, dtype="Float16")], tensor(INF, INF, dtype="Float16")
        )
    }
    found = only(read(write(tmp_path, data, level="L0")))
    assert (found.first_seen.path, found.first_seen.module_type, found.first_seen.dtype) == (
        "net.fc",
        "Dense",
        "float16",
    )


def test_step_and_rank_are_those_of_the_folders(tmp_path: Path) -> None:
    data = {"Functional.linear.0.forward": api([tensor(-1.0, 1.0)], tensor(INF, INF))}
    for folder, step, ranks in (
        ("step40/rank3", 40, (3,)),
        ("step_7/proc4711", 7, ()),
        ("timestep100/rank", 0, ()),
        ("step1/rank0/step2/rank5", 2, (5,)),
    ):
        found = only(read(write(tmp_path / folder, data)))
        assert (found.step, found.first_step, found.ranks) == (step, step, ranks)


# Files that are not as they should be.


def test_a_cut_dump_gives_what_it_has_and_says_so(tmp_path: Path) -> None:
    text = BAD.read_text()
    path = tmp_path / "step12" / "rank1" / "dump.json"
    path.parent.mkdir(parents=True)
    path.write_text(text[: text.index('"Tensor.__add__.5.forward"') + 90])
    result = read(path)
    assert only(result).first_seen.op == "Functional.linear.3.forward"
    assert "ends in the middle" in result.notes[0].render()
    path.write_text(text[: text.index('"Tensor.__matmul__.1.forward"')])
    result = read(path)
    assert result.incidents == ()
    assert "only what comes before is judged, 5 modules and operators" in result.notes[0].render()


def test_every_prefix_of_a_dump_is_read_or_refused_with_words(tmp_path: Path) -> None:
    data, path = BAD.read_bytes(), tmp_path / "dump.json"
    for end in range(200, len(data), 997):
        path.write_bytes(data[:end])
        try:
            told = [note.render() for note in read(path).notes]
        except ValueError as error:
            told = [str(error)]
        assert "ends in the middle" in told[0]


def test_checksums_and_nothing_at_all_are_told(tmp_path: Path) -> None:
    md5 = {"type": "torch.Tensor", "dtype": "torch.float16", "shape": [2], "md5": "0c51f"}
    path = write(tmp_path / "md5", {"Functional.linear.0.forward": api([md5], md5)})
    with pytest.raises(ValueError, match="checksums"):
        read(path)
    assert "the dump is empty" in read(write(tmp_path / "empty", {})).notes[0].render()
    (tmp_path / "other.json").write_text('{"a": [1, 2]}')
    with pytest.raises(ValueError, match="no dump or analysis"):
        read(tmp_path / "other.json")


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        [],
        {},
        {"output": None},
        {"output": {"dtype": "torch.float16"}},
        {"output": [{"dtype": 3, "Max": [], "Min": {}}]},
        {"input_args": "x", "input_kwargs": [1], "output": [tensor(INF, INF)]},
        {"output": [{**tensor(1.0, 2.0), "shape": ["a", -1, 1e99]}], "parameters": 5},
        {"output": [{**tensor(1.0, 2.0), "Max": "nan", "Min": "nan"}]},
        {"output": [[[[[[[[[[tensor(INF, INF)]]]]]]]]]]},
    ],
)
def test_entries_of_any_shape_never_raise(tmp_path: Path, entry: Any) -> None:
    data = {
        "Functional.linear.0.forward": entry,
        "Module.forward": entry,
        "": entry,
        "Module.a.B.parameters_grad": entry,
        "Functional.softmax.0.backward": entry,
    }
    for construct in ({}, {"Functional.linear.0.forward": 3, "": ""}, {"a": "b", "b": "a"}):
        result = read(write(tmp_path, data, construct))
        assert len(result.incidents) <= 1


def test_hostile_names_are_made_safe(tmp_path: Path) -> None:
    data = {"Module.\x1b[31mred\u202e.Linear.forward.0": api([tensor(-1.0, 1.0)], tensor(INF, INF))}
    found = only(read(write(tmp_path, data, level="L0")))
    assert "\x1b" not in found.first_seen.path
    assert "\u202e" not in found.first_seen.path
    assert all("\x1b" not in one.render() for one in (found.headline, *found.evidence))


def test_deep_nesting_and_huge_numbers_end_the_reading(tmp_path: Path) -> None:
    head = '{"task": "statistics", "level": "L1", "data": {"Tensor.a.0.forward": {"output": []}, "x": '
    for tail, words in (("[" * 200_000, "nested too deeply"), ("1" * 10_000 + "}}", "thousands of digits")):
        path = tmp_path / "dump.json"
        path.write_text(head + tail)
        try:
            notes = [note.render() for note in read(path).notes]
        except ValueError as error:
            notes = [str(error)]
        # Interpreters differ in how deep they go and in how long a number may be.
        assert (
            any(words in one or "ends in the middle" in one for one in notes)
            or words == "thousands of digits"
        )


def test_a_member_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    with path.open("w") as file:
        file.write('{"data": {"a": 1, "b": "')
        for _ in range(LARGEST * 5 // 2 >> 20):
            file.write("x" * (1 << 20))
    members = Members(path, "data")
    assert [key for _, key, _, _ in members] == ["a"]
    assert members.trouble == "has a member of more than 16 MiB"


def test_of_a_long_dump_only_what_matters_is_kept(tmp_path: Path) -> None:
    near = tensor(-1.0, 61000.0)
    data: dict[str, Any] = {"Functional.linear.0.forward": api([tensor(-1.0, 1.0)], near)}
    for at in range(BEFORE + 500):
        data[f"Functional.relu.{at}.forward"] = api([tensor(0.0, 1.0)], tensor(0.0, 1.0 + at))
    data["Functional.linear.1.forward"] = api([near], tensor(INF, INF))
    for at in range(3000):
        data[f"Functional.gelu.{at}.forward"] = api([tensor(INF, INF)], tensor(INF, INF))
    path = write(tmp_path, data)
    dump = read_dump(path, look)
    assert dump.stopped
    assert dump.total < len(data)
    assert len(dump.entries) < BEFORE + 1100
    result = read(path)
    assert only(result).source.op == "Functional.linear.0.forward"
    assert any("reading ended 1,000 entries after" in note.render() for note in result.notes)


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet='{}[]":,aNI0. \n\\', max_size=80))
def test_any_text_is_read_to_an_end(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(text)
    members = Members(path, "a")
    keys = {key for depth, key, _, _ in members if depth == 1}
    try:
        whole = json.loads(text)
    except ValueError:
        return
    if isinstance(whole, dict):
        assert not members.trouble
        assert keys == {key for key, value in whole.items() if key != "a" or not isinstance(value, dict)}
    else:
        assert members.trouble == "is no JSON object"


# The small parts.


def test_names_of_entries() -> None:
    assert module_of("Module.layers.0.mlp.Linear.forward.0") == ("layers.0.mlp", "Linear")
    assert module_of("Module.head.Linear.parameters_grad") == ("head", "Linear")
    assert module_of("Module.module.a.forward.B.backward.12") == ("module.a.forward", "B")
    assert module_of("Functional.linear.0.forward") is None
    assert module_of("Module.x") is None


def test_frames_are_turned_and_those_of_hooks_left_out() -> None:
    told = [
        "File /x/torch/nn/modules/module.py, line 1, in _call_impl, \n return 0",
        "File /a b/model.py, line 41, in forward, \n y = f(x)",
        "no frame",
        7,
        "File /a/train.py, line 8, in <module>, \n m(x)",
    ]
    found = [(line.file, line.line, line.function) for line in frames(told)]
    assert found == [("/a/train.py", 8, "<module>"), ("/a b/model.py", 41, "forward")]
    assert frames({}) == ()


def lines() -> Iterator[str]:
    yield "{'loss': 2.5, 'grad_norm': 0.9, 'learning_rate': 1e-05}"
    yield '{"train/loss": Infinity, "train/grad_norm": -inf, "train/global_step": 7}'


def test_metric_lines_are_read_however_they_are_quoted(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    path.write_text("\n".join(lines()))
    found = [(one.row, one.step, one.loss, one.grad_norm) for one in metrics(path)]
    assert found == [(1, None, 2.5, 0.9), (2, 7, INF, -INF)]


def test_what_is_no_file_of_ours_is_left_alone() -> None:
    line = b"{'loss': 2.5, 'grad_norm': 0.9}\n"
    assert sniff(line, "run.txt") == "overflow_evidence"
    # A log is read by what reads logs.
    assert sniff(line, "run.log") is None
    assert sniff(line + b"Traceback (most recent call last):\n", "run.txt") is None
    assert sniff(b"{'loss': 2.5}\n", "run.txt") is None
    assert sniff(b"\0\1\2", "dump.json") is None
    assert sniff(b"", "dump.json") is None
    assert sniff(b'{"data": {"x": 1}, "level": 3}', "x.json") is None
    assert sniff(b'{"rank_0": [{"name": 1}]}', "x.json") is None


def test_losses_of_metric_lines_are_judged_as_live_ones(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    rows = [2.0] * 200 + [2.0 * 1.02**at for at in range(300)]
    path.write_text("".join(f"{{'loss': {value:.4f}, 'learning_rate': 0.1}}\n" for value in rows))
    assert only(read(path)).kind == "divergence"
    assert only(read(path)).severity == "warning"
    path.write_text(path.read_text() + "{'loss': nan, 'learning_rate': 0.1}\n" * 3)
    found = only(read(path))
    assert (found.kind, found.severity, found.count) == ("divergence", "error", 3)
    path.write_text("{'loss': 2.0, 'learning_rate': 0.1}\n" * 60 + "{'loss': nan, 'learning_rate': 0.1}\n")
    found = only(read(path))
    assert (found.kind, found.headline.render(), found.step) == ("loss", "the loss is NaN", 61)
    assert "at once" in found.source_reason.render()
