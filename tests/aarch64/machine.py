"""Build the emulated machine's root from Debian's packages, boot it, and read its results."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

from tests.aarch64.cpio import Archive
from tests.aarch64.machine_marks import END, RESULT

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = ROOT / "build" / "aarch64"

META_KERNEL = "linux-image-arm64"
PACKAGES = (
    "busybox-static", "libbz2-1.0", "libc6", "libcrypt1", "libexpat1", "libffi8", "libgcc-s1", "liblzma5",
    "libpython3.11-minimal", "libpython3.11-stdlib", "libssl3", "libuuid1", "python3.11-minimal", "zlib1g",
)  # fmt: skip
TOOLS = {
    "qemu-system-aarch64": "qemu-system-arm",
    "aarch64-linux-gnu-as": "binutils-aarch64-linux-gnu",
    "aarch64-linux-gnu-ld": "binutils-aarch64-linux-gnu",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
# What the checks need of this checkout; tests/attach for its victims.
CARRIED = ("ascend_tui", "plugins", "tests/attach/victims.py", "tests/aarch64")
GROUP = "ascend_tui.plugins"
INSTALLED = "job/ascend_tui_monitor-0.dist-info"
INIT = b"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /root
/bin/busybox chmod 1777 /tmp
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
hostname aarch64
cd /job
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/job:/job/tests/attach HOME=/root PATH=/bin:/usr/bin
ip link set lo up
python3.11 -m tests.aarch64.inside ARGUMENTS
KEEP
poweroff -f
"""


class MissingError(Exception):
    """Something is not there that the machine is made of; the text says what, why and what to do."""


class Built(NamedTuple):
    """What QEMU boots: the kernel, and the part of the root that does not change."""

    kernel: Path
    base: Path


def build() -> Built:
    """Return the machine's parts, fetched and unpacked where they are not there; raises MissingError."""
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        raise MissingError(
            f"the emulated machine needs {', '.join(missing)}, which is not installed here: "
            f"apt-get install --no-install-recommends {' '.join(missing)}"
        )
    if _rich() is None:
        raise MissingError("the attach by command line needs rich: run this with the Python of `make test`")
    built = Built(CACHE / "vmlinuz", CACHE / "base.cpio.gz")
    if built.base.exists():
        return built
    print("fetching Debian's packages for arm64", file=sys.stderr)
    unpacked = CACHE / "root"
    shutil.rmtree(unpacked, ignore_errors=True)
    for package in _fetch():
        subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True)
    shutil.copy(next((unpacked / "boot").glob("vmlinuz-*")), built.kernel)
    for folder in ("boot", "lib/modules", "usr/share"):
        shutil.rmtree(unpacked / folder, ignore_errors=True)
    draft = built.base.with_suffix(".new")
    with gzip.open(draft, "wb", compresslevel=1) as file:
        archive = Archive(file)
        archive.tree(unpacked)
        archive.close()
    draft.rename(built.base)
    return built


def run(
    built: Built, cpu: str, arguments: Sequence[str], timeout_s: int, keep: bool
) -> Iterator[dict[str, Any]]:
    """Boot, and yield each result the checks print; a machine that ends early is a failed result too."""
    name = cpu.replace(",", "-")
    image, log_path = CACHE / f"image-{name}.gz", CACHE / f"console-{name}.log"
    words = " ".join(f"'{one}'" for one in arguments)
    init = INIT.replace(b"ARGUMENTS", words.encode()).replace(b"KEEP", b"cttyhack sh" if keep else b"")
    with image.open("wb") as file:
        file.write(built.base.read_bytes())
        with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1) as packed:
            _carry(Archive(packed), init)
    # The architecture's own pointer authentication is slow to emulate; any other hash does as well here.
    model = cpu if not cpu.startswith("max") else f"{cpu},pauth-impdef=on"
    command = [
        "qemu-system-aarch64", "-M", "virt", "-cpu", model, "-smp", "2", "-m", "2048",
        "-accel", "tcg,thread=multi", "-nographic", "-nic", "none", "-no-reboot",
        "-kernel", str(built.kernel), "-initrd", str(image),
        "-append", "console=ttyAMA0 quiet panic=-1 rdinit=/init",
    ]  # fmt: skip
    ended = False
    with (
        log_path.open("w") as log,
        subprocess.Popen(
            command,
            stdin=None if keep else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as qemu,
    ):
        alarm = threading.Timer(timeout_s, qemu.kill)
        alarm.start()
        assert qemu.stdout is not None
        try:
            for line in qemu.stdout:
                log.write(line)
                log.flush()
                _, mark, text = line.partition(RESULT)
                if mark:
                    result = json.loads(text)
                    ended = ended or result["name"] == END
                    if result["name"] != END:
                        yield result
                elif keep:
                    print(line, end="", flush=True)
        finally:
            alarm.cancel()
            qemu.kill()
    if not ended:
        yield {
            "name": "the machine",
            "ok": False,
            "count": 0,
            "seconds": 0.0,
            "text": f"ended before its checks; see {os.path.relpath(log_path, ROOT)}",
        }


def _carry(archive: Archive, init: bytes) -> None:
    """Add this checkout's files, the program of the register check, and the machine's first program."""
    for name in CARRIED:
        path = ROOT / name
        # `plugins` has its import name only once it is installed.
        name = name.replace("plugins", "ascend_tui_plugins")
        for one in [path] if path.is_file() else sorted(path.rglob("*")):
            if one.is_file() and "__pycache__" not in one.parts:
                archive.file(
                    os.path.join("job", name, one.relative_to(path)),
                    one.read_bytes(),
                )
    project = (ROOT / "pyproject.toml").read_text()
    plugins = project.partition(f'[project.entry-points."{GROUP}"]')[2].partition("[")[0].replace('"', "")
    archive.file(f"{INSTALLED}/METADATA", b"Name: ascend-tui-monitor\nVersion: 0\n")
    archive.file(f"{INSTALLED}/entry_points.txt", f"[{GROUP}]{plugins}".encode())
    # The command line measures text with it; pure Python, so that of this machine does.
    rich = _rich()
    assert rich is not None
    archive.tree(Path(str(rich.origin)).parent, "job/rich")
    archive.file("job/registers.so", _registers().read_bytes())
    archive.file("init", init, 0o755)
    archive.close()


def _rich() -> ModuleSpec | None:
    return importlib.util.find_spec("rich")


def _registers() -> Path:
    """Assemble the loop that checks every register."""
    source, library = HERE / "registers.S", CACHE / "registers.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        thing = CACHE / "registers.o"
        subprocess.run(["aarch64-linux-gnu-as", "-march=armv8.5-a+sve", "-o", thing, source], check=True)
        subprocess.run(["aarch64-linux-gnu-ld", "-shared", "-o", library, thing], check=True)
    return library


def _fetch() -> list[Path]:
    """Fetch the packages by apt, whose state for arm64 lies in our folder; raises MissingError."""
    for folder in ("state/lists/partial", "cache/archives/partial", "debs"):
        (CACHE / "apt" / folder).mkdir(parents=True, exist_ok=True)
    (CACHE / "apt" / "state" / "status").touch()
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State": str(CACHE / "apt" / "state"),
        "Dir::State::status": str(CACHE / "apt" / "state" / "status"),
        "Dir::Cache": str(CACHE / "apt" / "cache"),
        "APT::Sandbox::User": "",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    debs = CACHE / "apt" / "debs"
    _apt(["apt-get", *words, "update"], debs)
    depends = _apt(["apt-cache", *words, "depends", META_KERNEL], debs)
    kernel = next(line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line)
    for old in debs.glob("*.deb"):
        old.unlink()
    _apt(["apt-get", *words, "download", kernel, *PACKAGES], debs)
    return sorted(debs.glob("*.deb"))


def _apt(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise MissingError(
            f"{command[0]} could not get Debian's packages for arm64 ({why}); it needs Debian's own archive "
            "among its sources, and a way to it"
        )
    return done.stdout
