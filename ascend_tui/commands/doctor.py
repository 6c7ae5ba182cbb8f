"""`ascend-tui doctor`: what on this machine stands in the way, and what to do about it."""

from __future__ import annotations

import locale
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import ascend_tui
from ascend_tui.attach import has_shim, target_of, why_not
from ascend_tui.commands import FINDINGS, OK
from ascend_tui.commands.output import data, line
from ascend_tui.frame import SCHEMA
from ascend_tui.frozen import frozen
from ascend_tui.plugin import load_all
from ascend_tui.target import RefusedError

COOPERATIVE = "start with: ascend-tui run -- CMD"
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
YAMA_MEANS = {
    "0": "any process of yours can be attached to",
    "1": "only children, or a process that allows it; as root all. Start with: ascend-tui run -- CMD",
    "2": "only with CAP_SYS_PTRACE (root). Start with: ascend-tui run -- CMD",
    "3": "nobody can attach until a reboot. Start with: ascend-tui run -- CMD",
}


@frozen
class Check:
    """One finding: `level` ok, warning or error; `advice` is empty when nothing is to be done."""

    name: str
    level: Literal["ok", "warning", "error"]
    found: str
    advice: str = ""


def doctor(pid: int | None, as_data: bool) -> int:
    """Check the machine and, with a pid, one process; exit code 1 when something is wrong."""
    checks = [*_machine(), *_versions(), *_plugins(), *(_process(pid) if pid is not None else ())]
    for check in checks:
        if as_data:
            data({"schema": SCHEMA, "check": check})
        else:
            sign = {"ok": "·", "warning": "!", "error": "✕"}[check.level]
            line(f"{sign} {check.level:<8}{check.name:<12}{check.found}")
            if check.advice:
                line(f"{'':22}{check.advice}")
    return FINDINGS if any(check.level == "error" for check in checks) else OK


def _machine() -> Iterator[Check]:
    yield Check("system", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    if platform.machine() not in ("x86_64", "aarch64"):
        yield Check(
            "attach", "error", "no injector for this architecture", "start with: ascend-tui run -- CMD"
        )
    try:
        scope = YAMA.read_text().strip()
    except OSError:
        yield Check("ptrace", "ok", "no Yama in this kernel: any process of yours can be attached to")
    else:
        level: Literal["ok", "warning"] = (
            "ok" if scope == "0" or (os.geteuid() == 0 and scope != "3") else "warning"
        )
        yield Check("ptrace", level, f"ptrace_scope {scope}", YAMA_MEANS.get(scope, ""))
    writable = os.access("/tmp", os.W_OK | os.X_OK)
    yield Check(
        "/tmp", "ok" if writable else "error", "writable" if writable else "the socket cannot be put there"
    )
    encoding = locale.getpreferredencoding(False)
    braille = "utf" in encoding.lower()
    advice = "" if braille else "curves are drawn in ASCII; set LANG=C.UTF-8 for finer ones"
    yield Check(
        "terminal", "ok" if braille else "warning", f"{os.environ.get('TERM', 'no TERM')}, {encoding}", advice
    )


def _versions() -> Iterator[Check]:
    yield Check(
        "ascend-tui", "ok", f"{ascend_tui.__version__} on Python {platform.python_version()} at {sys.prefix}"
    )
    for name in ("textual", "rich"):
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            yield Check(name, "error", "not installed", f"pip install {name}")
    found = {}
    for name in ("torch", "torch_npu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
        yield Check(name, "ok", f"{found[name]} (of this Python; a training may have another)")
    if len(found) == 2 and found["torch"].split("+")[0].split(".")[:2] != found["torch_npu"].split(".")[:2]:
        advice = "install the torch_npu of the same minor version as torch"
        yield Check(
            "versions", "error", f"torch {found['torch']} with torch_npu {found['torch_npu']}", advice
        )
    if shutil.which("npu-smi") is None:
        yield Check(
            "npu-smi", "warning", "not found", "on a server with Ascend cards it belongs to the driver"
        )


def _plugins() -> Iterator[Check]:
    for one in load_all():
        if one.plugin is None:
            yield Check(
                "plugin", "error", f"{one.name}: {one.failed}", "repair or remove the package it is in"
            )
        else:
            yield Check("plugin", "ok", one.name)


def _process(pid: int) -> Iterator[Check]:
    try:
        target = target_of(pid)
    except RefusedError as error:
        yield Check("process", "error", error.refusal.english())
        return
    yield Check(
        "process", "ok", f"{pid} {target.title}, Python {target.python or 'unknown'}, user {target.uid}"
    )
    refusal = why_not(target)
    if has_shim(target):
        yield Check("attach", "ok", "a shim is in it already")
    elif refusal is None:
        yield Check("attach", "ok", "nothing stands in the way")
    else:
        yield Check("attach", "error", refusal.english())
