"""Containers made by hand: processes in namespaces, users and root directories of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest
from trainings import PLAIN, threads_of, until

from ascend_tui.target import TargetGone, forget_socket, proc, read_target, socket_path

UID = 54321
"""A user who is nobody else on this machine."""
AS_USER = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
DOCKER = (
    "setpriv",
    # The capabilities of a container that nobody asked for more for.
    "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap"
    ",+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap",
)
ALL = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--net", "--ipc", "--uts", "--kill-child")
UP = "print('up', flush=True)\n" + PLAIN

OTHER_SYSTEM = os.environ.get("ASCEND_TUI_TEST_ROOTFS", "")
"""A folder with another libc and another Python; read here, because no test sees our variables."""

SYS_PTRACE_AND_ADMIN = 1 << 19 | 1 << 21


def is_root() -> bool:
    """Tell whether we are a root with its rights: that of a container has few of them."""
    caps = int((proc.read_status(os.getpid()) or {}).get("CapEff", "0"), 16)
    return os.geteuid() == 0 and caps & SYS_PTRACE_AND_ADMIN == SYS_PTRACE_AND_ADMIN


needs_root = pytest.mark.skipif(
    not is_root(), reason="only root with CAP_SYS_PTRACE and CAP_SYS_ADMIN can become others and mount"
)

# A /tmp of its own; what of this Python lies in ours is there again.
PRIVATE_TMP = """
set -e
mount --bind /tmp /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
for one in $KEEP; do
    mkdir -p "/tmp/$one"
    mount --bind "/mnt/$one" "/tmp/$one"
done
umount /mnt
exec "$@"
"""
ROOT = Path(__file__).parent.parent.parent
KEEP = " ".join(
    {one[len("/tmp/") :] for one in (sys.prefix, sys.base_prefix, str(ROOT)) if one.startswith("/tmp/")}
)

# A root directory with the system's programs and one more Python, and a link for /tmp.
IMAGE = """
set -e
image=$1 change=$2 python=$3
shift 3
mount -t tmpfs tmpfs "$image"
cd "$image"
mkdir -p proc dev old scratch/tmp ".$python"
chmod 1777 scratch/tmp
ln -s /scratch/tmp tmp
for one in bin lib lib64 usr etc; do
    if [ -L "/$one" ]; then cp -a "/$one" .; else mkdir -p "$one"; mount --bind "/$one" "$one"; fi
done
mount --bind "$python" ".$python"
mount --bind /dev dev
mount -t proc proc proc
if [ "$change" = chroot ]; then exec chroot . "$@"; fi
pivot_root . old
umount -l /old
cd /
exec "$@"
"""
# A whole other system.
ROOTFS = """
set -e
image=$1 rootfs=$2
shift 2
mount --bind "$rootfs" "$image"
mount -t tmpfs -o mode=1777 tmpfs "$image/tmp"
mount -t proc proc "$image/proc"
cd "$image"
exec chroot . "$@"
"""


@contextmanager
def box(*command: str, code: str = UP, python: str = sys.executable, feed: str = "") -> Iterator[int]:
    """Run a Python program behind `command`; gives its pid as it is out here."""
    process = subprocess.Popen(
        [*command, python, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "KEEP": KEEP},
        cwd="/",
    )
    pid = process.pid
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != b"up\n":
            _, said = process.communicate()
            pytest.skip(f"{command[0]} is not possible here: {said.decode(errors='replace').strip()[-200:]}")
        while children_of(pid):
            pid = children_of(pid)[0]
        assert until(lambda: len(threads_of(pid)) > 1)
        yield pid
    finally:
        end(pid)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def end(pid: int) -> None:
    """Kill a process; a shim that is killed takes its socket away as little as anything else."""
    with suppress(TargetGone, ProcessLookupError):
        path = socket_path(read_target(pid))
        os.kill(pid, signal.SIGKILL)
        forget_socket(path)


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def private(*command: str) -> tuple[str, ...]:
    """Return a command that gives what comes behind it a /tmp of its own."""
    return (*command, "sh", "-c", PRIVATE_TMP, "-")


@cache
def public_python() -> str:
    """Return a Python that every user may run; skips where there is none."""
    # By a shell: setpriv itself still has root's rights when it starts a program.
    probe = ("sh", "-c", 'exec "$@"', "-")
    for candidate in (
        os.path.realpath(sys.executable),
        shutil.which("python3", path="/usr/local/bin:/usr/bin"),
    ):
        if candidate is not None:
            done = subprocess.run(
                [*AS_USER, *probe, candidate, "-c", "import json"], capture_output=True, cwd="/"
            )
            if done.returncode == 0:
                return candidate
    pytest.skip("no Python that every user may run")


def cli_as(
    *arguments: str, prefix: Sequence[str] = AS_USER, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line behind `prefix`, with a Python that every user may run."""
    sites = [one for one in sys.path if "site-packages" in one]
    start = f"import site, sys\nfor one in {sites}: site.addsitedir(one)\nsys.path.insert(0, {str(ROOT)!r})\n"
    start += "from ascend_tui.cli import main\nsys.exit(main())"
    command = [*prefix, public_python(), "-c", start, *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env={**os.environ, "HOME": "/nowhere", "XDG_CONFIG_HOME": "/nowhere", **(env or {})},
    )
    if "import main" in done.stderr or "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"the other user's Python cannot import us: {done.stderr.splitlines()[-1]}")
    return done
