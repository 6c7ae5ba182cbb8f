"""What this machine allows, and what of ours is installed."""

from __future__ import annotations

import locale
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import ascend_tui
from ascend_tui.commands.doctor.check import START_WITH_US, Check, Level
from ascend_tui.plugin import load_all

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
YAMA_MEANS = {
    "0": "any process of yours can be attached to",
    "1": f"only children, or a process that allows it; as root all. Or {START_WITH_US}",
    "2": f"only with CAP_SYS_PTRACE (root). Or {START_WITH_US}",
    "3": f"nobody can attach until a reboot; {START_WITH_US}",
}


def machine() -> Iterator[Check]:
    """Check the kernel, the terminal and our own packages."""
    yield Check("system", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    if platform.machine() not in ("x86_64", "aarch64"):
        yield Check("attach", "error", "no injector for this architecture", START_WITH_US)
    yield _ptrace()
    writable = os.access("/tmp", os.W_OK | os.X_OK)
    yield Check(
        "/tmp", "ok" if writable else "error", "writable" if writable else "the socket cannot be put there"
    )
    encoding = locale.getpreferredencoding(False)
    braille = "utf" in encoding.lower()
    advice = "" if braille else "curves are drawn in ASCII; set LANG=C.UTF-8 for finer ones"
    yield Check(
        "terminal",
        "ok" if braille else "warning",
        f"{os.environ.get('TERM', 'no TERM')}, {encoding}",
        advice,
    )
    if shutil.which("npu-smi") is None:
        yield Check(
            "npu-smi", "warning", "not found", "on a server with Ascend cards it belongs to the driver"
        )
    yield from _packages()


def _ptrace() -> Check:
    try:
        scope = YAMA.read_text().strip()
    except OSError:
        return Check("ptrace", "ok", "no Yama in this kernel: any process of yours can be attached to")
    level: Level = "ok" if scope == "0" or (os.geteuid() == 0 and scope != "3") else "warning"
    return Check("ptrace", level, f"ptrace_scope {scope}", YAMA_MEANS.get(scope, ""))


def _packages() -> Iterator[Check]:
    yield Check(
        "ascend-tui", "ok", f"{ascend_tui.__version__} on Python {platform.python_version()} at {sys.prefix}"
    )
    for name in ("textual", "rich"):
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            yield Check(name, "error", "not installed", f"pip install {name}")
    for one in load_all():
        if one.plugin is None:
            yield Check(
                "plugin", "error", f"{one.name}: {one.failed}", "repair or remove the package it is in"
            )
        else:
            yield Check("plugin", "ok", one.name)
