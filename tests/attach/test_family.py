"""Many processes that belong together: a launcher and its ranks, from outside and from the start."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from trainings import PLAIN, cli, kill_group, needs_ptrace, needs_torch, plain, start_cli, strict, until

from ascend_tui.attach import has_shim
from ascend_tui.commands.ranks import RanksError, expand, wanted
from ascend_tui.target import TargetId, is_launcher, rank_of, ranks_below, read_target, torch_versions

RANKS = 2
LAUNCHER = """
import os, subprocess, sys
count, code, *before = sys.argv[1:]
ranks = []
for number in reversed(range(int(count))):
    env = {**os.environ, "RANK": str(number)}
    ranks.append(subprocess.Popen([*before, sys.executable, "-c", code], env=env))
for one in ranks:
    one.wait()
"""


@contextmanager
def launched(folder: Path, *before: str, name: str = "torchrun", code: str = PLAIN) -> Iterator[int]:
    """Run a launcher of this name with two ranks; give its pid once their threads are there."""
    script = folder / name
    script.write_text(LAUNCHER)
    command = [sys.executable, str(script), str(RANKS), code, *before]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        assert until(lambda: len(ranks_below(process.pid)) == RANKS)
        assert until(lambda: all(one.thread_count > 1 for _, one in ranks_below(process.pid)))
        yield process.pid
    finally:
        kill_group(process)


def pids(found: Sequence[tuple[int, object]]) -> list[int]:
    return [rank for rank, _ in found]


def test_the_ranks_of_a_launcher_are_found_in_order_and_a_rank_has_none(tmp_path: Path) -> None:
    with launched(tmp_path) as pid:
        found = ranks_below(pid)
        assert pids(found) == [0, 1]
        assert [rank_of(one.id.pid) for _, one in found] == [0, 1]
        assert rank_of(pid) is None
        assert is_launcher(read_target(pid))
        assert ranks_below(found[0][1].id.pid) == []


def test_a_shell_between_launcher_and_rank_is_no_rank(tmp_path: Path) -> None:
    # The comma keeps the shell from becoming the program.
    with launched(tmp_path, "bash", "-c", '"$@"; :', "-") as pid:
        found = ranks_below(pid)
        assert pids(found) == [0, 1]
        assert all(one.python is not None for _, one in found)


def test_what_a_scheduler_gave_the_launcher_is_not_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    with launched(tmp_path) as pid:
        assert rank_of(pid) == 0
        assert pids(ranks_below(pid)) == [0, 1]


def test_data_loaders_inherit_a_rank_and_are_none(tmp_path: Path) -> None:
    fork = "import os\nif os.fork() == 0:\n    import time\n    time.sleep(60)\n" + PLAIN
    with launched(tmp_path, code=fork) as pid:
        assert pids(ranks_below(pid)) == [0, 1]


def test_a_plain_process_is_its_own_target() -> None:
    with plain() as process:
        target = read_target(process.pid)
        assert ranks_below(process.pid) == []
        assert expand(target, "", may_ask=False) == [target]
        with pytest.raises(RanksError, match="has no ranks below it"):
            expand(target, "0", may_ask=False)


@pytest.mark.parametrize(
    ("text", "ranks"), [("", None), ("all", None), ("0", {0}), ("0,2-4", {0, 2, 3, 4}), ("3-2", set())]
)
def test_ranks_are_named_by_numbers_and_ranges(text: str, ranks: set[int] | None) -> None:
    assert wanted(text) == ranks


@pytest.mark.parametrize("text", ["x", "1-", "-1", "0;1", "0,,1", "9999999999999"])
def test_what_names_no_rank_is_said(text: str) -> None:
    with pytest.raises(RanksError, match="0,2-5"):
        wanted(text)


def test_what_is_no_launcher_by_name_is_meant_itself_unless_ranks_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with launched(tmp_path, name="nightly.py") as pid:
        target = read_target(pid)
        assert not is_launcher(target)
        ranks = [one.id for _, one in ranks_below(pid)]

        def expanded(ranks: str) -> list[TargetId]:
            # By id: whether a process sleeps or runs differs from one reading to the next.
            return [one.id for one in expand(target, ranks, may_ask=False)]

        # Below a shell or an init may be the trainings of several jobs.
        assert expanded("") == [target.id]
        assert "--ranks all" in capsys.readouterr().err
        assert expanded("all") == ranks
        assert expanded("1") == ranks[1:]
        assert expanded("none") == [target.id]


@needs_ptrace
def test_an_attach_to_the_launcher_is_one_to_its_ranks(tmp_path: Path) -> None:
    with launched(tmp_path) as pid:
        ranks = [one.id.pid for _, one in ranks_below(pid)]
        done = cli("attach", str(pid), "--headless", "--json", "--seconds", "3", "--tick", "0.2")
        assert done.returncode == 0, done.stderr
        assert f"starts trainings: {ranks[0]} (rank 0), {ranks[1]} (rank 1)" in done.stderr
        seen = {line["target"]["id"]["pid"]: line["target"] for line in strict(done.stdout)}
        assert list(seen) == ranks
        assert [one["rank"] for one in seen.values()] == [0, 1]
        assert [one["method"] for one in seen.values()] == ["thread", "thread"]
        assert all(one["method_reason"] and one["stop_ms"] > 0 for one in seen.values())
        assert not has_shim(read_target(pid))
        removed = strict(cli("detach", str(pid), "--json").stdout)
        assert [(line["pid"], line["removed"]) for line in removed] == [(one, True) for one in ranks]
        done = cli("attach", str(pid), "--ranks", "1", "--headless", "--json", "--seconds", "2")
        assert {line["target"]["rank"] for line in strict(done.stdout)} <= {1, None}
        assert not has_shim(read_target(ranks[0]))
        done = cli("attach", str(pid), "--ranks", "7", "--headless")
        assert (done.returncode, done.stdout) == (2, "")
        assert "there is no rank 7" in done.stderr


@needs_torch
def test_the_list_says_rank_versions_stdout_and_who_launches(tmp_path: Path) -> None:
    code = (
        "import torch, threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        + PLAIN
    )
    with launched(tmp_path, code=code) as pid:
        (first, _) = (one for _, one in ranks_below(pid))
        assert until(lambda: read_target(first.id.pid).torch_loaded, 60)
        lines = {line["pid"]: line for line in strict(cli("ps", "--json").stdout)}
        import importlib.metadata

        version = importlib.metadata.version("torch")
        assert lines[first.id.pid]["torch_version"].startswith(version.partition("+")[0])
        assert torch_versions(first.id.pid)["torch"] == lines[first.id.pid]["torch_version"]
        assert lines[first.id.pid]["rank"] == 0
        assert lines[first.id.pid]["stdout"] == os.readlink(f"/proc/{first.id.pid}/fd/1")
        assert lines[pid]["launcher"] is True
        (row,) = (line for line in cli("ps").stdout.splitlines() if line.startswith(f"{first.id.pid} "))
        assert f" {lines[first.id.pid]['torch_version']} " in row


TRAIN = """
import os, sys, time, torch
assert "theirs" in sys.modules, "the user's own sitecustomize did not run"
torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
going = torch.ones(1)
while going:
    model(torch.ones(2, 4)).sum().backward()
    torch.distributed.all_reduce(model.weight.grad)
    optimizer.step()
    time.sleep(0.01)
    # The ranks agree to stop: one that saw the file alone would leave the other in a collective.
    going.fill_(not os.path.exists(sys.argv[1]))
    torch.distributed.all_reduce(going, torch.distributed.ReduceOp.MIN)
# And none closes its end of the line while another still reads from it.
out = [sys.argv[1] + ".%d" % rank for rank in range(torch.distributed.get_world_size())]
open(out[torch.distributed.get_rank()], "w").close()
while not all(map(os.path.exists, out)):
    time.sleep(0.01)
torch.distributed.destroy_process_group()
"""


@needs_torch
def test_every_rank_of_torchrun_is_started_with_a_shim_and_watched(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys; sys.modules['theirs'] = sys\n")
    program, stop = tmp_path / "train.py", tmp_path / "stop"
    program.write_text(textwrap.dedent(TRAIN))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    monitor = start_cli(
        *("run", "--headless", "--json", "--tick", "0.2", "--"),
        *torchrun,
        *("--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
        *(str(program), str(stop)),
        env={"PYTHONPATH": str(theirs)},
    )
    assert monitor.stdout is not None
    live: set[int] = set()
    end = time.monotonic() + 90
    while len(live) < RANKS and time.monotonic() < end:
        for line in strict(monitor.stdout.readline()):
            if line["target"]["state"] == "live":
                live.add(line["target"]["rank"])
    stop.touch()
    rest, stderr = monitor.communicate(timeout=60)
    assert live == {0, 1}, stderr
    # The launcher itself is no target: what it shows is its ranks.
    assert {line["target"]["rank"] for line in strict(rest)} <= {0, 1}
    assert monitor.returncode == 0, stderr
