"""The command line from outside: exit codes, what goes to stdout, and that no fault ends in a traceback."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainings import (
    COMMAND,
    PLAIN,
    PROGRAM,
    Training,
    cli,
    needs_ptrace,
    needs_torch,
    plain,
    start_cli,
    strict,
    until,
)

import ascend_tui
from ascend_tui.attach import attach
from ascend_tui.target import read_target, socket_path

pytestmark = needs_ptrace

LINE_KEYS = {"schema", "time", "step", "target", "plugins", "alerts", "marks"}
TARGET_KEYS = {
    "id",
    "title",
    "state",
    "reason",
    "rank",
    "world_size",
    "device",
    "device_name",
    "python",
    "torch",
    "torch_npu",
    "method",
    "method_reason",
    "stop_ms",
    "hello_ms",
    "step",
    "skipped",
    "step_time_s",
    "sample_age_s",
    "dropped",
    "cost",
    "commands",
    "notes",
}
COST_KEYS = {"share", "low", "high", "hook_us_per_step", "thinning"}
MEMORY_KEYS = {
    "state",
    "device",
    "lead",
    "current",
    "peak",
    "slope_bytes_per_step",
    "slope_bytes_per_s",
    "samples",
    "verdict",
    "reason",
    "reuse",
    "slope",
    "forecast",
    "revision",
    "holders",
    "segments",
    "workers",
    "oom",
    "card",
    "ours",
}
VALUE_KEYS = {
    "allocated_bytes",
    "active_bytes",
    "reserved_bytes",
    "device_used_bytes",
    "device_total_bytes",
    "rss_bytes",
    "inactive_split_bytes",
    "workers_rss_bytes",
    "pinned_bytes",
    "outside_bytes",
}
VERDICT_KEYS = {"kind", "confidence", "since_step", "reason", "settles"}
PS_KEYS = {
    "schema",
    "pid",
    "start_ticks",
    "rank",
    "launcher",
    "user",
    "python",
    "torch",
    "torch_version",
    "torch_npu_version",
    "device",
    "age_s",
    "stdout",
    "title",
    "shim",
    "refused",
}
REFUSED_KEYS = {"code", "what", "why", "next_step", "params"}


def pin(line: dict[str, Any]) -> None:
    """Assert the names that others read: one that is renamed breaks their scripts."""
    assert set(line) == LINE_KEYS
    assert line["schema"] == "ascend-tui/1"
    assert set(line["target"]) == TARGET_KEYS
    assert set(line["target"]["id"]) == {"pid", "start_ticks"}
    assert set(line["target"]["cost"]) == COST_KEYS
    memory = line["plugins"]["memory"]
    assert set(memory) == MEMORY_KEYS
    assert set(memory["current"]) == set(memory["peak"]) == VALUE_KEYS
    assert set(memory["verdict"]) == VERDICT_KEYS


def silent(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Assert an orderly refusal: its code, its words on stderr, nothing on stdout and no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# Refusals and wrong usage.


def test_what_is_not_python_is_refused_with_the_next_step(sleeper: int) -> None:
    done = cli("attach", str(sleeper), "--headless")
    silent(done, 3, f"Cannot attach to process {sleeper} (sleep)", "not a CPython process", "ascend-tui ps")
    done = cli("attach", str(sleeper), "--json")
    (line,) = strict(done.stdout)
    assert set(line["refused"]) == REFUSED_KEYS
    assert (done.returncode, line["refused"]["code"]) == (3, "not_python")
    assert "not a CPython process" in done.stderr
    done = cli("attach", "1", "--headless")
    if read_target(1).python is None:
        silent(done, 3, "process 1 ")


def test_one_bad_pid_among_several_touches_none_of_them(sleeper: int) -> None:
    with plain() as process:
        done = cli("attach", str(process.pid), str(sleeper), "--headless")
        silent(done, 3, "sleep")
        assert not socket_path(read_target(process.pid)).exists()


def test_a_process_that_is_gone_or_is_ourselves() -> None:
    silent(cli("attach", str(dead_pid()), "--headless"), 3, "there is no such process", "ascend-tui ps")
    silent(cli("attach", "0", "--headless"), 3, "there is no such process")
    silent(cli("attach", "999999999999999999999", "--headless"), 3, "there is no such process")
    code = "import os, sys; from ascend_tui.cli import main\n"
    code += "sys.exit(main(['attach', str(os.getpid()), '--headless']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    silent(done, 3, "it is this monitor itself")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["attach"], "required: PID"),
        (["attach", "train.py", "--headless"], "invalid int value: 'train.py'"),
        (["demo"], "this is no terminal: add --headless"),
        (["demo", "--fault", "meteor", "--headless"], "it knows: none, leak"),
        (["run", "--headless"], "say what to run"),
        (["attach", "1", "--headless", "--tick", "0"], "tick_s must be a number from 0.1 to 60"),
        (["--config", "/nowhere.toml", "config"], "cannot be read"),
        (["no-such-command"], "invalid choice"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_code_2(words: list[str], why: str) -> None:
    silent(cli(*words), 2, why)


# Commands that only look.


def test_version_config_and_help() -> None:
    done = cli("--version")
    assert (done.returncode, done.stdout) == (0, f"ascend-tui {ascend_tui.__version__}\n")
    done = cli("config", env={"ASCEND_TUI_TICK_S": "2.5"})
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "tick_s = 2.5    # environment ASCEND_TUI_TICK_S" in lines
    assert "readonly = False    # default" in lines
    assert "examples:" in cli("--help").stdout


def test_doctor_speaks_strict_json() -> None:
    done = cli("doctor", "--json")
    lines = strict(done.stdout)
    assert all(set(line) == {"schema", "check"} for line in lines)
    assert all(set(line["check"]) == {"name", "level", "found", "advice"} for line in lines)
    assert {line["check"]["level"] for line in lines} <= {"ok", "warning", "error"}
    assert {"ptrace", "ascend-tui", "textual", "plugin"} <= {line["check"]["name"] for line in lines}
    assert done.returncode == int(any(line["check"]["level"] == "error" for line in lines))
    with plain() as process:
        found = {}
        for _ in range(2):
            done = cli("doctor", str(process.pid), "--json")
            found = {line["check"]["name"]: line["check"]["found"] for line in strict(done.stdout)}
            assert "Python 3." in found["process"]
            if "nothing stands in the way" in found["attach"]:
                attach(read_target(process.pid), name="test", writable=True).client.close()
        assert found["attach"] == "a shim is in it already"
    done = cli("doctor", str(dead_pid()), "--json")
    assert done.returncode == 1
    assert "there is no such process" in strict(done.stdout)[-1]["check"]["found"]


def test_a_dry_run_needs_no_terminal_and_does_nothing() -> None:
    with plain() as process:
        done = cli("attach", str(process.pid), "--dry-run")
        assert done.returncode == 0, done.stderr
        assert "nothing stops an attach; it would be by thread: an idle thread" in done.stdout
        assert not socket_path(read_target(process.pid)).exists()
        (line,) = strict(cli("attach", str(process.pid), "--dry-run", "--json").stdout)
        assert (line["pid"], line["chosen"], line["thread"]["is_main"]) == (process.pid, "thread", False)


def test_a_refusal_comes_before_the_question_for_a_terminal(sleeper: int) -> None:
    silent(cli("attach", str(sleeper)), 3, "it is not a CPython process")
    with plain() as process:
        silent(cli("attach", str(process.pid)), 2, "this is no terminal: add --headless")
        assert not socket_path(read_target(process.pid)).exists()


def test_detach_with_and_without_a_shim(sleeper: int) -> None:
    with plain() as process:
        pid = str(process.pid)
        done = cli("detach", pid)
        assert (done.returncode, done.stdout) == (0, f"no shim in {pid}: nothing to remove\n")
        attach(read_target(process.pid), name="test", writable=True).client.close()
        done = cli("detach", pid, "--json")
        (line,) = strict(done.stdout)
        assert (done.returncode, line["pid"], line["removed"]) == (0, process.pid, True)
        assert any("_ascend_tui_shim.shim.shell" in one for one in line["residue"])
        assert until(lambda: not socket_path(read_target(process.pid)).exists())
        assert strict(cli("detach", pid, "--json").stdout)[0]["removed"] is False
    silent(cli("detach", str(dead_pid())), 3, "there is no such process")
    assert cli("detach", str(sleeper)).returncode == 0


# Watching without a screen.


@needs_torch
def test_a_training_is_listed_and_watched_in_pinned_lines(tmp_path: Path) -> None:
    with Training(tmp_path / "training", "--exit", "7") as training:
        pid = training.pid
        (line,) = (one for one in strict(cli("ps", "--json").stdout) if one["pid"] == pid)
        assert set(line) == PS_KEYS
        assert (line["torch"], line["device"], line["shim"], line["refused"]) == (True, "cpu", False, None)
        assert re.search(rf"^{pid} .* cpu .* yes .* watched.py$", cli("ps").stdout, re.M)
        monitor = start_cli("attach", str(pid), "--headless", "--json", "--tick", "0.1")
        assert monitor.stdout is not None
        lines: list[dict[str, Any]] = []
        while not lines or lines[-1]["target"]["state"] != "live" or len(lines) < 12:
            lines += strict(monitor.stdout.readline())
            assert len(lines) < 300
        (training.folder / "stop").touch()
        rest, stderr = monitor.communicate(timeout=30)
    assert monitor.returncode == 4, stderr
    assert "target exited (code 7)" in stderr
    lines += strict(rest)
    for line in lines:
        pin(line)
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    states = list(dict.fromkeys(line["target"]["state"] for line in lines))
    # An interpreter that takes itself apart has hung up already, and for a moment is still there.
    ends = states[states.index("live") :]
    assert ends in (["live", "exited"], ["live", "disconnected", "exited"])
    assert lines[-1]["plugins"]["memory"]["current"]["rss_bytes"] > 1 << 20
    assert lines[-1]["target"]["reason"] == "target exited (code 7)"


def test_words_for_people_and_the_end_by_the_clock() -> None:
    with plain() as process:
        done = cli("attach", str(process.pid), "--headless", "--seconds", "1.5", "--tick", "0.1")
        assert done.returncode == 0, done.stderr
        last = done.stdout.splitlines()[-1]
        assert last.startswith(f"{process.pid} -c  waiting  waiting for the first step  rss ")
        assert process.poll() is None


def test_a_reader_that_closes_early_is_no_fault() -> None:
    with plain() as process:
        words = f"attach {process.pid} --headless --json --tick 0.1 --seconds 5"
        shell = f'"$@" {words} | head -1'
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", shell, "-", *COMMAND], capture_output=True, text=True, timeout=60
        )
        assert len(strict(done.stdout)) == 1
        assert "Traceback" not in done.stderr
        assert "BrokenPipe" not in done.stderr
        assert time.monotonic() - began < 5


def test_json_is_utf_8_and_text_is_legible_in_any_locale() -> None:
    with plain("x = 'é'  # 内存\n" + PLAIN) as process:
        env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        for words in (["ps", "--json"], ["doctor", str(process.pid), "--json"]):
            done = cli(*words, env=env)
            assert "Traceback" not in done.stderr
            assert strict(done.stdout)
        for words in (["ps"], ["doctor"]):
            done = cli(*words, env=env)
            assert "Traceback" not in done.stderr
            assert done.stdout


# Starting a program with the shim inside.


@needs_torch
def test_run_watches_without_ptrace_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    folder.mkdir()
    script = tmp_path / "train.py"
    script.write_text(
        "print('the program speaks', flush=True)\n"
        f"import runpy, sys\nsys.argv = ['x', {str(folder)!r}, '--steps', '120', '--exit', '5']\n"
        f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n"
    )
    done = cli("run", "--headless", "--json", "--tick", "0.1", "--", sys.executable, str(script))
    assert done.returncode == 5, done.stderr
    lines = strict(done.stdout)
    for line in lines:
        pin(line)
    assert {line["target"]["method"] for line in lines} <= {"", "reused"}
    assert lines[-1]["target"]["state"] == "exited"
    steps = [line["step"] for line in lines if line["step"]]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]
    # What it prints is no data of ours.
    assert "the program speaks" not in done.stdout
    assert "the program speaks" in done.stderr


def test_run_of_what_is_no_python_or_does_not_exist() -> None:
    done = cli("run", "--headless", "--", "sh", "-c", "echo out; exit 6")
    assert (done.returncode, done.stdout) == (6, "")
    assert "out" in done.stderr.splitlines()
    silent(cli("run", "--headless", "--", "no-such-program-here"), 127, "cannot run no-such-program-here")
    done = cli("run", "--headless", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 128 + 9
    done = cli("run", "--headless", "--", sys.executable, "-c", "import sys; sys.exit(4)")
    assert done.returncode == 4


def test_run_leaves_the_program_alone_when_the_time_is_over(tmp_path: Path) -> None:
    code = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(60)"
    words = ("run", "--headless", "--json", "--seconds", "1", "--", sys.executable, "-c", code)
    # The program keeps our stderr open: a pipe would not end with us.
    with (tmp_path / "stderr").open("w") as stderr:
        done = subprocess.run(
            [*COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=60,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    said = (tmp_path / "stderr").read_text()
    found = re.search(r"^pid (\d+)$", said, re.M)
    assert found is not None, said
    pid = int(found.group(1))
    try:
        assert done.returncode == 0
        assert f"stop it with: kill {pid}" in said
        assert read_target(pid).state in "SR"
        assert {one["target"]["id"]["pid"] for one in strict(done.stdout)} == {pid}
        assert [path.name for path in tmp_path.iterdir()] == ["stderr"]
    finally:
        os.kill(pid, 9)


# The demo.


@needs_torch
def test_the_demo_leaks_in_strict_json_and_takes_its_training_along(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a shell: where torch_npu is installed and CANN is not, `import torch` alone would fail.
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    done = cli("demo", "--fault", "leak", "--headless", "--json", "--seconds", "4", "--tick", "0.25")
    assert done.returncode == 0, done.stderr
    lines = strict(done.stdout)
    for line in lines:
        pin(line)
    steps = [line["step"] for line in lines if line["step"]]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]
    rss = [line["plugins"]["memory"]["current"]["rss_bytes"] for line in lines]
    rss = [value for value in rss if value]
    assert rss[-1] > rss[0] + (1 << 20)
    found = re.search(r"training on cpu, ([\d,]+) parameters, pid (\d+)", done.stderr)
    assert found is not None, done.stderr
    assert not os.path.exists(f"/proc/{found.group(2)}")
    if importlib.util.find_spec("torch_npu") is not None:
        assert re.search(r"no NPU: lib\w+\.so: .*: ascend-tui doctor", done.stderr), done.stderr


def test_the_demo_without_torch_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'torch' else find(name, *more)\n"
    )
    done = cli("demo", "--headless", "--json", env={"PYTHONPATH": str(tmp_path)})
    (line,) = strict(done.stdout)
    assert (done.returncode, line["refused"]["code"]) == (3, "no_torch")
    assert 'pip install "torch' in done.stderr
