"""Keep the records of runs in files, and judge them again by the collector as it is now."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

from ascend_tui_plugins.hotspots.snapshot import HotspotsSnapshot

from ascend_tui.plugin import Record
from ascend_tui.target import TargetId
from tests.hotspots.cases import case
from tests.hotspots.running import Run, Watching

TARGET = TargetId(1, 1)


def dump(run: Run, folder: Path) -> Path:
    """Write a run to `folder`/DEVICE/CASE-SEED.jsonl: a line of truth, then the records; return the path."""
    path = folder / run.device / f"{run.case.name}-{run.seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    of_run = {"case": run.case.name, "device": run.device, "seed": run.seed, "twin": run.twin}
    output = {"truth": run.truth, "offset": run.offset, "lines": run.lines[-400:]}
    lines = [{**of_run, **output}]
    for one in run.records:
        told = dataclasses.asdict(one)
        del told["plugin"], told["seq"]
        lines.append(told)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def replay(path: Path) -> Run:
    """Return the run of a dump as a new collector sees it, stepped once for each second of the records."""
    first, *lines = map(json.loads, path.read_text().splitlines())
    watching = Watching(lambda event: None)
    second, before = -math.inf, None
    onset = first["truth"]["onset"] + first["offset"] if first["truth"]["onset"] else math.inf
    for seq, one in enumerate(lines, 1):
        if one["wall_s"] >= second + 1.0:
            watching.on_tick(one["wall_s"])
            second = one["wall_s"]
        if before is None and one["step"] >= onset:
            before = watching.snapshot(TARGET)
        record = Record(seq, "hotspots", one["kind"], one["step"], one["wall_s"], one["mono_s"], one["data"])
        watching.on_record(TARGET, record)
    watching.on_tick(second + 2.0)
    said = watching.snapshot(TARGET)
    assert isinstance(said, HotspotsSnapshot)
    return Run(
        case(first["case"]),
        first["device"],
        first["seed"],
        first["truth"],
        first["offset"],
        said,
        before,
        tuple(watching.alerts),
        tuple(watching.records),
        tuple(first["lines"]),
        twin=first["twin"],
    )


def dumps(folder: Path) -> list[Path]:
    """Return the dumps below a folder."""
    return sorted(folder.glob("*/*.jsonl"))
