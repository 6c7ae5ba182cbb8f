"""What `npu-smi info` says of the cards now, for the live verdict: who else uses the card."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

from .files.npu_smi import Card, cards

ANSWER_S = 20.0
"""A full report of eight cards takes five seconds and more."""
LONGEST = 1 << 20
"""Bytes of output that are read; the table of a full node is a tenth of it."""


def query(timeout_s: float) -> list[Card] | str:
    """Return the cards of this machine, or the reason why there are none.

    It takes a second or more on a real node and belongs in a thread.  The command is found on the PATH and
    run without a shell; past `timeout_s` it is killed.
    """
    command = shutil.which("npu-smi")
    if command is None:
        return "npu-smi is not on the PATH"
    # Into a file, not a pipe: a driver that hangs leaves a child that would hold the pipe open.
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                [command, "info"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"npu-smi did not answer within {timeout_s:g} s"
        except OSError as error:
            return f"npu-smi cannot be run: {error.strerror}"
        output.seek(0)
        text = output.read(LONGEST).decode("utf-8", "replace")
    found = cards(text.splitlines())
    if found:
        return found
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"npu-smi ended with {done.returncode} and shows no card: {first[:200]}"


def machine() -> Mapping[str, Any] | None:
    """Return the cards as a record holds them; None where there is no npu-smi."""
    if shutil.which("npu-smi") is None:
        return None
    found = query(ANSWER_S)
    if isinstance(found, str):
        return {"why": found}
    return {
        "cards": [
            {**dataclasses.asdict(card), "used_mib": card.used_mib, "total_mib": card.total_mib}
            for card in found
        ]
    }
