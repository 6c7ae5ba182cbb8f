"""A large op_summary: our reader beside pandas (`read_csv` and `groupby`), time and peak memory, interleaved.

Each reader runs in a process of its own and says what it took, its imports included; its peak is VmHWM.  The
file is made here by the grammar of op_summary and kernel_details: quoted shapes, stamps with a tab in quotes,
N/A in the rows of communication.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.target import median, table

ROWS = 1_000_000
HEAD = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),"
    "Task Duration(us),Task Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,"
    "Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
    "aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,aic_scalar_time(us),aic_scalar_ratio,aic_mte1_time(us),"
    "aic_mte1_ratio,aic_mte2_time(us),aic_mte2_ratio,aic_fixpipe_time(us),aic_fixpipe_ratio,aic_icache_miss_rate,"
    "aiv_time(us),aiv_total_cycles,aiv_vec_time(us),aiv_vec_ratio,aiv_scalar_time(us),aiv_scalar_ratio,aiv_mte2_time(us),aiv_mte2_ratio,"
    "aiv_mte3_time(us),aiv_mte3_ratio,aiv_icache_miss_rate,cube_utilization(%)"
)
KINDS = (
    ("MatMulV3", "AI_CORE"),
    ("BatchMatMulV2", "AI_CORE"),
    ("FlashAttentionScore", "MIX_AIC"),
    ("Add", "AI_VECTOR_CORE"),
    ("Mul", "AI_VECTOR_CORE"),
    ("Cast", "AI_VECTOR_CORE"),
    ("LayerNormV4", "AI_VECTOR_CORE"),
    ("Transpose", "AI_VECTOR_CORE"),
    ("SoftmaxV2", "AI_VECTOR_CORE"),
    ("GeluGrad", "AI_VECTOR_CORE"),
    ("ReduceSum", "AI_VECTOR_CORE"),
    ("hcom_allReduce_", "HCCL"),
)
# The last line of each: what it took, and the time of all tasks as a proof that it read them.
_END = """
took = time.perf_counter() - began
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([took, peak / 1024, total]))
"""
_BEGIN = "import json, sys, time\nbegan = time.perf_counter()\n"
_OURS = """
from pathlib import Path
from ascend_tui_plugins.hotspots.files import read
total = read(Path(sys.argv[1])).total_time_us
"""
_PLAIN = "sys.modules['polars'] = None\n" + _OURS
_PANDAS = """
import pandas
found = pandas.read_csv(sys.argv[1])
rows = found.groupby("OP Type")["Task Duration(us)"].agg(["sum", "count", "mean", "min", "max"])
rows = rows.sort_values("sum", ascending=False)
total = float(rows["sum"].sum())
"""
_SAME = """
import pandas
found = pandas.read_csv(sys.argv[1])
spent = [name for name in found.columns if name.startswith("ai") and name.endswith("time(us)")]
rows = found.groupby("OP Type").agg(
    {"Task Duration(us)": ["sum", "count", "mean", "min", "max"], "Task Wait Time(us)": "sum"}
    | {name: "sum" for name in spent}
)
by_shapes = found.groupby(["OP Type", "Input Shapes", "Input Data Types"])
shapes = by_shapes["Task Duration(us)"].agg(["sum", "count"])
total = float(rows["Task Duration(us)"]["sum"].sum())
"""


def run(rounds: int, rows: int = ROWS) -> None:
    """Print the medians of each reader and of the ratios to pandas; say what is not there to be measured."""
    readers = {"pandas": _PANDAS, "pandas, the same sums": _SAME, "ours": _OURS, "ours, no polars": _PLAIN}
    absent = [name for name in ("pandas", "polars") if importlib.util.find_spec(name) is None]
    for name in absent:
        print(f"\nprofiles: {name} is not installed here: what needs it is left out")
    if "pandas" in absent:
        readers = {name: text for name, text in readers.items() if "pandas" not in name}
    if "polars" in absent:
        readers.pop("ours", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "op_summary.csv")
        with path.open("w") as file:
            file.writelines(lines(rows))
        size_mb = path.stat().st_size / 1e6
        taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in readers}
        for number in range(rounds):
            for name in list(readers)[number % len(readers) :] + list(readers)[: number % len(readers)]:
                taken[name].append(measure(readers[name], path))
    totals = [one[2] for runs in taken.values() for one in runs]
    assert max(totals) - min(totals) <= 1e-6 * max(totals), totals
    printed = []
    for name, runs in taken.items():
        row = [
            name,
            f"{median([one[0] for one in runs]):.2f} s",
            f"{median([one[1] for one in runs]):.0f} MiB",
        ]
        for peer in ("pandas", "pandas, the same sums"):
            pairs = list(zip(runs, taken.get(peer, ())))
            row.append(f"{median([one[0] / two[0] for one, two in pairs]):.2f}" if pairs else "-")
            row.append(f"{median([one[1] / two[1] for one, two in pairs]):.2f}" if pairs else "-")
        printed.append(row)
    table(
        f"an op_summary of {rows:,} rows, {size_mb:.0f} MB, {rounds} rounds: medians, and of the ratios",
        ["reader", "time", "peak", "/pandas: time", "peak", "/the same sums: time", "peak"],
        printed,
    )


def measure(text: str, path: Path) -> tuple[float, float, float]:
    """Return seconds, MiB at the peak and the time of all tasks that one reader found."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + text + _END, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    took, peak, total = json.loads(done.stdout.splitlines()[-1])
    return float(took), float(peak), float(total)


def lines(rows: int, seed: int = 7) -> Iterator[str]:
    """Yield an op_summary with its header."""
    chooser = random.Random(seed)
    yield HEAD + "\n"
    at_ns = 1_800_000_000_000_000_000
    for number in range(rows):
        kind, core = chooser.choice(KINDS)
        took = chooser.lognormvariate(3, 1.2)
        at_ns += int(took * 1000) + chooser.randrange(100, 3000)
        start = f'"{at_ns // 1000}.{at_ns % 1000:03d}\t"'
        if core == "HCCL":
            name = f"{kind}_445_{number}"
            yield f"0,4294967295,N/A,N/A,{name},{kind},N/A,HCCL,{start},{took:.3f},1.2,0{',N/A' * 34}\n"
            continue
        high, wide = chooser.choice((512, 1024, 2048, 4096)), chooser.choice((128, 256, 4096))
        cells = [
            "0",
            "4294967295",
            str(number),
            "2",
            f"aclnn{kind}_{kind}AiCore_{kind}",
            kind,
            "dynamic",
            core,
        ]
        cells += [start, f"{took:.3f}", f"{chooser.random() * 3:.3f}", "40", "0", "NO"]
        cells += [f'"""{high},{wide};{wide},{high}"""', "DT_BF16;DT_BF16", "ND;ND", f'"""{high},{high}"""']
        cells += ["DT_BF16", "ND", "N/A"]
        cells += _unit(chooser, took * 0.97, 5) if core != "AI_VECTOR_CORE" else ["0"] * 13
        cells += _unit(chooser, took * 0.97, 4) if core != "AI_CORE" else ["0"] * 11
        cells.append(f"{chooser.random() * 100:.3f}" if core == "AI_CORE" else "0")
        yield ",".join(cells) + "\n"


def _unit(chooser: random.Random, spent: float, units: int) -> list[str]:
    cells = [f"{spent:.3f}", str(int(spent * 37000))]
    for _ in range(units):
        ratio = chooser.random()
        cells += [f"{spent * ratio:.3f}", f"{ratio:.3f}"]
    return [*cells, "0.002"]


if __name__ == "__main__":
    run(1 if "--quick" in sys.argv else 5, 100_000 if "--quick" in sys.argv else ROWS)
