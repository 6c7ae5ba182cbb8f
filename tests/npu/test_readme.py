"""The script in the simulator's README does what is written above it."""

from __future__ import annotations

import re
from pathlib import Path

from running import Run

README = Path(__file__).parents[1] / "cann_sim" / "README.md"


def test_the_script_of_the_readme_gets_the_same_losses_on_both_devices(npu: Run) -> None:
    script = re.search(r"<!-- script -->\n```python\n(.*?)```", README.read_text(), re.S)
    assert script
    done = npu(script[1])
    assert done.returncode == 0, done.stderr
    losses = {device: re.findall(rf"^{device} \d+ (\S+)$", done.stdout, re.M) for device in ("cpu", "npu:0")}
    assert len(losses["cpu"]) == 5
    assert losses["cpu"] == losses["npu:0"]
    assert "PyTorch NPU memory summary" in done.stdout
