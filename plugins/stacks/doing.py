"""What the main thread does, in one sentence, from its frames and the kernel's word."""

from __future__ import annotations

import re
from typing import Optional

from ascend_tui.plugin import Message

from .snapshot import StackFrame, ThreadStack

Said = tuple[Message, Optional[Message]]
"""What is seen, and what is likely behind it."""

COLLECTIVES = ("wait", "barrier", "allreduce", "broadcast", "allgather", "alltoall", "reduce_scatter")
FROM_DEVICE = ("item", "cpu", "tolist", "numpy", "synchronize")
LOADER = ("_try_get_data", "_get_data", "_next_data")
COLLECTIVE_FILES = ("/torch/distributed/", "/torch/nn/parallel/distributed.py")
# Not whole folders: their other files are on the stack of a compiled model that only runs.
COMPILERS = ("/torch/_dynamo/convert_frame.py", "/torch/_inductor/async_compile.py", "/triton/compiler/")
DEVICES = ("/torch/npu/", "/torch_npu/", "/torch/cuda/")

# Files of Python itself and of torch: a user looks for the place in the training that led there.
_NOT_THE_TRAINING = re.compile(
    r"/lib(64)?/python3[^/]*/(?!site-packages/|dist-packages/)"
    r"|/(site|dist)-packages/(torch|torch_npu|triton|torchair)/"
    r"|^<frozen |^<ascend-tui"
)
_WORKERS = Message("likely its workers deliver nothing: they wait themselves, or have ended")
_OTHER_RANK = Message("likely another rank is the one that stands still; compare the ranks")
_DEVICE = Message("likely a kernel on the device does not end, or a collective waits for another rank")
_STATE_D = Message("a disk or a network file system that does not answer, or the driver")
_BY_KERNEL = {
    "lock": Message("main waits for a lock or another thread, in {place}"),
    "sleep": Message("main sleeps, in {place}"),
    "network": Message("main waits for data from a socket, in {place}"),
    "pipe": Message("main waits at a pipe, in {place}"),
    "poll": Message("main waits until there is something to read, in {place}"),
    "process": Message("main waits for another process to end, in {place}"),
    "driver": Message("main waits in a call of a driver (ioctl), in {place}"),
    "disk": Message("main waits in the kernel and cannot be interrupted, in {place}"),
    "runs": Message("main computes and does not leave the line, in {place}"),
}


def doing(main: ThreadStack, is_still: bool) -> Said:
    """Say what the main thread does, and what is likely the cause where it stands still."""
    place = place_of(main.frames)
    said = _phase(main, place)
    if said is None and is_still:
        said = _in_torch(main, place) or _in_kernel(main, place)
    return said or (Message.of("main is in {place}", place=place), None)


def place_of(frames: tuple[StackFrame, ...]) -> str:
    """Return the innermost call that is neither Python's nor torch's, as people name it."""
    inner = next((one for one in frames if not _NOT_THE_TRAINING.search(one.file)), None)
    frame = inner or (frames[0] if frames else None)
    if frame is None:
        return "?"
    return f"{frame.function.rpartition('.')[2]} ({frame.file.rpartition('/')[2]}:{frame.line or '?'})"


def _phase(main: ThreadStack, place: str) -> Said | None:
    """Return what a training does now and then, and no step ends meanwhile."""
    if any(mark in frame.file for frame in main.frames for mark in COMPILERS):
        return Message.of("main compiles, called from {place}", place=place), None
    if _near(main, ("_find_and_load", "_load_unlocked"), ("<frozen importlib",)):
        return Message.of("main imports a module, called from {place}", place=place), None
    return None


def _in_torch(main: ThreadStack, place: str) -> Said | None:
    loads = _near(main, LOADER, ("/torch/utils/data/",))
    if loads is not None and main.does != "runs":
        return Message.of("main waits for the data loader, in {place}", place=place), _WORKERS
    joins = _near(main, (), COLLECTIVE_FILES)
    name = joins.function.rpartition(".")[2] if joins else main.called
    # A wait of Python's own has frames; one that is called directly is a wait of a C++ object.
    if joins is not None or (name in COLLECTIVES and main.does != "process"):
        words = Message.of("main waits in a collective ({name}), in {place}", name=name, place=place)
        return words, _OTHER_RANK
    waits = _near(main, ("synchronize",), DEVICES)
    if waits is not None or main.called in FROM_DEVICE:
        name = waits.function if waits else main.called
        return Message.of("main waits for the device ({name}), in {place}", name=name, place=place), _DEVICE
    if _near(main, ("_engine_run_backward",), ("/torch/autograd/",)) and main.does != "runs":
        return Message.of("main waits in the backward pass, in {place}", place=place), _DEVICE
    return None


def _in_kernel(main: ThreadStack, place: str) -> Said:
    word = main.does or "unknown"
    if word == "unknown" and main.called in ("acquire", "with"):
        word = "lock"
    known = _BY_KERNEL.get(word)
    if known is None:
        return Message.of("main stands in native code, called from {place}", place=place), None
    return Message.of(known.text, place=place), _STATE_D if word == "disk" else None


def _near(main: ThreadStack, names: tuple[str, ...], places: tuple[str, ...]) -> StackFrame | None:
    """Return the innermost frame of one of these names (any, where there are none) in one of these files.

    Looked for only below what the training called last: a library further out waits for the training.
    """
    for frame in main.frames:
        if not _NOT_THE_TRAINING.search(frame.file):
            break
        if any(one in frame.file for one in places):
            name = frame.function.rpartition(".")[2]
            if not names or name in names:
                return frame
    return None
