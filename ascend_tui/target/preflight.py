"""Decide before anything is touched whether an attach can work, and name the exact reason when it cannot.

Facts are collected first, then judged by a pure function: so every machine's case can be tested anywhere.
"""

from __future__ import annotations

import errno
import os
import platform
import time

from ascend_tui.frozen import frozen
from ascend_tui.target import proc
from ascend_tui.target.facts import PF_KTHREAD, Target, TargetGone, read_arch
from ascend_tui.target.refusal import Refusal

CAP_SYS_PTRACE = 1 << 19
CAP_DAC_OVERRIDE = 1 << 1
INJECTORS = ("x86_64", "aarch64")
OLDEST_PYTHON = (3, 8)
BY_ITSELF_PYTHON = (3, 14)  # has sys.remote_exec, which borrows no thread
MACHINES_32BIT = ("i386", "arm")


@frozen
class Facts:
    """Everything the decision needs, as recorded at one moment.

    `attach_errno` is the kernel's own answer to "may I trace it": None when it said yes, else the errno.
    Capability sets are bit masks; `yama` is kernel.yama.ptrace_scope, None without Yama. `same_userns` is
    None when this user may not look.
    """

    pid: int
    title: str
    own_pid: int
    own_uid: int
    own_arch: str
    own_caps: int
    visible: bool
    kernel_thread: bool
    python: str | None
    arch: str | None
    uids: tuple[int, ...]
    tracer_pid: int
    tracer_name: str
    state: str
    attach_errno: int | None
    yama: int | None
    descendant: bool
    caps: int
    same_userns: bool | None
    dumpable: bool
    shadow_stack: bool
    musl: bool


def preflight(target: Target) -> Refusal | None:
    """Return why attaching to `target` would fail and what to do about it, or None when it should work.

    Nothing is done to the target. Raises TargetGone when it has ended or its pid was reused.
    """
    return decide(gather(target))


def decide(facts: Facts) -> Refusal | None:
    """Judge recorded facts in a fixed order; the first reason that holds is the one to show."""
    for check in (_what_it_is, _whose_it_is, _what_it_does, _what_the_kernel_allows):
        refusal = check(facts)
        if refusal is not None:
            return refusal
    if facts.shadow_stack and _version(facts) < BY_ITSELF_PYTHON:
        return _refuse(
            facts,
            "shadow_stack",
            "it runs with hardware shadow stacks, which a borrowed call would violate",
            "Start it with `ascend-tui run -- CMD`, or without GLIBC_TUNABLES=glibc.cpu.x86_shstk",
        )
    return None


def gather(target: Target) -> Facts:
    """Record the facts that `decide` judges; raises TargetGone when the process is not there any more."""
    pid = target.id.pid
    stat, status = proc.read_stat(pid), proc.read_status(pid)
    own = proc.read_status(os.getpid())
    if own is None or stat is None or status is None or stat.start_ticks != target.id.start_ticks:
        raise TargetGone(pid)
    for _ in range(5):
        # A page fault or a file read shows as D for a moment; only one that stays is a reason.
        if stat is None or stat.state != "D":
            break
        time.sleep(0.02)
        stat = proc.read_stat(pid)
    if stat is None:
        raise TargetGone(pid)
    uids = tuple(int(word) for word in status.get("Uid", "").split()[:3])
    tracer = int(status.get("TracerPid", 0))
    tracer_stat = proc.read_stat(tracer) if tracer else None
    return Facts(
        pid=pid,
        title=target.title,
        own_pid=os.getpid(),
        own_uid=os.geteuid(),
        own_arch=read_arch("/proc/self/exe") or platform.machine(),
        own_caps=int(own.get("CapEff", "0"), 16),
        visible=target.visible,
        kernel_thread=bool(stat.flags & PF_KTHREAD),
        python=target.python,
        arch=target.arch,
        uids=uids,
        tracer_pid=tracer,
        tracer_name=tracer_stat.comm if tracer_stat else "",
        state=stat.state,
        attach_errno=_attach_errno(pid),
        yama=_yama(),
        descendant=_descends(stat.ppid, os.getpid()),
        caps=int(status.get("CapPrm", "0"), 16),
        same_userns=_same_userns(pid),
        dumpable=_dumpable(pid, uids),
        shadow_stack="shstk" in status.get("x86_Thread_features", "").split(),
        musl=b"/ld-musl-" in (proc.read_bytes(f"/proc/{pid}/maps") or b""),
    )


def _what_it_is(facts: Facts) -> Refusal | None:
    run = "Start the training with `ascend-tui run -- CMD`"
    if facts.pid == facts.own_pid:
        return _refuse(facts, "own_process", "it is this monitor itself", "Choose another process")
    if facts.kernel_thread:
        return _refuse(
            facts, "kernel_thread", "it is a thread of the kernel, not a program", "Choose another process"
        )
    if facts.state == "Z":
        return _refuse(
            facts,
            "zombie",
            "it has already ended and only waits for its parent",
            "Look at its log or exit status",
        )
    if not facts.visible:
        return None
    if facts.python is None:
        return _refuse(
            facts,
            "not_python",
            "it is not a CPython process",
            "`ascend-tui ps` lists the Python processes; a launcher's training is often one of its children",
        )
    if _version(facts) < OLDEST_PYTHON:
        return _refuse(facts, "python_too_old", "it runs Python {python}; 3.8 is the oldest supported", run)
    if facts.python.endswith("t"):
        return _refuse(facts, "free_threaded", "attaching to a free-threaded build is not supported yet", run)
    if facts.arch in MACHINES_32BIT:
        return _refuse(facts, "not_64bit", "it runs 32-bit code ({arch})", run)
    if facts.arch is not None and facts.arch != facts.own_arch:
        return _refuse(
            facts,
            "arch_differs",
            "it runs {arch} code and this monitor runs {own_arch} code",
            "Install ascend-tui with a {arch} Python" if facts.arch in INJECTORS else run,
        )
    if facts.musl:
        return _refuse(
            facts,
            "musl",
            "it runs on the musl C library, for which there is no PyTorch and no tested way in",
            "Use an image with glibc, such as Debian, Ubuntu or openEuler",
        )
    return None


def _whose_it_is(facts: Facts) -> Refusal | None:
    foreign = any(uid != facts.own_uid for uid in facts.uids)
    # Its /proc files are its owner's: without CAP_DAC_OVERRIDE even one who may trace cannot open its memory.
    needed = CAP_SYS_PTRACE | CAP_DAC_OVERRIDE
    if foreign and facts.attach_errno is not None and facts.own_caps & needed != needed:
        if not facts.own_uid:
            return _refuse(
                facts,
                "other_user",
                "it belongs to user id {uid} and you are a root without CAP_SYS_PTRACE and CAP_DAC_OVERRIDE",
                "Run `setpriv --reuid {uid} --clear-groups ascend-tui attach {pid}`, or get them (docker: "
                "`--cap-add SYS_PTRACE` or `docker exec --privileged`)",
            )
        return _refuse(
            facts,
            "other_user",
            "it belongs to user id {uid} and you are user id {own_uid}",
            "Run `sudo -u '#{uid}' ascend-tui attach {pid}`, or run as root",
        )
    return None


def _what_it_does(facts: Facts) -> Refusal | None:
    if facts.tracer_pid:
        return _refuse(
            facts,
            "traced",
            "process {tracer_pid} ({tracer_name}) is already tracing it",
            "Detach that debugger or tracer first",
        )
    if facts.state in "Tt":
        return _refuse(
            facts, "stopped", "it is stopped (Ctrl-Z or SIGSTOP)", "Continue it with `kill -CONT {pid}`"
        )
    if facts.state == "X":
        return _refuse(facts, "zombie", "it is ending right now", "Look at its log or exit status")
    if facts.state == "D":
        return _refuse(
            facts,
            "uninterruptible",
            "it is stuck in the kernel (state D), usually in a driver or on a network file system",
            "Read /proc/{pid}/stack as root, and try again when it moves",
        )
    return None


def _what_the_kernel_allows(facts: Facts) -> Refusal | None:
    if facts.attach_errno is None:
        return None
    capable = bool(facts.own_caps & CAP_SYS_PTRACE)
    if facts.yama == 3:
        return _refuse(
            facts,
            "yama_3",
            "kernel.yama.ptrace_scope is 3: nobody may trace anything until the next boot",
            "Start the training with `ascend-tui run -- CMD`",
        )
    if facts.yama == 2 and not capable:
        return _refuse(
            facts,
            "yama_2",
            "kernel.yama.ptrace_scope is 2: only a process with CAP_SYS_PTRACE may trace",
            "Run as root (in docker with `--cap-add SYS_PTRACE`), or start with `ascend-tui run -- CMD`",
        )
    if facts.yama == 1 and not capable and not facts.descendant:
        return _refuse(
            facts,
            "yama_1",
            "kernel.yama.ptrace_scope is 1: only a parent may trace its children",
            "Run `sudo sysctl kernel.yama.ptrace_scope=0`, or run as root (in docker with "
            "`--cap-add SYS_PTRACE`), or start with `ascend-tui run -- CMD`",
        )
    missing = facts.caps & ~facts.own_caps
    if missing and not capable and facts.same_userns is not False:
        return _refuse(
            facts,
            "capabilities",
            "it holds capabilities that you do not (mask {missing}), so the kernel protects it from you",
            "Run as root with CAP_SYS_PTRACE (docker: `--cap-add SYS_PTRACE` or `docker exec --privileged`)",
            missing=f"{missing:#x}",
        )
    if facts.same_userns is False:
        return _refuse(
            facts,
            "user_namespace",
            "it lives in another user namespace, where you have no CAP_SYS_PTRACE",
            "Run ascend-tui inside its container, or as root on the host",
        )
    if not facts.dumpable:
        return _refuse(
            facts,
            "not_dumpable",
            "it has forbidden inspection (PR_SET_DUMPABLE 0, or a set-uid start)",
            "Run as root, or start with `ascend-tui run -- CMD`",
        )
    return _refuse(
        facts,
        "denied",
        "the kernel refuses ({error}) without a reason that can be seen from here, as AppArmor, SELinux or "
        "seccomp do",
        "In docker try `--cap-add SYS_PTRACE` or `--security-opt apparmor=unconfined`; else start with "
        "`ascend-tui run -- CMD`",
    )


def _version(facts: Facts) -> tuple[int, ...]:
    return tuple(int(word) for word in (facts.python or "0").rstrip("t").split(".")[:2])


def _refuse(facts: Facts, code: str, why: str, next_step: str, **more: object) -> Refusal:
    names = {"title": facts.title, "pid": facts.pid, "own_uid": facts.own_uid, "own_arch": facts.own_arch}
    names.update(uid=facts.uids[0] if facts.uids else -1, arch=facts.arch, python=facts.python)
    names.update(tracer_pid=facts.tracer_pid, tracer_name=facts.tracer_name)
    names.update(error=os.strerror(facts.attach_errno or 0), **more)
    what = "Cannot attach to process {pid} ({title})"
    # Only what a sentence mentions travels with it: the rest would be noise in the JSON.
    used = tuple(item for item in names.items() if f"{{{item[0]}}}" in what + why + next_step)
    return Refusal(code, what, why, next_step, used)


def _attach_errno(pid: int) -> int | None:
    """Ask the kernel whether we may trace: opening the memory file makes the same check as PTRACE_SEIZE."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
    except OSError as error:
        return error.errno or errno.EPERM
    return None


def _yama() -> int | None:
    text = proc.read_bytes("/proc/sys/kernel/yama/ptrace_scope")
    return int(text) if text and text.strip().isdigit() else None


def _descends(ppid: int, ancestor: int) -> bool:
    for _ in range(64):
        if ppid in (0, 1, ancestor):
            return ppid == ancestor
        stat = proc.read_stat(ppid)
        ppid = stat.ppid if stat else 0
    return False


def _same_userns(pid: int) -> bool | None:
    theirs, ours = proc.read_link(f"/proc/{pid}/ns/user"), proc.read_link("/proc/self/ns/user")
    if theirs is not None:
        return theirs == ours
    # The link is only for those who may trace it, the ids are for everybody.
    maps = [proc.read_bytes(f"/proc/{who}/uid_map") for who in (pid, "self")]
    return False if None not in maps and maps[0] != maps[1] else None


def _dumpable(pid: int, uids: tuple[int, ...]) -> bool:
    """Tell whether the process allows inspection: the kernel gives a protected one's files to root."""
    try:
        owner = os.stat(f"/proc/{pid}/environ").st_uid
    except OSError:
        return True
    return len(uids) < 2 or owner == uids[1]
