"""What the NPU checks look at: this Python and this shell, or a running process."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from ascend_tui.frozen import frozen
from ascend_tui.target import paths
from ascend_tui.target.environment import read_environ, read_libraries
from ascend_tui.target.versions import LIBRARIES

_NPU = "libtorch_npu.so"


@frozen
class Package:
    """torch or torch_npu: its version, and its folder as its process sees it."""

    version: str
    folder: Path

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers, (2, 13, 0) of "2.13.0.post2" and of "2.13.0+cpu"; () of what is no version."""
        found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", self.version)
        return tuple(int(one or 0) for one in found.groups()) if found else ()


@frozen
class Subject:
    """Versions, variables and libraries; nothing of it is imported or loaded here.

    `pid` is None for this Python. `environ` is None where it may not be read; `loaded` are the libraries of
    a process, None for this Python and where they may not be read.
    """

    pid: int | None
    environ: Mapping[str, str] | None
    loaded: tuple[Path, ...] | None
    torch: Package | None
    torch_npu: Package | None

    @staticmethod
    def of_this_python() -> Subject:
        """Return what a training of this Python, started in this shell, would have."""
        torch, torch_npu = (_found(_folder_here(name)) for name in ("torch", "torch_npu"))
        return Subject(None, dict(os.environ), None, torch, torch_npu)

    @staticmethod
    def of_process(pid: int) -> Subject | None:
        """Return what a process has, or None when there is none; a package that it did not load is looked for
        beside its torch."""
        if not os.path.exists(f"/proc/{pid}"):
            return None
        mapped = read_libraries(pid)
        loaded = None if mapped is None else tuple(Path(paths.named_inside(pid, str(one))) for one in mapped)
        torch = next((_package_of(one) for one in loaded or () if one.name in LIBRARIES["torch"]), None)
        torch_npu = next((_package_of(one) for one in loaded or () if one.name == _NPU), None)
        if torch_npu is None and torch is not None:
            torch_npu = torch.parent / "torch_npu"
        return Subject(pid, read_environ(pid), loaded, _found(torch, pid), _found(torch_npu, pid))

    @property
    def npu_library(self) -> Path | None:
        """The library that needs CANN, or None without torch_npu."""
        return None if self.torch_npu is None else self.torch_npu.folder / "lib" / _NPU

    @property
    def npu_loaded(self) -> bool:
        """Whether the process has loaded torch_npu."""
        return self.loaded is not None and any(one.name == _NPU for one in self.loaded)

    def seen(self, path: str) -> Path:
        """Return where a path of the subject is found from here."""
        return Path(path) if self.pid is None else paths.seen_from_here(self.pid, path)


def _folder_here(name: str) -> Path | None:
    # For a name without dots nothing is imported.
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _package_of(library: Path) -> Path:
    return library.parent.parent


def _found(folder: Path | None, pid: int | None = None) -> Package | None:
    """Return a package with the version in the metadata beside it; a build in its source tree has none."""
    if folder is None:
        return None
    here = folder if pid is None else paths.seen_from_here(pid, str(folder))
    # Not Path.is_dir(): before Python 3.14 it raises where this user may not look.
    if not os.path.isdir(here):
        return None
    versions = [one.version for one in metadata.distributions(name=folder.name, path=[str(here.parent)])]
    return Package(versions[0] if versions else "", folder)
