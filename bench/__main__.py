"""`python -m bench [NAME ...] [--quick]`: what an attach costs, and each of its parts; peers beside."""

from __future__ import annotations

import argparse
import os
import platform
import sys

from bench import (
    cycles,
    holders,
    host,
    hotspots,
    idle,
    latency,
    logs,
    logs_tee,
    overflow,
    profiles,
    reuse,
    screen,
    weeks,
)
from bench.target import busy

# Where torch_npu is installed for the tests, `import torch` would fail for want of CANN.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="idle, latency, cycles, holders, host, overflow, hotspots, profiles, logs, logs_tee, screen,"
        " reuse, weeks (all)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    options = parser.parse_args()
    quick = options.quick
    runs = {
        "idle": lambda: idle.run(6 if quick else 36),
        "latency": lambda: latency.run(3 if quick else 15),
        "cycles": lambda: cycles.run(20 if quick else 200),
        "host": lambda: host.run(50 if quick else 300),
        "overflow": lambda: overflow.run(3 if quick else 12),
        "hotspots": lambda: hotspots.run(4 if quick else 12),
        "profiles": lambda: profiles.run(1, 100_000) if quick else profiles.run(5),
        "logs": lambda: logs.run(60, 20, 1) if quick else logs.run(500, 100, 3),
        "logs_tee": lambda: logs_tee.run(10 if quick else 60),
        "screen": lambda: screen.run(6 if quick else 20),
        "holders": lambda: holders.run(3 if quick else 12),
        "reuse": lambda: reuse.run(3 if quick else 12),
        "weeks": lambda: weeks.run(300_000 if quick else 18_000_000),
    }
    unknown = set(options.names) - set(runs)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(runs)}")
    print(f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}, {busy()}")
    for name, run in runs.items():
        if not options.names or name in options.names:
            run()
    print(f"\nat the end: {busy()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
