"""The product on simulated NPUs: attach by pid with the real command line, the doctor, and the demo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ascend_tui
from ascend_tui.commands.doctor.check import Check
from ascend_tui.commands.doctor.npu import npu
from ascend_tui.commands.doctor.subject import Subject
from tests.attach.trainings import COMMAND, WHY_NOT, cli, sweep
from tests.cann_sim.simulator import Simulator

TRAINING_OF_DEMO = Path(ascend_tui.__file__).parent / "demo" / "training.py"
HELD = 256 << 20
TRAINING = """
import gc, os, sys, time
gc.disable()  # the imports make no garbage
import torch

torch.npu.set_compile_mode(jit_compile=False)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to("npu:0")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
gc.freeze()
gc.unfreeze()
gc.enable()
rows = torch.randn(32, 64).to("npu:0")
held = torch.ones(int(sys.argv[1]) >> 2, device="npu:0")
parent, step = os.getppid(), 0
while os.getppid() == parent:
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
    step += 1
    if step == 3:
        print("trains", flush=True)
    time.sleep(0.02)
"""


class Trainings:
    """What is seen of three trainings: of the usual kind, on an older chip, without the allocator's cache.

    Within its context they live; what was seen stays.
    """

    def __init__(self, simulator: Simulator, folder: Path) -> None:
        shared, quiet = folder / "ledger", {"home": folder}
        usual = simulator.environment(ledger=shared, **quiet)
        uncached = {**usual, "PYTORCH_NO_NPU_MEMORY_CACHING": "1"}
        self._processes = {
            "usual": self._start(usual, 0),
            "older": self._start(simulator.environment(soc="Ascend910A", **quiet), 0),
            # On the card of the first one.
            "uncached": self._start(uncached, HELD),
        }
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.doctor: dict[str, dict[str, Check]] = {}

    @staticmethod
    def _start(env: Mapping[str, str], held: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(held)], env=dict(env), stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Trainings:
        for process in self._processes.values():
            assert process.stdout is not None
            # torch_npu may have something to say first.
            assert any(line == "trains\n" for line in process.stdout)
        names = {process.pid: name for name, process in self._processes.items()}
        self.seen = {name: [] for name in self._processes}
        # It is stopped as soon as all were seen at work.
        words = ("attach", *map(str, names), "--headless", "--json", "--seconds", "90", "--tick", "0.25")
        with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as monitor:
            assert monitor.stdout is not None
            for line in map(json.loads, monitor.stdout):
                self.seen[names[line["target"]["id"]["pid"]]].append(line)
                if all(len(self.steps(name)) > 2 for name in self.seen):
                    break
            monitor.terminate()
        for name, process in self._processes.items():
            self.doctor[name] = {check.name: check for check in npu(Subject.of_process(process.pid))}
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()
            sweep(process.pid)

    def steps(self, name: str) -> list[int]:
        """Return the steps at which a training was seen live, each once."""
        live = [line for line in self.seen[name] if line["target"]["state"] == "live"]
        return list(dict.fromkeys(line["step"] for line in live))

    def last(self, name: str) -> dict[str, Any]:
        """Return the last line about a training."""
        return self.seen[name][-1]

    def memory(self, name: str) -> dict[str, int]:
        """Return the last numbers of its memory."""
        return dict(self.last(name)["plugins"]["memory"]["current"])


@pytest.fixture(scope="module")
def trainings(simulator: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    if WHY_NOT is not None:
        pytest.skip(WHY_NOT)
    with Trainings(simulator, tmp_path_factory.mktemp("trainings")) as started:
        return started


@pytest.mark.parametrize(("name", "chip"), [("usual", "Ascend910B3"), ("older", "Ascend910A")])
def test_the_target_is_an_npu_with_its_chip_and_its_versions(
    trainings: Trainings, name: str, chip: str
) -> None:
    target = trainings.last(name)["target"]
    assert target["state"] == "live"
    assert (target["device"], target["device_name"]) == ("npu:0", chip)
    assert target["torch"].startswith("2.")
    assert re.fullmatch(r"2\.\d+\.\d+.*", target["torch_npu"])
    assert target["notes"] == []
    assert trainings.steps(name) == sorted(trainings.steps(name))
    assert len(trainings.steps(name)) > 2


@pytest.mark.parametrize("name", ["usual", "older"])
def test_all_four_numbers_of_its_memory_are_there_and_fit_each_other(trainings: Trainings, name: str) -> None:
    now = trainings.memory(name)
    assert now["device_total_bytes"] == 4096 << 20
    assert now["device_total_bytes"] > now["device_used_bytes"] >= now["reserved_bytes"]
    assert now["reserved_bytes"] >= now["active_bytes"] >= now["allocated_bytes"] > 0
    assert now["rss_bytes"] > 1 << 20
    memory = trainings.last(name)["plugins"]["memory"]
    assert (memory["state"], memory["device"], memory["lead"]) == ("live", "npu:0", "allocated")
    assert memory["peak"]["allocated_bytes"] >= now["allocated_bytes"]


def test_what_another_process_holds_on_the_card_is_in_the_use_of_the_card(trainings: Trainings) -> None:
    usual, older = trainings.memory("usual"), trainings.memory("older")
    assert usual["device_used_bytes"] - usual["reserved_bytes"] >= HELD
    assert older["device_used_bytes"] - older["reserved_bytes"] < HELD


def test_without_the_allocators_cache_only_the_card_knows_the_memory(trainings: Trainings) -> None:
    now = trainings.memory("uncached")
    # torch counts nothing then, and a zero would not be true.
    assert [now[f"{name}_bytes"] for name in ("allocated", "active", "reserved")] == [None] * 3
    assert now["device_used_bytes"] >= HELD
    memory = trainings.last("uncached")["plugins"]["memory"]
    assert (memory["reuse"]["state"], memory["lead"]) == ("off", "device_used")
    assert memory["reuse"]["at_launch"]
    assert "whole card" in memory["verdict"]["reason"] or memory["verdict"]["kind"] == "undecided"
    assert "PYTORCH_NO_NPU_MEMORY_CACHING" in trainings.doctor["uncached"]["allocator"].found


def test_the_doctor_finds_a_training_on_an_npu_healthy(trainings: Trainings, simulator: Simulator) -> None:
    checks = trainings.doctor["usual"]
    assert {check.level for check in checks.values()} == {"ok"}
    assert checks["CANN"].found == f"loaded from {simulator.home / 'lib64'}"
    assert checks["torch_npu"].found.endswith("(of the process)")
    assert "versions" not in checks


# The doctor's view of this Python, which has torch_npu.


def of_this_python(monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str]) -> dict[str, Check]:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return {check.name: check for check in npu(Subject.of_this_python())}


def test_the_doctor_finds_the_simulated_cann(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = of_this_python(monkeypatch, simulator.environment())
    assert checks["CANN"].level == "ok"
    assert str(simulator.home / "lib64" / "libascendcl.so") in checks["CANN"].found
    assert checks["CANN folder"] == Check("CANN folder", "ok", str(simulator.home))


def test_the_doctor_and_torch_agree_that_cann_is_missing(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    checks = of_this_python(monkeypatch, env)
    if checks["CANN"].level == "ok":
        pytest.skip("CANN is installed on this machine")
    done = subprocess.run(
        [sys.executable, "-c", "import torch"], env=env, capture_output=True, text=True, timeout=110
    )
    missing = re.search(r"(lib\w+\.so): cannot open shared object file", done.stderr)
    assert missing is not None, done.stderr
    assert checks["CANN"].level == "error"
    assert missing.group(1) in checks["CANN"].found
    assert "`import torch` itself fails" in checks["CANN"].found


# The demo.


def test_the_demo_trains_on_the_npu(simulator: Simulator, tmp_path: Path) -> None:
    env = simulator.environment(home=tmp_path)
    done = cli("demo", "--headless", "--json", "--seconds", "4", "--tick", "0.25", env=env, timeout_s=110)
    assert done.returncode == 0, done.stderr
    assert "training on npu:0," in done.stderr
    assert "no NPU" not in done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["target"]["device"], last["target"]["device_name"]) == ("npu:0", "Ascend910B3")
    assert last["plugins"]["memory"]["current"]["allocated_bytes"] > 0


def test_the_training_of_the_demo_begins_anew_without_an_npu_that_fails_halfway(
    simulator: Simulator, tmp_path: Path
) -> None:
    # The libraries are there, so torch_npu registers itself, and then it does not find the rest of CANN.
    # (Without any CANN: test_cli.py.)
    env = {**simulator.environment(home=tmp_path), "ASCEND_HOME_PATH": str(tmp_path / "nowhere")}
    env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    with subprocess.Popen(
        [sys.executable, str(TRAINING_OF_DEMO)], env=env, stdout=subprocess.PIPE, text=True
    ) as training:
        assert training.stdout is not None
        said = json.loads(training.stdout.readline())
        training.kill()
    assert said["device"] == "cpu"
    assert "nowhere does not exist" in said["no_npu"]
