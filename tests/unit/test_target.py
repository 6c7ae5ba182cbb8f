"""What is known about a process, why an attach is refused, where the socket lies, how a process ended."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ascend_tui.target import (
    Exit,
    ExitWatch,
    Refusal,
    Target,
    TargetGone,
    TargetId,
    exits,
    list_python,
    preflight,
    proc,
    read_target,
    socket_path,
    socket_path_inside,
)
from ascend_tui.target.facts import _python_version
from ascend_tui.target.paths import uid_in_map
from ascend_tui.target.preflight import CAP_SYS_PTRACE, Facts, decide

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"


def until(done: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    end = time.monotonic() + timeout_s
    while not done() and time.monotonic() < end:
        time.sleep(0.002)
    return done()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def make_target(argv: tuple[str, ...], python: str | None = "3.11") -> Target:
    return Target(
        id=TargetId(41233, 8812345), ns_pid=41233, uid=0, comm="python", exe="/usr/bin/python3.11", argv=argv,
        python=python, arch="x86_64", state="S", tracer_pid=0, thread_count=1, start_wall=0.0,
        torch_loaded=False, npu_loaded=False, cuda_loaded=False, visible=True,
    )  # fmt: skip


class TestReading:
    def test_a_python_process(self, sleeper: subprocess.Popen[bytes]) -> None:
        target = read_target(sleeper.pid)
        assert target.id.pid == target.ns_pid == sleeper.pid
        assert target.python == f"{sys.version_info.major}.{sys.version_info.minor}"
        assert target.arch == os.uname().machine
        assert target.uid == os.getuid()
        assert target.argv[1:] == ("-c", SLEEPER)
        assert (target.title, target.thread_count, target.tracer_pid) == ("-c", 1, 0)
        assert abs(target.start_wall - time.time()) < 30
        assert not target.torch_loaded
        assert str(target.id) == f"{sleeper.pid}@{target.id.start_ticks}"

    def test_something_else_is_not_python(self) -> None:
        with subprocess.Popen(["sleep", "60"]) as process:
            target = read_target(process.pid)
            process.kill()
        assert (target.python, target.title) == (None, "sleep")

    def test_a_dead_pid_is_gone(self) -> None:
        process = subprocess.Popen(["true"])
        process.wait()
        with pytest.raises(TargetGone) as caught:
            read_target(process.pid)
        assert caught.value.pid == process.pid

    def test_a_thread_is_not_a_target(self) -> None:
        code = "import threading\nthreading.Thread(target=input).start(); print('up', flush=True); input()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:  # type: ignore[call-overload]
            process.stdout.readline()
            tids = {int(name) for name in os.listdir(f"/proc/{process.pid}/task")} - {process.pid}
            with pytest.raises(TargetGone):
                read_target(tids.pop())
            process.kill()

    def test_unreadable_files_leave_gaps(
        self, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # As for another user's process: the links and the map are refused, stat and status are not.
        real = proc.read_bytes
        monkeypatch.setattr(proc, "read_bytes", lambda path: None if "maps" in path else real(path))
        monkeypatch.setattr(proc, "read_link", lambda path: None)
        target = read_target(sleeper.pid)
        assert (target.python, target.exe, target.visible) == (None, None, False)
        assert target.title == "-c"
        assert sleeper.pid in {found.id.pid for found in list_python()}

    def test_the_list_has_pythons_and_not_us(self, sleeper: subprocess.Popen[bytes]) -> None:
        pids = [target.id.pid for target in list_python()]
        assert sleeper.pid in pids
        assert os.getpid() not in pids
        assert pids == sorted(pids)

    @pytest.mark.parametrize(
        ("argv", "title"),
        [
            (("python", "train.py", "--lr", "1"), "train.py"),
            (("/usr/bin/python3", "-u", "-W", "ignore", "/home/me/run.py"), "run.py"),
            (("python", "-m", "torch.distributed.run", "x.py"), "-m torch.distributed.run"),
            (("python3.11", "-mpdb", "x.py"), "-m pdb"),
            (("python", "-X", "dev", "-c", "pass"), "-c"),
            (("python",), "python"),
            (("ray::Trainer.step", ""), "-c"),
        ],
    )
    def test_titles(self, argv: tuple[str, ...], title: str) -> None:
        if argv[0].startswith("ray"):
            argv, title = ("ray::Trainer.step on node",), "ray::Trainer.step"
        assert make_target(argv).title == title

    @pytest.mark.parametrize(
        ("exe", "maps", "version"),
        [
            ("/opt/py/bin/python3.10", b"7f-80 r-xp 0 0 0 /opt/py/bin/python3.10\n", "3.10"),
            ("/usr/bin/app", b"... /usr/lib/libpython3.9.so.1.0\n", "3.9"),
            ("/usr/bin/app", b"... /usr/lib/libpython3.7m.so.1.0\n", "3.7"),
            ("/usr/bin/python3.13t", b"x\n", "3.13t"),
            ("/opt/bin/python", b"... /opt/lib-dynload/_json.cpython-312-aarch64-linux-gnu.so\n", "3.12"),
            ("/usr/bin/pypy3.10", b"... /usr/lib/libpypy3.10-c.so\n", None),
            ("/usr/bin/sleep", b"... /lib/libc.so.6\n", None),
            ("/usr/bin/python3.11", b"", None),
        ],
    )
    def test_versions(self, exe: str, maps: bytes, version: str | None) -> None:
        assert _python_version(exe, maps) == version


GOOD = Facts(
    pid=41233, title="train.py", own_pid=999, own_uid=1000, own_arch="x86_64", own_caps=0, visible=True,
    kernel_thread=False, python="3.11", arch="x86_64", uids=(1000, 1000, 1000), tracer_pid=0, tracer_name="",
    state="S", attach_errno=None, yama=None, descendant=False, caps=0, same_userns=True, dumpable=True,
    shadow_stack=False, musl=False,
)  # fmt: skip
DENIED = {"attach_errno": errno.EPERM}
ALL_CAPS = (1 << 41) - 1
DOCKER_CAPS = 0xA80425FB

CASES: list[tuple[str, dict[str, object], str]] = [
    ("own_process", {"pid": 999}, "itself"),
    ("kernel_thread", {"kernel_thread": True, "python": None}, "kernel"),
    ("not_python", {"python": None}, "`ascend-tui ps`"),
    ("not_python", {"python": None, "pid": 1, "title": "systemd"}, "process 1 (systemd)"),
    ("python_too_old", {"python": "3.7"}, "3.7"),
    ("free_threaded", {"python": "3.13t"}, "free-threaded"),
    ("arch_differs", {"arch": "aarch64"}, "aarch64"),
    ("not_64bit", {"arch": "i386"}, "32-bit code (i386)"),
    ("not_64bit", {"arch": "arm", "own_arch": "aarch64"}, "ascend-tui run -- CMD"),
    ("musl", {"musl": True}, "musl"),
    ("musl", {"musl": True, "python": "3.14"}, "glibc"),
    ("other_user", {"uids": (1001, 1001, 1001), **DENIED}, "sudo -u '#1001' ascend-tui attach 41233"),
    ("other_user", {"uids": (0, 0, 0), "visible": False, "python": None, **DENIED}, "user id 0"),
    ("other_user", {"own_uid": 0, "own_caps": DOCKER_CAPS, **DENIED}, "setpriv --reuid 1000"),
    ("other_user", {"uids": (1, 1, 1), "own_caps": CAP_SYS_PTRACE, **DENIED}, "sudo -u '#1'"),
    ("arch_differs", {"arch": "riscv64"}, "ascend-tui run"),
    ("traced", {"tracer_pid": 77, "tracer_name": "gdb"}, "process 77 (gdb)"),
    ("zombie", {"state": "Z", "visible": False, "python": None}, "already ended"),
    ("stopped", {"state": "T"}, "kill -CONT 41233"),
    ("uninterruptible", {"state": "D"}, "state D"),
    ("yama_1", {"yama": 1, **DENIED}, "sudo sysctl kernel.yama.ptrace_scope=0"),
    ("yama_1", {"yama": 1, **DENIED}, "--cap-add SYS_PTRACE"),
    ("yama_1", {"yama": 1, **DENIED}, "ascend-tui run -- CMD"),
    ("yama_2", {"yama": 2, **DENIED}, "--cap-add SYS_PTRACE"),
    ("yama_2", {"yama": 2, "descendant": True, **DENIED}, "root"),
    ("yama_3", {"yama": 3, "own_caps": ALL_CAPS, **DENIED}, "until the next boot"),
    (
        "capabilities",
        {"own_uid": 0, "uids": (0, 0, 0), "own_caps": DOCKER_CAPS, "caps": ALL_CAPS, **DENIED},
        "docker exec --privileged",
    ),
    ("user_namespace", {"same_userns": False, "own_caps": ALL_CAPS, **DENIED}, "inside its container"),
    ("not_dumpable", {"dumpable": False, **DENIED}, "PR_SET_DUMPABLE"),
    ("denied", {"own_caps": ALL_CAPS, **DENIED}, "apparmor=unconfined"),
    ("denied", {"yama": 0, **DENIED}, "Operation not permitted"),
    ("shadow_stack", {"shadow_stack": True}, "shadow stacks"),
]


class TestDecision:
    def test_a_good_target_is_not_refused(self) -> None:
        assert decide(GOOD) is None

    @pytest.mark.parametrize(("code", "changes", "words"), CASES)
    def test_each_reason(self, code: str, changes: dict[str, object], words: str) -> None:
        refusal = decide(dataclasses.replace(GOOD, **changes))  # type: ignore[arg-type]
        assert refusal is not None
        assert refusal.code == code
        assert words in refusal.english()
        assert "{" not in refusal.english()
        assert f"{refusal.as_json()['what']}: " in refusal.english()

    @pytest.mark.parametrize(
        "changes",
        [
            {"yama": 1},  # the target allowed it (PR_SET_PTRACER): the kernel's own answer counts
            {"yama": 2, "own_caps": CAP_SYS_PTRACE},
            {"uids": (1001, 1001, 1001), "own_uid": 0, "own_caps": ALL_CAPS},
            {"own_uid": 0, "uids": (0, 0, 0), "own_caps": DOCKER_CAPS, "caps": DOCKER_CAPS},
            {"same_userns": False, "own_caps": ALL_CAPS},
            {"arch": None},
            {"shadow_stack": True, "python": "3.14"},  # has a way in that borrows no thread
        ],
    )
    def test_what_the_kernel_allows_is_not_refused(self, changes: dict[str, object]) -> None:
        assert decide(dataclasses.replace(GOOD, **changes)) is None  # type: ignore[arg-type]

    def test_the_order_is_fixed(self) -> None:
        everything: dict[str, object] = {
            "python": None, "arch": "aarch64", "uids": (1, 1, 1), "tracer_pid": 5, "state": "T", "yama": 1,
            "caps": ALL_CAPS, "same_userns": False, "dumpable": False, "shadow_stack": True, "musl": True,
            **DENIED,
        }  # fmt: skip
        cures: list[dict[str, object]] = [
            {"python": "3.11"}, {"arch": "x86_64"}, {"musl": False}, {"uids": GOOD.uids}, {"tracer_pid": 0},
            {"state": "S"}, {"yama": 0}, {"same_userns": None}, {"caps": 0, "same_userns": False},
            {"same_userns": True}, {"dumpable": True}, {"attach_errno": None}, {"shadow_stack": False},
        ]  # fmt: skip
        seen = []
        for cure in [{}, *cures]:
            everything.update(cure)
            refusal = decide(dataclasses.replace(GOOD, **everything))  # type: ignore[arg-type]
            seen.append(refusal.code if refusal else "none")
        assert seen == [
            "not_python", "arch_differs", "musl", "other_user", "traced", "stopped", "yama_1",
            "user_namespace", "capabilities", "user_namespace", "not_dumpable", "denied", "shadow_stack",
            "none",
        ]  # fmt: skip

    def test_a_refusal_stays_translatable(self) -> None:
        refusal = Refusal(
            "x", "No {thing}", "it is {colour}", "Buy one", (("thing", "hat"), ("colour", "red"))
        )
        assert refusal.what == "No {thing}"
        assert refusal.english() == "No hat: it is red. Buy one"
        assert refusal.as_json() == {
            "code": "x", "what": "No hat", "why": "it is red", "next_step": "Buy one",
            "params": {"thing": "hat", "colour": "red"},
        }  # fmt: skip


def code_of(pid: int) -> str | None:
    refusal = preflight(read_target(pid))
    return refusal.code if refusal else None


class TestPreflightForReal:
    def test_a_sleeping_child_is_fine(self, sleeper: subprocess.Popen[bytes]) -> None:
        if os.geteuid() != 0:
            pytest.skip("a rule of this machine may refuse even a child")
        assert code_of(sleeper.pid) is None

    def test_ourselves(self) -> None:
        assert code_of(os.getpid()) == "own_process"

    def test_a_zombie(self) -> None:
        process = subprocess.Popen(["true"])
        assert until(lambda: read_target(process.pid).state == "Z")
        assert code_of(process.pid) == "zombie"
        process.wait()

    def test_a_dead_one_and_a_reused_pid(self, sleeper: subprocess.Popen[bytes]) -> None:
        target = read_target(sleeper.pid)
        other = dataclasses.replace(target, id=TargetId(sleeper.pid, target.id.start_ticks - 1))
        with pytest.raises(TargetGone):
            preflight(other)
        sleeper.kill()
        sleeper.wait()
        with pytest.raises(TargetGone):
            preflight(target)

    def test_a_stopped_one(self, sleeper: subprocess.Popen[bytes]) -> None:
        os.kill(sleeper.pid, signal.SIGSTOP)
        assert until(lambda: read_target(sleeper.pid).state == "T")
        assert code_of(sleeper.pid) == "stopped"

    def test_a_kernel_thread(self) -> None:
        if not os.path.exists("/proc/2/stat") or b"kthreadd" not in (proc.read_bytes("/proc/2/stat") or b""):
            pytest.skip("no kernel threads are visible here")
        assert code_of(2) == "kernel_thread"

    def test_one_that_another_process_traces(self, sleeper: subprocess.Popen[bytes]) -> None:
        code = (
            "import ctypes, sys, time; libc = ctypes.CDLL(None)\n"
            f"print(libc.ptrace(0x4206, {sleeper.pid}, None, None), flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as tracer:
            assert tracer.stdout is not None
            if tracer.stdout.readline().strip() != b"0":
                tracer.kill()
                pytest.skip("this machine does not allow tracing")
            refusal = preflight(read_target(sleeper.pid))
            tracer.kill()
        assert refusal is not None
        assert refusal.code == "traced"
        assert f"process {tracer.pid}" in refusal.english()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    @pytest.mark.parametrize("drop", ["other_user", "capabilities"])
    def test_too_few_rights(self, sleeper: subprocess.Popen[bytes], drop: str) -> None:
        if drop == "capabilities" and not int((proc.read_status(os.getpid()) or {})["CapPrm"], 16):
            pytest.skip("this root has no capabilities to lose")
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            if drop == "other_user":
                os.setgroups([])
                os.setgid(12345)
                os.setuid(12345)
            else:
                # CapEff empty, still uid 0: what `docker exec` into a privileged container looks like.
                drop_effective_capabilities()
            answer = code_of(sleeper.pid) or "none"
            os.write(write_end, answer.encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write_end)
        with os.fdopen(read_end) as file:
            assert file.read() == drop


def drop_effective_capabilities() -> None:
    import ctypes

    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, data) == 0


class TestSocketPath:
    def test_same_namespace(self, sleeper: subprocess.Popen[bytes]) -> None:
        target = read_target(sleeper.pid)
        inside = socket_path_inside(target)
        # In a container the number of its namespace is behind each of the two.
        assert re.fullmatch(rf"/tmp/ascend-tui-{os.getuid()}(-\d+)?/{sleeper.pid}(-\d+)?\.sock", inside)
        assert socket_path(target) == Path(inside)

    def test_other_mount_pid_and_user_namespaces(self) -> None:
        command = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]
        command += [sys.executable, "-c", SLEEPER]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as outer:
            assert outer.stdout is not None
            if outer.stdout.readline() != b"up\n":
                outer.kill()
                pytest.skip("this machine does not allow unshare")
            children = (proc.read_bytes(f"/proc/{outer.pid}/task/{outer.pid}/children") or b"").split()
            target = read_target(int(children[0]))
            path, inside = socket_path(target), socket_path_inside(target)
            os.kill(target.id.pid, signal.SIGKILL)
        assert target.ns_pid == 1
        assert re.fullmatch(r"/tmp/ascend-tui-0-\d+/1-\d+\.sock", inside)
        assert path == Path(f"/proc/{target.id.pid}/root{inside}")
        assert len(str(path)) < 108

    def test_uid_maps(self) -> None:
        rootless = "         0       1000          1\n         1     100000      65536\n"
        assert uid_in_map(1000, rootless) == 0
        assert uid_in_map(100998, rootless) == 999
        assert uid_in_map(5, rootless) == 65534
        assert uid_in_map(5, "0 0 4294967295\n") == 5


@pytest.fixture(params=["pidfd", "polling"])
def watch_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "polling":
        monkeypatch.setattr(exits, "_open_pidfd", lambda pid: -1)
    elif not hasattr(os, "pidfd_open"):
        pytest.skip("no pidfd_open here")
    return str(request.param)


class TestExitWatch:
    @pytest.mark.parametrize(
        ("code", "how"),
        [("raise SystemExit(7)", Exit(7, None)), ("import os; os.abort()", Exit(None, signal.SIGABRT))],
    )
    def test_a_childs_end_is_known_and_left_to_its_owner(self, watch_kind: str, code: str, how: Exit) -> None:
        command = [sys.executable, "-c", f"input(); {code}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        watch = ExitWatch(read_target(process.pid))
        assert watch.poll() is None
        if watch_kind == "pidfd":
            assert not select.select([watch.fileno()], [], [], 0)[0]
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        if watch_kind == "pidfd":
            assert select.select([watch.fileno()], [], [], 10)[0]
        assert until(lambda: watch.poll() is not None)
        assert watch.poll() == how
        watch.close()
        assert watch.poll() == how
        assert process.wait() == (how.code if how.code is not None else -int(how.signal or 0))

    def test_a_grandchild_that_is_a_zombie(self, watch_kind: str) -> None:
        with grandchild("sleep 0.2; exit 7", "exec sleep 1") as pid:
            watch = ExitWatch(read_target(pid))
            assert until(lambda: watch.poll() is not None, 0.9)
            assert watch.poll() == Exit(7, None)
            watch.close()

    def test_a_grandchild_reaped_before_anybody_looked(self) -> None:
        with grandchild("sleep 0.2; kill -TERM $$", "wait; sleep 0.3") as pid:
            watch = ExitWatch(read_target(pid))
            assert until(lambda: proc.read_stat(pid) is None)
            found = watch.poll()
            watch.close()
        release = tuple(int(word) for word in os.uname().release.split("-")[0].split(".")[:2])
        assert found == (Exit(None, signal.SIGTERM) if release >= (6, 15) else Exit(None, None))

    def test_a_reused_pid_is_not_watched(self, sleeper: subprocess.Popen[bytes], watch_kind: str) -> None:
        target = read_target(sleeper.pid)
        with pytest.raises(TargetGone):
            ExitWatch(dataclasses.replace(target, id=TargetId(sleeper.pid, target.id.start_ticks - 1)))

    def test_polling_sees_a_reused_pid_as_the_end(
        self, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(exits, "_open_pidfd", lambda pid: -1)
        watch = ExitWatch(read_target(sleeper.pid))
        stat = proc.read_stat(sleeper.pid)
        assert stat is not None
        later = dataclasses.replace(stat, start_ticks=stat.start_ticks + 1)
        monkeypatch.setattr(proc, "read_stat", lambda pid: later)
        monkeypatch.setattr(os, "waitid", no_child)
        assert watch.poll() == Exit(None, None)


def no_child(*_: object) -> None:
    raise ChildProcessError


class grandchild:
    """A process whose parent is a shell of ours; yields its pid."""

    def __init__(self, command: str, then: str) -> None:
        script = f"sh -c '{command}' & echo $!; {then}"
        self.shell = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)

    def __enter__(self) -> int:
        assert self.shell.stdout is not None
        return int(self.shell.stdout.readline())

    def __exit__(self, *_: object) -> None:
        assert self.shell.stdout is not None
        self.shell.kill()
        self.shell.wait()
        self.shell.stdout.close()
