"""What /proc says about a process: its identity, its interpreter, what it has loaded."""

from __future__ import annotations

import os
import re

from ascend_tui.frozen import frozen
from ascend_tui.target import proc

MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x03: "i386", 0x28: "arm", 0xF3: "riscv64", 0x15: "ppc64"}
PF_KTHREAD = 0x00200000

# The version sits in a libpython name, in the exe's own name, or in the ABI tag of any extension module.
_LIBPYTHON = re.compile(rb"/libpython(3\.\d+t?)\w*\.so")
_EXE_NAME = re.compile(r"^python(3\.\d+t?)$")
_ABI_TAG = re.compile(rb"\.cpython-3(\d+t?)-[\w-]+\.so")
_TORCH = re.compile(rb"/libtorch(_cpu|_python)?\.so")
_NPU = re.compile(rb"/libtorch_npu[\w.]*\.so")
_CUDA = re.compile(rb"/(libcudart|libtorch_cuda)[\w.-]*\.so")
_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


class TargetGone(Exception):
    """Say that there is no process with this pid (any more)."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"no process {pid}")
        self.pid = pid


@frozen
class TargetId:
    """Name a process beyond doubt: a pid alone is reused, a pid with its start time is not.

    `start_ticks` is field 22 of /proc/PID/stat, in clock ticks since boot.
    """

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}@{self.start_ticks}"


@frozen
class Target:
    """Hold what /proc said about a process at one moment.

    Everything the reader may not see (another user's process) is None, empty or False; `visible` says whether
    the memory map could be read at all, so that "not Python" and "cannot know" stay apart. `start_wall` is in
    unix seconds. `python` is like "3.11" ("3.13t" for a free-threaded build), None when it is not CPython.
    """

    id: TargetId
    ns_pid: int
    uid: int
    comm: str
    exe: str | None
    argv: tuple[str, ...]
    python: str | None
    arch: str | None
    state: str
    tracer_pid: int
    thread_count: int
    start_wall: float
    torch_loaded: bool
    npu_loaded: bool
    cuda_loaded: bool
    visible: bool

    @property
    def title(self) -> str:
        """A short human name: the script's file name, `-m module`, `-c`, else the program's name."""
        if self.python is None and not _is_interpreter(self.argv):
            return _program_name(self)
        rest = iter(self.argv[1:])
        for word in rest:
            if word in _OPTIONS_WITH_VALUE:
                next(rest, None)
            elif word == "-m":
                return f"-m {next(rest, '')}".strip()
            elif word.startswith("-m"):
                return f"-m {word[2:]}"
            elif word.startswith("-c"):
                return "-c"
            elif word == "-" or not word.startswith("-"):
                return os.path.basename(word.rstrip("/")) or word
        return _program_name(self)


def read_target(pid: int) -> Target:
    """Read what /proc says about `pid`; what this user may not see stays empty instead of raising.

    Raises TargetGone when the process does not exist or vanished while being read.
    """
    stat, status = proc.read_stat(pid), proc.read_status(pid)
    # A thread's id also has a /proc directory (only hidden from listings): a target is a whole process.
    if stat is None or status is None or int(status.get("Tgid", pid)) != pid:
        raise TargetGone(pid)
    exe = _clean(proc.read_link(f"/proc/{pid}/exe"))
    maps = proc.read_bytes(f"/proc/{pid}/maps")
    argv = (proc.read_bytes(f"/proc/{pid}/cmdline") or b"").rstrip(b"\0")
    again = proc.read_stat(pid)
    if again is None or again.start_ticks != stat.start_ticks:
        raise TargetGone(pid)
    known = maps or b""
    return Target(
        id=TargetId(pid, stat.start_ticks),
        ns_pid=int(status.get("NSpid", str(pid)).split()[-1]),
        uid=int(status.get("Uid", "0").split()[0]),
        comm=stat.comm,
        exe=exe,
        argv=tuple(argv.decode("utf-8", "replace").split("\0")) if argv else (),
        python=_python_version(exe, known),
        arch=read_arch(f"/proc/{pid}/exe"),
        state=stat.state,
        tracer_pid=int(status.get("TracerPid", 0)),
        thread_count=int(status.get("Threads", 1)),
        start_wall=proc.boot_time() + stat.start_ticks / os.sysconf("SC_CLK_TCK"),
        torch_loaded=bool(_TORCH.search(known)),
        npu_loaded=bool(_NPU.search(known)),
        cuda_loaded=bool(_CUDA.search(known)),
        visible=maps is not None,
    )


def list_python() -> list[Target]:
    """Return the Python processes on this machine, by pid, without this one and without vanished ones.

    A process of another user is listed when its command line says python, although nothing more is known.
    """
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if _may_be_python(int(name)):
                target = read_target(int(name))
                if target.python is not None or not target.visible:
                    found.append(target)
        except TargetGone:
            continue
    return sorted(found, key=lambda target: target.id.pid)


def read_arch(path: str) -> str | None:
    """Return the machine an ELF file was built for ("x86_64", "aarch64", …), or None when unreadable."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return None
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return None
    machine = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return MACHINES.get(machine, f"elf-machine-{machine}")


def _may_be_python(pid: int) -> bool:
    """Tell cheaply whether a full read is worth it (the memory map of a big process costs milliseconds)."""
    exe = _clean(proc.read_link(f"/proc/{pid}/exe"))
    argv = proc.read_bytes(f"/proc/{pid}/cmdline") or b""
    if exe is None:
        return _is_interpreter((argv.partition(b"\0")[0].decode("utf-8", "replace"),))
    if os.path.basename(exe).startswith("python"):
        return True
    return b"/libpython3" in (proc.read_bytes(f"/proc/{pid}/maps") or b"")


def _python_version(exe: str | None, maps: bytes) -> str | None:
    if not maps:
        return None
    library = _LIBPYTHON.search(maps)
    if library:
        return library.group(1).decode()
    named = _EXE_NAME.match(os.path.basename(exe or ""))
    if named:
        return named.group(1)
    tag = _ABI_TAG.search(maps)
    return "3." + tag.group(1).decode() if tag else None


def _is_interpreter(argv: tuple[str, ...]) -> bool:
    return bool(argv) and re.match(r"python[\d.]*t?$", os.path.basename(argv[0])) is not None


def _program_name(target: Target) -> str:
    if target.argv:
        # A process that renamed itself (setproctitle) has its whole title in the first word.
        return os.path.basename(target.argv[0].split(" ")[0]) or target.argv[0][:40]
    return target.comm


def _clean(path: str | None) -> str | None:
    """Cut the " (deleted)" that /proc adds when the file was upgraded under the running process."""
    return path[: -len(" (deleted)")] if path and path.endswith(" (deleted)") else path
