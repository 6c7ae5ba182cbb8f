"""`python -m bench [NAME ...] [--quick]`: idle, latency, cycles, screen."""

from __future__ import annotations

import argparse
import os
import platform
import sys

from bench import cycles, idle, latency, screen
from bench.target import busy

# Where torch_npu is installed for the tests, `import torch` would fail for want of CANN.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help="idle, latency, cycles, screen (all)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    options = parser.parse_args()
    quick = options.quick
    runs = {
        "idle": lambda: idle.run(6 if quick else 36),
        "latency": lambda: latency.run(3 if quick else 15),
        "cycles": lambda: cycles.run(20 if quick else 200),
        "screen": lambda: screen.run(6 if quick else 20),
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
