"""The way in for who asks for it by name: gdb makes the main thread queue a call for itself.

Kept for machines where our own injector is refused a page of code. gdb stops every thread, and a wait of a
library that does not expect to be interrupted fails then. It is told bare addresses, which we find ourselves:
so it reads no symbols (libtorch has hundreds of megabytes) and calls nothing but mmap and
Py_AddPendingCall, neither of which takes a lock of the allocator.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack

from ascend_tui.inject.area import DONE_AT, RAN_AT, Area
from ascend_tui.inject.entry import check_shadow_stack, has_ended, lock, told_as_inject_error
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.guards import ENDING
from ascend_tui.inject.memory import PAGE, Memory, find_functions, free_range, read_maps
from ascend_tui.inject.script import Script
from ascend_tui.target import Target, proc

CODE = "gdb"
WARNING = (
    "gdb stops all threads of the training for about half a second, and a wait that does not expect to be "
    "interrupted fails then"
)
GDB_S = 30.0
QUIT_S = 5.0
RUN_S = 8.0
LEAVE_S = 2.0
POLL_S = 0.001
RETURN_S = 0.2
TEXT_AT = 64
MAPPED_BYTES = 2 * PAGE
MAP_FLAGS = 0x100022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
# Whatever happens in there, the call has to return 0: anything else would raise SystemError in the training.
_TEXT = """exec('''
try:
    with open("{path}", encoding="utf-8") as file: exec(file.read(), {{}})
except KeyboardInterrupt: __import__("_thread").interrupt_main()
except BaseException: None
''', {{}})"""
_BEFORE = (
    "set confirm off",
    "set pagination off",
    "set auto-load no",
    "set auto-solib-add off",
    "set debuginfod enabled off",
    # A signal in the middle of the call must not leave the thread there.
    "set unwindonsignal on",
)
_SCRIPT = """\
handle all nostop noprint pass
if !((int (*)(void)) {alive:#x}) ()
  printf "queued {ending}\\n"
  detach
  quit
end
set $page = ((unsigned long (*)(unsigned long, unsigned long, int, int, int, long)) {mmap:#x}) \
({page:#x}, {size}, 3, {flags:#x}, -1, 0)
if $page == {page:#x}
  set {{char [{length}]}} {text_at:#x} = {text}
  set $queued = ((int (*)(unsigned long, unsigned long)) {queue:#x}) ({run:#x}, {text_at:#x})
  printf "queued %d\\n", $queued
end
detach
quit
"""


def why_not(target: Target) -> str:
    """Return why gdb cannot be used on `target`, or nothing when it can."""
    if target.python == "3.8":
        # It cannot be asked while all is stopped, as our own injector does: see entry.Shutdown.
        return "a Python 3.8 that is ending would not survive it"
    return "" if shutil.which("gdb") else "gdb is not installed"


def run(target: Target, payload: str, area_token: str) -> tuple[float, Area]:
    """Queue `payload` for the main thread of `target`; return the stop in milliseconds and the pages mapped.

    Raises InjectError("gdb") with the reason when the call could not be queued or did not run in time.
    """
    reason = why_not(target)
    if reason:
        raise InjectError(CODE, reason)
    pid = target.id.pid
    with told_as_inject_error(pid), ExitStack() as held:
        check_shadow_stack(pid)
        held.callback(os.close, lock(pid))
        memory = Memory(pid)
        held.callback(memory.close)
        maps = read_maps(pid)
        functions = find_functions(memory, maps)
        if "mmap" not in functions:
            raise InjectError("no_symbols", "mmap")
        page = free_range(maps, MAPPED_BYTES)
        # Two pages, because the shim gives back two.
        area = Area(page, PAGE, page + PAGE, PAGE)
        with Script(target, payload.replace(area_token, repr(tuple(area))), CODE) as script:
            stop_ms = _queue(target, functions, area, _TEXT.format(path=script.path))
            end = time.monotonic() + RUN_S
            while not script.has_run():
                if has_ended(pid):
                    raise InjectError("gone")
                if time.monotonic() > end:
                    raise InjectError(CODE, f"the main thread ran no Python within {RUN_S:.0f} s")
                time.sleep(POLL_S)
        # The text lies in our pages and has been read when the script runs; the word frees them for the shim.
        time.sleep(RETURN_S)
        for at in (DONE_AT, RAN_AT):
            memory.write(page + at, b"\1\0\0\0", "ran")
        return stop_ms, area


def _queue(target: Target, functions: dict[str, int], area: Area, text: str) -> float:
    commands = _SCRIPT.format(
        mmap=functions["mmap"], page=area.rw, size=MAPPED_BYTES, flags=MAP_FLAGS, length=len(text) + 1,
        alive=functions["Py_IsInitialized"],
        ending=ENDING,
        text=_quoted(text), text_at=area.rw + TEXT_AT, queue=functions["Py_AddPendingCall"],
        run=functions["PyRun_SimpleString"],
    )  # fmt: skip
    with (
        tempfile.NamedTemporaryFile("w", suffix=".gdb") as file,
        tempfile.TemporaryFile("w+", errors="replace") as said,
    ):
        file.write(commands)
        file.flush()
        before = [word for command in _BEFORE for word in ("-iex", command)]
        words = ["gdb", "-nx", "-batch", *before, "-p", str(target.id.pid), "-x", file.name]
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        ) as process:
            stop_ms = _follow(process, target.id.pid)
        said.seek(0)
        output = said.read()
    _check_left_alone(target)
    queued = re.search(r"^queued (-?\d+)$", output, re.M)
    if queued is None:
        raise InjectError(CODE, (output.strip().splitlines() or ["gdb said nothing"])[-1])
    if int(queued.group(1)) == ENDING:
        raise InjectError("ending")
    if int(queued.group(1)):
        raise InjectError("call_failed", f"Py_AddPendingCall returned {queued.group(1)}")
    return stop_ms


def _follow(process: subprocess.Popen[bytes], pid: int) -> float:
    """Wait for gdb, and measure for how long it traces; end it when it takes too long."""
    began, first, last = time.monotonic(), 0.0, 0.0
    while process.poll() is None:
        now = time.monotonic()
        if _tracer(pid):
            first, last = first or now, now
        if now - began > GDB_S:
            # TERM lets it detach. KILL in the middle of a call would leave the thread there.
            process.terminate()
            try:
                process.wait(QUIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        time.sleep(POLL_S)
    return (last - first) * 1e3


def _check_left_alone(target: Target) -> None:
    """Make sure that gdb has let every thread go; raises InjectError("gdb_left") when it has not."""
    pid = target.id.pid
    end = time.monotonic() + LEAVE_S
    while True:
        held, tracer = _held(pid), _tracer(pid)
        if not held and not tracer:
            return
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    if not tracer:
        # Preflight refuses a stopped process: it was running before gdb came.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
        held = _held(pid)
    if held or tracer:
        raise InjectError("gdb_left", f"thread {(held or [pid])[0]}, tracer {tracer}")


def _held(pid: int) -> list[int]:
    """Return the threads that are stopped."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(f"/proc/{pid}/task"):
            stat = proc.read_bytes(f"/proc/{pid}/task/{name}/stat") or b""
            if stat.rpartition(b")")[2].split()[:1] in ([b"t"], [b"T"]):
                found.append(int(name))
    return found


def _tracer(pid: int) -> int:
    return int((proc.read_status(pid) or {}).get("TracerPid", 0))


def _quoted(text: str) -> str:
    """Write a text as gdb's C parser reads it."""
    body = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{body}"'
