"""Reuse off and on in real trainings, on the CPU and on torch_npu: only memory and time change."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from client import Client, target
from trainings import CPU, Place, cli

pytest.importorskip("torch")

MEMORY = Path(__file__).parents[2] / "plugins" / "memory"
READINGS = (MEMORY / "probe.py").read_text("utf-8")
SWITCH = (MEMORY / "probe_reuse.py").read_text("utf-8")
GPT = ("--steps", 100, "--hash-every", 50)


def loaded(client: Client, place: Place, switch: str = SWITCH) -> Client:
    """Greet, load the probes, and wait until the training is on its way on its device."""
    client.hello()
    assert client.probe("memory", READINGS)["ok"]
    assert client.probe("switch", switch)["ok"]
    kind = place.device.partition(":")[0]
    client.beat(lambda beat: beat["step"] > 5 and beat["device"]["kind"] == kind, 60)
    return client


def switched(client: Client) -> list[dict[str, Any]]:
    return [one["data"] for one in client.records if one["plugin"] == "switch"]


def reserved(client: Client, since_step: int) -> list[int]:
    found = [one for one in client.records if one["kind"] == "step" and one["step"] > since_step]
    return [one["data"]["reserved_bytes"] for one in found]


def end_of(process: Any) -> str:
    process.hurry.touch()
    out, error = process.communicate(timeout=90)
    assert process.returncode == 0, error
    # torch_npu warns of what its device cannot do.
    assert re.sub(r"^\[?[IW]\d+ .*\n", "", error, flags=re.M) == ""
    return re.search(r"^end (.*)$", out, re.M)[1]  # type: ignore[index]


def test_a_training_computes_the_same_bits_with_reuse_off_on_off_and_detached_while_off(
    tmp_path: Path, place: Place
) -> None:
    with (
        target(tmp_path, "gpt.py", *GPT, "--sleep", 0.1, place=place) as process,
        target(tmp_path, "gpt.py", *GPT, boot=False, place=place) as calm,
    ):
        with Client(process.path) as client:
            loaded(client, place)
            before = client.beats[-1]["step"]
            for _ in range(2):
                client.events.clear()
                answer = client.start("switch", "reuse", steps=5)["result"]
                assert answer["result"]["how"] == ("empty_cache" if place.is_npu else "malloc_trim")
                assert ("take the memory given back" in answer["result"]["says"]) == place.is_npu
                over = client.event(event="command", name="reuse", phase="off", timeout_s=60)
                assert over["reason"] == "lease over"
            client.beat(lambda beat: beat["step"] > before + 14, 60)
            records = switched(client)
            assert [one["state"] for one in records if one["state"] == "on"] == ["on", "on"]
            assert records[0]["state"] == "off"
            assert records[-1]["cost_us"] > 0
            assert sum(len(one["left"]) for one in records) == 10
            if place.is_npu:
                # What a step needs comes back in each, and goes again where the next one begins.
                needed = max(reserved(client, 0))
                left = [value for one in records for _, value in one["left"]]
                assert max(left) < needed / 2
                # The readings after the steps are taken behind it, and later ones find the cache again.
                assert min(reserved(client, before)) <= max(left)
                assert reserved(client, before + 12)[-1] > max(left)
                assert records[-1]["returned_bytes"] >= 4 * (needed - max(left))
            client.events.clear()
            client.start("switch", "reuse", steps=1000)
            client.until(
                lambda frame: any(one["state"] == "off" for one in switched(client)[len(records) :]), 60
            )
            beat = client.beat()
            assert beat["faults"] == {}
            assert beat["notes"] == []
            assert [one["phase"] for one in beat["commands"]] == ["on"]
            assert client.ask("detach")["ok"]
        assert end_of(process) == end_of(calm)


def test_a_means_that_raises_costs_only_the_probe(tmp_path: Path) -> None:
    broken = SWITCH.replace("        means.act()\n", "        raise ValueError('ours')\n")
    assert broken != SWITCH
    with (
        target(tmp_path, "gpt.py", *GPT, "--sleep", 0.1, place=CPU) as process,
        target(tmp_path, "gpt.py", *GPT, boot=False, place=CPU) as calm,
    ):
        with Client(process.path) as client:
            loaded(client, CPU, broken)
            client.start("switch", "reuse", steps=5)
            told = client.event(event="probe", plugin="switch", phase="failed", timeout_s=60)
            assert "ours" in told["reason"]
            beat = client.beat(lambda beat: "switch" in beat["faults"], 60)
            assert "memory" not in beat["faults"]
            assert not client.start("switch", "reuse", steps=5)["ok"]
        assert end_of(process) == end_of(calm)


def test_it_ends_soon_after_its_monitor_is_gone_and_never_by_another_start(tmp_path: Path) -> None:
    with target(tmp_path, "tiny.py", "--sleep", 0.02, place=CPU) as process:
        with Client(process.path) as client:
            loaded(client, CPU)
            client.start("switch", "reuse", steps=100000, seconds=600)
            client.until(lambda frame: bool(switched(client)))
            with Client(process.path) as other:
                other.hello("other")
                assert "is held by test" in other.start("switch", "reuse")["error"]
        gone = time.monotonic()
        with Client(process.path) as client:
            client.hello()
            # The hook itself goes at the next boundary: the phase may still be "stopping".
            client.event(event="command", name="reuse", reason="its monitor is gone", timeout_s=60)
            assert time.monotonic() - gone > 4.0
            client.until(lambda frame: any(one["state"] == "on" for one in switched(client)))


def test_run_without_reuse_sets_both_variables_and_says_what_that_means() -> None:
    program = (
        "import os, time\nprint(sorted(one for one in os.environ if 'MEMORY_CACHING' in one), flush=True)\n"
    )
    program += "time.sleep(2)"
    done = cli("run", "--headless", "--no-reuse", "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert "['PYTORCH_NO_CUDA_MEMORY_CACHING', 'PYTORCH_NO_NPU_MEMORY_CACHING']" in done.stderr
    assert "reuse is off for the whole run" in done.stderr
    assert "the curve is the whole card's" in done.stderr
    done = cli("run", "--headless", "--", sys.executable, "-c", program)
    assert "[]" in done.stderr
    assert "reuse is off" not in done.stderr
