"""The run folder: where files go, that none is overwritten, and what a full disk says."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from ascend_tui import rundir
from ascend_tui.rundir import RunFolder, RunFolderError, clean_name, default_root


def test_the_root_is_the_setting_or_the_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_root("/data/runs", {"XDG_STATE_HOME": "/state"}) == Path("/data/runs")
    assert default_root("", {"XDG_STATE_HOME": "/state"}) == Path("/state/ascend-tui")
    assert default_root("", {"XDG_STATE_HOME": "relative"}) == Path("/home/someone/.local/state/ascend-tui")
    assert default_root("", {}) == Path("/home/someone/.local/state/ascend-tui")


def test_nothing_is_created_before_a_file_is_asked_for(tmp_path: Path) -> None:
    RunFolder(tmp_path / "root", 42)
    assert list(tmp_path.iterdir()) == []


def test_the_layout_and_the_modes(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "root"
    path = RunFolder(root, 42).path("export", "screen.svg")
    assert re.fullmatch(r"\d{8}-\d{6}-42/export/001-screen\.svg", str(path.relative_to(root)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (root, path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_folder_is_named_after_the_given_moment(tmp_path: Path) -> None:
    name = RunFolder(tmp_path, 7, now=0.0).folder.name
    assert name.startswith(("1970", "1969"))
    assert name.endswith("-7")


def test_a_round_never_overwrites(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, 42)
    first = run.write("export", "screen.svg", b"one")
    second = run.write("export", "screen.svg", b"two")
    other = run.write("export", "numbers.json", b"three")
    assert [one.name for one in (first, second, other)] == [
        "001-screen.svg",
        "002-screen.svg",
        "001-numbers.json",
    ]
    assert first.read_bytes() == b"one"
    again = RunFolder(tmp_path, 42)
    again.folder = run.folder
    assert again.path("export", "screen.svg").name == "003-screen.svg"
    assert run.directory("export", "screen.svg").name == "004-screen.svg"


def test_a_round_that_another_monitor_takes_in_between_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path, 42)
    taken = run.write("export", "a", b"theirs")
    monkeypatch.setattr(rundir, "_last_round", lambda *_: 0)
    assert run.path("export", "a").name == "002-a"
    assert taken.read_bytes() == b"theirs"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("screen.svg", "screen.svg"),
        ("../../etc/passwd", "_._.._etc_passwd"),
        ("a/b\\c", "a_b_c"),
        ("\x1b[2Jx\n\x00", "_[2Jx__"),
        ("\u202egnp.exe", "_gnp.exe"),
        (".hidden", "_hidden"),
        ("", "unnamed"),
        ("  ", "unnamed"),
        ("显存.svg", "显存.svg"),
        ("\udcff", "_"),
    ],
)
def test_names_are_cleaned(given: str, expected: str) -> None:
    assert clean_name(given) == expected


def test_a_long_name_keeps_its_suffix_and_whole_characters() -> None:
    for name in ("显" * 300 + ".svg", "x" * 300 + ".svg"):
        cut = clean_name(name)
        assert cut.endswith(".svg")
        assert len(cut.encode()) <= rundir.MOST_NAME_BYTES
    assert len(clean_name("a." + "b" * 300).encode()) <= rundir.MOST_NAME_BYTES


def test_files_stay_inside_the_run_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, 42)
    path = run.path("../..", "../../x")
    assert path.resolve().is_relative_to(run.folder.resolve())


def test_an_unwritable_root_says_what_why_and_what_next(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(RunFolderError) as caught:
        RunFolder(blocked, 42).path("export", "a")
    assert str(blocked) in caught.value.what
    assert caught.value.why == "it is not a directory of this user"
    assert "run_root" in caught.value.next_step
    assert isinstance(caught.value, OSError)
    assert str(caught.value).count(str(blocked)) == 1


def test_a_full_disk_is_told_and_leaves_no_half_file(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, 42)
    folder = run.path("export", "first").parent
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full to play the full disk")
    # The next file of this name leads to the device that is always full.
    run.path = lambda kind, name: _link(folder / "001-b", full)  # type: ignore[method-assign]
    with pytest.raises(RunFolderError, match="No space left"):
        run.write("export", "b", b"x")
    assert not os.path.lexists(folder / "001-b")
    assert full.exists()


def _link(path: Path, to: Path) -> Path:
    path.symlink_to(to)
    return path


def test_a_link_in_place_of_our_folder_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = RunFolder(tmp_path / "root", 42)
    run.folder.parent.mkdir()
    run.folder.symlink_to(elsewhere)
    with pytest.raises(RunFolderError, match="not a directory of this user"):
        run.path("export", "a")
    assert list(elsewhere.iterdir()) == []
