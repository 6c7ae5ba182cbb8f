"""What several test folders share."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ascend_tui.target import TargetId
from tests.cann_sim.simulator import Simulator, simulator, why_not

ROOT = Path(__file__).parent.parent
# torch_npu is installed for the simulated NPU; without CANN it would stop every other `import torch`.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In the background of a script it is ignored, and so it would be by the trainings that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "attach/test_shim_live",
    "attach/test_soak",
    "attach/test_hang",
    "npu/test_attach_npu",
    "npu/test_allocator",
    "npu/test_hotspots_capture",
    "attach/test_attach",
    "attach/test_host",
    "attach/test_hotspots_live",
    "attach/test_reuse",
    "attach/test_session",
    "attach/test_inject",
    "npu/test_numbers",
    "tty/test_screen",
    "tui/test_keys",
    "attach/test_holders",
    "npu/test_chips",
    "attach/test_cli",
    "attach/test_monitors",
    "attach/test_residue",
    "attach/test_containers",
    "attach/test_memory_truth",
    "attach/",
    "npu/",
    "tty/",
    "tui/",
)
"""What takes longest begins first, or one worker ends long after the others; a stale order costs no more."""


def length(nodeid: str) -> int:
    """Return the place of a test in that order."""
    return next((at for at, name in enumerate(LONGEST) if nodeid.startswith(f"tests/{name}")), len(LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let nothing be collected while all is imported; what there is then counts as old."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.unfreeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files by how long they take; the order within a file stays."""
    items.sort(key=lambda item: length(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files, as `--dist loadfile` does, but the CPU's half of a file and the NPU's apart."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Halves(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            place = re.search(r"[\[-](cpu|npu)[\]-]", nodeid)
            return nodeid.partition("::")[0] + (place[1] if place else "")

    return Halves(config, log)


@pytest.fixture
def root() -> Path:
    """Return the folder of the project."""
    return ROOT


@pytest.fixture(scope="session", name="simulator")
def _simulator() -> Simulator:
    """Return the simulated CANN, built on first use; skips where it cannot be."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no simulated NPU: {reason}")
    return simulator()


@pytest.fixture
def target() -> TargetId:
    """Return the name of a process that no test ever touches."""
    return TargetId(4_000_000, 1234)


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keep the user's own settings and state folder out of every test."""
    for name in [name for name in os.environ if name.startswith("ASCEND_TUI_")]:
        monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path_factory.getbasetemp() / name.lower()))
