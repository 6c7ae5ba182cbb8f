"""Logs of a running process, found from its pid: read as they grow, whatever happens to the file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainings import Watcher, until

from ascend_tui.frame import as_json
from ascend_tui.plugin import load_all
from ascend_tui.target import read_target

# Writes what it is told to: a line of stdin each.
ECHO = """
import sys, time
for line in sys.stdin:
    sys.stdout.write(line); sys.stdout.flush()
"""
FAULT = (
    "[ERROR] RUNTIME(77,python):{stamp}.250.000 [stars_engine.cc:1]77 ProcLogicCqReport:Task run failed,"
    " device_id=1, stream_id=3, task_id=5, sqe_type=0(ffts), errType=0x1(task exception), sqSwStatus=0\n"
)


def stamp() -> str:
    return time.strftime("%Y-%m-%d-%H:%M:%S")


@contextmanager
def writer(stdout: Any, **more: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", ECHO],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        text=True,
        **more,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def logs(watcher: Watcher) -> Any:
    targets = watcher.frames[-1].targets if watcher.frames else ()
    return targets[0].plugins["logs"] if targets else None


def alerts(watcher: Watcher) -> list[Any]:
    return [one for frame in watcher.frames for target in frame.targets for one in target.alerts]


def incidents(watcher: Watcher) -> list[Any]:
    shown = logs(watcher)
    return list(shown.digest.incidents) if shown is not None else []


def watch(process: subprocess.Popen[str]) -> Watcher:
    return Watcher(read_target(process.pid), plugins=load_all(), passive=True)


def test_a_fault_is_told_once_it_is_written_and_what_was_there_is_history(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    with path.open("w") as out, writer(out) as process:
        say(process, "ValueError: before anybody looked\n" + "loss 2.5 step 7\n" * 50)
        assert until(lambda: path.stat().st_size > 800)
        os.utime(path, (time.time() - 600, time.time() - 600))
        with watch(process) as watcher:
            assert until(lambda: incidents(watcher))
            time.sleep(2.5)
            say(process, FAULT.format(stamp=stamp()))
            assert until(lambda: len(incidents(watcher)) == 2)
            assert until(lambda: any(alert.plugin == "logs" for alert in alerts(watcher)))
            told = [
                alert for alert in alerts(watcher) if alert.plugin == "logs" and alert.category == "device"
            ]
            assert [alert.severity for alert in told] == ["error"]
            (source,) = [one for one in logs(watcher).sources if one.kind == "stdout"]
            assert (source.name, source.state, source.behind_bytes) == (str(path), "reading", 0)


def test_a_deleted_file_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    with path.open("w") as out, writer(out) as process:
        path.unlink()
        with watch(process) as watcher:
            assert until(lambda: logs(watcher) is not None and logs(watcher).sources)
            say(process, FAULT.format(stamp=stamp()))
            assert until(lambda: incidents(watcher))
            assert next(one.state for one in logs(watcher).sources if one.kind == "stdout") == "deleted"


def test_a_pipe_says_why_nothing_is_read_and_what_helps() -> None:
    with writer(subprocess.PIPE) as process, watch(process) as watcher:
        assert until(lambda: logs(watcher) is not None and logs(watcher).state == "degraded")
        reason = logs(watcher).reason.render()
        assert "pipe" in reason
        assert "W" in reason


def test_a_plog_is_found_by_the_targets_own_environment(tmp_path: Path) -> None:
    folder = tmp_path / "debug" / "plog"
    folder.mkdir(parents=True)
    environment = {**os.environ, "ASCEND_PROCESS_LOG_PATH": str(tmp_path)}
    with writer(subprocess.DEVNULL, env=environment) as process, watch(process) as watcher:
        assert until(lambda: logs(watcher) is not None and logs(watcher).sources)
        plog = folder / f"plog-{process.pid}_{time.strftime('%Y%m%d%H%M%S')}123.log"
        plog.write_text(FAULT.format(stamp=stamp()))
        assert until(lambda: incidents(watcher), 15)
        (one,) = incidents(watcher)
        assert (one.category, one.devices) == ("device", (1,))
        assert [source.kind for source in logs(watcher).sources if source.lines] == ["plog"]


def test_the_last_words_of_a_process_are_read(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    with path.open("w") as out, writer(out) as process, watch(process) as watcher:
        assert until(lambda: logs(watcher) is not None and logs(watcher).sources)
        say(process, "loss 1.0 step 3\n")
        process.send_signal(signal.SIGKILL)
        process.wait()
        with path.open("a") as late:
            late.write(FAULT.format(stamp=stamp()))
        assert until(lambda: incidents(watcher))


def test_the_json_of_it_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    with path.open("w") as out, writer(out) as process, watch(process) as watcher:
        say(process, "loss nan step 3\n" + FAULT.format(stamp=stamp()))
        assert until(lambda: len(incidents(watcher)) >= 1)
        told = as_json(logs(watcher))
        assert {"state", "digest", "sources", "behind_s", "lines_per_s", "is_teed"} <= set(told)
        assert {"severity", "category", "headline", "step", "ranks", "count", "attribution"} <= set(
            told["digest"]["incidents"][0]
        )


def test_a_monitor_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    with path.open("w") as out, writer(out) as process:
        say(process, "it runs\n")
        assert until(path.read_text)
        before = set(os.listdir(f"/proc/{process.pid}/fd"))
        with watch(process) as watcher:
            assert until(lambda: logs(watcher) is not None and logs(watcher).sources)
        assert set(os.listdir(f"/proc/{process.pid}/fd")) == before
