"""`python -m soak.versions [--python PATH] [--attaches N] [--json]`: every CPython that this machine has."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ascend_tui.attach import attach
from ascend_tui.connection import ShimError
from ascend_tui.target import RefusedError
from bench.target import busy, table
from soak.leftovers import look_until_as, usual
from soak.living import HarmError, Living, until
from soak.tally import figures

METHODS = ("auto", "pending")
OLDEST = (3, 8)
ASK = (
    "import json, platform, sys, sysconfig; print(json.dumps([platform.python_implementation(), "
    "platform.python_version(), bool(sysconfig.get_config_var('Py_GIL_DISABLED')), "
    "bool(sysconfig.get_config_var('Py_ENABLE_SHARED')), sys.base_prefix]))"
)


@dataclass
class Python:
    """One interpreter; `version` names it in the table."""

    path: str
    numbers: tuple[int, ...]
    version: str


@dataclass
class Row:
    """What was found with one Python and one method."""

    python: Python
    method: str
    attached: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    leftovers: Counter[str] = field(default_factory=Counter)
    stops_ms: list[float] = field(default_factory=list)
    hellos_ms: list[float] = field(default_factory=list)
    waits_ms: tuple[str, str] = ("", "")
    """How far timed waits were off, earliest and latest; of the undisturbed run too."""
    areas: int = 0
    """How many mappings of an injector were seen at once after a detach."""
    hashes: int = 0
    harm: str = ""

    @property
    def is_good(self) -> bool:
        """Tell whether each attach succeeded, nothing was harmed and nothing left."""
        return not (self.harm or self.leftovers or self.refused or self.areas) and self.hashes > 0


def found(extra: Sequence[str]) -> list[Python]:
    """Return the interpreters of pyenv, of PATH and of `extra` from 3.8 on, each installation once."""
    seen: dict[str, Python] = {}
    for path in _candidates(extra):
        try:
            done = subprocess.run(
                [path, "-I", "-c", ASK], capture_output=True, text=True, timeout=20, check=True
            )
            kind, version, is_free, is_shared, prefix = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            continue
        numbers = tuple(int("".join(filter(str.isdigit, word)) or 0) for word in version.split(".")[:3])
        if kind != "CPython" or numbers[:2] < OLDEST:
            continue
        name = version + ("t" if is_free else "") + (", shared" if is_shared else ", static")
        seen.setdefault(f"{prefix} {version}", Python(path, numbers, name))
    return sorted(seen.values(), key=lambda one: one.numbers)


def _candidates(extra: Sequence[str]) -> Iterable[str]:
    yield from extra
    yield from map(str, sorted(Path.home().glob(".pyenv/versions/*/bin/python")))
    for minor in range(8, 16):
        for suffix in ("", "t"):
            path = shutil.which(f"python3.{minor}{suffix}")
            if path:
                yield path
    yield sys.executable


def run(python: Python, attaches: int) -> list[Row]:
    """Attach to one program in this Python, again and again, by each method."""
    rows = []
    for method in METHODS:
        row = Row(python, method)
        rows.append(row)
        command = [python.path, "-m", "soak.resident", "FOLDER"]
        with Living(command) as target, Living(["nice", *command, "--sleep", "0"]) as twin:
            try:
                _run(row, target, twin, attaches)
            except HarmError as error:
                row.harm = str(error)
    return rows


def _run(row: Row, target: Living, twin: Living, attaches: int) -> None:
    if not until(lambda: target.hashes() or target.process.poll() is not None, 60.0, 0.05):
        raise HarmError("the program did not start")
    target.must_live()
    before = usual(target.target)
    for _ in range(attaches):
        try:
            attached = attach(target.target, name="soak", writable=True, method=row.method)
        except RefusedError as error:
            row.refused[error.refusal.code] += 1
        except ShimError as error:
            row.refused[type(error).__name__] += 1
        else:
            row.attached[attached.method] += 1
            row.stops_ms += attached.stops_ms
            row.hellos_ms.append(attached.hello_ms)
            attached.client.request("detach")
            attached.client.close()
        view = look_until_as(before, target.target, 5.0)
        if view is not None and view.shape != before.shape:
            row.leftovers.update(view.more_than(before))
            before = view
        row.areas = max(row.areas, sum(count for _, count in view.areas) if view is not None else 0)
        last = max(target.hashes())
        until(lambda last=last: max(target.hashes()) > last or target.process.poll() is not None, 30.0)
        target.must_live()
        if max(target.hashes()) == last:
            raise HarmError("no round has ended for 30 s")
    row.waits_ms = tuple((one.folder / "waits").read_text() for one in (target, twin))
    early_ms = float(row.waits_ms[0].split()[0])
    if early_ms < -1.0:
        raise HarmError(f"a timed wait ended {-early_ms:.1f} ms early")
    last = max(target.hashes())
    until(lambda: max(twin.hashes(), default=0) >= last, 120.0, 0.1)
    ours, known = target.hashes(), twin.hashes()
    common = [step for step in ours if step in known]
    if any(ours[step] != known[step] for step in common):
        raise HarmError("other numbers than the undisturbed run")
    row.hashes = len(common)


def as_json(row: Row) -> dict[str, Any]:
    """Return a row as plain data."""
    return {
        "python": row.python.version,
        "method": row.method,
        "attached": dict(row.attached),
        "refused": dict(row.refused),
        "leftovers": dict(row.leftovers),
        "areas": row.areas,
        "hashes": row.hashes,
        "harm": row.harm,
        "stop_ms": figures(row.stops_ms),
        "hello_ms": figures(row.hellos_ms),
        "waits_off_ms": [float(word) for word in row.waits_ms[0].split()],
        "waits_off_undisturbed_ms": [float(word) for word in row.waits_ms[1].split()],
    }


def _cells(row: Row) -> list[str]:
    data = as_json(row)
    return [
        data["python"],
        row.method,
        ", ".join(f"{method} {count}" for method, count in row.attached.items()) or "0",
        ", ".join(f"{code} {count}" for code, count in row.refused.items()) or "0",
        row.harm or "no",
        f"{row.hashes}, all the same",
        ", ".join(f"{kind} {count}" for kind, count in (row.leftovers + Counter(areas=row.areas)).items())
        or "0",
        _figures(data["stop_ms"]),
        _figures(data["hello_ms"]),
        " / ".join(_off(data[name]) for name in ("waits_off_ms", "waits_off_undisturbed_ms")),
    ]


def _off(values: list[float]) -> str:
    return f"{values[0]:.1f} … +{values[1]:.1f}" if values else "-"


def _figures(values: dict[str, float] | None) -> str:
    return "-" if values is None else f"{values['p50']:.2f} / {values['p99']:.2f} / {values['max']:.2f}"


HEAD = [
    "CPython", "method", "attached", "refused", "harmed", "hashes", "leftovers",
    "stop ms p50 / p99 / max", "hello ms p50 / p99 / max", "timed waits off ms / undisturbed",
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.versions", description=__doc__)
    parser.add_argument("--python", action="append", default=[], help="one more interpreter")
    parser.add_argument("--only", action="store_true", help="those of --python alone")
    parser.add_argument("--attaches", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of the table")
    asked = parser.parse_args()
    rows = []
    pythons = found(asked.python)
    if asked.only:
        pythons = [one for one in pythons if one.path in asked.python]
    for python in pythons:
        sys.stderr.write(f"{python.version} ({python.path})\n")
        rows += run(python, asked.attaches)
    if asked.json:
        for row in rows:
            sys.stdout.write(json.dumps(as_json(row)) + "\n")
    else:
        table(
            f"{asked.attaches} attaches each, two forked workers and waiting threads; {busy()}",
            HEAD,
            [_cells(row) for row in rows],
        )
    return 0 if rows and all(row.is_good for row in rows) else 1


if __name__ == "__main__":
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    sys.exit(main())
