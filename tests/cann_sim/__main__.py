"""Run a command on simulated Ascend devices: `python -m tests.cann_sim [--soc …] COMMAND [arguments …]`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.cann_sim.simulator import simulator, why_not


def main() -> int:
    """Build the simulator if need be and become the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.cann_sim", description=__doc__)
    parser.add_argument("--soc", default="Ascend910B3", help="the chip; Ascend910A saturates")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--hbm-mib", type=int, default=4096, help="memory of each device")
    parser.add_argument("--faults", default="", help="what goes wrong, and when: see README.md")
    parser.add_argument("--costs", default="", help="how long kernels take, as aclnnMm=200us;*=5us")
    parser.add_argument(
        "--ledger", type=Path, help="a file; processes that name the same one share the devices"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    reason = why_not()
    if reason is not None or not asked.command:
        print(reason or parser.format_usage(), file=sys.stderr)
        return 2
    env = simulator().environment(
        soc=asked.soc,
        devices=asked.devices,
        hbm_mib=asked.hbm_mib,
        faults=asked.faults,
        costs=asked.costs,
        ledger=asked.ledger,
    )
    os.execvpe(asked.command[0], asked.command, env)


if __name__ == "__main__":
    sys.exit(main())
