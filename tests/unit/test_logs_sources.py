"""Where CANN's log of a process is, by every rule of its source, and which files a pattern names."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ascend_tui_plugins.logs.reading import places_cann, places_found
from ascend_tui_plugins.logs.reading.places_cann import CannLog, cann_log
from ascend_tui_plugins.logs.reading.places_found import matching

ME = os.getpid()
INSIDE = 4711
"""What the process is called in its own namespace."""


def ask(environment: dict[str, str], home: Path, started_s: float = 0.0, cwd: str = "/") -> CannLog | None:
    folders = {"cwd": cwd, "home": str(home), "HOME": environment.get("HOME", "")}
    return cann_log(ME, environment, INSIDE, folders, started_s)


def write(root: Path, name: str, age_s: float = 0.0) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[ERROR] RUNTIME(4711,python):2026-03-04-05:06:07.008.009 [a.cc:1]1 f:x\n")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


PLOG = f"debug/plog/plog-{INSIDE}_20260304050607008.log"


def test_the_variables_go_before_each_other_as_in_cann(tmp_path: Path) -> None:
    own, work, passwd, home = (tmp_path / name for name in ("own", "work", "passwd", "home"))
    environment = {"ASCEND_PROCESS_LOG_PATH": str(own), "ASCEND_WORK_PATH": str(work), "HOME": str(home)}
    expected = [own, work / "log", passwd / "ascend/log", home / "ascend/log"]
    for root in reversed(expected):
        write(root, PLOG)
        found = ask(environment, passwd)
        assert found is not None
        assert found.root == str(root)
        assert [file.through for file in found.files] == [str(root / PLOG)]


@pytest.mark.parametrize(
    "value",
    ["", "/dev/null", "/x" * 4000, "y" * 300, "~/z", "..", "\udcff", "/proc/self/fd/0", " ", "$HOME/log"],
)
def test_a_folder_that_cannot_be_one_is_passed_over(tmp_path: Path, value: str) -> None:
    write(tmp_path / "ascend/log", PLOG)
    found = ask({"ASCEND_PROCESS_LOG_PATH": value, "ASCEND_WORK_PATH": value}, tmp_path)
    assert found is not None
    assert [file.through for file in found.files] == [str(tmp_path / "ascend/log" / PLOG)]


def test_a_relative_folder_is_below_the_working_folder(tmp_path: Path) -> None:
    write(tmp_path / "run/logs", PLOG)
    found = ask({"ASCEND_PROCESS_LOG_PATH": "./logs"}, tmp_path, cwd=str(tmp_path / "run"))
    assert found is not None
    assert [file.path for file in found.files] == [str(tmp_path / "run/logs" / PLOG)]


def test_all_sorts_and_devices_and_nobody_elses(tmp_path: Path) -> None:
    root = tmp_path / "ascend/log"
    stamp = "20260304050607008.log"
    own = [
        PLOG,
        f"run/plog/plog-{INSIDE}_{stamp}",
        f"security/plog/plog-{INSIDE}_{stamp}",
        f"plog/plog-{INSIDE}_{stamp}",
        f"debug/device-3/device-{INSIDE}_{stamp}",
        f"run/device-0/device-{INSIDE}_{stamp}",
    ]
    others = [
        f"debug/plog/plog-{INSIDE}0_{stamp}",
        f"debug/plog/plog-{INSIDE - 1}_{stamp}",
        f"debug/plog/plog-{INSIDE}_{stamp}.tmp",
        f"debug/device-os/device-os_{stamp}",
    ]
    for name in own + others:
        write(root, name)
    found = ask({}, tmp_path)
    assert found is not None
    assert {file.path for file in found.files} == {str(root / name) for name in own}
    assert {file.kind for file in found.files if "device" in file.path.rsplit("/", 1)[1]} == {"device_log"}
    assert {file.kind for file in found.files if "/plog/" in file.path} == {"plog"}


def test_files_of_one_folder_are_one_series_oldest_first(tmp_path: Path) -> None:
    root = tmp_path / "ascend/log"
    stamps = ["20260304050607008", "20260304050907008", "20260305000000000"]
    for stamp in reversed(stamps):
        write(root, f"debug/plog/plog-{INSIDE}_{stamp}.log")
    found = ask({}, tmp_path)
    assert found is not None
    assert [Path(file.path).stem.partition("_")[2] for file in found.files] == stamps
    assert {file.series for file in found.files} == {str(root / f"debug/plog/plog-{INSIDE}_*.log")}


def test_files_of_an_earlier_process_with_this_pid_are_left(tmp_path: Path) -> None:
    root = tmp_path / "ascend/log"
    write(root, f"debug/plog/plog-{INSIDE}_20260101000000000.log", age_s=3600)
    new = write(root, PLOG)
    found = ask({}, tmp_path, started_s=time.time() - 60)
    assert found is not None
    assert [file.through for file in found.files] == [str(new)]


@pytest.mark.parametrize(
    ("environment", "printed_by"),
    [
        ({"ASCEND_SLOG_PRINT_TO_STDOUT": "1"}, "ASCEND_SLOG_PRINT_TO_STDOUT"),
        ({"ASCEND_LOG_PRINT_TO_STDOUT": "1"}, "ASCEND_LOG_PRINT_TO_STDOUT"),
        ({"ASCEND_LOG_PRINT_TO_STDOUT": "0", "ASCEND_SLOG_PRINT_TO_STDOUT": "1"}, ""),
        ({"ASCEND_SLOG_PRINT_TO_STDOUT": "0"}, ""),
        ({"ASCEND_SLOG_PRINT_TO_STDOUT": "true"}, ""),
    ],
)
def test_printed_and_not_written(tmp_path: Path, environment: dict[str, str], printed_by: str) -> None:
    found = ask(environment, tmp_path)
    assert found is not None
    assert found.printed_by == printed_by
    assert found.root == (None if printed_by else str(tmp_path / "ascend/log"))


def test_a_file_that_is_there_is_read_whatever_the_variable_says(tmp_path: Path) -> None:
    write(tmp_path / "ascend/log", PLOG)
    found = ask({"ASCEND_SLOG_PRINT_TO_STDOUT": "1"}, tmp_path)
    assert found is not None
    assert len(found.files) == 1


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ASCEND_GLOBAL_LOG_LEVEL": "0"}, "ASCEND_GLOBAL_LOG_LEVEL=0 writes very much"),
        ({"ASCEND_GLOBAL_LOG_LEVEL": "1"}, "ASCEND_GLOBAL_LOG_LEVEL=1 writes very much"),
        ({"ASCEND_GLOBAL_LOG_LEVEL": "2"}, ""),
        ({"ASCEND_GLOBAL_LOG_LEVEL": "3"}, ""),
        ({"ASCEND_GLOBAL_LOG_LEVEL": "4"}, "ASCEND_GLOBAL_LOG_LEVEL=4 switches the log of CANN off"),
        ({"ASCEND_GLOBAL_LOG_LEVEL": "error"}, ""),
        (
            {"ASCEND_MODULE_LOG_LEVEL": "TBE=3:HCCL=0"},
            "ASCEND_MODULE_LOG_LEVEL=TBE=3:HCCL=0 writes very much",
        ),
        ({"ASCEND_MODULE_LOG_LEVEL": "TBE=3"}, ""),
    ],
)
def test_the_level_is_noted(tmp_path: Path, environment: dict[str, str], words: str) -> None:
    found = ask(environment, tmp_path)
    assert found is not None
    assert (found.note.render() if found.note is not None else "").startswith(words)
    assert bool(found.note) is bool(words)


def test_nothing_is_said_of_a_process_that_does_not_use_cann(tmp_path: Path) -> None:
    assert ask({"PATH": "/bin", "ASCEND_TUI": "1"}, tmp_path) is None
    waiting = ask({"ASCEND_HOME_PATH": "/usr/local/Ascend/cann"}, tmp_path)
    assert waiting == CannLog(str(tmp_path / "ascend/log"))


def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(places_cann.os, "scandir", refuse)
    found = ask({"ASCEND_HOME_PATH": "/x"}, tmp_path)
    assert found is not None
    assert found.denied == str(tmp_path / "ascend/log/debug/plog")


def test_a_folder_of_thousands_of_files_costs_milliseconds(tmp_path: Path) -> None:
    folder = tmp_path / "ascend/log/debug/plog"
    folder.mkdir(parents=True)
    for at in range(4000):
        (folder / f"plog-{at}_20260101000000{at:03}.log").touch()
    write(tmp_path / "ascend/log", PLOG)
    begin_s = time.perf_counter()
    found = ask({}, tmp_path)
    assert time.perf_counter() - begin_s < 0.1
    assert found is not None
    # One older file of this very pid is there from the loop? 4711 is not below 4000.
    assert len(found.files) == 1


def test_a_pattern_is_matched_below_its_fixed_part(tmp_path: Path) -> None:
    for name in ("a/x.log", "a/b/y.log", "a/b/z.txt", "a/.hidden.log"):
        write(tmp_path, name)
    (tmp_path / "a/d.log").mkdir()

    def names(pattern: str) -> list[str]:
        return [os.path.relpath(path, tmp_path) for path, _ in matching(ME, f"{tmp_path}/{pattern}")]

    assert names("a/x.log") == ["a/x.log"]
    assert names("a/*.log") == ["a/x.log"]
    assert names("a/*/[xy].log") == ["a/b/y.log"]
    assert names("a/**/*.log") == ["a/b/y.log", "a/x.log"]
    assert names("*/b/?.txt") == ["a/b/z.txt"]
    assert names("none/*.log") == []


def test_a_pattern_above_very_many_files_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_found, "MOST_ENTRIES", 50)
    for at in range(200):
        (tmp_path / f"{at}").mkdir()
    assert matching(ME, f"{tmp_path}/**/*.log") == []


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    write(tmp_path, "a/x.log")
    (tmp_path / "a/again").symlink_to(tmp_path / "a")
    assert [path for path, _ in matching(ME, f"{tmp_path}/**/*.log")] == [str(tmp_path / "a/x.log")]
