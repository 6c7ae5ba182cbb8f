"""`python -m soak [--cycles N] [--kills N] [--minutes M] [--device cpu|npu] [--seed S] [--json]`."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys

from bench.target import busy, table
from soak.cycles import run
from soak.tally import Tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--cycles", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=0.0, help="end after so long at the latest")
    parser.add_argument("--device", choices=("cpu", "npu"), default="cpu")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    asked = parser.parse_args()

    def tell(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    tell(f"seed {asked.seed}; {busy()}")
    tally = Tally(asked.seed, "cpu" if asked.device == "cpu" else "npu:0")
    run(tally, asked.cycles, asked.kills, asked.minutes, tell)
    if asked.json:
        sys.stdout.write(json.dumps(tally.as_json()) + "\n")
    else:
        title = f"soak on the GPT with 2 workers, {tally.device}, seed {tally.seed}"
        table(title, ["what", "found"], tally.rows())
    tell(f"at the end: {busy()}")
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    # Nothing here imports torch; the trainings are told what they need.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    sys.exit(main())
