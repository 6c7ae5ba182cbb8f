"""What must raise no alert: healthy trainings of many frameworks, and lines that only look alarming."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from ascend_tui_plugins.logs.digest import Digester
from ascend_tui_plugins.logs.from_files import read
from ascend_tui_plugins.logs.snapshot import Digest

from bench.log_mix import fill, healthy
from bench.log_runs import WRITERS, Run
from bench.log_shapes import SHAPES


def digest(text: bytes, block: int = 1 << 20) -> Digest:
    """Return the digest of a text that is read in blocks of whole lines."""
    digester = Digester(year=2031)
    lines = text.splitlines(keepends=True)
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= block:
            digester.feed(0, b"".join(part), 1_900_000_000.0)
            part, size = [], 0
    if part:
        digester.feed(0, b"".join(part), 1_900_000_000.0)
    digester.settle()
    return digester.result()


def alerts(found: Digest) -> list[tuple[str, str, str]]:
    return [
        (one.severity, one.headline.render(), one.text[:200])
        for one in found.incidents
        if one.severity != "info"
    ]


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_training_raises_no_alert(writer: object, seed: int) -> None:
    text = b"".join(healthy(seed, 300_000, [writer], turn=100 + 300 * seed))  # type: ignore[list-item]
    found = digest(text, block=1 << (12 + 2 * seed))
    assert alerts(found) == []
    assert found.bytes == len(text)
    assert found.metrics, "no metric was recognised at all"


def test_many_trainings_in_one_log_of_2_mb(tmp_path: Path) -> None:
    path = tmp_path / "clean.log"
    path.write_bytes(b"".join(healthy(99, 2_000_000)))
    found = read(path)
    assert [(one.severity, one.headline.render()) for one in found.incidents if one.severity != "info"] == []
    assert found.lines >= 8000
    assert {"loss", "grad_norm"} <= {one.name for one in found.metrics}


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_a_restart_from_a_checkpoint_raises_no_alert(writer: object) -> None:
    run = Run(5)
    lines = []
    for _ in range(300):
        run.next()
        lines.append(writer(run))  # type: ignore[operator]
    lines.append("[INFO] loading checkpoint of step 200, everything is fine")
    run.step = 200
    for _ in range(300):
        run.next()
        lines.append(writer(run))  # type: ignore[operator]
    assert alerts(digest("\n".join(lines).encode() + b"\n")) == []


@pytest.mark.parametrize("system", SHAPES)
def test_lines_that_are_no_metric_raise_no_alert(system: str) -> None:
    chooser = random.Random(17)
    lines = [fill(shape, chooser) for shape in SHAPES[system] for _ in range(40)]
    chooser.shuffle(lines)
    assert alerts(digest("\n".join(lines).encode() + b"\n")) == []


@pytest.mark.parametrize("block", [200, 5_000, 1 << 20])
def test_the_size_of_the_blocks_does_not_matter(block: int) -> None:
    text = b"".join(healthy(7, 150_000, turn=40))
    found = digest(text, block)
    whole = digest(text)
    assert alerts(found) == alerts(whole) == []
    assert (found.lines, found.bytes) == (whole.lines, whole.bytes)
    assert {one.name: one.count for one in found.metrics} == {one.name: one.count for one in whole.metrics}
