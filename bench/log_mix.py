"""Logs of healthy trainings and of broken ones, from seeds: for benchmarks, and for tests of false alarms."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.log_runs import WRITERS, Run
from bench.log_shapes import SHAPES, WORDS

ROOT = Path(__file__).parent.parent
CORPORA = (ROOT.parent / "shared" / "corpus", ROOT / "tests" / "corpus" / "logs")
"""Where lines of incidents come from: the first of them that is there."""
NEGATIVE = ("L25", "L35", "healthy_")
"""Files of a corpus in which nothing is wrong."""


def _stamp(chooser: random.Random) -> str:
    day, at = chooser.randrange(1, 29), chooser.randrange(86400)
    return f"2031-{chooser.randrange(1, 13):02d}-{day:02d} {at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}"


def _cann(chooser: random.Random) -> str:
    return f"{_stamp(chooser).replace(' ', '-')}.{chooser.randrange(1000):03d}.{chooser.randrange(1000):03d}"


def _uuid(chooser: random.Random) -> str:
    text = f"{chooser.getrandbits(128):032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _path(chooser: random.Random) -> str:
    middle = "/".join(chooser.choices(WORDS, k=chooser.randrange(1, 4)))
    suffix = chooser.choice(("pt", "bin", "json"))
    return f"/data/{middle}/{chooser.choice(WORDS)}-{chooser.randrange(100000)}.{suffix}"


PLACES: dict[str, Callable[[random.Random], str]] = {
    "n": lambda one: str(one.randrange(1, 10 ** one.randrange(1, 5))),
    "r": lambda one: str(one.randrange(8)),
    "big": lambda one: str(one.randrange(10**6, 10**11)),
    "pid": lambda one: str(one.randrange(1000, 4_000_000)),
    "f": lambda one: f"{one.lognormvariate(1, 2):.{one.randrange(1, 5)}f}",
    "hex": lambda one: f"0x{one.getrandbits(44):x}",
    "ip": lambda one: f"192.0.2.{one.randrange(256)}",
    "pad2": lambda one: f"{one.randrange(60):02d}",
    "pad3": lambda one: f"{one.randrange(1000):03d}",
    "stamp": _stamp,
    "cann": _cann,
    "short": lambda one: _stamp(one)[5:],
    "glog": lambda one: f"{_stamp(one)[5:].replace('-', '')}.{one.randrange(10**6):06d}",
    "apache": lambda one: f"{one.randrange(1, 29):02d}/Mar/2031:{_stamp(one)[11:]} +0000",
    "uuid": _uuid,
    "path": _path,
    "word": lambda one: one.choice(WORDS),
}


def labelled(system: str, lines: int, seed: int = 7) -> list[tuple[int, str]]:
    """Return lines of a system, each with the number of the template that it was made from; some are rare."""
    chooser = random.Random(f"{system} {seed}")
    shapes = SHAPES[system]
    weights = [1 / (place + 1) for place in range(len(shapes))]
    picked = chooser.choices(range(len(shapes)), weights, k=lines)
    return [(number, fill(shapes[number], chooser)) for number in picked]


def fill(shape: str, chooser: random.Random) -> str:
    """Return a line of a shape with new values."""
    parts = []
    for text, name, _, _ in string.Formatter().parse(shape):
        parts.append(text)
        if name is not None:
            parts.append(PLACES[name](chooser))
    return "".join(parts)


def healthy(
    seed: int, size: int, writers: Sequence[Callable[[Run], str]] = WRITERS, turn: int = 400
) -> Iterator[bytes]:
    """Yield blocks of a log in which nothing is wrong: each writer one training that goes on.

    Of four lines three are metric lines, and one is another line: one in ten of these was never there before.
    """
    chooser = random.Random(seed)
    runs = [
        (writer, Run(seed * 1000 + place, chooser.choice((1, 1, 10, 50))))
        for place, writer in enumerate(writers)
    ]
    # Filling places costs more than all else.
    others = [line for system in SHAPES for _, line in labelled(system, 300, seed)]
    shapes = [shape for system in SHAPES.values() for shape in system]
    made = 0
    while made < size:
        for writer, run in runs:
            lines = []
            for number in range(turn):
                run.next()
                lines.append(writer(run))
                if number % 30 == 0:
                    lines.append(fill(chooser.choice(shapes), chooser))
                elif number % 3 == 0:
                    lines.append(chooser.choice(others))
            block = ("\n".join(lines) + "\n").encode()
            made += len(block)
            yield block
            if made >= size:
                return


def incidents(folders: Sequence[Path] = CORPORA) -> list[list[bytes]]:
    """Return the lines of each log of a corpus in which something is wrong."""
    for folder in folders:
        files = [file for file in sorted(folder.glob("*.log")) if not file.name.startswith(NEGATIVE)]
        if files:
            return [
                [line for line in file.read_bytes().splitlines() if not line.startswith(b"#SRC ")]
                for file in files
            ]
    return []


_CLOCK = re.compile(rb"\b\d\d:\d\d:\d\d\b")
_PID = re.compile(rb"(?i)(\bpid[=: ]{1,2})(\d{1,9})")
_ADDRESS = re.compile(rb"0x[0-9a-f]{8,}")


def varied(lines: Sequence[bytes], chooser: random.Random) -> bytes:
    """Return the lines of an incident at another time, of another process, with other addresses."""
    at, moved = chooser.randrange(86400), chooser.randrange(1, 3_000_000)
    clock = f"{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}".encode()
    text = _CLOCK.sub(clock, b"\n".join(lines) + b"\n")
    text = _PID.sub(lambda found: found[1] + b"%d" % (int(found[2]) + moved), text)
    return _ADDRESS.sub(lambda _: b"0x%x" % chooser.getrandbits(48), text)


def build(path: Path, size: int, share: float, seed: int = 7) -> dict[str, float]:
    """Write a log of `size` bytes, `share` of them lines of incidents; return the bytes that were put in."""
    chooser = random.Random(seed)
    known = incidents()
    parts = {"healthy": 0.0, "incidents": 0.0, "times": 0.0}
    with path.open("wb") as file:
        for block in healthy(seed, size):
            parts["healthy"] += file.write(block)
            while known and parts["incidents"] < share * (parts["healthy"] + parts["incidents"]):
                parts["incidents"] += file.write(varied(chooser.choice(known), chooser))
                parts["times"] += 1
            if parts["healthy"] + parts["incidents"] >= size:
                break
    return parts
