"""The screen in a real terminal: what it costs on the wire, and that the wire tells the truth."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal

# What one tick may write at 120x40; at the default rate a tick is a second.
TYPICAL, WORST = 600, 4096


SCRIPT = ("--tick", "0.06", "--hold", "0.8")


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """End every terminal that a test appends."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def bytes_per_tick(terminals: list[Terminal], tmp_path: Path, *options: str, frames: int = 20) -> float:
    """Return the mean of what a tick writes, the first paint left out."""
    shown = tmp_path / "screen"
    terminal = Terminal(
        "--frames", str(frames), "--tick", "0.1", "--hold", "1", "--screen", str(shown), *options
    )
    terminals.append(terminal)
    terminal.wait_for(lambda: b"Memory" in terminal.seen)
    time.sleep(0.5)
    before = len(terminal.seen)
    terminal.wait_for(shown.exists)
    terminal.wait_quiet()
    return (len(terminal.seen) - before) / frames


@pytest.mark.parametrize("before", ["20", "3000"])
def test_typical_bytes(terminals: list[Terminal], tmp_path: Path, before: str) -> None:
    """Four panes, one of them with curves, at two ages of a run."""
    assert bytes_per_tick(terminals, tmp_path, "--plugins", "4", "--before", before) <= TYPICAL


def test_worst_bytes(terminals: list[Terminal], tmp_path: Path) -> None:
    """A run so young and fast that the whole curve moves with every tick, in the dearest colours."""
    options = ("--before", "1", "--steps", "97", "--theme", "textual-dark", "--plugins", "1")
    assert bytes_per_tick(terminals, tmp_path, *options) <= WORST


def test_nothing_changed_costs_nothing(terminals: list[Terminal], tmp_path: Path) -> None:
    assert bytes_per_tick(terminals, tmp_path, "--plugins", "4", "--same") == 0


def test_frozen_costs_nothing_until_a_key_asks_what_waits(terminals: list[Terminal], tmp_path: Path) -> None:
    shown = tmp_path / "screen"
    terminal = Terminal(*SCRIPT, "--frames", "40", "--screen", str(shown), "--plugins", "4")
    terminals.append(terminal)
    terminal.wait_for(lambda: b"Memory" in terminal.seen)
    terminal.type(" ")
    terminal.wait_for(lambda: b"frozen" in terminal.seen)
    time.sleep(0.3)
    before = len(terminal.seen)
    terminal.wait_for(shown.exists)
    time.sleep(1.0)
    assert len(terminal.seen) == before
    terminal.type("h")
    terminal.wait_for(lambda: counter(terminal) >= 5)


def counter(terminal: Terminal) -> int:
    """Return how many frames the screen says wait."""
    found = re.search(r"frozen \+(\d+)", terminal.lines()[0])
    assert found
    return int(found.group(1))


@pytest.mark.parametrize(
    ("columns", "rows", "options"),
    [
        (120, 40, ("--plugins", "4", "--before", "30", "--steps", "11")),
        (80, 24, ("--plugins", "5", "--language", "zh_CN", "--before", "3", "--steps", "40")),
        (60, 20, ("--plugins", "2", "--device", "cpu", "--theme", "textual-dark")),
    ],
)
def test_the_terminal_shows_what_the_app_means(
    terminals: list[Terminal], tmp_path: Path, columns: int, rows: int, options: tuple[str, ...]
) -> None:
    """After many partial repaints a terminal that saw only the bytes has the very same screen."""
    shown = tmp_path / "screen"
    terminal = Terminal(
        "--frames", "40", "--tick", "0.05", "--screen", str(shown), *options, columns=columns, rows=rows
    )
    terminals.append(terminal)
    terminal.wait_for(shown.exists)
    terminal.wait_quiet()
    assert terminal.lines() == shown.read_text().split("\n")


@pytest.mark.parametrize(
    "environment", [{"TERM": "screen"}, {"NO_COLOR": "1"}, {"LANG": "C"}, {"TERM": "linux"}]
)
def test_first_paint_on_poor_terminals(terminals: list[Terminal], environment: dict[str, str]) -> None:
    terminal = Terminal("--plugins", "4", "--theme", "textual-dark", **environment)
    terminals.append(terminal)
    terminal.wait_for(lambda: b"allocated" in terminal.seen)
    assert any("allocated" in line for line in terminal.lines())
    terminal.type("q")
    assert terminal.wait_exit() == 0
