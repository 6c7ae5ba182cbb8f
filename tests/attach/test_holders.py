"""Who holds it, in a training of its own: the line is found, and the training does not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from client import TARGETS, Client, target
from trainings import Place, needs_torch

from ascend_tui.plugin import load, probe_text

pytestmark = needs_torch
SCRIPT = (TARGETS / "keeper.py").read_text().splitlines()


def probe() -> str:
    """Return the probe of the memory plugin, all its parts."""
    text = probe_text(load("memory"))
    assert text is not None
    return text


def finish(process: Any) -> list[str]:
    """Let a training end as fast as it can; return its lines."""
    process.hurry.touch()
    out, said = process.communicate(timeout=100)
    assert process.returncode == 0, said
    return [line for line in out.splitlines() if line.startswith(("step ", "end "))]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, place: Place) -> list[str]:
    """Return what the training says without us."""
    with target(tmp_path_factory.mktemp("calm"), "keeper.py", boot=False, place=place) as process:
        return finish(process)


def test_the_line_that_keeps_is_found_and_the_numbers_stay_the_same(
    tmp_path: Path, place: Place, undisturbed: list[str]
) -> None:
    with target(tmp_path, "keeper.py", place=place) as process:
        assert any(line.startswith("step ") for line in process.stdout)
        with Client(process.path) as client:
            client.hello()
            assert client.probe("memory", probe())["ok"]
            for _ in range(2):
                assert client.start("memory", "holders", steps=10, seconds=60)["ok"]
                client.event(event="command", name="holders", reason="lease over", timeout_s=60)
                client.events.clear()
            client.beat(lambda beat: not beat["commands"])
            records = [one["data"] for one in client.records if one["kind"] == "holders"]
            assert [one["phase"] for one in records] == ["collecting", "done"] * 2
            # In the middle of a look: the detach has to end it.
            assert client.start("memory", "holders", steps=100, seconds=60)["ok"]
            left = client.ask("detach")["result"]["residue"]
        lines = finish(process)
    for record in records[1::2]:
        assert record["how"] == ("allocator history" if place.is_npu else "weak references")
        (site,) = record["sites"]
        assert Path(site["file"]).name == "keeper.py"
        assert "loss = model(rows).square().mean()" in SCRIPT[site["line"] - 1]
        # A block of the device's allocator is 512 bytes at least.
        assert site["bytes_per_step"] == (512 if place.is_npu else 4)
        assert site["cause"] == "graph"
        assert site["held_by"].startswith("a list of ")
        assert site["held_by"].endswith(": losses")
        assert site["age_steps"] >= 7
    assert not any("mode" in one and "module" not in one for one in left)
    assert lines[-1] == "end history False modes 0"
    assert lines[-len(undisturbed) :] == undisturbed[-len(lines) :]
