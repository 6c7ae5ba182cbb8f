"""Attach and detach again and again: what is left after a turn of the target's collector does not grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainings import kill_group, needs_ptrace, until

from ascend_tui.attach import attach
from ascend_tui.plugin import load_all, probe_text
from ascend_tui.target import read_target

pytestmark = needs_ptrace

CYCLES = 3
# It collects when it is asked to. With ctypes the shim gives its pages back.
IDLE = """
import ctypes, gc, json, os, sys, time, types
from pathlib import Path

gc.disable()
folder, parent = Path(sys.argv[1]), os.getppid()

def of(one):
    name = one.__globals__.get("__name__", "")
    return name if name.startswith("_ascend_tui") and not name.endswith(".shell") else ""

def functions():
    return sorted({of(one) for one in gc.get_objects() if type(one) is types.FunctionType} - {""})

def view():
    gc.collect()
    return {"still": functions(), "objects": len(gc.get_objects())}

while os.getppid() == parent:
    if (folder / "question").exists():
        (folder / "question").unlink()
        (folder / "new").write_text(json.dumps(view()))
        (folder / "new").rename(folder / "answer")
    time.sleep(0.002)
"""


class Idle:
    """The program above."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", IDLE, str(folder)], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def view(self) -> dict[str, Any]:
        """Return what there is after a turn of its collector."""
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        (self.folder / "question").touch()
        assert until(lambda: answer.exists() or self.process.poll() is not None, 30), "no answer"
        return dict(json.loads(answer.read_text()))

    def has_threads(self, count: int) -> bool:
        """Wait until it has so many threads."""
        return until(lambda: len(os.listdir(f"/proc/{self.process.pid}/task")) == count, 20)

    def attach_and_detach(self) -> None:
        """Attach, load every probe, detach, and wait until the shim's thread has ended."""
        client = attach(read_target(self.process.pid), name="test", writable=True).client
        for loaded in load_all():
            assert loaded.plugin is not None, loaded.failed
            source = probe_text(loaded.plugin)
            if source is not None:
                client.request("probe", plugin=loaded.name, source=source, order=loaded.plugin.order)
        # The thread that boots the shim holds it for as long as it runs.
        assert self.has_threads(2)
        client.request("detach")
        client.close()
        assert self.has_threads(1)


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Idle]:
    running = Idle(tmp_path)
    try:
        running.view()
        yield running
    finally:
        kill_group(running.process)


def test_what_is_left_after_the_targets_own_collector_does_not_grow(idle: Idle) -> None:
    idle.attach_and_detach()
    first = idle.view()
    for _ in range(CYCLES):
        idle.attach_and_detach()
    last = idle.view()
    # A module and its functions refer to each other, so they wait for the collector, and nothing holds them.
    assert first["still"] == last["still"] == []
    # Some of a module's objects are made at its first use: per cycle it would be hundreds.
    assert last["objects"] - first["objects"] < 10 * CYCLES
