"""The tee in trainings that print in every way: bytes and bits unchanged, nothing left, last words told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from client import Client
from trainings import cli, kill_group, needs_ptrace, needs_torch, until

from ascend_tui.attach import attach
from ascend_tui.target import read_target, socket_path

pytestmark = [needs_ptrace, needs_torch]

PROBE = (Path(__file__).parents[2] / "plugins" / "logs" / "probe.py").read_text()
TRAINING = """
import hashlib, logging, os, sys, threading, time, warnings
from pathlib import Path
import torch
from torch import nn

folder, parent = Path(sys.argv[1]), os.getppid()
logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s")
log, bar = logging.getLogger("train"), sys.stderr.write
torch.manual_seed(3)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(net.parameters())

class Logger:
    def __init__(self, screen):
        self.screen = screen
        self.pipe = os.fdopen(os.pipe()[1], "w")

    def write(self, text):
        self.screen.write(text)
        self.pipe.write(text[:0])

    def flush(self):
        self.screen.flush()

sys.stdout = Logger(sys.stdout)
step, asked = 0, folder / "steps"
if "twin" in sys.argv:
    while not asked.exists() and os.getppid() == parent:
        time.sleep(0.01)
while not (asked.exists() and asked.read_text() in ("", str(step))) and os.getppid() == parent:
    optimizer.zero_grad()
    loss = net(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    step += 1
    print("step", step, "损失", f"{loss.item():.9f}")
    log.info("grad %.9f", net[0].weight.grad.norm())
    bar(f"\\r{step}/oo")
    if step % 10 == 0:
        sys.stdout.flush()
        warnings.warn(f"tenth {step}")
        thread = threading.Thread(target=print, args=("thread", step))
        thread.start()
        thread.join()
    if step % 25 == 0 and not os.fork():
        print("child", step, flush=True)
        os._exit(0)
    if step % 25 == 0:
        os.wait()
    (folder / "step").write_text(str(step))
    if "twin" not in sys.argv:
        time.sleep(0.01)
if "dies" in sys.argv:
    raise RuntimeError("planted at the very end")
bits = b"".join(one.detach().numpy().tobytes() for one in net.parameters())
print("end", step, hashlib.sha256(bits).hexdigest())
"""
LOOK = """
import sys

def setup(api):
    def start(arguments, steps, seconds):
        raws = [stream.buffer.raw for stream in (sys.__stdout__, sys.__stderr__)]
        shell = sys.modules["_ascend_tui_shim.shim.shell"]
        if "break" in arguments:
            lane = shell.agent.probes.loaded["logs"].commands["tee"].stop.__self__.lanes[1]
            lane.collect, lane.room = lambda: None, "no number"
        streams = [str(sys.stdout), str(sys.stderr)]
        return {"attributes": [sorted(vars(one)) for one in raws], "streams": streams}

    api.command("look", start)
"""
MONITOR = """
import sys, time
from client import Client
client = Client(sys.argv[1])
client.hello("other")
assert client.start("logs", "tee", steps=100000, seconds=600)["ok"]
print("holds", flush=True)
time.sleep(600)
"""


class Talking:
    """The training above, its output read from pipes to the end."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # Python's own buffers, whatever the tests run with.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(folder), *arguments],
            env={**env, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.said = [bytearray(), bytearray()]
        self.readers = [
            threading.Thread(target=self.read, args=pair)
            for pair in zip((self.process.stdout, self.process.stderr), self.said)
        ]
        for one in self.readers:
            one.start()

    def read(self, pipe: Any, said: bytearray) -> None:
        while data := os.read(pipe.fileno(), 1 << 16):
            said += data

    def __enter__(self) -> Talking:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self.process)
        for one in self.readers:
            one.join()

    def step(self) -> int:
        path = self.folder / "step"
        return int((path.exists() and path.read_text()) or 0)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Put the shim in, with the probe; gives a raw client."""
        assert until(lambda: self.step() > 5 or self.process.poll() is not None, 90)
        attach(read_target(self.process.pid), name="first", writable=True).client.close()
        with Client(socket_path(read_target(self.process.pid))) as one:
            one.hello()
            assert one.probe("logs", PROBE)["ok"]
            assert one.probe("look", LOOK)["ok"]
            yield one

    def end(self, steps: str = "") -> tuple[bytes, bytes]:
        """Let it end after so many steps, or now; return what it has said."""
        draft = self.folder / "new"
        draft.write_text(steps)
        draft.rename(self.folder / "steps")
        self.process.wait(120)
        for one in self.readers:
            one.join()
        return bytes(self.said[0]), bytes(self.said[1])


def start(client: Client) -> dict[str, Any]:
    answer = client.start("logs", "tee", steps=1000, seconds=60)
    assert answer["ok"], answer
    result: dict[str, Any] = answer["result"]["result"]
    return result


def look(client: Client, **arguments: Any) -> dict[str, Any]:
    answer = client.start("look", "look", arguments=arguments)
    assert answer["ok"], answer
    client.stop("look", "look")
    result: dict[str, Any] = answer["result"]["result"]
    return result


def texts(client: Client, stream: str) -> str:
    told = [one["data"] for one in client.records if (one["plugin"], one["kind"]) == ("logs", "text")]
    assert [one["dropped"] for one in told if one["dropped"]] == []
    return "".join(one["text"] for one in told if one["stream"] == stream)


def tees_for(client: Client, training: Talking, steps: int) -> None:
    wanted = training.step() + steps
    client.until(lambda _: training.step() > wanted, 60)


def test_bytes_and_bits_are_those_of_a_training_that_nobody_attaches_to(tmp_path: Path) -> None:
    with Talking(tmp_path / "one") as one, Talking(tmp_path / "twin", "twin") as twin:
        with one.client() as client:
            before = look(client)
            assert ["write" in names for names in before["attributes"]] == [False, False]
            assert [(row["stream"], row["to"], row["teed"]) for row in start(client)["streams"]] == [
                ("stdout", "pipe", True),
                ("stderr", "pipe", True),
            ]
            during = look(client)
            assert ["write" in names for names in during["attributes"]] == [True, True]
            assert during["streams"] == before["streams"]
            tees_for(client, one, 120)
            client.stop("logs", "tee")
            assert look(client) == before
            # A fault of ours costs the tee, and not the print in which it came up.
            start(client)
            look(client, **{"break": 1})
            failed = client.event(event="probe", plugin="logs", phase="failed", timeout_s=20)
            assert "TypeError" in failed["reason"]
            assert until(lambda: look(client) == before)
            assert client.probe("logs", PROBE)["ok"]
            # What a killed monitor held ends.
            path = str(socket_path(read_target(one.process.pid)))
            paths = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[2])))
            other = subprocess.Popen(
                [sys.executable, "-c", MONITOR, path],
                env={**os.environ, "PYTHONPATH": paths},
                stdout=subprocess.PIPE,
                text=True,
            )
            assert other.stdout is not None
            assert other.stdout.readline() == "holds\n"
            assert ["write" in names for names in look(client)["attributes"]] == [True, True]
            other.send_signal(signal.SIGKILL)
            other.communicate()
            client.event(event="command", plugin="logs", reason="its monitor is gone", timeout_s=20)
            assert look(client) == before
            # A detach in the middle.
            start(client)
            tees_for(client, one, 10)
            residue = client.ask("detach", timeout_s=20)["result"]["residue"]
            assert [line for line in residue if "write of" in line] == []
            told = texts(client, "stdout"), texts(client, "stderr")
        with one.client() as client:
            assert look(client) == before
            client.ask("detach", timeout_s=20)
        out, err = one.end()
        steps = re.findall(rb"^end (\d+) ", out, re.M)
        assert len(steps) == 1
        # Warnings say where they were raised: the same line in both.
        assert twin.end(steps[0].decode()) == (out, err)
    # What was told is what was written, of Python's process; the children's lines are not ours to see.
    for said, whole in zip(told, (out.decode(), err.decode())):
        lines = [line for line in said.splitlines() if line]
        assert len(lines) > 100
        missing = set(lines) - set(whole.splitlines())
        # Where a tee begins and ends, a block of the buffer may begin and end in the middle of a line.
        assert len(missing) <= 6, missing
    assert "损失" in told[0]
    assert re.search(r"^thread \d+$", told[0], re.M)
    assert "child" not in told[0]
    assert re.search(r"^INFO:train:grad ", told[1], re.M)
    assert re.search(r"\r\d+/oo", told[1])
    assert re.search(r"UserWarning: tenth \d+", told[1])


def test_the_last_words_of_a_training_that_dies_are_told(tmp_path: Path) -> None:
    with Talking(tmp_path, "dies") as training, training.client() as client:
        start(client)
        tees_for(client, training, 20)
        _, err = training.end()
        assert training.process.returncode == 1
        assert err.endswith(b"RuntimeError: planted at the very end\n")
        while client.frame() is not None:
            continue
        assert texts(client, "stderr").endswith("RuntimeError: planted at the very end\n")


def test_two_hundred_starts_and_stops_while_it_prints(tmp_path: Path) -> None:
    with Talking(tmp_path) as training, training.client() as client:
        before = look(client)
        for _ in range(200):
            start(client)
            client.stop("logs", "tee")
        assert look(client) == before
        step = training.step()
        assert until(lambda: training.step() > step + 5, 20)
        state = client.ask("status")["result"]
        assert (state["faults"], state["notes"]) == ({}, [])
        residue = client.ask("detach", timeout_s=20)["result"]["residue"]
        assert len([line for line in residue if "weakref" in line]) <= 1
        training.end()
        assert training.process.returncode == 0


def test_the_demo_whose_fault_is_logs_keeps_them_together(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "ASCEND_TUI_RUN_ROOT": ""}
    done = cli("demo", "--fault", "logs", "--headless", "--json", "--seconds", "6", env=env)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "ascend-tui").glob("*/output")
    assert "'grad_norm': " in (folder / "train.log").read_text()
    assert {path.name for path in folder.iterdir()} >= {"001-demo.log", "train.log"}
