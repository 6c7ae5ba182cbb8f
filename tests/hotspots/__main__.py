"""`python -m tests.hotspots`: what is said of trainings whose time goes to a known place, beside the truth.

Each training is attached to while it runs, by injection, and watched by the product's own session.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.target import busy, table
from tests.cann_sim.simulator import why_not
from tests.hotspots.cases import CASES, DEVICES, Case
from tests.hotspots.judging import Row, judge
from tests.hotspots.replaying import dump, dumps, replay
from tests.hotspots.running import run
from tests.targets.process import RunError

HEAD = ["case", "device", "true", "said", "numbers", "samples", "step ms", "pause ms", ""]


def tell(text: str) -> None:
    """Say how far it is."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hotspots", description=__doc__)
    parser.add_argument("--device", choices=(*DEVICES, "all"), default="all")
    parser.add_argument("--case", action="append", choices=[one.name for one in CASES])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--twin", action="store_true", help="compare the parameters with a run without us")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="keep the records of each run")
    parser.add_argument("--replay", type=Path, metavar="DIR", help="judge kept records instead of running")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to a file, too")
    asked = parser.parse_args()
    rows, failed = [], 0
    began = time.monotonic()
    for one in _replayed(asked) if asked.replay else _run(asked):
        if isinstance(one, str):
            failed += 1
            tell(one)
            continue
        rows.append(one)
        words = "; ".join(one.wrong) or one.said
        tell(f"{'ok   ' if one.holds else 'WRONG'} {one.case} {one.device} {one.seed}: {words}")
    if rows:
        table(f"hotspots, {time.monotonic() - began:.0f} s; {busy()}", HEAD, [_cells(one) for one in rows])
        _told(rows)
    if asked.json:
        asked.json.write_text(
            json.dumps([{**dataclasses.asdict(one), "holds": one.holds} for one in rows], indent=1)
        )
    return 0 if rows and not failed and all(one.holds for one in rows) else 1


def _chosen(asked: argparse.Namespace) -> Iterator[tuple[Case, str]]:
    for device in DEVICES if asked.device == "all" else (asked.device,):
        for case in CASES:
            if not asked.case or case.name in asked.case:
                yield case, device


def _run(asked: argparse.Namespace) -> Iterator[Row | str]:
    for case, device in _chosen(asked):
        if device not in case.truths:
            tell(f"      {case.name} {device}: {case.absent}")
            continue
        reason = None if device == "cpu" else why_not()
        if reason is not None:
            yield f"no simulated NPU: {reason}"
            continue
        for seed in range(1, 1 + asked.seeds):
            try:
                done = run(case, device, seed, twin=asked.twin)
            except RunError as error:
                yield f"FAILED {case.name} {device} {seed}: {error}"
                continue
            if asked.dump:
                dump(done, asked.dump)
            yield judge(done)


def _replayed(asked: argparse.Namespace) -> Iterator[Row]:
    wanted = [(case.name, device) for case, device in _chosen(asked)]
    for path in dumps(asked.replay):
        done = replay(path)
        if (done.case.name, done.device) in wanted:
            yield judge(done)


def _cells(row: Row) -> list[str]:
    return [
        row.case,
        row.device,
        row.expected,
        row.said,
        "; ".join(row.numbers)[:110],
        str(row.samples),
        f"{row.step_ms:.1f}",
        f"{row.pause_ms:.1f}",
        "" if row.holds else "WRONG " + "; ".join(row.wrong)[:90],
    ]


def _told(rows: list[Row]) -> None:
    healthy = [row for row in rows if row.case in {case.name for case in CASES if case.is_healthy}]
    print(f"\nright: {sum(row.holds for row in rows)} of {len(rows)}")
    print(f"false warnings: {sum(not row.holds for row in healthy)} of {len(healthy)} healthy trainings")


if __name__ == "__main__":
    # Nothing here imports torch; the trainings are told what they need.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    sys.exit(main())
