"""Where a target's files lie and what its numbers mean here, on folders and /proc texts made for it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ascend_tui.target import Target, paths, proc, read_target, socket_path, socket_path_inside
from ascend_tui.target.paths import named_inside, no_room, seen_from_here, started_then


@pytest.fixture
def me() -> Target:
    return read_target(os.getpid())


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the root directory of this very process, as /proc would have it."""
    real = proc.read_link
    answers = {f"/proc/{os.getpid()}/ns/mnt": "mnt:[1]", f"/proc/{os.getpid()}/root": "/"}
    monkeypatch.setattr(proc, "read_link", lambda path: answers.get(path) or real(path))
    inside = paths._below
    monkeypatch.setattr(paths, "_below", lambda root, path: inside(str(tmp_path), path))
    return tmp_path


@pytest.mark.parametrize(
    ("link", "leads_to"),
    [
        ("/scratch/tmp", "scratch/tmp"),
        ("scratch/tmp", "scratch/tmp"),
        ("../../../scratch/./tmp/", "scratch/tmp"),
        ("/hop", "scratch/tmp"),
        ("/nowhere", "nowhere"),
    ],
)
def test_a_link_for_tmp_is_followed_inside_the_container(container: Path, link: str, leads_to: str) -> None:
    (container / "scratch" / "tmp").mkdir(parents=True)
    (container / "hop").symlink_to("/scratch/tmp")
    (container / "tmp").symlink_to(link)
    found = seen_from_here(os.getpid(), "/tmp/a/1.sock")
    assert found == container / leads_to / "a" / "1.sock"


def test_links_in_a_circle_end(container: Path) -> None:
    (container / "tmp").symlink_to("/tmp")
    assert seen_from_here(os.getpid(), "/tmp/x") == container / "tmp" / "x"


def test_without_a_container_a_path_is_itself() -> None:
    assert seen_from_here(os.getpid(), "/tmp/x") == Path("/tmp/x")


def test_the_socket_in_a_container_is_where_its_link_leads(container: Path, me: Target) -> None:
    (container / "tmp").symlink_to("/var/tmp")
    inside = socket_path_inside(me).replace("/tmp/", "var/tmp/", 1)
    assert socket_path(me) == container / inside


def test_a_mapped_file_in_a_chroot_has_the_name_that_its_process_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = {"/proc/7/root": "/srv/jail", "/proc/self/root": "/"}
    monkeypatch.setattr(proc, "read_link", root.get)
    assert named_inside(7, "/srv/jail/usr/lib/libx.so") == "/usr/lib/libx.so"
    assert named_inside(7, "/srv/jailer/libx.so") == "/srv/jailer/libx.so"
    root["/proc/7/root"] = "/"
    assert named_inside(7, "/srv/jail/usr/lib/libx.so") == "/srv/jail/usr/lib/libx.so"
    assert named_inside(8, "/lib/x.so") == "/lib/x.so"
    root.update({"/proc/7/root": "/srv/jail", "/proc/self/root": "/srv/jail"})
    assert named_inside(7, "/usr/lib/libx.so") == "/usr/lib/libx.so"


# The clock of a time namespace.


def test_a_start_time_is_compared_tick_by_tick_where_the_clock_is_one(me: Target) -> None:
    ticks = me.id.start_ticks
    assert started_then(me, ticks)
    assert not any(started_then(me, other) for other in (ticks + 1, ticks - 1, None, str(ticks)))


@pytest.mark.parametrize(("ours", "ahead_s"), [((0, 0), 1000), ((1000, 0), 0), ((0, 5000000), 1000)])
def test_a_start_time_of_another_time_namespace_is_shifted(
    me: Target, monkeypatch: pytest.MonkeyPatch, ours: tuple[int, int], ahead_s: int
) -> None:
    other = dataclasses.replace(me, id=dataclasses.replace(me.id, pid=7))
    texts = {
        "/proc/7/timens_offsets": b"monotonic           5         0\nboottime         1000         0\n",
        "/proc/self/timens_offsets": b"monotonic  0 0\nboottime %d %d\n" % ours,
    }
    monkeypatch.setattr(proc, "read_bytes", texts.get)
    monkeypatch.setattr(proc, "read_link", lambda path: f"time:[{path}]")
    ticks = me.id.start_ticks + ahead_s * os.sysconf("SC_CLK_TCK")
    assert started_then(other, ticks)
    assert not started_then(other, ticks + 3)
    texts.clear()  # a kernel without them has no such namespaces
    assert started_then(other, me.id.start_ticks)


# Is there room for the socket?


def usual_tmp(container: Path) -> None:
    (container / "tmp").mkdir()
    (container / "tmp").chmod(0o1777)


def code_and_why(target: Target) -> tuple[str, str]:
    refusal = no_room(target)
    assert refusal is not None
    assert "{" not in refusal.english()
    return refusal.code, refusal.why


def test_a_usual_tmp_has_room(container: Path, me: Target) -> None:
    usual_tmp(container)
    assert no_room(me) is None
    folder = socket_path(me).parent
    folder.mkdir(mode=0o700)
    assert no_room(me) is None


def test_no_tmp_and_what_lies_in_the_way_are_told(container: Path, me: Target) -> None:
    assert code_and_why(me) == ("no_room", "it has no /tmp, where the socket of the shim belongs")
    usual_tmp(container)
    folder = socket_path(me).parent
    folder.write_text("")
    assert "no directory of its own user" in code_and_why(me)[1]
    folder.unlink()
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)
    assert "no directory of its own user" in code_and_why(me)[1]
    folder.chmod(0o700)
    strange = dataclasses.replace(me, uid=me.uid + 1)
    assert no_room(strange) is None  # its folder has another name
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
        assert "no directory of its own user" in code_and_why(me)[1]


def test_a_tmp_that_only_its_owner_may_write_to_has_no_room_for_others(
    container: Path, me: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    (container / "tmp").mkdir()
    (container / "tmp").chmod(0o755)
    monkeypatch.setattr(proc, "read_status", lambda pid: {"CapEff": "0"})
    assert no_room(me) is None
    stranger = dataclasses.replace(me, uid=me.uid + 1)
    assert "may not write" in code_and_why(stranger)[1]
    # Whether a group or an access list lets it in cannot be seen from here.
    (container / "tmp").chmod(0o775)
    assert no_room(stranger) is None
    (container / "tmp").chmod(0o555)
    assert "may not write" in code_and_why(me)[1]
    monkeypatch.setattr(proc, "read_status", lambda pid: {"CapEff": "2"})
    assert no_room(me) is None


FILL = """
import os, subprocess, sys
from ascend_tui.target import read_target
from ascend_tui.target.paths import no_room
subprocess.run(["mount", "-t", "tmpfs", "-o", sys.argv[1], "tmpfs", "/tmp"], check=True)
try:
    for number in range(9):
        open(f"/tmp/{number}", "w").close()
except OSError:
    print(no_room(read_target(os.getpid())).english())
"""


@pytest.mark.parametrize(
    ("options", "why"), [("ro", "its /tmp is read-only"), ("nr_inodes=3", "no room for one more file")]
)
def test_a_read_only_and_a_full_tmp_are_told(options: str, why: str) -> None:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", "--mount", *user, sys.executable, "-c", FILL, options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.stderr.startswith("unshare") or "returned non-zero" in done.stderr:
        pytest.skip(f"this machine does not allow a mount: {done.stderr.splitlines()[-1]}")
    assert why in done.stdout, done.stderr
