"""Prove the injector on aarch64: boot a machine in an emulator and attach to real processes inside it.

    python -m tests.aarch64                          # every processor in CPUS, 100 attaches of each kind
    python -m tests.aarch64 --cpu max --attaches 50
    python -m tests.aarch64 --only registers --keep  # one check, and a shell in the machine afterwards

It is no part of `make test`: it takes minutes, and it needs a Debian whose apt can be reached.  Nothing of
the system is changed and no root is needed.  The packages (kernel, C library, Python) go to build/aarch64
with apt's own signatures checked; kept there, they serve the next run without a network.  The machine has
two processors on two threads, so that races are real; its clock is the host's.  What it prints besides the
table lies in build/aarch64/console-CPU.log.

    apt-get install qemu-system-arm binutils-aarch64-linux-gnu     # what it needs and says when missing

What this proves and what not: every instruction, register and system call is emulated after the architecture,
under an unchanged Debian kernel.  Memory ordering is that of the host and speed is not that of a processor,
so the milliseconds in the table are no measurements of aarch64.  No real one has run this yet.
"""

from __future__ import annotations

import argparse
import sys

from tests.aarch64 import machine

CPUS = ("cortex-a72", "max", "max,sve=off")
COLUMNS = "{mark}  {name:<34} {count:>6}  {seconds:>6.1f} s  {text}"


def main() -> int:
    """Build what is missing, run the checks on each processor, print one table per processor."""
    parser = argparse.ArgumentParser(prog="python -m tests.aarch64", description=__doc__.partition("\n")[0])
    parser.add_argument("--cpu", action="append", help=f"a QEMU processor; default: {', '.join(CPUS)}")
    parser.add_argument("--attaches", type=int, default=100, help="attaches of each kind (100)")
    parser.add_argument("--only", default="", help="only the checks whose name holds this word")
    parser.add_argument("--keep", action="store_true", help="give a shell in the machine after the checks")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for one processor (1800)")
    options = parser.parse_args()
    try:
        built = machine.build()
    except machine.MissingError as error:
        print(error, file=sys.stderr)
        return 2
    failed = 0
    for cpu in options.cpu or CPUS:
        print(f"\n{cpu}", flush=True)
        arguments = ["--attaches", str(options.attaches), "--only", options.only]
        results = machine.run(built, cpu, arguments, options.timeout, options.keep)
        for result in results:
            failed += result["ok"] is False
            mark = {True: "ok  ", False: "FAIL"}.get(result["ok"], "    ")
            print(COLUMNS.format(**{**result, "mark": mark}), flush=True)
    print(f"\n{failed} failed" if failed else "\nall passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
