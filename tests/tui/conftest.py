"""What every test of the screen starts from: English, no SSH, and a clock that stands."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake import FakeControls

from ascend_tui import text
from ascend_tui.app import MonitorApp
from ascend_tui.plugin import Loaded


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module", autouse=True)
def _nothing_old_is_collected() -> Iterator[None]:
    """Keep the garbage collector from torch and all else that is loaded: it took a third of a test."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take away what would change colours or language, and speak English afterwards."""
    for name in ("SSH_CONNECTION", "NO_COLOR", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    yield
    text.set_language("en")


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands."""
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> Callable[..., tuple[MonitorApp, FakeControls]]:
    """Return a maker of apps on a fake session."""

    def make(
        *plugins: Loaded, controls: FakeControls | None = None, **options: Any
    ) -> tuple[MonitorApp, FakeControls]:
        controls = controls or FakeControls()
        return MonitorApp(controls, plugins, clock=clock, **options), controls

    return make
