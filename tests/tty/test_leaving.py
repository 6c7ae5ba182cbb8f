"""However the screen ends, the terminal is the user's again and nothing is left on in the training."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal

RESTORED = b"\x1b[?1049l"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """Return a terminal with a screen that has its first frame."""
    one = Terminal("--tick", "0.2", "--log", str(tmp_path / "log"))
    one.wait_for(lambda: b"allocated" in one.seen)
    yield one
    one.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_restores_the_terminal_and_releases(
    terminal: Terminal, tmp_path: Path, number: int, code: int
) -> None:
    terminal.signal(number)
    assert terminal.wait_exit() == code
    terminal.wait_for(lambda: RESTORED in terminal.seen)
    assert asked(tmp_path)[-2:] == ["('release', 41233)", "('stop',)"]


def test_a_lost_connection_releases_and_ends(terminal: Terminal, tmp_path: Path) -> None:
    terminal.hang_up()
    terminal.wait_exit()
    assert asked(tmp_path)[-2:] == ["('release', 41233)", "('stop',)"]


@pytest.mark.parametrize("key", ["q", "\x03", "\x11"])
def test_quitting_keys(terminal: Terminal, tmp_path: Path, key: str) -> None:
    terminal.type(key)
    assert terminal.wait_exit() == 0
    terminal.wait_for(lambda: RESTORED in terminal.seen)
    assert asked(tmp_path)[-2:] == ["('release', 41233)", "('stop',)"]


def test_the_residue_is_printed_on_the_restored_terminal(terminal: Terminal) -> None:
    terminal.type("Q")
    assert terminal.wait_exit() == 0
    terminal.wait_for(lambda: b"left behind: one fork sentinel" in terminal.seen.partition(RESTORED)[2])


def test_the_mouse_stays_the_terminals(terminal: Terminal) -> None:
    assert b"?1000h" not in terminal.seen
    assert b"?1003h" not in terminal.seen


def asked(tmp_path: Path) -> list[str]:
    """Return what the screen asked its session for, in order."""
    return (tmp_path / "log").read_text().splitlines()
