"""`ascend-tui demo`: a real small training in a child process, attached by the real injection."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

from ascend_tui.attach import target_of, why_not
from ascend_tui.commands import GONE, OK, REFUSED, USAGE
from ascend_tui.commands.output import refuse, say
from ascend_tui.commands.run import stop
from ascend_tui.commands.watch import Watch, watch
from ascend_tui.config import Config
from ascend_tui.rundir import RunFolder, default_root
from ascend_tui.target import Refusal, RefusedError, forget_socket, socket_path

FAULTS = ("none", "leak", "hang", "overflow", "logs")
START_S = 120.0
INSTALL = 'pip install "torch>=2.1"'


def demo(fault: str, how: Watch, config: Config) -> int:
    """Start the demo training, attach to it and watch it; it ends with us."""
    if fault not in FAULTS:
        say(f"the demo knows no fault {fault!r}; it knows: {', '.join(FAULTS)}")
        return USAGE
    if importlib.util.find_spec("torch") is None:
        refuse(
            Refusal(
                "no_torch",
                "cannot start the demo",
                "PyTorch is not installed for {python}, and the demo trains a real model",
                "install it with: {install}",
                (("python", sys.executable), ("install", INSTALL)),
            ),
            how.json,
        )
        return REFUSED
    log = RunFolder(default_root(config.run_root), os.getpid()).path("output", "demo.log")
    # Where torch_npu is installed and CANN is not, `import torch` fails unless it is told to leave torch_npu
    # alone; the training loads it itself and goes on without.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if fault == "logs":
        # A fault of a device is planted in CANN's log: not in that of the user's own trainings.
        environment["ASCEND_PROCESS_LOG_PATH"] = str(log.parent)
    script = Path(__file__).parent.parent / "demo" / "training.py"
    child = subprocess.Popen(
        [sys.executable, "-u", str(script), "--fault", fault, "--folder", str(log.parent)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log.open("ab"),
    )
    target = target_of(child.pid)
    try:
        say("starting the demo training (a small GPT) …")
        first = _first_line(child)
        if first is None:
            say(f"the demo training did not start; its output: {log}")
            return GONE
        say(
            f"training on {first['device']}, {first['parameters']:,} parameters, pid {child.pid}; attaching …"
        )
        if first["no_npu"]:
            say(f"no NPU: {first['no_npu']}; what is missing says: ascend-tui doctor")
        target = target_of(child.pid)  # by now with all that it has loaded
        refusal = why_not(target)
        if refusal is not None:
            refuse(refusal, how.json)
            return REFUSED
        code = watch([target], how, dataclasses.replace(config, readonly=False))
        return OK if code == GONE and child.poll() == 0 else code
    except RefusedError as error:
        refuse(error.refusal, how.json)
        return REFUSED
    finally:
        stop(child)
        # It ended with a shim inside, and nobody else knows that it will not be back.
        forget_socket(socket_path(target))


def _first_line(child: subprocess.Popen[bytes]) -> dict[str, object] | None:
    """Return what the training says after its first step; then nobody reads it any more."""
    stream = child.stdout
    assert stream is not None
    lines: queue.Queue[bytes] = queue.Queue()

    def drain() -> None:
        for text in stream:
            lines.put(text)
        lines.put(b"")

    threading.Thread(target=drain, daemon=True).start()
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            text = lines.get(timeout=0.5)
        except queue.Empty:
            continue
        if not text:
            return None
        if text.startswith(b"{"):
            return dict(json.loads(text))
    return None
