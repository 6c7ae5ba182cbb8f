"""Compile the simulated CANN, once for each state of its sources, torch and torch_npu.

    python -m tests.cann_sim.build       # where it cannot be built this says why, and that is no error

What it makes looks like an installed CANN just enough for torch_npu: a folder `home` with lib64, opp,
runtime and compiler.  It lies in build/cann_sim/KEY of the checkout, and beside it each object by a key of
its own, so that a change compiles no more than it has to.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from tests.cann_sim.symbols import operators, others

HERE = Path(__file__).parent
RUNTIME = HERE / "src" / "runtime"
KERNELS = HERE / "src" / "kernels"
CACHE = HERE.parents[1] / "build" / "cann_sim"
# dlsym on a library also searches those it is linked to, so all others can be empty.
EMPTY = (
    "hccl",
    "acl_op_compiler",
    "ge_runner",
    "graph",
    "acl_tdt_channel",
    "runtime",
    "msprofiler",
    "ascend_hal",
    "mspti",
)
FLAGS = ("-c", "-fPIC", "-O1", "-std=c++20", "-Wall", f"-I{RUNTIME}", f"-I{KERNELS}")


class BuildError(Exception):
    """The compiler refused something; the text is what it said."""


def why_not() -> str | None:
    """Return why the simulator cannot be built here, or None."""
    for name in ("torch", "torch_npu"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    for tool in ("g++", "gcc", "nm"):
        if shutil.which(tool) is None:
            return f"no {tool} on this machine"
    return None


def folder_of(package: str) -> Path:
    """Return where a package lies, without importing it: as long as CANN is missing that fails."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def build() -> Path:
    """Return the folder of the built simulator, built first where it is not there; raises BuildError."""
    done = CACHE / _key(_sources())
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            draft = Path(tempfile.mkdtemp(dir=CACHE))
            try:
                _make(draft)
                draft.rename(done)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return done


def _sources() -> list[Path]:
    return sorted([*HERE.glob("src/*/*"), HERE / "build.py", HERE / "symbols.py"])


def _key(paths: Iterable[Path]) -> str:
    """Return a name for these files together with what they are compiled by and against."""
    told = hashlib.sha256()
    for name in ("torch", "torch_npu"):
        told.update(f"{name} {version(name)} {folder_of(name)}\n".encode())
    told.update(subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout)
    told.update(" ".join(FLAGS).encode())
    for path in paths:
        told.update(path.name.encode() + path.read_bytes())
    return told.hexdigest()[:16]


def _make(folder: Path) -> None:
    torch, torch_npu = folder_of("torch"), folder_of("torch_npu")
    acl = ("-isystem", str(torch_npu / "include" / "third_party" / "acl" / "inc"))
    aten = ("-isystem", str(torch / "include"))
    lib64 = folder / "home" / "lib64"
    for name in ("lib64", "opp", "runtime", "compiler"):
        (folder / "home" / name).mkdir(parents=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # Largest first: the kernels take nearly all of the time.
        kernels = [pool.submit(_compile, group, *acl, *aten) for group in _groups(os.cpu_count() or 1)]
        runtime = [pool.submit(_compile, [path], *acl) for path in sorted(RUNTIME.glob("*.cpp"))]
        objects = [one.result() for one in runtime]
        objects.append(_generate(folder / "others.c", others(torch_npu, objects)))
        parts = [one.result() for one in kernels]
        parts.append(_generate(folder / "operators.c", operators(torch_npu)))
    _link(lib64 / "libascendcl.so", *map(str, objects))
    for name in EMPTY:
        _link(lib64 / f"lib{name}.so", "-Wl,--no-as-needed", f"-L{lib64}", "-lascendcl")
    _link(
        lib64 / "libopapi.so",
        *map(str, parts),
        f"-L{torch / 'lib'}",
        "-ltorch_cpu",
        "-lc10",
        f"-L{lib64}",
        "-lascendcl",
    )
    for path in folder.glob("*.*"):
        path.unlink()


def _groups(count: int) -> list[list[Path]]:
    """Return the kernels in `count` groups of about one size: the headers of ATen cost 9 s a compilation."""
    groups: list[list[Path]] = [[] for _ in range(count)]
    for path in sorted(KERNELS.glob("*.cpp"), key=lambda one: -one.stat().st_size):
        min(groups, key=lambda group: sum(one.stat().st_size for one in group)).append(path)
    return [group for group in groups if group]


def _compile(sources: Sequence[Path], *flags: str) -> Path:
    """Compile several files as one; return the object, an old one where nothing has changed."""
    target = CACHE / "objects" / f"{_key([*sources, *sorted(HERE.glob('src/*/*.h'))])}.o"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        text = "".join(f'#include "{one}"\n' for one in sources)
        draft = target.with_suffix(".new")
        _run("g++", *FLAGS, *flags, "-x", "c++", "-", "-o", str(draft), text=text)
        draft.rename(target)
    return target


def _generate(source: Path, text: str) -> Path:
    source.write_text(text)
    target = source.with_suffix(".o")
    _run("gcc", "-c", "-fPIC", str(source), "-o", str(target))
    return target


def _link(target: Path, *arguments: str) -> None:
    _run("g++", "-shared", "-o", str(target), *arguments)


def _run(*command: str, text: str = "") -> None:
    told = subprocess.run(command, input=text, capture_output=True, text=True)
    if told.returncode:
        raise BuildError(f"{_short(command)}\n{text}{told.stderr}")


def _short(command: Sequence[str]) -> str:
    return " ".join(part for part in command if not part.startswith("-"))


if __name__ == "__main__":
    reason = why_not()
    print(f"no simulated NPU: {reason}" if reason else build())
