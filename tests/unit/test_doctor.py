"""The doctor's eyes, on folders and ELF files made here: versions, libraries, variables."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ascend_tui.commands.doctor import lodging, rights
from ascend_tui.commands.doctor.check import Check
from ascend_tui.commands.doctor.loader import Loader
from ascend_tui.commands.doctor.machine import machine
from ascend_tui.commands.doctor.npu import npu
from ascend_tui.commands.doctor.process import process, python_options
from ascend_tui.commands.doctor.subject import Package, Subject
from ascend_tui.commands.doctor.variables import plog, plog_folder, variables
from ascend_tui.inject.elf import DT_NEEDED, DT_RPATH, DT_RUNPATH, SHT_DYNAMIC, Elf
from ascend_tui.target import Refusal, paths, proc, read_target
from ascend_tui.target.environment import read_environ, read_libraries

X86_64, AARCH64 = 0x3E, 0xB7
CANN = ("libhccl.so", "libascendcl.so")


def shared(
    path: Path,
    needed: Sequence[str] = (),
    *,
    rpath: str = "",
    runpath: str = "",
    machine: int = X86_64,
) -> str:
    """Write a shared library that is nothing but its wishes to the loader; return its path."""
    strings, entries = b"\0", b""
    wishes = [(DT_NEEDED, one) for one in needed]
    wishes += [(tag, text) for tag, text in ((DT_RPATH, rpath), (DT_RUNPATH, runpath)) if text]
    for tag, text in wishes:
        entries += struct.pack("<QQ", tag, len(strings))
        strings += text.encode() + b"\0"
    entries += bytes(16)
    at = 64
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 0, SHT_DYNAMIC, 0, 0, at, len(entries), 2, 0, 8, 16)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at + len(entries), len(strings), 0, 0, 1, 0)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, at + len(entries) + len(strings), 0, 64, 56, 0, 64, 3, 0
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + entries + strings + sections)
    return str(path)


# What a library asks for, and what the loader finds.


def test_a_library_names_what_it_needs_and_where_it_looks(tmp_path: Path) -> None:
    path = shared(tmp_path / "x.so", ["liba.so", "libb.so.1"], rpath="$ORIGIN/a::/b", runpath="/c")
    with Elf(path) as elf:
        links = elf.links()
    assert (links.needed, links.rpath, links.runpath) == (
        ("liba.so", "libb.so.1"),
        ("$ORIGIN/a", "/b"),
        ("/c",),
    )


def test_what_is_missing_one_floor_down_is_named_with_who_needs_it(tmp_path: Path) -> None:
    top = shared(tmp_path / "top.so", ["libascendcl.so", "libhccl.so"])
    shared(tmp_path / "cann" / "libascendcl.so", ["libascend_hal.so", "libhccl.so", "top.so"])
    loader = Loader(f"/nowhere:{tmp_path / 'cann'}:", [str(tmp_path)])
    assert loader.missing(top) == {"libhccl.so": "top.so", "libascend_hal.so": "libascendcl.so"}
    assert Loader("").missing(str(tmp_path / "gone.so")) == {}


def test_the_order_is_rpath_then_the_variable_then_runpath(tmp_path: Path) -> None:
    for folder in ("own", "told"):
        shared(tmp_path / folder / "libx.so")
    loader, told = Loader(str(tmp_path / "told")), str(tmp_path / "told" / "libx.so")
    for option, wanted in (("rpath", str(tmp_path / "own" / "libx.so")), ("runpath", told)):
        with Elf(shared(tmp_path / "top.so", ["libx.so"], **{option: "${ORIGIN}/own"})) as elf:
            assert loader.find("libx.so", X86_64, elf.links(), str(tmp_path)) == wanted


def test_a_library_of_another_machine_is_passed_over(tmp_path: Path) -> None:
    shared(tmp_path / "arm" / "libx.so", machine=AARCH64)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "libx.so").write_text("INPUT(-lx)")
    top = shared(tmp_path / "top.so", ["libx.so"])
    loader = Loader(f"{tmp_path / 'arm'}:{tmp_path / 'text'}")
    assert loader.missing(top) == {"libx.so": "top.so"}
    right = shared(tmp_path / "x86" / "libx.so")
    assert Loader(f"{tmp_path / 'arm'}:{tmp_path / 'x86'}").find("libx.so", X86_64) == right


def test_the_cache_and_everything_else_is_read_below_the_targets_root(tmp_path: Path) -> None:
    shared(tmp_path / "opt" / "libx.so.2")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1\0libx.so.2\0/opt/libx.so.2\0")
    loader = Loader("", seen=lambda path: Path(f"{tmp_path}{path}"))
    assert loader.find("libx.so.2") == "/opt/libx.so.2"
    assert loader.find("libc.so.6") is None


def test_this_machines_own_libraries_are_all_found() -> None:
    own = next(one for one in read_libraries(os.getpid()) or () if one.name.startswith("libc.so"))
    loader = Loader("")
    assert loader.find(own.name) is not None
    assert loader.missing(os.path.realpath("/proc/self/exe")) == {}


# torch, torch_npu and CANN.


def installed(site: Path, torch: str = "2.13.0+cpu", torch_npu: str = "2.13.0.post1") -> Subject:
    """Return a subject with packages below `site`; the real metadata reader looks at them."""
    for name, version in (("torch", torch), ("torch_npu", torch_npu)):
        (site / name / "lib").mkdir(parents=True, exist_ok=True)
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    shared(site / "torch_npu" / "lib" / "libtorch_npu.so", [*CANN, "libtorch.so"])
    shared(site / "torch" / "lib" / "libtorch.so")
    return Subject(None, {}, None, Package(torch, site / "torch"), Package(torch_npu, site / "torch_npu"))


def with_environ(subject: Subject, environ: Mapping[str, str] | None) -> Subject:
    return Subject(subject.pid, environ, subject.loaded, subject.torch, subject.torch_npu)


def found(subject: Subject) -> dict[str, Check]:
    return {check.name: check for check in npu(subject)}


@pytest.mark.parametrize(
    ("torch", "torch_npu", "level"),
    [
        ("2.13.0+cpu", "2.13.0", None),
        ("2.1.0", "2.1.0.post13", None),
        ("2.13.0", "2.12.0", "error"),
        ("2.13.1+cpu", "2.13.0", "warning"),
        ("2.13.0a0+gitabc", "2.13.0rc1", None),
        ("", "2.12.0", None),
    ],
)
def test_a_torch_npu_of_another_torch(tmp_path: Path, torch: str, torch_npu: str, level: str | None) -> None:
    subject = Subject(None, {}, None, Package(torch, tmp_path), Package(torch_npu, tmp_path))
    check = found(subject).get("versions")
    assert (check.level if check else None) == level
    if check:
        assert torch_npu in check.found
        assert torch in check.found
        assert "install the torch_npu that belongs to torch 2.13." in check.advice


def test_versions_of_a_process_come_from_beside_the_libraries_it_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "2.13.0+cpu", "2.12.0")
    libraries = [tmp_path / "torch" / "lib" / "libtorch_python.so"]
    monkeypatch.setattr("ascend_tui.commands.doctor.subject.read_libraries", lambda pid: tuple(libraries))
    subject = Subject.of_process(os.getpid())
    assert subject is not None
    checks = found(subject)
    assert "2.12.0 (of the process, which has not loaded it)" in checks["torch_npu"].found
    assert checks["versions"].level == "error"
    libraries += [tmp_path / "torch_npu" / "lib" / "libtorch_npu.so", Path("/cann/lib64/libascendcl.so")]
    subject = Subject.of_process(os.getpid())
    assert subject is not None
    checks = found(subject)
    assert checks["torch_npu"].found == "2.12.0 (of the process)"
    assert checks["CANN"] == Check("CANN", "ok", "loaded from /cann/lib64")


def test_missing_cann_is_an_error_where_import_torch_fails_by_it(tmp_path: Path) -> None:
    subject = installed(tmp_path)
    check = found(subject)["CANN"]
    assert check.level == "error"
    assert "libtorch_npu.so needs libhccl.so, libascendcl.so" in check.found
    assert "`import torch` itself fails" in check.found
    assert "set_env.sh" in check.advice
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in check.advice
    assert "`import torch_npu` fails" in found(installed(tmp_path / "old", "2.4.0", "2.4.0"))["CANN"].found
    checks = found(with_environ(subject, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}))
    assert checks["CANN"].level == "warning"
    assert "`import torch_npu` fails" in checks["CANN"].found
    assert checks["autoload"].level == "warning"
    assert "import torch_npu itself" in checks["autoload"].advice


def test_cann_on_the_path_is_fine_and_its_operators_and_its_driver_are_asked_for(tmp_path: Path) -> None:
    subject = installed(tmp_path)
    cann = tmp_path / "cann" / "lib64"
    for name in CANN:
        shared(cann / name, ["libascend_hal.so"])
    environ = {"LD_LIBRARY_PATH": str(cann), "ASCEND_HOME_PATH": str(cann.parent)}
    check = found(with_environ(subject, environ))["CANN"]
    assert "libascend_hal.so" in check.found
    assert check.advice.startswith("install the Ascend driver")
    shared(cann / "libascend_hal.so")
    check = found(with_environ(subject, environ))["CANN"]
    assert (check.level, "libopapi.so is not found" in check.found) == ("warning", True)
    shared(cann / "libopapi_math.so")
    check = found(with_environ(subject, environ))["CANN"]
    assert (check.level, check.advice) == ("ok", "")
    assert str(cann / "libascendcl.so") in check.found


def test_the_folder_of_cann_is_checked_as_torch_npu_will_check_it(tmp_path: Path) -> None:
    subject, home = installed(tmp_path), tmp_path / "cann"

    def check(environ: Mapping[str, str]) -> Check:
        return found(with_environ(subject, environ))["CANN folder"]

    assert (check({}).level, "not set" in check({}).found) == ("warning", True)
    environ = {"ASCEND_HOME_PATH": str(home)}
    assert check(environ).level == "error"
    assert f"{home}, which does not exist" in check(environ).found
    home.mkdir()
    assert "ASCEND_OPP_PATH is not set" in check(environ).found
    environ["ASCEND_OPP_PATH"] = str(home)
    assert "ASCEND_HOME_PATH/runtime" in check(environ).found
    (home / "runtime").mkdir()
    (home / "compiler").mkdir()
    assert check(environ) == Check("CANN folder", "ok", str(home))


def test_without_torch_npu_nobody_asks_for_cann(tmp_path: Path) -> None:
    subject = Subject(None, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, None, Package("2.13.0", tmp_path), None)
    assert list(found(subject)) == ["torch"]
    assert list(npu(None)) == []


# Variables.


@pytest.mark.parametrize(
    ("environ", "name", "level"),
    [
        ({"PROFILING_MODE": "dynamic"}, "profiler", "warning"),
        ({"PROFILER_SAMPLECONFIG": "{}"}, "profiler", "warning"),
        ({"TORCH_NPU_COMPACT_ERROR_OUTPUT": "1"}, "error text", "warning"),
        ({"PYTORCH_NO_NPU_MEMORY_CACHING": "1"}, "allocator", "warning"),
        ({"PYTORCH_NPU_ALLOC_CONF": "", "PYTORCH_ALLOC_CONF": "x"}, "allocator", "error"),
        ({"ASCEND_LAUNCH_BLOCKING": "1"}, "launch", "warning"),
        ({"INF_NAN_MODE_ENABLE": "0"}, "overflow", "warning"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_variable_that_matters_is_named_with_the_next_step(
    environ: dict[str, str], name: str, level: str
) -> None:
    (check,) = variables(environ)
    assert (check.name, check.level) == (name, level)
    assert next(iter(environ)) in check.found
    assert "unset" in check.advice


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"PROFILING_MODE": ""},
        {"TORCH_NPU_COMPACT_ERROR_OUTPUT": "0", "ASCEND_LAUNCH_BLOCKING": "no"},
        {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"},
        {"INF_NAN_MODE_ENABLE": "1"},
        {"INF_NAN_MODE_ENABLE": "0", "INF_NAN_MODE_FORCE_DISABLE": "1"},
    ],
)
def test_a_variable_that_changes_nothing_is_not_worth_a_line(environ: dict[str, str]) -> None:
    assert list(variables(environ)) == []


def test_where_the_log_files_of_cann_lie_and_when_there_are_none() -> None:
    environ = {"HOME": "/home/me"}
    assert plog(environ).found.startswith("/home/me/ascend/log/debug/plog/")
    environ["ASCEND_WORK_PATH"] = "/scratch/"
    assert plog_folder(environ) == "/scratch/log"
    environ["ASCEND_PROCESS_LOG_PATH"] = "/logs"
    assert plog_folder(environ) == "/logs"
    assert plog(environ).level == "ok"
    for name, value in (
        ("ASCEND_SLOG_PRINT_TO_STDOUT", "1"),
        ("ASCEND_LOG_PRINT_TO_STDOUT", "1"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "4"),
    ):
        check = plog({**environ, name: value})
        assert check.level == "warning"
        assert name in check.found
        assert check.advice


# Another process.


def test_a_process_is_judged_by_the_variables_it_was_started_with() -> None:
    process = subprocess.Popen(["sleep", "60"], env={"ASCEND_LAUNCH_BLOCKING": "1", "EMPTY": "", "A": "b=c"})
    try:
        end = time.monotonic() + 10
        while not read_environ(process.pid) and time.monotonic() < end:
            time.sleep(0.01)  # for a moment after exec the kernel has nothing to show
        assert read_environ(process.pid) == {"ASCEND_LAUNCH_BLOCKING": "1", "EMPTY": "", "A": "b=c"}
        subject = Subject.of_process(process.pid)
        assert subject is not None
        assert found(subject)["launch"].level == "warning"
        assert found(subject)["torch"].found == "not loaded by the process"
    finally:
        process.kill()
        process.wait()
    assert Subject.of_process(process.pid) is None


def test_what_may_not_be_read_is_said_and_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read_environ", "read_libraries"):
        monkeypatch.setattr(f"ascend_tui.commands.doctor.subject.{name}", lambda pid: None)
    subject = Subject.of_process(os.getpid())
    assert subject is not None
    (check,) = npu(subject)
    assert (check.name, check.level) == ("variables", "warning")
    assert "may not read" in check.found
    assert "root" in check.advice


def test_a_library_that_was_replaced_or_has_a_space_in_its_path_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = b"1000-2000 r--p 00000000 08:01 7 /a b/libx.so.1 (deleted)\n"
    maps += b"2000-3000 r-xp 00001000 08:01 7 /a b/libx.so.1 (deleted)\n3000-4000 rw-p 00000000 00:00 0 \n"
    maps += b"4000-5000 rw-p 00000000 00:00 0      [stack]\n5000-6000 r--p 00000000 08:01 8   /lib/liby.so\n"
    monkeypatch.setattr("ascend_tui.target.proc.read_bytes", lambda path: maps)
    assert read_libraries(1) == (Path("/a b/libx.so.1"), Path("/lib/liby.so"))


# Rights.


@pytest.mark.parametrize(
    ("scope", "caps", "level"),
    [
        ("0", "0", "ok"),
        ("1", "0", "warning"),
        ("1", "80000", "ok"),
        ("2", "0", "warning"),
        ("3", "80000", "warning"),
    ],
)
def test_yama_is_judged_by_what_this_process_may_and_not_by_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, caps: str, level: str
) -> None:
    (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(rights, "YAMA", tmp_path / "scope")
    monkeypatch.setattr(proc, "read_status", lambda pid: {"CapEff": caps})
    check = next(rights.own_rights())
    assert (check.name, check.level, check.found) == ("ptrace", level, f"ptrace_scope {scope}")
    assert check.advice


def test_a_root_without_its_capabilities_is_told_how_to_run_in_a_container(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def capability(caps: int, uid: int) -> Check:
        monkeypatch.setattr(proc, "read_status", lambda pid: {"CapEff": f"{caps:x}"})
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        return next(check for check in rights.own_rights() if check.name == "capability")

    check = capability(0xA80425FB, 0)
    assert (check.level, "a root without CAP_SYS_PTRACE:" in check.found) == ("warning", True)
    for words in ("run --cap-add SYS_PTRACE", "exec --privileged", "--profile=sysadmin --target="):
        assert words in check.advice
    assert "without CAP_DAC_OVERRIDE" in capability(1 << 19, 0).found
    assert capability(1 << 19 | 1 << 1, 0).level == "ok"
    check = capability(0, 1000)
    assert (check.level, check.advice) == ("ok", "")
    assert check.found.startswith("user 1000 without")


def test_capabilities_have_their_names_and_the_telling_ones_come_first() -> None:
    assert rights.names(1 | 1 << 19 | 1 << 40 | 1 << 62) == [
        "CHOWN",
        "SYS_PTRACE",
        "CHECKPOINT_RESTORE",
        "62",
    ]
    assert rights.listed(["CHOWN", "SYS_ADMIN"]) == "CAP_SYS_ADMIN, CAP_CHOWN"
    words = rights.listed(rights.names((1 << 41) - 1))
    assert words.endswith(" and 38 more capabilities")
    assert "CAP_SYS_PTRACE" in words


def test_what_a_target_holds_more_is_named_after_a_refusal_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    me = read_target(os.getpid())
    sets = {me.id.pid: {"CapPrm": "80001", "CapEff": "1"}}
    monkeypatch.setattr(proc, "read_status", sets.get)
    (check,) = rights.rights_over(me, "capabilities")
    assert check.level == "warning"
    assert "it has CAP_SYS_PTRACE, and this process has not" in check.found
    assert "docker exec --privileged" in check.advice
    assert list(rights.rights_over(me, "")) == list(rights.rights_over(me, "other_user")) == []


def test_seccomp_and_labels_of_a_target_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    me = read_target(os.getpid())
    labels = {
        f"/proc/{me.id.pid}/attr/current": b"docker-default (enforce)\n",
        "/proc/self/attr/current": b"unconfined\n",
    }
    monkeypatch.setattr(proc, "read_bytes", labels.get)
    monkeypatch.setattr(proc, "read_status", lambda pid: {"Seccomp": "2"})
    seccomp, confined = rights.rights_over(me, "denied")
    assert (seccomp.level, "filter" in seccomp.found) == ("ok", True)
    assert (confined.level, "docker-default (enforce)" in confined.found) == ("warning", True)
    assert "apparmor=unconfined" in confined.advice
    labels["/proc/self/attr/current"] = b"docker-default (enforce)\0"
    monkeypatch.setattr(proc, "read_status", lambda pid: {"Seccomp": "1"})
    (seccomp,) = rights.rights_over(me, "denied")
    assert seccomp.level == "error"


FILTERED = """
import ctypes, os, platform, struct, sys
from ascend_tui.commands.doctor.rights import own_rights
number = {"x86_64": 101, "aarch64": 117}[platform.machine()]
# Load the number of the call; ptrace fails with EPERM, all else is allowed.
rules = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program) == 0
for check in own_rights():
    print(check.name, check.level, check.found, sep="|")
"""


def test_a_seccomp_filter_that_forbids_ptrace_is_found_by_trying() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILTERED], capture_output=True, text=True, timeout=60, check=False
    )
    if "AssertionError" in done.stderr:
        pytest.skip("this kernel takes no seccomp filter")
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert ["ptrace", "error"] in [line[:2] for line in lines], (lines, done.stderr)
    assert any("child of its own (Operation not permitted)" in line[2] for line in lines)
    assert ["seccomp", "ok", "this process runs under a filter, as in a container"] in lines
    if "ptrace_scope 3" not in done.stdout:
        assert not any("child of its own" in check.found for check in rights.own_rights())


# Containers.


def test_a_monitor_in_a_container_is_told_that_it_sees_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"/proc/self/ns/{kind}": name for kind, name in paths.FIRST.items()}
    monkeypatch.setattr(proc, "read_link", names.get)
    assert list(lodging.own_lodging()) == []
    names["/proc/self/ns/pid"] = "pid:[4026532177]"
    (check,) = lodging.own_lodging()
    assert (check.level, "(pid namespace of its own)" in check.found) == ("ok", True)
    assert "as root on the host" in check.advice


def test_a_process_that_lives_elsewhere_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    me, real = read_target(os.getpid()), proc.read_link
    names = {f"/proc/{me.id.pid}/ns/{kind}": f"{kind}:[1]" for kind in ("pid", "mnt", "user")}
    names[f"/proc/{me.id.pid}/root"] = "/srv/jail"
    monkeypatch.setattr(proc, "read_link", lambda path: names.get(path) or real(path))
    monkeypatch.setattr(proc, "read_status", lambda pid: {"NSpid": f"{pid} 77 5"})
    monkeypatch.setattr(lodging, "room", lambda target, name: Check(name, "ok", ""))
    container, socket = lodging.lodging(me)
    assert "other namespaces: pid, mount, user; root directory /srv/jail" in container.found
    assert "2 deep" in container.found
    assert socket.name == "socket"


def test_a_tmp_without_room_is_an_error_and_a_full_one_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    me = read_target(os.getpid())
    assert lodging.room(me) == Check("/tmp", "ok", "writable")
    usage = lodging.shutil.disk_usage("/tmp")._replace(free=0)
    monkeypatch.setattr(lodging.shutil, "disk_usage", lambda path: usage)
    check = lodging.room(me)
    assert (check.level, "full" in check.found, bool(check.advice)) == ("warning", True, True)
    refusal = Refusal("no_room", "?", "its {folder} is full", "Empty {folder}", (("folder", "/tmp/x"),))
    monkeypatch.setattr(lodging, "no_room", lambda target: refusal)
    assert lodging.room(me) == Check("/tmp", "error", "its /tmp/x is full", "Empty /tmp/x")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("python train.py -S", ""),
        ("python -u -X dev -Wignore train.py -I", "uXW"),
        ("python -uE -m torch.distributed.run -S", "uEm"),
        ("python -Ic pass", "Ic"),
        ("python --check-hash-based-pycs never -S x.py", "S"),
        ("python -", ""),
        ("python", ""),
    ],
)
def test_the_options_of_an_interpreter_end_where_its_program_begins(words: str, options: str) -> None:
    assert python_options(words.split()) == set(options)


@pytest.mark.parametrize(
    ("option", "level"), [("-u", "ok"), ("-I", "warning"), ("-E", "warning"), ("-S", "warning")]
)
def test_whether_the_shim_can_be_there_from_the_start_is_said(option: str, level: str) -> None:
    command = [sys.executable, option, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"\n"
        checks = {check.name: check for check in process(running.pid)}
        running.kill()
    assert checks["process"].level == "ok"
    assert checks["start"].level == level
    assert (f"-{option[1]}" in checks["start"].found) == (level == "warning")


def test_of_what_is_no_target_nothing_more_is_said() -> None:
    assert [check.name for check in process(os.getpid())] == ["process", "attach"]


def test_helpers_for_a_hung_process_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def helpers() -> Check:
        return next(check for check in machine() if check.name == "helpers")

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(rights, "_refused_by_a_child", lambda: "")
    assert helpers().found == "py-spy is not here, gdb is not here"
    assert "pip install py-spy" in helpers().advice
    (tmp_path / "py-spy").touch(mode=0o755)
    assert (helpers().found, helpers().advice) == ("py-spy is here, gdb is not here", "")
