"""Targets in containers and of other users: real namespaces, real users, other roots and other Pythons."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from boxes import (
    ALL,
    AS_USER,
    DOCKER,
    IMAGE,
    OTHER_SYSTEM,
    PRIVATE_TMP,
    ROOTFS,
    UID,
    UP,
    box,
    cli_as,
    end,
    is_root,
    needs_root,
    private,
    public_python,
)
from trainings import Watcher, cli, descriptors, needs_ptrace, strict, threads_of, until

from ascend_tui.attach import attach, has_shim, why_not
from ascend_tui.target import Target, read_target, socket_path, socket_path_inside

pytestmark = needs_ptrace


def watch_and_leave(target: Target) -> dict[str, object]:
    """Attach through a session, watch, detach; return the hello's facts of the process."""
    threads = len(threads_of(target.id.pid))
    with Watcher(target) as watcher:
        frame = watcher.state(target, "waiting", "live", "refused", "disconnected")
        assert frame.status.state == "waiting", frame.status.reason
        assert watcher.until(target, lambda one: one.status.python is not None)
    client = attach(target, name="test", writable=True, may_inject=False).client
    process = dict(client.hello["process"])
    assert process["nspid"][-1] == target.ns_pid
    assert client.request("status")["step"] == 0
    assert client.request("detach")["residue"]
    client.close()
    left = lambda: (  # noqa: E731
        len(threads_of(target.id.pid)),
        [one for one in descriptors(target.id.pid) if one.startswith("socket:")],
        os.path.exists(socket_path(target)),
        has_shim(target),
    )
    assert until(lambda: left() == (threads, [], False, False)), left()
    return process


# From the host into a container.


@needs_root
@pytest.mark.parametrize("more", [(), ("--time", "--boottime", "1000000")], ids=["all", "and time"])
def test_a_target_in_namespaces_of_its_own_is_watched_from_the_host(more: tuple[str, ...]) -> None:
    with box(*private(*ALL, *more)) as pid:
        target = read_target(pid)
        assert (target.ns_pid, target.python) == (1, "{}.{}".format(*sys.version_info))
        assert str(socket_path(target)).startswith(f"/proc/{pid}/root/tmp/")
        process = watch_and_leave(target)
        assert (process["pid"], process["nspid"]) == (1, [1])


@needs_root
@pytest.mark.parametrize("change", ["pivot_root", "chroot"])
@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_another_python_in_a_root_of_its_own_whose_tmp_is_a_link(
    version: str, change: str, tmp_path: Path
) -> None:
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    if not found:
        pytest.skip(f"no Python {version} below ~/.pyenv")
    prefix = str(found[0].parent.parent)
    enter = ("sh", "-c", IMAGE, "-", str(tmp_path), change, prefix)
    with box(*ALL, *enter, python=str(found[0])) as pid:
        target = read_target(pid)
        assert target.python == version
        assert "/scratch/tmp/" in str(socket_path(target))
        assert watch_and_leave(target)["pid"] == 1


@needs_root
def test_another_system_with_another_libc_and_python(tmp_path: Path) -> None:
    if not OTHER_SYSTEM:
        pytest.skip("ASCEND_TUI_TEST_ROOTFS names no folder with another system")
    python = next(Path(OTHER_SYSTEM, "usr/bin").glob("python3.[0-9]*"))
    enter = ("sh", "-c", ROOTFS, "-", str(tmp_path), OTHER_SYSTEM)
    with box(*ALL, *enter, python=f"/usr/bin/{python.name}") as pid:
        target = read_target(pid)
        assert target.python is not None
        assert python.name.endswith(target.python)
        assert watch_and_leave(target)["pid"] == 1


@needs_root
def test_a_chroot_of_another_user_is_entered_with_an_idle_thread_by_that_user(tmp_path: Path) -> None:
    # Only root may use /proc/PID/map_files: everybody else has to find the files in the chroot.
    python = public_python()
    # It is of the system, which is in the image anyway: there is nothing to bring in.
    enter = ("sh", "-c", IMAGE, "-", str(tmp_path), "chroot", "/usr/share")
    with box("unshare", "--mount", *enter, *AS_USER, python=python) as pid:
        done = cli_as("attach", str(pid), "--headless", "--json", "--seconds", "2.5", "--tick", "0.1")
        assert done.returncode == 0, done.stderr
        assert strict(done.stdout)[-1]["target"]["method"] == "thread"


@needs_root
def test_a_container_that_ends_while_it_is_watched_has_ended() -> None:
    with box(*private(*ALL)) as pid, Watcher(read_target(pid)) as watcher:
        target = read_target(pid)
        watcher.state(target, "waiting")
        os.kill(pid, 9)
        frame = watcher.state(target, "exited")
        assert frame.status.reason is not None
        assert "signal 9" in frame.status.reason.render()


# Inside one container.


@needs_root
def test_a_monitor_in_the_container_attaches_by_the_pid_of_the_container() -> None:
    with box(*private(*ALL)) as pid:
        enter = ["nsenter", "--target", str(pid), "--mount", "--pid", "--net", "--ipc", "--uts"]
        start = "import sys; from ascend_tui.cli import main; sys.exit(main())"
        words = ["attach", "1", "--headless", "--json", "--seconds", "2.5", "--tick", "0.1"]
        done = subprocess.run(
            [*enter, sys.executable, "-c", start, *words],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        assert strict(done.stdout)[-1]["target"]["state"] == "waiting"
        assert strict(done.stdout)[-1]["target"]["id"]["pid"] == 1
        # The shim that it left serves the host too.
        assert attach(read_target(pid), name="test", writable=True).method == "reused"


# User namespaces.

AS_ROOTLESS = (*AS_USER, *ALL, "--user", "--map-root-user")


@contextmanager
def rootless() -> Iterator[int]:
    """Run a target that is root in a user namespace of an ordinary user."""
    if is_root():
        with box(*private(*AS_ROOTLESS), python=public_python()) as pid:
            yield pid
    elif os.geteuid() == 0:
        pytest.skip("this root has not the rights of one")
    else:
        with box(*private(*ALL, "--user", "--map-root-user")) as pid:
            yield pid


def test_a_rootless_container_is_watched_from_outside() -> None:
    # By root where the tests are root, else by the user to whom it belongs.
    with rootless() as pid:
        target = read_target(pid)
        assert target.uid == (UID if os.geteuid() == 0 else os.getuid())
        assert "/ascend-tui-0" in socket_path_inside(target)
        process = watch_and_leave(target)
        assert (process["pid"], process["uid"]) == (1, 0)


@needs_root
def test_a_rootless_container_is_watched_by_its_user_and_then_by_root() -> None:
    with rootless() as pid:
        done = cli_as("attach", str(pid), "--headless", "--json", "--seconds", "2.5", "--tick", "0.1")
        assert done.returncode == 0, done.stderr
        assert strict(done.stdout)[-1]["target"]["state"] == "waiting"
        target = read_target(pid)
        attached = attach(target, name="test", writable=True)
        assert attached.method == "reused"
        attached.client.close()
        (line,) = strict(cli_as("detach", str(pid), "--json").stdout)
        assert line["removed"] is True
        assert until(lambda: not has_shim(target))


@needs_root
def test_a_monitor_in_a_rootless_container_attaches_there() -> None:
    with rootless() as pid:
        spaces = ("--user", "--preserve-credentials", "--mount", "--pid")
        enter = (*AS_USER, "nsenter", f"--target={pid}", *spaces)
        done = cli_as("attach", "1", "--json", "--seconds", "2.5", "--tick", "0.1", prefix=enter)
        assert done.returncode == 0, done.stderr
        assert strict(done.stdout)[-1]["target"]["state"] == "waiting"
        assert attach(read_target(pid), name="test", writable=True).method == "reused"


@needs_root
def test_a_user_of_a_container_with_many_ids_is_reached_by_root_and_by_nobody_else() -> None:
    wait = ("sh", "-c", 'read line && exec "$@"', "-")
    outer = ("setpriv", "--reuid=200000", "--regid=200000", "--clear-groups", "unshare", "--user", *wait)
    inner = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
    command = [*outer, *private("unshare", "--mount"), *inner]
    with mapped(command, "0 200000 65536") as pid:
        target = read_target(pid)
        assert target.uid == 201000
        assert "/ascend-tui-1000" in socket_path_inside(target)
        for prefix in (AS_USER, ("setpriv", "--reuid=201000", "--regid=201000", "--clear-groups")):
            done = cli_as("attach", str(pid), "--json", "--seconds", "2.5", prefix=prefix)
            assert done.returncode == 3
            (line,) = strict(done.stdout)
            assert line["refused"]["code"] == ("other_user" if prefix is AS_USER else "user_namespace")
        assert not has_shim(target)
        assert watch_and_leave(target)["uid"] == 1000


@contextmanager
def mapped(command: list[str], ids: str) -> Iterator[int]:
    """Run a target behind a command that waits, in a new user namespace, until its ids are written."""
    process = subprocess.Popen(
        [*command, public_python(), "-c", UP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "KEEP": ""},
        cwd="/",
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        own = os.readlink("/proc/self/ns/user")
        assert until(lambda: os.readlink(f"/proc/{process.pid}/ns/user") != own)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text(ids)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"
        assert until(lambda: len(threads_of(process.pid)) > 1)
        yield process.pid
    finally:
        end(process.pid)
        process.communicate()


# What the kernel forbids.


def refused(pid: int, prefix: tuple[str, ...]) -> dict[str, str]:
    """Return the refusal that the command line gives behind `prefix`, with nothing done."""
    done = cli_as("attach", str(pid), "--json", "--seconds", "2.5", prefix=prefix)
    assert done.returncode == 3, done.stderr
    (line,) = strict(done.stdout)
    assert not has_shim(read_target(pid))
    return dict(line["refused"])


@needs_root
def test_a_process_that_forbids_inspection_is_reached_by_root_only() -> None:
    code = "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n" + UP
    with box(*AS_USER, code=code, python=public_python()) as pid:
        assert refused(pid, AS_USER)["code"] == "not_dumpable"
        assert watch_and_leave(read_target(pid))["uid"] == UID


@needs_root
def test_a_root_needs_all_capabilities_of_its_target_or_sys_ptrace() -> None:
    # `docker exec` into a --privileged container: both are root, and only one of them is all-powerful.
    with box("setpriv", "--inh-caps=-all", python=public_python()) as pid:
        refusal = refused(pid, DOCKER)
        assert refusal["code"] == "capabilities"
        assert "--privileged" in refusal["next_step"]
    with box(*DOCKER, python=public_python()) as pid:
        done = cli_as("attach", str(pid), "--json", "--seconds", "2.5", prefix=DOCKER)
        assert done.returncode == 0, done.stderr
        assert strict(done.stdout)[-1]["target"]["state"] == "waiting"
    with box(*AS_USER, python=public_python()) as pid:
        assert refused(pid, DOCKER)["code"] == "other_user"


@needs_root
def test_another_users_process_is_listed_and_refused_by_name() -> None:
    with box("setpriv", "--inh-caps=-all", python=public_python()) as pid:
        refusal = refused(pid, AS_USER)
        assert refusal["code"] == "other_user"
        assert f"user id {UID}" in refusal["why"]
        assert cli_as("attach", str(pid), "--dry-run").returncode == 3
        listed = [one for one in strict(cli_as("ps", "--json").stdout) if one["pid"] == pid]
        assert [one["refused"]["code"] for one in listed] == ["other_user"]
        assert listed[0]["user"] == "root"


@needs_root
def test_a_detach_that_may_not_look_does_not_say_that_nothing_is_there() -> None:
    with box("setpriv", "--inh-caps=-all", python=public_python()) as pid:
        attach(read_target(pid), name="test", writable=True).client.close()
        done = cli_as("detach", str(pid), "--json")
        assert done.returncode == 3
        assert strict(done.stdout)[0]["refused"]["code"] == "other_user"
        assert has_shim(read_target(pid))


# What the doctor makes of it.


def checks(text: str) -> dict[str, dict[str, str]]:
    """Return the doctor's findings by name; of two with one name the later, which is the target's."""
    return {line["check"]["name"]: line["check"] for line in strict(text)}


@needs_root
def test_the_doctor_explains_docker_exec_into_a_privileged_container() -> None:
    with box("setpriv", "--inh-caps=-all", python=public_python()) as pid:
        done = cli_as("doctor", str(pid), "--json", prefix=DOCKER)
        assert done.returncode == 1, done.stderr
        found = checks(done.stdout)
        assert found["attach"]["level"] == "error"
        assert "CAP_SYS_PTRACE" in found["capability"]["found"]
        assert "docker exec --privileged" in found["capability"]["advice"]
        found = checks(cli_as("doctor", "--json", prefix=DOCKER).stdout)
        assert "a root without CAP_SYS_PTRACE" in found["capability"]["found"]
        done = cli_as("doctor", str(pid), "--json")
        assert f"you are user id {UID}" in checks(done.stdout)["attach"]["found"]


@needs_root
def test_the_doctor_describes_a_container_from_the_host_and_from_inside() -> None:
    with box(*private(*ALL)) as pid:
        found = checks(cli("doctor", str(pid), "--json").stdout)
        assert found["attach"]["found"] == "nothing stands in the way"
        assert "pid, mount" in found["container"]["found"]
        assert "process 1 in there, 1 deep" in found["container"]["found"]
        assert f"/proc/{pid}/root/tmp/" in found["socket"]["found"]
        inside = ("nsenter", f"--target={pid}", "--mount", "--pid")
        found = checks(cli_as("doctor", "--json", prefix=inside).stdout)
        assert "pid namespace of its own" in found["container"]["found"]


@needs_root
def test_the_doctor_sees_a_tmp_that_is_read_only_before_an_attach_fails_by_it() -> None:
    closed = ("sh", "-c", PRIVATE_TMP.replace("exec", "mount -o remount,ro /tmp; exec"), "-")
    with box(*ALL, *closed) as pid:
        found = checks(cli("doctor", str(pid), "--json").stdout)
        assert found["socket"]["level"] == "error"
        assert "read-only" in found["socket"]["found"]
        refusal = why_not(read_target(pid))
        assert refusal is not None
        assert refusal.code == "no_room"


# Names of containers that share a /tmp.


@needs_root
def test_two_containers_with_one_tmp_are_both_watched() -> None:
    alone = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    with box(*alone) as first, box(*alone) as second:
        targets = [read_target(pid) for pid in (first, second)]
        assert [one.ns_pid for one in targets] == [1, 1]
        clients = [attach(one, name="test", writable=True).client for one in targets]
        assert [client.target.id.pid for client in clients] == [first, second]
        for client in clients:
            client.request("detach")
            client.close()


@needs_root
def test_a_rootless_container_with_the_tmp_of_the_host_does_not_meet_the_root_of_the_host() -> None:
    # Apptainer's --fakeroot: inside it is user 0, and the folder of the real user 0 is there already.
    taken = ("sh", "-c", PRIVATE_TMP.replace("exec", "mkdir -m 700 /tmp/ascend-tui-0; exec"), "-")
    with box("unshare", "--mount", *taken, *AS_USER, "unshare", "-Ur", python=public_python()) as pid:
        assert watch_and_leave(read_target(pid))["uid"] == 0


# What the other user's environment does to us.


@needs_root
def test_a_home_of_somebody_else_is_no_reason_to_fail(tmp_path: Path) -> None:
    # As after `sudo -u`, where HOME stays root's.
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    env = {"HOME": str(closed), "XDG_CONFIG_HOME": str(closed / "config"), "XDG_STATE_HOME": str(closed)}
    with box(*AS_USER, python=public_python()) as pid:
        for words in (["ps", "--json"], ["config"], ["attach", str(pid), "--json", "--seconds", "1"]):
            done = cli_as(*words, env=env)
            assert "Traceback" not in done.stderr
            assert done.returncode == 0, done.stderr
