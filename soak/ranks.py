"""`python -m soak.ranks [--ranks N] [--rounds N] [--json]`: one session attaches to all of a gloo job."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from contextlib import ExitStack, suppress
from typing import Any

from ascend_tui.controls import Outcome
from ascend_tui.frame import Frame, TargetStatus
from ascend_tui.plugin import load_all
from ascend_tui.session import Session
from bench.target import busy, table
from soak.leftovers import look_until_as, usual
from soak.living import HarmError, Living, environment, until

START_S = 180.0
ATTACH_S = 60.0


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def step_of(rank: Living) -> int:
    """Return the last step of a rank."""
    with suppress(OSError, ValueError, IndexError):
        return int((rank.folder / "step").read_text().split()[0])
    return 0


def must_go_on(ranks: list[Living]) -> None:
    """Raise HarmError unless each rank makes two steps more."""
    first = [step_of(one) for one in ranks]
    until(lambda: all(step_of(one) >= step + 2 for one, step in zip(ranks, first)), 60.0)
    for one, step in zip(ranks, first):
        one.must_live()
        if step_of(one) < step + 2:
            raise HarmError(f"rank in process {one.pid} stands still at step {step_of(one)}")


def one_round(ranks: list[Living]) -> dict[str, Any]:
    """Attach to all, one after the other, wait for each hello, and remove all shims."""
    before = [usual(one.target, 10) for one in ranks]
    hellos: dict[int, float] = {}
    refused: dict[int, str] = {}
    frames: list[Frame] = []
    session = Session(load_all(), name="soak", tick_s=0.2)
    began = time.monotonic()

    def take(frame: Frame) -> None:
        frames.append(frame)
        for one in frame.targets:
            note(one.status)

    def note(status: TargetStatus) -> None:
        if status.state in ("waiting", "live"):
            hellos.setdefault(status.id.pid, time.monotonic() - began)
        elif status.state in ("refused", "exited") and status.id.pid not in hellos:
            refused[status.id.pid] = status.reason.render() if status.reason else status.state

    session.start(take)
    targets = [one.target for one in ranks]
    for target in targets:
        session.add(target)
    until(lambda: len(hellos) + len(refused) == len(ranks), ATTACH_S)
    must_go_on(ranks)
    told: list[Outcome] = []
    for target in targets:
        session.remove(target.id, told.append)
    until(lambda: len(told) == len(ranks), 20.0)
    session.stop()
    must_go_on(ranks)
    left: dict[str, int] = {}
    for one, view in zip(ranks, before):
        now = look_until_as(view, one.target, 5.0)
        for kind, count in now.more_than(view).items() if now is not None else ():
            left[kind] = left.get(kind, 0) + count
    times = sorted(hellos.values())
    return {
        "attached": len(hellos),
        "refused": list(refused.values()),
        "all_s": round(times[-1], 2) if len(times) == len(ranks) else None,
        "between_ms": [round((b - a) * 1e3) for a, b in zip([0.0, *times], times)],
        "removed": sum(outcome.ok for outcome in told),
        "leftovers": left,
    }


def run(count: int, rounds: int) -> list[dict[str, Any]]:
    """Start a job of so many ranks and attach to it so many times.  Raises HarmError."""
    port = str(free_port())
    with ExitStack() as stack:
        ranks = []
        for rank in range(count):
            env = {
                **environment("cpu"),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
            ranks.append(stack.enter_context(Living([sys.executable, "-m", "soak.rank", "FOLDER"], env)))
        if not until(lambda: all(step_of(one) > 3 for one in ranks), START_S, 0.1):
            for one in ranks:
                one.must_live()
            raise HarmError("the job did not start")
        return [one_round(ranks) for _ in range(rounds)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.ranks", description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object per round instead of the table")
    asked = parser.parse_args()
    try:
        rounds = run(asked.ranks, asked.rounds)
    except HarmError as error:
        sys.stderr.write(f"harmed: {error}\n")
        return 1
    if asked.json:
        for one in rounds:
            sys.stdout.write(json.dumps(one) + "\n")
    else:
        head = [
            "round",
            "attached",
            "all within",
            "from hello to hello, ms",
            "refused",
            "removed",
            "leftovers",
        ]
        rows = [
            [
                str(number),
                str(one["attached"]),
                "-" if one["all_s"] is None else f"{one['all_s']:.2f} s",
                " ".join(map(str, one["between_ms"])),
                ", ".join(one["refused"]) or "0",
                str(one["removed"]),
                ", ".join(f"{kind} {count}" for kind, count in one["leftovers"].items()) or "0",
            ]
            for number, one in enumerate(rounds, 1)
        ]
        table(f"{asked.ranks} ranks of a gloo job, attached by one session; {busy()}", head, rows)
    return 0 if all(one["all_s"] is not None and not one["leftovers"] for one in rounds) else 1


if __name__ == "__main__":
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    sys.exit(main())
