"""Which torch and torch_npu a process has loaded: read from files beside its libraries, never imported."""

from __future__ import annotations

import re
from pathlib import Path

from ascend_tui.target.environment import read_libraries
from ascend_tui.target.paths import seen_from_here

LIBRARIES = {
    "torch": ("libtorch_python.so", "libtorch_cpu.so", "libtorch.so"),
    "torch_npu": ("libtorch_npu.so",),
}
_VERSION = re.compile(r"__version__(?:\s*:\s*\w+)?\s*=\s*['\"]([^'\"\n]{1,60})['\"]")
_MOST_BYTES = 1 << 16


def torch_versions(pid: int) -> dict[str, str]:
    """Return the versions of torch and torch_npu in `pid`, by package; what cannot be read is left out."""
    loaded = read_libraries(pid) or ()
    found = {}
    for name, libraries in LIBRARIES.items():
        # The package is the folder above lib/, as the process sees it: it may be a container's.
        folder = next((one.parent.parent for one in loaded if one.name in libraries), None)
        version = version_in(seen_from_here(pid, str(folder))) if folder is not None else ""
        if version:
            found[name] = version
    return found


def version_in(folder: Path) -> str:
    """Return the version in the package's version.py, which its build writes; empty where there is none."""
    try:
        with (folder / "version.py").open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    match = _VERSION.search(text)
    return match.group(1) if match else ""
