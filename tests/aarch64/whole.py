"""The whole way: attach by the command line, watch, detach, and look at what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from ascend_tui.inject import area, memory
from tests.aarch64 import targets
from tests.aarch64.injecting import until

SECONDS = 20  # an emulated processor needs some of them to start us


def command(*words: str) -> tuple[int, str, str]:
    """Run `ascend-tui` with these words; returns its exit status, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from ascend_tui.cli import main; sys.exit(main())", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def state(pid: int) -> dict[str, object]:
    """Return what an attach could leave: threads, open files, mappings of our shape."""
    return {
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "files": sorted(os.readlink(f"/proc/{pid}/fd/{one}") for one in os.listdir(f"/proc/{pid}/fd")),
        "areas": area.shapes(memory.read_maps(pid)),
    }


def attach_and_detach(method: str, count: int) -> tuple[int, str]:
    """Attach, read frames for a while, detach; the target goes on and has nothing of ours open."""
    path = Path(mkdtemp(), "steps")
    with subprocess.Popen([sys.executable, targets.__file__, "step", str(path)]) as process:
        try:
            assert until(lambda: path.exists() and path.read_text())
            before = state(process.pid)
            pid = str(process.pid)
            code, out, err = command(
                "attach", pid, "--headless", "--json", "--seconds", str(SECONDS), "--method", method
            )
            assert code == 0, f"{code} {out[-500:]} {err[-500:]}"
            frames = [json.loads(line) for line in out.splitlines()]
            assert frames, f"no frames: {err}"
            shown = frames[-1]["target"]
            assert shown["method"], f"not attached after {SECONDS} s: {err} {shown}"
            memory_shown = frames[-1]["plugins"]["memory"]["current"]["rss_bytes"]
            assert memory_shown, "no reading came"
            code, out, err = command("detach", pid, "--json")
            assert code == 0, f"{code} {out} {err}"
            answer = json.loads(out)
            assert answer["removed"], answer
            until(lambda: state(process.pid) == before)
            after = state(process.pid)
            assert after == before, f"before {before}, after {after}"
            steps = path.read_text()
            time.sleep(0.3)
            assert until(lambda: path.read_text() not in ("", steps)), "it stands still"
        finally:
            process.kill()
    print(*answer["residue"], sep="\n", flush=True)
    return len(frames), (
        f"frames; {shown['method_reason']}; hello after {shown['hello_ms']:.0f} ms; detached with "
        f"{len(answer['residue'])} lines of residue; threads, files and mappings as before"
    )


CHECKS = {
    f"attach and detach, {method}": partial(attach_and_detach, method) for method in ("auto", "pending")
}
