"""The injector's pages are not taken from under a thread that is in them, however long it is held up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from trainings import kill_group, needs_ptrace, until

from ascend_tui import shim
from ascend_tui.attach import attach
from ascend_tui.inject import area, helper, memory, ptrace, stage
from ascend_tui.inject.request import Request
from ascend_tui.target import read_target

pytestmark = needs_ptrace
# At which instruction the thread is held is chance.
TRIES = 40
# ctypes is what gives the pages back; every torch process has it.
TARGET = """
import ctypes, threading, time
threading.Thread(target=threading.Event().wait, daemon=True).start()
while True:
    time.sleep(0.005)
"""


@pytest.fixture
def target() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", TARGET], start_new_session=True)
    try:
        assert until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) > 1)
        attach(read_target(process.pid), name="test", writable=True).client.close()
        yield process.pid
        assert process.poll() is None, f"the target died: {process.poll()}"
    finally:
        kill_group(process)


def inject_and_hold(pid: int, seconds: float) -> tuple[area.Area, bool]:
    """Inject the shim once more, and stop the borrowed thread as soon as it has been let go; tell whether it
    was held on the stack that the injector brought.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        let_go, held_at = 0, 0
        victim = min(int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid)

        def hook(name: str) -> None:
            nonlocal let_go, held_at
            let_go += name == "after DETACH"
            if name == "after DETACH" and let_go == 2:
                stage.hook = None
                with suppress(OSError):
                    ptrace.ptrace("SEIZE", victim)
                    ptrace.ptrace("INTERRUPT", victim)
                    os.waitpid(victim, ptrace.WALL)
                    with open(f"/proc/{pid}/task/{victim}/syscall") as file:
                        held_at = int(file.read().split()[-2], 16)
                    time.sleep(seconds)
                    ptrace.ptrace("DETACH", victim)

        stage.hook = hook
        one = read_target(pid)
        request = Request(pid, one.id.start_ticks, one.python, "thread", shim.payload().encode(), 5.0)
        with suppress(Exception):
            report = helper.perform(request)
            os.write(write_end, json.dumps([*report.area, held_at]).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        answer = file.read()
    os.waitpid(child, 0)
    if not answer:
        return area.Area(0, 0, 0, 0), False
    *four, held_at = json.loads(answer)
    pages = area.Area(*four)
    return pages, pages.rw <= held_at < pages.stack_top


def areas_in(pid: int) -> list[area.Area]:
    """Return the pages of injectors; those of a live shim are among them."""
    return area.shapes(memory.read_maps(pid))


@pytest.mark.parametrize("seconds", [0.4, 2.6])
def test_a_thread_that_is_held_in_them_goes_on_when_it_is_let_go(target: int, seconds: float) -> None:
    hits, usual = 0, areas_in(target)
    for _ in range(TRIES):
        pages, was_inside = inject_and_hold(target, seconds)
        assert os.path.exists(f"/proc/{target}/exe"), "the target died"
        assert read_target(target).state not in ("Z", "X"), "the target died"
        hits += was_inside
        if pages.rw and not was_inside:
            assert until(lambda pages=pages: pages not in areas_in(target))
        if hits >= (3 if seconds < 2 else 1):
            break
    if not hits:
        pytest.skip(f"in {TRIES} injections the thread was never held inside the borrowed call")
    # Held for longer than the shim is patient, it keeps its pages; else they are given back after all.
    assert until(lambda: len(areas_in(target)) == len(usual) + (seconds > 2))
