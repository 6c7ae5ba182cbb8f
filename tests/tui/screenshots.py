"""`make screenshots`: write screenshots/*.svg from a real attach to a real training.

Not a test: the numbers differ from run to run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ascend_tui.app import MonitorApp
from ascend_tui.attach import target_of
from ascend_tui.plugin import load_all
from ascend_tui.session import Session

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "screenshots"
TRAINING = ROOT / "ascend_tui" / "demo" / "training.py"
WATCH_S = 25.0
SHOTS = (
    ("live-120x40", (120, 40), "", "en"),
    ("live-80x24", (80, 24), "", "en"),
    ("live-60x20", (60, 20), "", "en"),
    ("live-200x50", (200, 50), "", "en"),
    ("hotspots-120x40", (120, 40), "3z", "en"),
    ("frozen-120x40", (120, 40), " ", "en"),
    ("help-120x40", (120, 40), "?", "en"),
    ("live-120x40-zh", (120, 40), "", "zh_CN"),
)
LOGS = (("logs-120x40", (120, 40), "4", "en"), ("logs-80x24-zh", (80, 24), "4", "zh_CN"))
HANGS = (("hang-120x40", (120, 40), "", "en"), ("hang-80x24-zh", (80, 24), "", "zh_CN"))


async def take(pid: int, shots: Sequence[tuple[str, tuple[int, int], str, str]]) -> None:
    """Attach once per picture: each later one gets the past from the shim."""
    for number, (name, size, keys, language) in enumerate(shots):
        session = Session(load_all(), name="screenshots")
        session.add(target_of(pid))
        app = MonitorApp(session, session.plugins, theme="textual-dark", language=language)
        async with app.run_test(size=size) as pilot:
            await asyncio.sleep(WATCH_S if number == 0 else 3.0)
            for key in keys:
                await pilot.press({" ": "space", "?": "question_mark"}.get(key, key))
                await asyncio.sleep(2.0)
            svg = app.export_screenshot(title="ascend-tui attach")
        path = FOLDER / f"{name}.svg"
        path.write_text(svg, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


def main() -> int:
    """Start a training for each fault, and take all pictures of it."""
    FOLDER.mkdir(exist_ok=True)
    # As the demo does: where torch_npu is installed and CANN is not, `import torch` would fail.
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    # From a folder of no name: the pictures show the paths of a training.
    job = tempfile.TemporaryDirectory(prefix="job-")
    training = shutil.copy(TRAINING, Path(job.name, "train.py"))
    shutil.copy(TRAINING.with_name("planted_logs.py"), job.name)
    for fault, shots in (("leak", SHOTS), ("logs", LOGS), ("hang", HANGS)):
        command = [sys.executable, "-u", training, "--fault", fault]
        command += ["--folder", job.name] if fault == "logs" else []
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                asyncio.run(take(child.pid, shots))
            finally:
                child.kill()
    job.cleanup()
    return 0


if __name__ == "__main__":
    sys.exit(main())
