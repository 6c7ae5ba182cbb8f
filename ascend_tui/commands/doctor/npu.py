"""torch and torch_npu: do they belong together, and would torch_npu be loaded?"""

from __future__ import annotations

from collections.abc import Iterator

from ascend_tui.commands.doctor.cann import AUTOLOAD, cann
from ascend_tui.commands.doctor.check import Check
from ascend_tui.commands.doctor.subject import Subject
from ascend_tui.commands.doctor.variables import plog, variables


def npu(subject: Subject | None) -> Iterator[Check]:
    """Check what stands between a training and its NPU."""
    if subject is None:
        return
    yield from _versions(subject)
    yield from cann(subject)
    yield from _autoload(subject)
    if subject.environ is None:
        yield Check(
            "variables",
            "warning",
            "this user may not read the environment of the process",
            "run doctor as the user of the process, or as root",
        )
        return
    if subject.torch_npu is not None:
        yield plog(subject.environ)
    yield from variables(subject.environ)


def _versions(subject: Subject) -> Iterator[Check]:
    torch, torch_npu = subject.torch, subject.torch_npu
    whose = "of this Python; a training may have another" if subject.pid is None else "of the process"
    if torch is not None:
        yield Check("torch", "ok", f"{torch.version or 'of unknown version'} ({whose})")
    elif subject.loaded is not None:
        yield Check("torch", "ok", "not loaded by the process")
    if torch_npu is None:
        return
    whose += "" if subject.pid is None or subject.npu_loaded else ", which has not loaded it"
    yield Check("torch_npu", "ok", f"{torch_npu.version or 'of unknown version'} ({whose})")
    if torch is None:
        return
    ours, wanted = torch.release, torch_npu.release
    if ours and wanted and ours != wanted:
        yield Check(
            "versions",
            # torch_npu asks for the same patch release too, but it is the minor one that breaks its C++.
            "error" if ours[:2] != wanted[:2] else "warning",
            f"torch_npu {torch_npu.version} belongs to torch {_dots(wanted)}, here is torch {torch.version}",
            f"install the torch_npu that belongs to torch {_dots(ours)}, or torch {_dots(wanted)}",
        )


def _dots(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _autoload(subject: Subject) -> Iterator[Check]:
    if subject.environ is None or subject.torch_npu is None or subject.npu_loaded:
        return
    value = subject.environ.get(AUTOLOAD, "1")
    if value != "1":
        yield Check(
            "autoload",
            "warning",
            f"{AUTOLOAD}={value}: `import torch` does not load torch_npu",
            f"unset {AUTOLOAD} where the training shall use the NPU, or let it import torch_npu itself",
        )
