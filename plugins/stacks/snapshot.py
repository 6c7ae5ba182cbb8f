"""What the stacks plugin knows at one moment: the collector makes it, the pane draws it."""

from __future__ import annotations

from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message

Stuck = Literal["unknown", "moving", "busy", "still"]
"""`moving`: steps end.  None does, and the main thread is known to stand: `still`; is not: `busy`."""

Does = Literal["unknown", "runs", "lock", "sleep", "network", "pipe", "poll", "process", "driver", "disk"]
"""What a thread does by what the kernel says; a wait in `lock` is a futex, in `driver` an ioctl."""


@frozen
class StackFrame:
    """One call of a Python function."""

    function: str
    file: str
    line: int | None


@frozen
class ThreadStack:
    """One Python thread; `frames` are innermost first, `is_cut` says that there are more.

    `does` and `cpu_share` are None where the kernel was not asked.  `called` is what the innermost frame
    called, as far as its bytecode tells: a C function has no frame of its own.
    """

    name: str
    native_id: int | None
    is_main: bool
    is_daemon: bool
    frames: tuple[StackFrame, ...]
    is_cut: bool = False
    does: Does | None = None
    cpu_share: float | None = None
    called: str = ""


@frozen
class NativeThreads:
    """Threads without Python code, of one name."""

    name: str
    count: int


@frozen
class StacksSnapshot:
    """Whether steps end and, when none does, where every Python thread stands.

    `since_step_s` is None while no step has ended since the attach, `since_attach_s` ago: what was before
    is not known.  `still_s` is for how long the main thread has been where it is.  `doing` is seen; `cause`
    is likely only.
    """

    state: Literal["waiting", "live", "degraded"]
    stuck: Stuck = "unknown"
    since_step_s: float | None = None
    since_attach_s: float | None = None
    step_s: float | None = None
    still_s: float | None = None
    doing: Message | None = None
    cause: Message | None = None
    threads: tuple[ThreadStack, ...] = ()
    threads_left_out: int = 0
    native_threads: tuple[NativeThreads, ...] = ()
    native_left_out: int = 0
    reading_us: float | None = None
    reason: Message | None = None
