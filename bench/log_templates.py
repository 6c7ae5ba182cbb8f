"""Clusters of lines whose template is known: ours beside drain3's, by grouping accuracy and time.

Grouping accuracy counts the lines whose cluster holds exactly the lines of their template.  A folder of other
labelled logs, `*_structured.csv` with the columns Content and EventId, is named by LOGHUB.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

from ascend_tui_plugins.logs.sighting import Line
from ascend_tui_plugins.logs.templates import Templates

from bench.log_mix import labelled
from bench.log_shapes import SHAPES
from bench.target import table

LINES = 2000
USUAL = (
    (r"((?<=[^A-Za-z0-9])|^)(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})((?=[^A-Za-z0-9])|$)", "IP"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9a-f]{6,} ?){3,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)(0x[a-f0-9A-F]+)((?=[^A-Za-z0-9])|$)", "HEX"),
    (r"((?<=[^A-Za-z0-9])|^)([\-\+]?\d+)((?=[^A-Za-z0-9])|$)", "NUM"),
)
"""Masks that drain3's own example has."""


def run() -> None:
    """Print both, system by system, and the means."""
    how: dict[str, Callable[[Sequence[str]], Sequence[Hashable]]] = {"ours": ours}
    if importlib.util.find_spec("drain3") is None:
        print("drain3 is not installed here: left out", file=sys.stderr)
    else:
        how |= {"drain3": drain, "drain3, masked": lambda lines: drain(lines, USUAL)}
    for title, logs in (("lines of our own", list(generated())), ("labelled logs of LOGHUB", list(loghub()))):
        if not logs:
            continue
        right: dict[str, list[float]] = {name: [] for name in how}
        spent: Counter[str] = Counter()
        rows = []
        for system, truth, lines in logs:
            row = [system]
            for name, cluster in how.items():
                began = time.perf_counter()
                found = cluster(lines)
                spent[name] += time.perf_counter() - began
                right[name].append(accuracy(found, truth))
                row.append(f"{right[name][-1]:.3f}")
            rows.append(row)
        lines_in_all = sum(len(lines) for _, _, lines in logs)
        size = sum(len(line.encode()) + 1 for _, _, lines in logs for line in lines)
        rows.append(["mean", *(f"{sum(found) / len(found):.3f}" for found in right.values())])
        rows.append(["lines/s", *(f"{lines_in_all / spent[name]:,.0f}" for name in how)])
        rows.append(["MB/s", *(f"{size / 1e6 / spent[name]:.1f}" for name in how)])
        table(f"grouping accuracy, {title}", ["system", *how], rows)


def accuracy(found: Sequence[Hashable], truth: Sequence[Hashable]) -> float:
    """Return the share of lines whose cluster is exactly their template."""
    clusters: defaultdict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for cluster, label in zip(found, truth):
        clusters[cluster][label] += 1
    sizes = Counter(truth)
    right = (next(iter(one.items())) for one in clusters.values() if len(one) == 1)
    return sum(count for label, count in right if count == sizes[label]) / len(truth)


def ours(lines: Sequence[str]) -> Sequence[Hashable]:
    """Return the cluster of each line as the digest makes them: by its bytes without digits first."""
    templates, keys = Templates(), []
    for number, line in enumerate(lines, 1):
        key = line.encode("utf-8", "replace").translate(None, b"0123456789")
        keys.append(key)
        if not templates.add(key, 1, number):
            templates.take(key, Line(line, line, number))
    templates.result()
    return [templates.text_of(key) for key in keys]


def drain(lines: Sequence[str], masks: Sequence[tuple[str, str]] = ()) -> Sequence[Hashable]:
    """Return the cluster of each line by drain3 as it comes."""
    from drain3 import TemplateMiner
    from drain3.masking import MaskingInstruction
    from drain3.template_miner_config import TemplateMinerConfig

    config = TemplateMinerConfig()
    config.profiling_enabled = False
    config.masking_instructions = [MaskingInstruction(pattern, name) for pattern, name in masks]
    miner = TemplateMiner(config=config)
    return [miner.add_log_message(line)["cluster_id"] for line in lines]


def generated() -> Iterator[tuple[str, Sequence[Hashable], Sequence[str]]]:
    for system in SHAPES:
        made = labelled(system, LINES)
        yield system, [label for label, _ in made], [line for _, line in made]


def loghub() -> Iterator[tuple[str, Sequence[Hashable], Sequence[str]]]:
    folder = os.environ.get("LOGHUB", "")
    for path in sorted(Path(folder).glob("*_structured.csv")) if folder else ():
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            rows = list(csv.DictReader(file))
        yield path.name.split("_")[0], [row["EventId"] for row in rows], [row["Content"] for row in rows]
