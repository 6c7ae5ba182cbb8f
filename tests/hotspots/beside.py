"""`python -m tests.hotspots.beside`: our live table of the demo's training beside torch.profiler's.

The demo's own training is attached to, and some of its steps are looked at; then the same training runs again
under torch.profiler, and key_averages() makes its table.  Shares are of the self time of all operators.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from ascend_tui_plugins.hotspots import decode

from bench.target import busy, table
from tests.cann_sim.simulator import why_not
from tests.hotspots.cases import Case
from tests.hotspots.running import START_S, Watch, environment
from tests.targets.process import Process, RunError

TARGETS = Path(__file__).parent.parent / "targets"
DEMO = Path(__file__).parents[2] / "ascend_tui" / "demo" / "training.py"
POINTS = 3.0
Sums = dict[str, tuple[float, float]]
"""By the name of an operator its calls and its self time in microseconds, of one step."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hotspots.beside", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "npu"), default="cpu")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--rows", type=int, default=15)
    asked = parser.parse_args()
    reason = None if asked.device == "cpu" else why_not()
    if reason is not None:
        print(f"no simulated NPU: {reason}")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="ascend-tui-beside-"))
    try:
        ours, step_s = _ours(asked, folder)
        theirs = _theirs(asked, folder)
    except RunError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    worst = compare(ours, {name: tuple(one) for name, one in theirs["host"].items()}, asked.rows)
    print(f"a step: {step_s * 1e3:.1f} ms of the one, {theirs['step_s'] * 1e3:.1f} ms of the other; {busy()}")
    print(f"key_averages() of three steps takes {theirs['key_averages_s'] * 1e3:.0f} ms")
    print(f"largest difference: {worst:.1f} points; within {POINTS:.0f}: {worst <= POINTS}")
    return 0 if worst <= POINTS else 1


def _ours(asked: argparse.Namespace, folder: Path) -> tuple[Sums, float]:
    """Return the means over the samples of the demo's training, and the median of its steps."""
    case = Case("demo", {}, every=asked.every, samples=asked.samples)
    env = environment(asked.device, folder)
    with Process(DEMO, folder / "ours", env, ["--fault", "none"]) as process:
        process.wait_for("{", START_S)
        watch = Watch(case, process, folder, 0.5)
        watch.samples_only()
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    samples = [one for one in watch.watching.records if one.kind == "sample"]
    for record in samples:
        for row in decode.sample(record.data, record.step).rows:
            found[row.name].append((row.calls, row.self_time_us))
    sums = {
        name: (sum(calls for calls, _ in rows) / len(samples), sum(us for _, us in rows) / len(samples))
        for name, rows in found.items()
    }
    steps = [frame.targets[0].status.step_time_s for frame in watch.frames if frame.targets]
    return sums, statistics.median(one for one in steps if one)


def _theirs(asked: argparse.Namespace, folder: Path) -> dict[str, object]:
    env = environment(asked.device, folder)
    # The demo's training is a program beside the package.
    env["PYTHONPATH"] = os.pathsep.join([str(DEMO.parents[2]), env.get("PYTHONPATH", "")])
    device = "cpu" if asked.device == "cpu" else "npu:0"
    with Process(TARGETS / "hotspots_peer.py", folder / "theirs", env, ["--device", device]) as process:
        process.wait_for("end", 4 * START_S)
        line = next(line for line in process.lines() if line.startswith("sums "))
    return dict(json.loads(line.partition(" ")[2]))


def compare(ours: Sums, theirs: Sums, most: int) -> float:
    """Print both tables side by side; return the largest difference of a share, in points."""
    our_us, their_us = (sum(us for _, us in sums.values()) for sums in (ours, theirs))
    rows, worst = [], 0.0
    for name in sorted(set(ours) | set(theirs), key=lambda one: -ours.get(one, (0, 0))[1]):
        (our_calls, our_time), (calls, time) = ours.get(name, (0.0, 0.0)), theirs.get(name, (0.0, 0.0))
        share, other = 100 * our_time / our_us, 100 * time / their_us
        worst = max(worst, abs(share - other))
        cells = [f"{share:.1f}", f"{other:.1f}", f"{share - other:+.1f}", f"{our_time:,.0f}", f"{time:,.0f}"]
        rows.append([name[:60], *cells, f"{our_calls:g}", f"{calls:g}"])
    head = ["operator", "ours %", "torch %", "points", "ours us", "torch us", "ours calls", "torch calls"]
    table("self time of a step on the host", head, rows[:most])
    whole = [sum(float(row[at]) for row in rows[:most]) for at in (1, 2)]
    print(f"\nthese are {whole[0]:.0f} % of the one and {whole[1]:.0f} % of the other, {len(rows)} in all")
    return worst


if __name__ == "__main__":
    # Nothing here imports torch; the trainings are told what they need.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    sys.exit(main())
