"""The logs of a demo whose fault is `logs`: the real numbers of its training, what is planted, and CANN's."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plogs import LINE, logs

import ascend_tui
from tests.cann_sim.simulator import Simulator

TRAINING = Path(ascend_tui.__file__).parent / "demo" / "training.py"
STEPS = 92


@pytest.fixture(scope="module", params=["cpu", "npu"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the demo's training for some steps; return where, its folder and what it has said."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("logs")
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if request.param == "npu":
        simulator: Simulator = request.getfixturevalue("simulator")
        env = {**simulator.environment(home=folder / "home"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [
            sys.executable,
            "-u",
            str(TRAINING),
            "--fault",
            "logs",
            "--folder",
            str(folder),
            "--steps",
            str(STEPS),
        ],
        env={**env, "ASCEND_PROCESS_LOG_PATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return request.param, folder, done


def test_the_metrics_are_those_of_the_training_with_one_gradient_that_is_nan(told: Any) -> None:
    _, folder, _ = told
    text = (folder / "train.log").read_text()
    dicts = re.findall(r"^[\d-]+ [\d:,]+ - INFO - trainer - (\{.*\})$", text, re.M)
    rows = [ast.literal_eval(one.replace("nan", "1e999")) for one in dicts]
    assert [one["step"] for one in rows] == list(range(10, STEPS, 10))
    losses = [one["loss"] for one in rows]
    assert losses[0] > losses[-1] > 0.5
    norms = {one["step"]: one["grad_norm"] for one in rows}
    assert [step for step, norm in norms.items() if not math.isfinite(norm)] == [90]
    assert all(0.0 < norm < 100.0 for step, norm in norms.items() if step != 90)
    # Down by nine halves, up by four doubles, down by the NaN.
    scales = [one["loss_scale"] for one in rows]
    assert scales == [65536.0, 65536.0, 65536.0, 128.0, 128.0, 256.0, 512.0, 1024.0, 1024.0]
    skipped = [
        float(one) for one in re.findall(r"Gradient overflow\.  Skipping step, .* to (\S+)$", text, re.M)
    ]
    assert skipped == [65536.0 / 2**halves for halves in range(1, 10)] + [1024.0]


def test_a_checkpoint_fails_twice_with_a_real_exception_and_is_then_saved(told: Any) -> None:
    _, folder, _ = told
    text = (folder / "train.log").read_text()
    assert re.findall(r"ERROR - trainer - saving checkpoint-75 failed \(attempt (\d) of 3\)", text) == [
        "1",
        "2",
    ]
    assert text.count("Traceback (most recent call last):\n") == 2
    assert text.count("FileNotFoundError: [Errno 2] No such file or directory: ") == 2
    assert text.index("saved checkpoint-75") > text.rindex("Traceback")
    assert (folder / "checkpoint-75" / "trainer_state.json").read_text() == '{"global_step": 85}\n'


def test_warnings_go_to_stderr_and_progress_to_stdout(told: Any) -> None:
    _, _, done = told
    found = re.findall(
        r"UserWarning: Corrupt EXIF data\.  Expecting to read (\d+) bytes but only got (\d)\.", done.stderr
    )
    assert len(found) == 60
    assert len(set(found)) > 8
    assert done.stdout.splitlines()[1] == "epoch 0, 10 steps done"
    assert len(done.stdout) < 1000


def test_a_fault_of_the_device_is_planted_where_cann_writes_and_only_on_an_npu(told: Any) -> None:
    where, folder, _ = told
    files = logs(folder)
    if where == "cpu":
        assert files == []
        return
    lines = [line for file in files for line in file.read_text().splitlines()]
    parts = [LINE.fullmatch(line) for line in lines]
    assert all(parts)
    files_of_runtime = ("stars_", "device_", "davinci_", "api_c_stream")
    planted = [one for one in parts if one and one[6].startswith(files_of_runtime)]
    assert len(planted) == 6
    assert {one[1] for one in planted} == {"ERROR"}
    assert {one[2] for one in planted} == {"RUNTIME"}
    (pid,) = {one[3] for one in planted}
    assert re.fullmatch(rf"plog-{pid}_\d{{17}}\.log", files[0].name)
    assert "errorStr: The DDR address of the MTE instruction is out of range" in planted[2][9]
