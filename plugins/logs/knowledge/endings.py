"""How a process ended: what an exit code or a signal means, and what it does not."""

from __future__ import annotations

from ascend_tui.plugin import Attribution, Message, Scalar, Severity

from ..sighting import CONTEXT, GENERIC, SPECIFIC, Sighting

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    31: "SIGSYS",
}
"""Linux' numbers on x86_64 and aarch64."""
NUMBERS = {name: signal for signal, name in SIGNALS.items()}
SEGV, KILL, BUS, ABORT, TERM, HUP, INT = 11, 9, 7, 6, 15, 1, 2

_BY_SIGNAL = Message("a process was ended by {signal}")
_BY_CODE = Message("a process ended with exit code {exit_code}")
_WELL = Message("a process ended with exit code 0")
_REASONS = {
    KILL: Message(
        "SIGKILL comes from outside: often from the kernel where the host's memory ran out; this log "
        "cannot tell"
    ),
    SEGV: Message("native code reached for memory that is not its own; no Python error tells where"),
    BUS: Message("memory behind a mapping was not there: most often shared memory (/dev/shm) is full"),
    ABORT: Message("the process gave up by itself: look for its reason before this line"),
    TERM: Message("somebody asked it to end: mostly the launcher, after another process failed"),
    HUP: Message("the terminal that it was started from is gone"),
    4: Message("an instruction that this CPU does not have: a build for another machine"),
    8: Message("an integer was divided by zero in native code"),
}
_ADVICE = {
    KILL: (
        Message("look with dmesg -T, or in the memory.events of its cgroup, for an OOM kill at that time"),
        Message("if memory ran out, use fewer data loader workers, or load the checkpoint rank by rank"),
    ),
    SEGV: (
        Message(
            "run it again with python -X faulthandler: then the Python line stands in the log;"
            " a core file tells the native one"
        ),
    ),
    BUS: (Message("give the container more shared memory (--shm-size, --ipc=host), or use fewer workers"),),
    HUP: (Message("start it with nohup, setsid or tmux, so that it outlives the terminal"),),
}
FIRST = Message("look for the first error of this process: an exit code is only its end")


def ended(
    code: int,
    pid: int | None = None,
    rank: int | None = None,
    local_rank: int | None = None,
    knows: int | None = None,
) -> Sighting:
    """Return what an exit code tells: negative, or above 128 as a shell gives it, it is a signal.

    It knows little where it says only that there was an error: whatever tells more goes before it.
    """
    signal = -code if code < 0 else code - 128 if 128 < code < 128 + 32 else 0
    facts: list[tuple[str, Scalar]] = [("exit_code", code)]
    if pid is not None:
        facts.append(("pid", pid))
    if local_rank is not None:
        facts.append(("local_rank", local_rank))
    if not signal:
        return Sighting(
            category="crash",
            severity="error" if code else "info",
            headline=Message.of(_BY_CODE.text, exit_code=code) if code else _WELL,
            knows=(GENERIC if code else CONTEXT) if knows is None else knows,
            key=f"exit {code}",
            advice=(FIRST,) if code else (),
            facts=tuple(facts),
            rank=rank,
        )
    name = SIGNALS.get(signal, f"signal {signal}")
    severity: Severity = "warning" if signal in (TERM, INT) else "fatal"
    attribution: Attribution = "likely" if signal in (KILL, BUS) else "exact"
    weak = signal in (TERM, INT, ABORT, 13)
    return Sighting(
        category="crash",
        severity=severity,
        headline=Message.of(_BY_SIGNAL.text, signal=name),
        knows=(GENERIC if weak else SPECIFIC) if knows is None else knows,
        key=f"signal {name}",
        attribution=attribution,
        reason=_REASONS.get(signal),
        advice=_ADVICE.get(signal, (FIRST,) if weak else ()),
        facts=(*facts, ("signal", name)),
        rank=rank,
    )
