"""Run every check inside the emulated machine; each prints one line that the outside reads."""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.aarch64 import attaches, permissions, registers, waits, whole
from tests.aarch64.machine_marks import END, RESULT

Check = Callable[[int], "tuple[int, str]"]
# The last one forbids tracing until the next boot.
CHECKS: dict[str, Check] = {
    **attaches.CHECKS,
    **registers.CHECKS,
    **waits.CHECKS,
    **whole.CHECKS,
    **permissions.CHECKS,
}


def main() -> None:
    """Run the checks in order; one that fails does not keep the others from running."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--attaches", type=int, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    say("the machine", None, 0, 0.0, describe())
    for name, check in CHECKS.items():
        if options.only not in name:
            continue
        began = time.monotonic()
        try:
            count, text = check(options.attaches)
            ok = True
        except Exception as error:
            traceback.print_exc()
            ok, count, text = False, 0, f"{type(error).__name__}: {error}"
        say(name, ok, count, time.monotonic() - began, text)
    say(END, None, 0, 0.0, "")


def say(name: str, ok: bool | None, count: int, seconds: float, text: str) -> None:
    """Print one result on a line of its own."""
    line = {"name": name, "ok": ok, "count": count, "seconds": seconds, "text": text}
    print(f"\n{RESULT}{json.dumps(line)}", flush=True)


def describe() -> str:
    """Return which kernel and processor this is, and how long its vectors are."""
    words = Path("/proc/cpuinfo").read_text().partition("Features")[2].partition("\n")[0].split()
    having = [name.upper() for name in ("sve", "sve2", "sme", "paca", "bti", "gcs") if name in words]
    length = Path("/proc/sys/abi/sve_default_vector_length")
    vector = f", vectors of {length.read_text().strip()} bytes" if "sve" in words else ""
    return (
        f"Linux {os.uname().release}, {os.cpu_count()} processors, {' '.join(having) or 'NEON only'}{vector}"
    )


if __name__ == "__main__":
    main()
