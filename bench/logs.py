"""Our digest of a large log beside drain3, and beside filters that only look for words: `python -m bench.logs`.

Each contestant reads the same bytes in a process of its own, bound to one core, in turns.  A rate is by the second
of CPU, user and system, without the start of Python; the slow ones read a slice from the middle, which is said, and
have it as lines before their time begins.  `--clean GB` digests a log in which nothing is wrong; `--templates` compares
clusters with drain3's where the right ones are known; `--follow` writes a log at a given rate and measures how far
behind its reader is.
"""

# ruff: noqa: E501 - programs as text
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import log_follow, log_templates
from bench.log_mix import build
from bench.target import busy, median, table

MB = 1_000_000
SHARES = {"mix": 0.01, "dense": 0.3}
"""What part of a log are lines of incidents, in bytes; all else is healthy metric lines and INFO lines."""

_BEGIN = """
import json, re, resource, sys
path, first, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def lines():
    with open(path, "rb") as file:
        file.seek(first)
        return file.read(size).split(b"\\n")
def spent():
    all_of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in all_of)
said = {}
"""
_END = """
took = spent() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([took, peak, said]))
"""
_WORDS = """
from ascend_tui_plugins.logs.knowledge import rules
words = sorted({needle for needles, _ in rules._ROWS for needle in needles if len(needle) > 3})
pattern = "|".join(map(re.escape, words))
"""
_OURS = """
from pathlib import Path
from ascend_tui_plugins.logs.from_files import read
began = spent()
found = read(Path(path))
said["lines"] = found.lines
said["alerts"] = sum(one.severity != "info" for one in found.incidents)
said["incidents"] = len(found.incidents)
said["metrics"] = len(found.metrics)
said["first"] = [(one.severity, one.headline.render()[:100], one.step, one.line, one.text[:160]) for one in found.incidents if one.severity != "info"][:12]
"""
_DRAIN = """
from drain3 import TemplateMiner
from drain3.template_miner_config import TemplateMinerConfig
config = TemplateMinerConfig()
config.profiling_enabled = False
if MASKED:
    from drain3.masking import MaskingInstruction
    from bench.log_templates import USUAL
    config.masking_instructions = [MaskingInstruction(pattern, name) for pattern, name in USUAL]
miner = TemplateMiner(config=config)
texts = [line.decode("utf-8", "replace") for line in lines()]
began = spent()
for text in texts:
    miner.add_log_message(text)
said["clusters"] = len(miner.drain.clusters)
"""
_GREP = (
    _WORDS
    + """
import os, subprocess, tempfile
with tempfile.NamedTemporaryFile("w", suffix=".grep") as words_file:
    text = "|".join(re.sub(r"([][\\\\.^$*+?(){}|])", r"\\\\\\1", word) for word in words)
    words_file.write(text + "\\n")
    words_file.flush()
    began = spent()
    done = subprocess.run(["grep", "-acE", "-f", words_file.name, path], capture_output=True, env={**os.environ, "LC_ALL": "C"})
    said["hits"] = int(done.stdout or 0)
"""
)
_RE = (
    _WORDS
    + """
search = re.compile(pattern.encode()).search
found = lines()
began = spent()
said["hits"] = sum(search(line) is not None for line in found)
"""
)
_RE2 = (
    _WORDS
    + """
import re2
search = re2.compile(pattern.encode()).search
found = lines()
began = spent()
said["hits"] = sum(search(line) is not None for line in found)
"""
)
_AHO = (
    _WORDS
    + """
import ahocorasick_rs
find = ahocorasick_rs.BytesAhoCorasick([word.encode() for word in words]).find_matches_as_indexes
found = lines()
began = spent()
said["hits"] = sum(bool(find(line)) for line in found)
"""
)
CONTESTANTS: dict[str, tuple[str, int, str]] = {
    # name: (code, MB that it reads, what has to be installed)
    "our digest": (_OURS, 0, ""),
    "grep -cE": (_GREP, 0, ""),
    "drain3": ("MASKED = False\n" + _DRAIN, 8, "drain3"),
    "drain3, masked": ("MASKED = True\n" + _DRAIN, 2, "drain3"),
    "re, each line": (_RE, 4, ""),
    "re2, each line": (_RE2, 32, "re2"),
    "ahocorasick_rs, each line": (_AHO, 32, "ahocorasick_rs"),
}


def run(mix_mb: int, dense_mb: int, rounds: int) -> None:
    """Build both logs and print what each contestant needs for them."""
    with tempfile.TemporaryDirectory() as folder:
        for name, size_mb in (("mix", mix_mb), ("dense", dense_mb)):
            path = Path(folder, name + ".log")
            parts = build(path, size_mb * MB, SHARES[name])
            title = (
                f"{name}: {path.stat().st_size / MB:.0f} MB, {100 * parts['incidents'] / sum(list(parts.values())[:2]):.1f} % of it lines of"
                f" {parts['times']:.0f} incidents; {rounds} rounds, medians, one core each"
            )
            compare(title, path, rounds)
            path.unlink()


def compare(title: str, path: Path, rounds: int) -> None:
    """Measure all contestants on one log, in turns."""
    here = {}
    for name, (code, slice_mb, needs) in CONTESTANTS.items():
        if needs and importlib.util.find_spec(needs) is None:
            print(f"{needs} is not installed here: left out", file=sys.stderr)
        else:
            here[name] = (code, slice_mb)
    size = path.stat().st_size
    rates: dict[str, list[float]] = {name: [] for name in here}
    peaks: dict[str, float] = {}
    said: dict[str, object] = {}
    for number in range(rounds):
        order = list(here)
        for name in order[number % len(order) :] + order[: number % len(order)]:
            code, slice_mb = here[name]
            read = min(slice_mb * MB, size) or size
            took, peak, said[name] = measure(code, path, (size - read) // 2, read)
            rates[name].append(read / MB / took)
            peaks[name] = max(peak, peaks.get(name, 0.0))
    rows = []
    for name, found in rates.items():
        row = [name, f"{median(found):.1f} MB/s"]
        for peer in ("drain3", "drain3, masked", "grep -cE"):
            pairs = list(zip(found, rates.get(peer, ())))
            row.append(f"{median([one / two for one, two in pairs]):.2f}" if pairs else "-")
        told = {key: value for key, value in dict(said[name]).items() if key != "first"}  # type: ignore[call-overload]
        row += [
            f"{peaks[name]:.0f} MiB",
            f"{here[name][1] or size // MB} MB",
            ", ".join(f"{value} {key}" for key, value in told.items()),
        ]
        rows.append(row)
    table(title, ["reader", "rate", "/drain3", "/drain3, masked", "/grep", "peak", "read", "found"], rows)


def clean(gigabytes: float) -> int:
    """Digest a log of healthy trainings; return the number of alerts, which has to be 0."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "clean.log")
        build(path, int(gigabytes * 1000 * MB), 0.0, seed=23)
        size = path.stat().st_size
        took, peak, said = measure(_OURS, path, 0, size)
    table(
        f"a clean log of {size / 1e9:.2f} GB",
        ["rate", "peak", "lines", "alerts", "metrics"],
        [
            [
                f"{size / MB / took:.1f} MB/s",
                f"{peak:.0f} MiB",
                f"{said['lines']:,}",
                str(said["alerts"]),
                str(said["metrics"]),
            ]
        ],
    )
    for one in said["first"]:
        print(" ", one)
    return int(said["alerts"])


def measure(code: str, path: Path, first: int, size: int) -> tuple[float, float, dict]:  # type: ignore[type-arg]
    """Return seconds, MiB at the peak and what one reader found, alone on one core."""
    core = max(os.sched_getaffinity(0))
    done = subprocess.run(
        [
            "taskset",
            "-c",
            str(core),
            sys.executable,
            "-c",
            _BEGIN + code + _END,
            str(path),
            str(first),
            str(size),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    took, peak, said = json.loads(done.stdout.splitlines()[-1])
    return float(took), float(peak), said


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.logs", description=__doc__)
    parser.add_argument("--mb", type=int, default=500, help="size of the mix (500)")
    parser.add_argument(
        "--dense-mb", type=int, default=100, help="size of the mix dense with incidents (100)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--clean", type=float, metavar="GB", help="a clean log of so many GB, and nothing else"
    )
    parser.add_argument("--follow", action="store_true", help="a log that grows, and nothing else")
    parser.add_argument("--lines-per-s", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--templates", action="store_true", help="clusters beside drain3's, and nothing else")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {busy()}")
    code = 0
    if options.clean:
        code = 1 if clean(options.clean) else 0
    elif options.follow:
        log_follow.run(options.lines_per_s, options.seconds)
    elif options.templates:
        log_templates.run()
    else:
        run(options.mb, options.dense_mb, options.rounds)
    print(f"\nat the end: {busy()}")
    return code


if __name__ == "__main__":
    sys.exit(main())
