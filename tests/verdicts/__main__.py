"""`python -m tests.verdicts`: the table of verdicts, of trainings with a known truth and of the corpus.

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
from tests.targets.process import RunError
from tests.verdicts.cases import CASES, DEVICES, Case
from tests.verdicts.corpus import check
from tests.verdicts.judging import Row, judge
from tests.verdicts.replaying import dump, dumps, replay
from tests.verdicts.running import run

HEAD = [
    "case",
    "device",
    "seed",
    "right",
    "said",
    "sure",
    "since",
    "planted",
    "slope",
    "after",
    "revised",
    "",
]

CORPUS = Path("../shared/corpus")


def tell(text: str) -> None:
    """Say how far it is."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.verdicts", description=__doc__)
    parser.add_argument("--device", choices=(*DEVICES, "all", "none"), default="all")
    parser.add_argument("--case", action="append", choices=[one.name for one in CASES])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="of each training, instead of its own number")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to a file, too")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="keep the records of each run")
    parser.add_argument("--replay", type=Path, metavar="DIR", help="judge kept records instead of running")
    parser.add_argument("--story", action="store_true", help="tell each change of each verdict")
    parser.add_argument(
        "--corpus",
        type=Path,
        nargs="?",
        const=CORPUS,
        metavar="DIR",
        help="then read the files of the corpus that tell of memory",
    )
    asked = parser.parse_args()
    code = 0 if asked.device == "none" else trainings(asked)
    return code if not asked.corpus or check(asked.corpus) else 1


def trainings(asked: argparse.Namespace) -> int:
    """Run or replay the trainings and print their table; return 0 when every row holds."""
    rows, failed = [], 0
    began = time.monotonic()
    for one in _replayed(asked) if asked.replay else _run(asked):
        if isinstance(one, str):
            failed += 1
            tell(one)
            continue
        rows.append(one)
        words = " ".join(f"{kind}@{step}" for step, kind in one.story) if asked.story else one.got
        tell(f"{'ok   ' if one.holds else 'WRONG'} {one.case} {one.device} {one.seed}: {words}")
    if rows:
        table(f"verdicts, {time.monotonic() - began:.0f} s; {busy()}", HEAD, [_cells(one) for one in rows])
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
        reason = why_not() if device == "npu" else None
        if reason is not None:
            yield f"no simulated NPU: {reason}"
            continue
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            try:
                done = run(case, device, seed, asked.steps)
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
    false = ", ".join(f"{kind} at {step}" for kind, step in row.false_alarms)
    return [
        row.case,
        row.device,
        str(row.seed),
        row.expected,
        row.got,
        f"{row.confidence:.2f}",
        "" if row.since is None else f"{row.since:.0f}",
        "" if row.planted is None else f"{row.planted / 1024:.1f} KiB",
        "" if row.slope is None else f"{row.slope / 1024:.1f} KiB",
        "never" if row.steps_to is None else f"{row.steps_to:.0f} of {row.within}",
        str(row.revisions),
        "" if row.holds else " ".join(("WRONG", false, row.missed and f"never {row.missed}")).strip(),
    ]


def _told(rows: list[Row]) -> None:
    healthy = [row for row in rows if row.case in {case.name for case in CASES if case.is_healthy}]
    print(f"\nright and in time: {sum(row.holds for row in rows)} of {len(rows)}")
    print(f"false leaks: {sum(bool(row.false_alarms) for row in rows)} runs of {len(rows)}", end="; ")
    print(f"in healthy trainings {sum(bool(row.false_alarms) for row in healthy)} of {len(healthy)}")
    fast = [row for row in rows if (row.planted or 0) >= 1 << 20 and row.steps_to is not None]
    if fast:
        worst = max(fast, key=lambda row: row.steps_to or 0)
        print(f"onset to verdict of 1 MiB a step and more: at most {worst.steps_to:.0f} steps ({worst.case})")


if __name__ == "__main__":
    # Nothing here imports torch; the trainings are told what they need.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    sys.exit(main())
