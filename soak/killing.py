"""SIGKILL at a random instant: of the injector's helper, and of a whole monitor."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ascend_tui.inject.api import helper_command
from soak.living import ROOT

MONITOR = [sys.executable, "-c", "import sys; from ascend_tui.cli import main; sys.exit(main())"]
FIND_S = 5.0


def start_of_a_helper_s() -> float:
    """Return how long a helper takes until it has read its request: no thread is stopped before that."""
    began = time.monotonic()
    subprocess.run(helper_command(), input=b"{}", stderr=subprocess.DEVNULL, check=False)
    return time.monotonic() - began


def kill_helper(attach: Callable[[], object], delay_s: float) -> tuple[float | None, object]:
    """Attach, and kill the helper `delay_s` after its start.

    Returns how long it had lived when it had ended before that (None: it was killed), and what the attach
    returned or raised.
    """
    outcome: list[object] = []

    def work() -> None:
        try:
            outcome.append(attach())
        except Exception as error:  # noqa: BLE001 - it is what the caller looks at
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    lived_s = _kill_child_of(thread, delay_s)
    thread.join(60.0)
    if not outcome:
        return lived_s, TimeoutError("the attach whose helper was killed has not ended for a minute")
    return lived_s, outcome[0]


def _kill_child_of(thread: threading.Thread, delay_s: float) -> float | None:
    children = Path(f"/proc/self/task/{thread.native_id}/children")
    end = time.monotonic() + FIND_S
    while time.monotonic() < end and thread.is_alive():
        with suppress(OSError):
            pids = children.read_text().split()
            if pids:
                return _kill_later(int(pids[0]), delay_s)
        time.sleep(0.0003)
    return 0.0


def _kill_later(pid: int, delay_s: float) -> float | None:
    began = time.monotonic()
    descriptor = -1
    try:
        # Not by its number: that may be another process by then.
        descriptor = os.pidfd_open(pid)
        while time.monotonic() < began + delay_s:
            if _state(pid) in ("Z", ""):
                return time.monotonic() - began
            time.sleep(min(0.001, max(0.0, began + delay_s - time.monotonic())))
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return time.monotonic() - began
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def kill_monitor(pid: int, method: str, delay_s: float, dice: random.Random) -> bool:
    """Start `ascend-tui attach --headless --json`, kill it after `delay_s`; return whether it was alive."""
    monitor = subprocess.Popen(
        [*MONITOR, "attach", str(pid), "--headless", "--json", "--method", method],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(delay_s)
    was_alive = monitor.poll() is None
    monitor.kill()
    monitor.wait()
    # Its helper, in a session of its own, may still be at work.
    time.sleep(dice.choice((0.0, 0.0, 0.1)) * dice.random())
    return was_alive
