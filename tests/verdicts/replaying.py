"""Keep the records of runs in files, and judge them again by the collector as it is now."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

from ascend_tui.plugin import Record
from ascend_tui.target import TargetId
from tests.verdicts.cases import CASES
from tests.verdicts.running import Run, Watching

NOBODY = TargetId(1, 1)


def dump(run: Run, folder: Path) -> Path:
    """Write a run to `folder`/DEVICE/CASE-SEED.jsonl: a line of truth, then the records; return the path."""
    path = folder / run.device / f"{run.case.name.replace(' ', '-')}-{run.seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    truth = {"case": run.case.name, "device": run.device, "seed": run.seed, "steps": run.steps}
    lines = [{"truth": {**truth, "offset": run.offset, "onset_step": run.offset + run.case.onset}}]
    lines += [
        {name: value for name, value in dataclasses.asdict(one).items() if name not in ("seq", "plugin")}
        for one in run.records
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def replay(path: Path) -> Run:
    """Return the run of a dump as a new collector sees it, stepped once for each second of the records."""
    first, *lines = path.read_text().splitlines()
    truth = json.loads(first)["truth"]
    records = [
        Record(seq, "memory", one["kind"], one["step"], one["wall_s"], one["mono_s"], one["data"])
        for seq, one in enumerate(map(json.loads, lines), 1)
    ]
    case = next(one for one in CASES if one.name == truth["case"])
    watching = Watching(lambda event: None)
    watching.holds_host = case.truths[truth["device"]].holds_host
    for second, record in ((math.floor(one.wall_s), one) for one in records):
        before = watching.records[-1].wall_s if watching.records else record.wall_s
        if second > math.floor(before):
            watching.on_tick(float(second))
        watching.on_record(NOBODY, record)
    watching.on_tick(math.floor(records[-1].wall_s) + 1.0)
    seen = tuple(watching.seen)
    return Run(case, truth["device"], truth["seed"], truth["steps"], truth["offset"], tuple(records), seen)


def dumps(folder: Path) -> list[Path]:
    """Return the dumps below a folder, in the order of devices, cases and seeds."""
    order = [one.name.replace(" ", "-") for one in CASES]

    def place(path: Path) -> tuple[str, int, int]:
        name, _, seed = path.stem.rpartition("-")
        return path.parent.name, order.index(name), int(seed)

    return sorted(folder.glob("*/*.jsonl"), key=place)
