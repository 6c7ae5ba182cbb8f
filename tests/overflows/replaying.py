"""Keep the records of runs in files, and judge them again by the collector as it is now."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

from ascend_tui.plugin import Record
from ascend_tui.target import TargetId
from tests.overflows.cases import CASES
from tests.overflows.running import Run, Watching


def dump(run: Run, folder: Path) -> Path:
    """Write a run to `folder`/DEVICE/CASE-SEED.jsonl: a line of truth, then the records; return the path."""
    path = folder / run.device / f"{run.case.name}-{run.seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    truth = {"case": run.case.name, "device": run.device, "seed": run.seed, "steps": run.steps}
    offsets = [one.offset for one in run.processes]
    lines = [{"truth": {**truth, "onset": run.case.onset, "offsets": offsets}}]
    for rank, process in enumerate(run.processes):
        for one in process.records:
            told = dataclasses.asdict(one)
            del told["plugin"], told["seq"]
            lines.append({"rank": rank, **told})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def replay(path: Path) -> Run:
    """Return the run of a dump as a new collector sees it, stepped once for each second of the records."""
    first, *lines = map(json.loads, path.read_text().splitlines())
    truth = first["truth"]
    case = next(one for one in CASES if one.name == truth["case"])
    watching = Watching(lambda event: None)
    second = -math.inf
    for seq, one in enumerate(sorted(lines, key=lambda line: line["mono_s"]), 1):
        if one["wall_s"] >= second + 1.0:
            watching.on_tick(one["wall_s"])
            second = one["wall_s"]
        record = Record(seq, "overflow", one["kind"], one["step"], one["wall_s"], one["mono_s"], one["data"])
        watching.on_record(TargetId(1 + one["rank"], 1), record)
    watching.on_tick(second + 2.0)
    processes = tuple(
        watching.told(TargetId(1 + rank, 1), offset) for rank, offset in enumerate(truth["offsets"])
    )
    return Run(case, truth["device"], truth["seed"], truth["steps"], processes)


def dumps(folder: Path) -> list[Path]:
    """Return the dumps below a folder, in the order of devices, cases and seeds."""
    order = [one.name for one in CASES]

    def place(path: Path) -> tuple[str, int, int]:
        name, _, seed = path.stem.rpartition("-")
        return path.parent.name, order.index(name), int(seed)

    return sorted(folder.glob("*/*.jsonl"), key=place)
