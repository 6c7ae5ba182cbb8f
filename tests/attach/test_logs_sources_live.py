"""The output of real processes is found and followed: files, pipes, terminals, containers, launchers."""

from __future__ import annotations

import gzip
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.logs.reading.follow import Chunk, Follower
from ascend_tui_plugins.logs.reading.places import Place, places
from boxes import children_of, needs_root
from trainings import needs_torch, until

from ascend_tui.target.proc import read_stat

QUIET = "import time\nopen({mark!r}, 'w').close()\ntime.sleep(100)\n"
WRITER = """
import sys, time
open({mark!r}, "w").close()
for at in range(100000):
    print("step %d" % at, flush=True)
    time.sleep(0.005)
"""
BETWEEN_LOOKS_S = 0.05
PLAIN_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("ASCEND")}
BECOME = """
import os
from ascend_tui_plugins.logs.reading.places import places
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
"""


@contextmanager
def running(
    code: str,
    tmp_path: Path,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **how: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; it says by a file that it runs."""
    mark = tmp_path / "runs"
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **how}
    process = subprocess.Popen(
        [*command, sys.executable, "-c", code.format(mark=str(mark))],
        env={**PLAIN_ENVIRONMENT, **(environment or {})},
        start_new_session=True,
        **how,
    )
    try:
        assert until(mark.exists), "it did not begin"
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        mark.unlink(missing_ok=True)


def of(kind: str, pid: int, globs: Sequence[str] = ()) -> list[Place]:
    return [place for place in places(pid, globs) if place.kind == kind]


def why(place: Place) -> str:
    return place.why.render() if place.why is not None else ""


def follow(pid: int, globs: Sequence[str] = (), first_bytes: int = 1 << 20) -> Follower:
    seen = read_stat(pid)
    assert seen is not None
    follower = Follower(pid, seen.start_ticks, globs, first_bytes)
    follower.look()
    return follower


def gather(follower: Follower, seconds: float = 0.0) -> list[Chunk]:
    """Look and read for a while, as the monitor does."""
    found: list[Chunk] = []
    end_s = time.monotonic() + seconds
    while True:
        follower.look()
        found += follower.read(1 << 20)
        if time.monotonic() >= end_s:
            return found
        time.sleep(BETWEEN_LOOKS_S)


def steps(chunks: Sequence[Chunk]) -> list[int]:
    text = b"".join(chunk.data for chunk in chunks).decode()
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("step ")]


def test_one_file_for_both_is_one_place(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with path.open("wb") as file, running(QUIET, tmp_path, stdout=file, stderr=subprocess.STDOUT) as process:
        (place,) = places(process.pid)
        assert (place.kind, place.path, place.state) == ("stdout", str(path), "reading")
        assert place.through == f"/proc/{process.pid}/fd/1"
        assert place.beside == str(path)


def test_two_files_are_two_places(tmp_path: Path) -> None:
    out, err = (tmp_path / "o").open("wb"), (tmp_path / "e").open("wb")
    with out, err, running(QUIET, tmp_path, stdout=out, stderr=err) as process:
        assert [place.kind for place in places(process.pid)] == ["stdout", "stderr"]


def test_a_deleted_file_is_read_through_the_process(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with path.open("wb") as file, running(WRITER, tmp_path, stdout=file) as process:
        path.unlink()
        (place,) = of("stdout", process.pid)
        assert (place.state, place.path) == ("deleted", str(path))
        assert why(place).startswith("The file was deleted; it is read through process")
        follower = follow(process.pid)
        got = steps(gather(follower, 1.0))
        assert got == list(range(len(got)))
        assert len(got) > 20
        assert follower.sources()[0].state == "deleted"


def test_a_file_that_is_called_deleted_is_not(tmp_path: Path) -> None:
    path = tmp_path / "out (deleted)"
    with path.open("wb") as file, running(QUIET, tmp_path, stdout=file) as process:
        (place,) = of("stdout", process.pid)
        assert (place.state, place.path) == ("reading", str(path))


def test_what_no_one_can_read_says_why(tmp_path: Path) -> None:
    with running(QUIET, tmp_path) as process:
        found = places(process.pid)
        assert [(place.kind, place.state) for place in found] == [("stdout", "nothing")], found
        place = found[0]
        assert why(place) == "It is thrown away (/dev/null); W copies what Python prints from now on"
    controller, terminal = pty.openpty()
    with running(QUIET, tmp_path, stdout=terminal, stderr=terminal) as process:
        (place,) = places(process.pid)
        assert (
            why(place) == "A terminal: nothing can be read from it; W copies what Python prints from now on"
        )
    os.close(controller)
    os.close(terminal)
    one, other = socket.socketpair()
    with one, other, running(QUIET, tmp_path, stdout=one, stderr=one) as process:
        (place,) = places(process.pid)
        assert why(place) == "A socket: nothing can be read from it; W copies what Python prints from now on"
    closed = "import os\nos.close(1)\nos.close(2)\n" + QUIET
    with running(closed, tmp_path) as process:
        assert [(place.kind, why(place)) for place in places(process.pid)] == [
            ("stdout", "It is closed"),
            ("stderr", "It is closed"),
        ]


def test_a_pipe_names_who_reads_it(tmp_path: Path) -> None:
    with running(QUIET, tmp_path, stdout=subprocess.PIPE) as process:
        (place,) = of("stdout", process.pid)
        assert place.state == "nothing"
        me = read_stat(os.getpid())
        assert me is not None
        assert why(place).startswith(f"A pipe to {me.comm} ({os.getpid()}): nothing can be read from it")


def test_a_pipe_to_tee_is_read_from_the_file_of_tee(tmp_path: Path) -> None:
    path = tmp_path / "tee.txt"
    shell = ("sh", "-c", f'"$@" 2>&1 | cat | tee {path} > /dev/null; true', "-")
    with running(WRITER, tmp_path, shell) as process:
        pid = next(one for one in children_of(process.pid) if b"step %d" in command_line(one))
        (place,) = of("stdout", pid)
        assert (place.path, place.state) == (str(path), "reading")
        assert why(place).startswith("Through a pipe to tee (")
        assert of("stderr", pid) == []
        follower = follow(pid)
        got = steps(gather(follower, 1.0))
        assert got == list(range(len(got)))
        assert len(got) > 20


def test_a_filter_into_a_file_is_read_from_there(tmp_path: Path) -> None:
    path = tmp_path / "filtered"
    shell = ("sh", "-c", f'"$@" | grep --line-buffered 5 > {path}; true', "-")
    with running(WRITER, tmp_path, shell) as process:
        pid = next(one for one in children_of(process.pid) if b"step %d" in command_line(one))
        assert until(lambda: [place.path for place in of("stdout", pid)] == [str(path)])
        assert why(of("stdout", pid)[0]).startswith("Through a pipe to grep (")


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_files_that_are_logs_and_written_are_found(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("config.txt", "other.log"):
        (tmp_path / name).touch()
    opens = f"""
import os
os.chdir({str(tmp_path)!r})
kept = [open(name, "a") for name in ("train.log", "metrics.jsonl", "logs/rank0", "model.pt")]
kept += [open(name, "wb") for name in ("events.out.tfevents.1.host", "logs/state.sqlite", "part")]
kept += [open(name) for name in ("config.txt", "other.log")]
"""
    with running(opens + QUIET, tmp_path) as process:
        assert {Path(str(place.path)).name for place in of("open_file", process.pid)} == {
            "train.log",
            "metrics.jsonl",
            "rank0",
        }


def test_globs_are_below_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.log").write_text("x\n")
    (tmp_path / "sub/a.log.1.gz").write_bytes(gzip.compress(b"w\n"))
    (tmp_path / "sub/yesterday.log").write_text("x\n")
    os.utime(tmp_path / "sub/yesterday.log", (time.time() - 86400,) * 2)
    with running(QUIET, tmp_path, cwd=str(tmp_path)) as process:
        found = of("glob", process.pid, ["sub/*.log*", "none/*.log", "~/nothing_here_*.log"])
        assert [(place.path, place.state) for place in found] == [
            (str(tmp_path / "sub/a.log"), "reading"),
            (str(tmp_path / "none/*.log"), "waiting"),
            (os.path.expanduser("~/nothing_here_*.log"), "waiting"),
        ]


def test_the_log_of_cann_is_found_waited_for_and_followed(tmp_path: Path) -> None:
    root = tmp_path / "ascend"
    environment = {"ASCEND_PROCESS_LOG_PATH": str(root), "ASCEND_GLOBAL_LOG_LEVEL": "3", "RANK": "5"}
    with running(QUIET, tmp_path, environment=environment) as process:
        (place,) = of("plog", process.pid)
        pattern = f"{root}/debug/plog/plog-{process.pid}_*.log"
        assert (place.state, place.path, place.rank) == ("waiting", pattern, 5)
        follower = follow(process.pid)
        folder = root / "debug/plog"
        folder.mkdir(parents=True)
        (folder / f"plog-{process.pid}_20260101000000000.log").write_text("step 1\n")
        assert steps(gather(follower)) == [1]
        (folder / f"plog-{process.pid}_20260101000000001.log").write_text("step 2\n")
        assert steps(gather(follower)) == [2]
        (source,) = [one for one in follower.sources() if one.kind == "plog"]
        assert (source.state, source.lines, source.rank) == ("reading", 2, 5)


def test_that_cann_prints_and_writes_no_file_is_said(tmp_path: Path) -> None:
    with running(QUIET, tmp_path, environment={"ASCEND_SLOG_PRINT_TO_STDOUT": "1"}) as process:
        (place,) = of("plog", process.pid)
        assert place.state == "nothing"
        assert why(place) == (
            "ASCEND_SLOG_PRINT_TO_STDOUT=1: CANN prints its log to stdout and writes no file; "
            "without it, it writes one"
        )


def test_a_rank_is_claimed_only_where_nobody_else_writes(tmp_path: Path) -> None:
    with (
        (tmp_path / "own").open("wb") as own,
        running(QUIET, tmp_path, stdout=own, environment={"RANK": "3"}) as one,
    ):
        assert [place.rank for place in of("stdout", one.pid)] == [3]
        (tmp_path / "two").mkdir()
        with running(QUIET, tmp_path / "two", stdout=own, environment={"RANK": "4"}):
            assert [place.rank for place in of("stdout", one.pid)] == [None]


def test_torchrun_files_that_are_not_its_streams(tmp_path: Path) -> None:
    """A worker that redirects itself leaves what it said before in the launcher's file."""
    folder = tmp_path / "none_x/attempt_0/1"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("step 1\n")
    environment = {"TORCHELASTIC_ERROR_FILE": str(folder / "error.json"), "RANK": "1"}
    with running(QUIET, tmp_path, environment=environment) as process:
        (place,) = of("launcher", process.pid)
        assert (place.path, place.rank) == (str(folder / "stdout.log"), 1)


@needs_torch
def test_torchrun_in_its_log_folder(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, time\nprint('rank', os.environ['RANK'], 'pid', os.getpid(), flush=True)\n"
        "print('words of', os.environ['RANK'], file=sys.stderr, flush=True)\ntime.sleep(100)\n"
    )
    launcher = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"),
            *("--log-dir", str(tmp_path / "logs"), "--redirects", "3", str(script)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert until(lambda: len(list((tmp_path / "logs").glob("*/attempt_0/*/stderr.log"))) == 2, 90)
        assert until(lambda: len([1 for one in said(tmp_path) if one.endswith("\n")]) == 2, 30)
        for line in said(tmp_path):
            rank, pid = int(line.split()[1]), int(line.split()[3])
            found = places(pid)
            assert [(place.kind, place.rank, place.state) for place in found[:2]] == [
                ("stdout", rank, "reading"),
                ("stderr", rank, "reading"),
            ]
            assert str(found[0].path).endswith(f"/attempt_0/{rank}/stdout.log")
            assert [place.kind for place in found].count("launcher") == 0
            follower = follow(pid)
            text = b"".join(chunk.data for chunk in gather(follower)).decode()
            assert f"rank {rank} pid {pid}\n" in text
            assert f"words of {rank}\n" in text
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


def said(tmp_path: Path) -> list[str]:
    return [path.read_text() for path in (tmp_path / "logs").glob("*/attempt_0/*/stdout.log")]


def test_a_log_that_is_rotated_by_python_loses_no_line(tmp_path: Path) -> None:
    code = f"""
import logging, logging.handlers, time
handler = logging.handlers.RotatingFileHandler({str(tmp_path / "train.log")!r}, maxBytes=2000, backupCount=50)
logging.basicConfig(level=logging.INFO, handlers=[handler], format="%(message)s")
open({{mark!r}}, "w").close()
for at in range(1500):
    logging.info("step %d", at)
    time.sleep(0.001)
time.sleep(100)
"""
    with running(code, tmp_path) as process:
        follower = follow(process.pid)
        got = steps(gather(follower, 4.0))
    assert got == list(range(1500))
    assert len([one for one in follower.sources() if one.kind == "open_file"]) == 1


def test_a_log_that_is_copied_and_emptied(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with path.open("ab") as file, running(WRITER, tmp_path, stdout=file) as process:
        follower = follow(process.pid)
        found = gather(follower, 0.5)
        (tmp_path / "out.txt.1").write_bytes(path.read_bytes())
        os.truncate(path, 0)
        found += gather(follower, 0.7)
        got = steps(found)
        # Lines that are written between the copy and the emptying are nowhere.
        assert got == sorted(set(got))
        assert len(got) >= got[-1] + 1 - 5
        assert follower.sources()[0].why is not None


def test_what_a_process_says_last_is_read_after_its_end(tmp_path: Path) -> None:
    code = "import time\nopen({mark!r}, 'w').close()\ntime.sleep(0.5)\nprint('step 1', end='')"
    path = tmp_path / "out.txt"
    with path.open("wb") as file, running(code, tmp_path, stdout=file) as process:
        follower = follow(process.pid)
        assert gather(follower) == []
        process.wait()
        assert steps(gather(follower, 2.5)) == [1]
        assert next(one.state for one in follower.sources()) == "ended"
        assert places(process.pid) == ()


def test_another_process_with_this_pid_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with path.open("wb") as file, running(QUIET, tmp_path, stdout=file) as process:
        follower = Follower(process.pid, 1)
        follower.look()
        assert follower.sources() == ()


@needs_root
def test_in_a_container_the_pid_inside_names_the_plog(tmp_path: Path) -> None:
    unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    environment = {"ASCEND_WORK_PATH": str(tmp_path)}
    folder = tmp_path / "log/debug/plog"
    folder.mkdir(parents=True)
    with running(QUIET, tmp_path, unshare, environment) as process:
        (pid,) = children_of(process.pid)
        (folder / "plog-1_20260101000000000.log").write_text("step 1\n")
        (folder / f"plog-{pid}_20260101000000000.log").write_text("step 2\n")
        (place,) = of("plog", pid)
        assert place.path == str(folder / "plog-1_20260101000000000.log")
        assert steps(gather(follow(pid))) == [1]


PRIVATE = """
set -e
mkdir -p "$1/data" "$1/inside"
mount -t tmpfs tmpfs "$1/data"
mkdir "$1/data/logs"
echo "step 7" > "$1/data/logs/train.log"
ln -s "$1/data/logs" "$1/inside/link"
shift
exec "$@"
"""


@needs_root
def test_files_of_another_mount_namespace(tmp_path: Path) -> None:
    command = ("unshare", "--mount", "--propagation", "private", "sh", "-c", PRIVATE, "-", str(tmp_path))
    code = (
        f"kept = open({str(tmp_path / 'data/logs/own.log')!r}, 'w')\nprint('step 9', file=kept, flush=True)\n"
    )
    with running(code + QUIET, tmp_path, command) as process:
        assert not (tmp_path / "data/logs").exists()
        found = of("glob", process.pid, [str(tmp_path / "inside/link/*.log")])
        assert [place.path for place in found if "train" in str(place.path)] == [
            str(tmp_path / "inside/link/train.log")
        ]
        follower = follow(process.pid, [str(tmp_path / "inside/link/train.log")])
        assert sorted(steps(gather(follower))) == [7, 9]
        assert [one.state for one in follower.sources() if one.kind in ("glob", "open_file")] == [
            "reading"
        ] * 2


CHROOT = """
set -e
root=$1
shift
mkdir -p "$root/proc" "$root/tmp"
for one in bin lib lib64 usr etc; do
    if [ -L "/$one" ]; then cp -a "/$one" "$root"; continue; fi
    mkdir -p "$root/$one"
    mount --bind "/$one" "$root/$one"
done
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
"""


@needs_root
def test_files_of_another_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "var/log/ascend").mkdir(parents=True)
    command = ("unshare", "--mount", "--propagation", "private", "sh", "-c", CHROOT, "-", str(root))
    shell = "exec > /tmp/out.log; echo 'step 3'; exec sleep 100"
    process = subprocess.Popen(
        [*command, "/bin/sh", "-c", shell],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "ASCEND_PROCESS_LOG_PATH": "/var/log/ascend"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        if not until(lambda: (root / "tmp/out.log").exists(), 5):
            pytest.skip("a root of its own is not possible here")
        assert until(lambda: command_line(process.pid).startswith(b"sleep"))
        folder = root / "var/log/ascend/debug/plog"
        folder.mkdir(parents=True)
        (folder / f"plog-{process.pid}_20260101000000000.log").write_text("step 4\n")
        assert [place.path for place in of("stdout", process.pid)] == ["/tmp/out.log"]
        assert [place.path for place in of("plog", process.pid)] == [
            f"/var/log/ascend/debug/plog/plog-{process.pid}_20260101000000000.log"
        ]
        assert sorted(steps(gather(follow(process.pid)))) == [3, 4]
    finally:
        process.kill()
        process.wait()


@needs_root
def test_what_this_user_may_not_look_at_is_said(tmp_path: Path) -> None:
    with running(QUIET, tmp_path) as process:
        asks = f"for one in places({process.pid}):\n    print(one.kind, one.state, one.why.render())\n"
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                BECOME + asks,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    words = "stdout unreadable This user may not look at its open files; its own user and root may\n"
    assert done.stdout == words, done.stderr


def test_it_costs_milliseconds(tmp_path: Path) -> None:
    opens = "import os\nkept = [os.open('/dev/null', os.O_RDONLY) for _ in range(300)]\n"
    with running(opens + QUIET, tmp_path, environment={"ASCEND_HOME_PATH": "/x"}) as process:
        places(process.pid)
        costs = []
        for _ in range(10):
            begin_s = time.perf_counter()
            places(process.pid)
            costs.append(time.perf_counter() - begin_s)
    assert min(costs) < 0.05
