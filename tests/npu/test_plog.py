"""The log of the simulated CANN, without torch: where it lies, which lines it keeps, that it does no harm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plogs import LINE, logs
from running import Run

WRITE = """
import ctypes, os
cann = ctypes.CDLL("libascendcl.so")
def write(level=3, text=b"hello"):
    cann.aclAppLog(level, b"file.cpp", b"function", 7, b"[PTA]:%s %d", text, 42)
write()
"""


def test_where_the_log_lies(npu: Run, tmp_path: Path) -> None:
    home, work, process = (tmp_path / name for name in ("home", "work", "process"))
    assert npu(WRITE, home=home).returncode == 0
    (log,) = logs(home / "ascend" / "log")
    assert re.fullmatch(
        r'\[ERROR\] APP\(\d+,\S+\):\S+ \[log_inner\.cpp:\d+\]\d+ file\.cpp:function:7: "\[PTA\]:hello 42"\n',
        log.read_text(),
    )
    assert npu(WRITE, home=home, extra={"ASCEND_WORK_PATH": str(work)}).returncode == 0
    assert len(logs(work / "log")) == 1
    both = {"ASCEND_WORK_PATH": str(work), "ASCEND_PROCESS_LOG_PATH": str(process)}
    assert npu(WRITE, home=home, extra=both).returncode == 0
    assert [len(logs(one)) for one in (home / "ascend" / "log", work / "log", process)] == [1, 1, 1]


def test_a_log_on_stdout_is_not_saved(npu: Run, tmp_path: Path) -> None:
    for name in ("ASCEND_SLOG_PRINT_TO_STDOUT", "ASCEND_LOG_PRINT_TO_STDOUT"):
        done = npu(WRITE, home=tmp_path, extra={name: "1"})
        assert LINE.fullmatch(done.stdout.rstrip("\n"))
        assert not (tmp_path / "ascend").exists()


@pytest.mark.parametrize(
    ("extra", "levels"),
    [
        ({}, "3"),
        ({"ASCEND_GLOBAL_LOG_LEVEL": "1"}, "123"),
        ({"ASCEND_GLOBAL_LOG_LEVEL": "4"}, ""),
        ({"ASCEND_MODULE_LOG_LEVEL": "RUNTIME=4:APP=0"}, "0123"),
    ],
)
def test_which_lines_are_kept(npu: Run, tmp_path: Path, extra: dict[str, str], levels: str) -> None:
    code = WRITE.replace("\nwrite()", "\nfor level in range(4): write(level, b'level-%d' % level)")
    assert npu(code, home=tmp_path, extra=extra).returncode == 0
    kept = "".join(log.read_text() for log in logs(tmp_path / "ascend" / "log"))
    assert "".join(re.findall(r"level-(\d)", kept)) == levels


def test_a_child_has_a_log_of_its_own(npu: Run, tmp_path: Path) -> None:
    assert npu(WRITE + "\nif os.fork(): os.wait()\nwrite()", home=tmp_path).returncode == 0
    found = logs(tmp_path / "ascend" / "log")
    assert sorted(len(log.read_text().splitlines()) for log in found) == [1, 2]
    for log in found:
        assert {line.split("(")[1].split(",")[0] for line in log.read_text().splitlines()} == {
            log.name.split("_")[0].removeprefix("plog-")
        }


def test_a_log_that_cannot_be_written_does_no_harm(npu: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = npu(WRITE + "write()", extra={"ASCEND_PROCESS_LOG_PATH": str(tmp_path / "file")})
    full = npu(
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))" + WRITE + "write()\nwrite()",
        home=tmp_path,
    )
    for done in (nowhere, full):
        assert done.returncode == 0
        assert re.fullmatch(r"\[cann_sim\] plog: \S+: .*; lines are lost\n", done.stderr)
