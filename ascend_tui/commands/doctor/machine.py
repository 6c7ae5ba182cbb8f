"""What this machine allows, and what of ours is installed."""

from __future__ import annotations

import locale
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import ascend_tui
from ascend_tui.commands.doctor.check import START_WITH_US, Check
from ascend_tui.commands.doctor.lodging import own_lodging, room
from ascend_tui.commands.doctor.rights import own_rights
from ascend_tui.plugin import load_all
from ascend_tui.target import read_target


def machine() -> Iterator[Check]:
    """Check the kernel, the terminal and our own packages."""
    yield Check("system", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    if platform.machine() not in ("x86_64", "aarch64"):
        yield Check("attach", "error", "no injector for this architecture", START_WITH_US)
    yield from own_rights()
    yield from own_lodging()
    yield room(read_target(os.getpid()))
    yield _helpers()
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


def _helpers() -> Check:
    """Name what helps where no shim can: py-spy and gdb read a process that holds its interpreter."""
    beside = os.path.dirname(sys.executable)
    here = {one: shutil.which(one) or shutil.which(one, path=beside) for one in ("py-spy", "gdb")}
    found = ", ".join(f"{one} {'is' if path else 'is not'} here" for one, path in here.items())
    advice = "" if here["py-spy"] else "for the stacks of a process that answers nothing: pip install py-spy"
    return Check("helpers", "ok", found, advice)


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
