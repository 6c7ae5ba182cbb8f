"""CANN: are its libraries in the loader's reach, and is its folder where the variables say?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from ascend_tui.commands.doctor.check import Check
from ascend_tui.commands.doctor.loader import Loader
from ascend_tui.commands.doctor.subject import Subject

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
AUTOLOADS = (2, 5)
"""The first torch whose import loads torch_npu."""
# torch_npu opens it by name at the first operator, so that no NEEDED entry tells of it.
OPERATORS = "libopapi.so"
# They come with the driver of the host, not with CANN; a container has them only when they are mounted.
DRIVER = ("libascend_hal", "libdrv", "libdcmi", "libdsmi")
SET_ENV = (
    "/usr/local/Ascend/ascend-toolkit/set_env.sh",
    "/usr/local/Ascend/cann/set_env.sh",
    "~/Ascend/ascend-toolkit/set_env.sh",
    "~/Ascend/cann/set_env.sh",
)


def cann(subject: Subject) -> Iterator[Check]:
    """Check the libraries and the folder; without torch_npu nothing asks for CANN."""
    if subject.torch_npu is None:
        return
    if subject.npu_loaded:
        # It would not be there with one of its libraries missing.
        acl = next((one for one in subject.loaded or () if one.name == "libascendcl.so"), None)
        yield Check("CANN", "ok", f"loaded from {acl.parent}" if acl is not None else "loaded")
    elif subject.environ is not None:
        yield _libraries(subject, subject.environ)
    if subject.environ is not None:
        yield from _folder(subject, subject.environ)


def _imports_torch_npu(subject: Subject, environ: Mapping[str, str]) -> bool:
    """Tell whether `import torch` loads torch_npu too, as torch itself decides it."""
    release = subject.torch.release if subject.torch is not None else ()
    return environ.get(AUTOLOAD, "1") == "1" and (not release or release >= AUTOLOADS)


def _libraries(subject: Subject, environ: Mapping[str, str]) -> Check:
    torch = [] if subject.torch is None else [str(subject.torch.folder / "lib")]
    loader = Loader(environ.get("LD_LIBRARY_PATH", ""), torch, subject.seen)
    missing = loader.missing(str(subject.npu_library))
    if not missing:
        if _operators(loader, subject, environ):
            return Check("CANN", "ok", f"all libraries are found; {loader.find('libascendcl.so')}")
        found = f"{OPERATORS} is not found: no operator would run on the NPU"
        return Check("CANN", "warning", found, _advice(subject))
    needing: dict[str, list[str]] = {}
    for name, by in missing.items():
        needing.setdefault(by, []).append(name)
    found = "; ".join(f"{by} needs {', '.join(names)}" for by, names in needing.items())
    found += ": not found by the loader, so "
    if _imports_torch_npu(subject, environ):
        advice = f"{_advice(subject, missing)}; without an NPU: export {AUTOLOAD}=0"
        return Check("CANN", "error", found + "`import torch` itself fails", advice)
    return Check("CANN", "warning", found + "`import torch_npu` fails", _advice(subject, missing))


def _operators(loader: Loader, subject: Subject, environ: Mapping[str, str]) -> bool:
    """Tell whether the operators are found: in one library, with newer CANN in several below its folder."""
    home = environ.get("ASCEND_HOME_PATH")
    return loader.find(OPERATORS) is not None or (
        bool(home) and any(subject.seen(f"{home}/lib64").glob("libopapi_*.so"))
    )


def _advice(subject: Subject, missing: Mapping[str, str] | None = None) -> str:
    """Name the file to source, where it lies when it is there."""
    if missing and all(name.startswith(DRIVER) for name in missing):
        return "install the Ascend driver; in a container mount /usr/local/Ascend/driver from the host"
    present = (one for one in map(os.path.expanduser, SET_ENV) if os.path.exists(subject.seen(one)))
    return f"source {next(present, '<cann>/set_env.sh')} in the shell that starts the training"


def _folder(subject: Subject, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check what torch_npu checks when it is imported (its _cann_package_check): there it raises."""
    home = environ.get("ASCEND_HOME_PATH")
    if home is None:
        yield Check(
            "CANN folder",
            "warning",
            "ASCEND_HOME_PATH is not set; torch_npu's profiler and compiler look for CANN there",
            _advice(subject),
        )
        return
    places = {"ASCEND_HOME_PATH": home, "ASCEND_OPP_PATH": environ.get("ASCEND_OPP_PATH")}
    places |= {f"ASCEND_HOME_PATH/{name}": f"{home}/{name}" for name in ("runtime", "compiler")}
    for name, path in places.items():
        if path is None or not os.path.exists(subject.seen(path)):
            found = f"{name} is not set" if path is None else f"{name} is {path}, which does not exist"
            yield Check("CANN folder", "error", f"{found}: `import torch_npu` fails", _advice(subject))
            return
    yield Check("CANN folder", "ok", home)
