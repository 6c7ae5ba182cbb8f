"""What the kernel lets one process do to another: Yama, capabilities, seccomp, AppArmor and SELinux."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ascend_tui.commands.doctor.check import IN_A_CONTAINER, START_WITH_US, Check, Level
from ascend_tui.inject.ptrace import ptrace
from ascend_tui.target import Target, proc

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
YAMA_MEANS = {
    "0": "any process of yours can be attached to",
    "1": f"only children, or a process that allows it; with CAP_SYS_PTRACE all. Or {START_WITH_US}",
    "2": f"only with CAP_SYS_PTRACE (root). Or {START_WITH_US}",
    "3": f"nobody can attach until a reboot; {START_WITH_US}",
}
# By number, from 0 on, as in linux/capability.h.
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL",
    "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
    "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
NAMED = 3
"""As many capabilities are named in a sentence; the rest is counted."""


def own_rights() -> Iterator[Check]:
    """Check what this process may do to others."""
    status = proc.read_status(os.getpid()) or {}
    capable = "SYS_PTRACE" in names(mask(status, "CapEff"))
    yield _yama(capable)
    refused = _refused_by_a_child()
    if refused:
        yield Check(
            "ptrace",
            "error",
            f"this process may not even trace a child of its own ({refused}): seccomp or a security module "
            "forbids it",
            f"docker: --cap-add SYS_PTRACE, or --security-opt seccomp=unconfined; else {START_WITH_US}",
        )
    yield _capabilities(status)
    yield from _seccomp(status, "this process")
    label = read_label("self")
    if label:
        yield Check("confined", "ok", f"this process is confined by {label}")


def rights_over(target: Target, refused: str) -> Iterator[Check]:
    """Check what stands between this process and the target; `refused` is the code of a refusal, or empty."""
    theirs, ours = proc.read_status(target.id.pid) or {}, proc.read_status(os.getpid()) or {}
    if refused == "capabilities":
        missing = names(mask(theirs, "CapPrm") & ~mask(ours, "CapEff"))
        found = f"it has {listed(missing)}, and this process has not; CAP_SYS_PTRACE alone would do"
        yield Check(
            "capability", "warning", found, "docker exec --privileged, or docker run --cap-add SYS_PTRACE"
        )
    yield from _seccomp(theirs, "it")
    label, own_label = read_label(str(target.id.pid)), read_label("self")
    if label and label != own_label:
        found = f"it is confined by {label}, this process by {own_label or 'nothing'}"
        advice = "run ascend-tui in its container, or start that with --security-opt apparmor=unconfined"
        yield Check("confined", "warning" if refused else "ok", found, advice if refused else "")


def names(caps: int) -> list[str]:
    """Return the names in a capability mask; those that are newer than us have only a number."""
    bits = (bit for bit in range(64) if caps >> bit & 1)
    return [CAPABILITIES[bit] if bit < len(CAPABILITIES) else str(bit) for bit in bits]


def listed(capabilities: list[str]) -> str:
    """Return capabilities as words: the telling ones first, the rest counted."""
    telling = ("SYS_PTRACE", "SYS_ADMIN", "NET_ADMIN")
    ordered = sorted(capabilities, key=lambda name: (name not in telling, capabilities.index(name)))
    words = ", ".join(f"CAP_{name}" for name in ordered[:NAMED])
    return words if len(ordered) <= NAMED else f"{words} and {len(ordered) - NAMED} more capabilities"


def mask(status: Mapping[str, str], name: str) -> int:
    """Return a capability mask of a /proc/PID/status."""
    return int(status.get(name, "0"), 16)


def read_label(who: str) -> str:
    """Return the AppArmor profile or SELinux context of a process; empty where there is none."""
    raw = proc.read_bytes(f"/proc/{who}/attr/current")
    text = (raw or b"").decode("utf-8", "replace").strip("\0\n ")
    return "" if text in ("unconfined", "kernel") else text


def _yama(capable: bool) -> Check:
    try:
        scope = YAMA.read_text().strip()
    except OSError:
        return Check("ptrace", "ok", "no Yama in this kernel: any process of yours can be attached to")
    level: Level = "ok" if scope == "0" or (capable and scope != "3") else "warning"
    return Check("ptrace", level, f"ptrace_scope {scope}", YAMA_MEANS.get(scope, ""))


def _capabilities(status: Mapping[str, str]) -> Check:
    have = names(mask(status, "CapEff"))
    if "SYS_PTRACE" in have and "DAC_OVERRIDE" in have:
        return Check("capability", "ok", "CAP_SYS_PTRACE: processes of all users are in reach")
    lacks = " and ".join(f"CAP_{one}" for one in ("SYS_PTRACE", "DAC_OVERRIDE") if one not in have)
    if os.geteuid():
        return Check("capability", "ok", f"user {os.geteuid()} without {lacks}: its own processes")
    found = f"a root without {lacks}: only processes of root with no more capabilities than its own"
    return Check("capability", "warning", found, IN_A_CONTAINER)


def _seccomp(status: Mapping[str, str], who: str) -> Iterator[Check]:
    if status.get("Seccomp") == "1":
        advice = f"it cannot be attached to; {START_WITH_US} without it"
        yield Check("seccomp", "error", f"{who} is in strict mode: read, write and exit only", advice)
    elif status.get("Seccomp") == "2":
        yield Check("seccomp", "ok", f"{who} runs under a filter, as in a container")


def _refused_by_a_child() -> str:
    """Trace a child of our own; return the error.  Only seccomp and security modules forbid that."""
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
        try:
            ptrace("SEIZE", child.pid)
        except OSError as error:
            # Under `strace -f` the child has its tracer already.
            traced = (proc.read_status(child.pid) or {}).get("TracerPid", "0") != "0"
            return "" if traced else os.strerror(error.errno or 0)
        finally:
            child.kill()
    return ""
