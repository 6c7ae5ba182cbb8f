"""What launchers, shells, schedulers and Ray say of the processes that they started."""

from __future__ import annotations

import re

from ascend_tui.plugin import Message

from ..sighting import CONTEXT, GENERIC, Found, Line, Sighting
from .endings import FIRST, NUMBERS, ended
from .rule_table import Row, custom, near, number, row

_CODE = re.compile(
    r"exit_?code\s*:\s*(?P<a>-?\d{1,6})\s*\(pid:\s*(?P<pid>\d{1,10})\)"
    r"|failed \(exitcode: (?P<b>-?\d{1,6})\)(?: local_rank: (?P<local>\d{1,6}))?(?: \(pid: "
    r"(?P<pid2>\d{1,10})\))?"
    r"|exits with return code = (?P<c>-?\d{1,6})"
    r"|(?:exited|died|terminated|ended|finished|failed) with (?:exit ?code|code|exit status|status"
    r"|return ?code) (?:is )?(?P<d>-?\d{1,6})"
    r"|returned non-zero exit status (?P<e>\d{1,6})"
    r"|\bexit_?code[=:]\s?(?P<f>-?\d{1,6})\b"
)
_SIGNAL = re.compile(
    r"Signal \d{1,3} \((?P<a>SIG[A-Z]{3,5})\) received by PID (?P<pid>\d{1,10})"
    r"|died with <Signals\.(?P<b>SIG[A-Z]{3,5}): \d{1,3}>"
    r"|exited on signal (?P<c>\d{1,3})\b|\*\*\* (?P<d>SIG[A-Z]{3,5}) (?:\(@0x[0-9a-f]{1,16}\) )?received"
    r"|Caught signal (?P<e>\d{1,3})\b|is killed by signal: (?P<f>[A-Z][a-z]{3,12}(?: [a-z]{3,9})?)"
    r"|Worker\w* .{0,80}terminated due to signal (?P<g>SIG[A-Z]{3,5})"
)
_SHELL = re.compile(
    r"(?:^|: )(?:line \d{1,7}:\s+)?(?:\d{1,10}\s+)?(?P<words>Segmentation fault|Aborted|Bus error|Killed"
    r"|Terminated"
    r"|Floating point exception|Illegal instruction)(?:\s+\(core dumped\))?(?P<rest>\s.{0,400})?$"
)
_FATAL = re.compile(
    r"Fatal Python error: (?P<words>Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|Floating point exception)"
)
_WORDS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Killed": "SIGKILL",
    "Terminated": "SIGTERM",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}


def _of_code(line: Line) -> Found:
    found = _CODE.search(near(line.text, ("exit", "return code", "with code", "with status")))
    if found is None:
        return None
    of = found.groupdict()
    code = next((number(of[name]) for name in "abcdef" if of[name] is not None), None)
    if code is None or code == 0:
        return None
    return ended(code, number(of["pid"] or of["pid2"]), local_rank=number(of["local"]))


def _of_signal(line: Line) -> Found:
    found = _SIGNAL.search(near(line.text, ("ignal", "SIG")))
    if found is None:
        return None
    of = found.groupdict()
    told = next(value for name, value in of.items() if name != "pid" and value)
    signal = number(told) or NUMBERS.get(told) or NUMBERS.get(_WORDS.get(told, ""))
    return ended(-signal, number(of["pid"])) if signal and 0 < signal < 65 else None


def _of_shell(line: Line) -> Found:
    text = line.body if len(line.body) < 2_000 else line.body[:2_000]
    fatal = _FATAL.search(text)
    if fatal:
        return ended(-NUMBERS[_WORDS[fatal["words"]]])
    found = _SHELL.search(text.rstrip())
    if found is None:
        return None
    rest, dumped = (found["rest"] or "").strip(), "core dumped" in text
    # "Killed 3 stale workers" is a sentence; a shell names the command behind many blanks, or nothing.
    if rest and not dumped and not (found["rest"] or "").startswith("  "):
        return None
    if text[: found.start()].strip() and not dumped and "line " not in found[0] and ".sh" not in text:
        return None
    return ended(-NUMBERS[_WORDS[found["words"]]])


def _of_rank(line: Line) -> Found:
    found = re.search(r"^\s*rank\s*: (\d{1,7}) \(local_rank: (\d{1,5})\)\s*$", line.body[:200])
    if found is None:
        return None
    return Sighting("crash", "error", _FAILED, CONTEXT, "launcher", rank=number(found[1]))


_STOPPED = Message("the launcher stops the other processes")
_FAILED = Message("the launcher says that a process of the job failed")
_HEAP = Message("native code damaged the heap: {what}")
_HEAP_WHY = Message("the place that noticed is later than the place that wrote past its memory")
_HEAP_DO = Message(
    "run it under AddressSanitizer or valgrind, or with MALLOC_CHECK_=3, to find the first write"
)
_RENDEZVOUS = Message("the nodes of the job did not find each other: {what}")
_RENDEZVOUS_DO = Message(
    "look whether all nodes run the same command with the same address and port, and reach each other"
)
_ACTOR = Message("a worker process of Ray died: {what}")
_ACTOR_DO = Message("look in Ray's logs of that worker (/tmp/ray/session_latest/logs) for why it died")
_RAY_MEMORY = Message("Ray ended a task because the memory of its node ran out")
_RAY_STORE = Message("Ray's object store is full")
_RAY_NODE = Message("a node of the Ray cluster was lost")
_RAY_NONE = Message("no node of the Ray cluster can give what is asked for: {what}")
_TIME = Message("the scheduler ended the job: its time was over")
_CANCELLED = Message("the scheduler cancelled the job")
_CGROUP = Message("the scheduler's memory limit was reached: a process was killed")
_ELASTIC_SIGNAL = Message("the launcher got signal {signal} from outside and ended the job")
_HUP_DO = Message("signal 1 is that of a closed terminal: start it with nohup, setsid or tmux")
_RESTART = Message("the launcher starts the processes again")

RULES: tuple[Row, ...] = (
    row(
        ("got signal",),
        r"\bProcess \d{1,10} got signal: (?P<signal>\d{1,3})",
        _ELASTIC_SIGNAL,
        "crash",
        "error",
        key="launcher signal",
        advice=(_HUP_DO,),
        facts=("signal",),
    ),
    row(
        ("closing signal", "Killing subprocess", "Terminating worker", "sigkill_handler"),
        r"Sending process \d{1,10} closing signal|Killing subprocess \d|Terminating worker",
        _STOPPED,
        "crash",
        "warning",
        CONTEXT,
        "launcher stops",
    ),
    custom(
        (
            "exitcode",
            "exit code",
            "exit_code",
            "with return code",
            "with code",
            "with status",
            "exit status",
            "with returncode",
        ),
        _of_code,
    ),
    custom(("ignal", "SIGSEGV", "SIGBUS", "SIGKILL", "SIGABRT"), _of_signal),
    custom(
        (
            "Segmentation fault",
            "Aborted",
            "Bus error",
            "Killed",
            "Terminated",
            "Floating point exception",
            "Illegal instruction",
        ),
        _of_shell,
    ),
    custom(("local_rank: ",), _of_rank),
    row(
        ("ChildFailedError", "Root Cause (first observed failure)", "WorkerGroup", "Worker group"),
        r"\bChildFailedError\b|Root Cause \(first observed failure\)|[Ww]orker ?[Gg]roup (?:FAILED|failed)"
        r"|ProcessExitedException|ProcessRaisedException",
        _FAILED,
        "crash",
        "error",
        GENERIC,
        "launcher",
        advice=(FIRST,),
    ),
    row(
        ("estarting worker", "will restart worker"),
        r"\b(?:[Rr]estarting worker|will restart worker)",
        _RESTART,
        "crash",
        "warning",
        CONTEXT,
        "launcher restarts",
    ),
    row(
        (
            "double free",
            "free()",
            "malloc()",
            "munmap_chunk()",
            "prev_size",
            "realloc()",
            "malloc_consolidate",
        ),
        r"(?P<what>double free or corruption[^:]{0,20}|(?:free|malloc|realloc|munmap_chunk"
        r"|malloc_consolidate)\(\): "
        r"(?:invalid|corrupted|unaligned|double|mismatching|unsorted|smallbin|largebin"
        r"|memory)[\w ()->]{0,60}|corrupted size vs\. prev_size[\w ]{0,30})",
        _HEAP,
        "crash",
        "fatal",
        key="heap",
        attribution="likely",
        reason=_HEAP_WHY,
        advice=(_HEAP_DO,),
    ),
    row(
        ("Rendezvous", "rendezvous"),
        r"(?P<what>Rendezvous(?:Timeout|Connection|Closed|State|Graceful)?\w{0,10}(?:Error"
        r"|Exception)\b.{0,160}"
        r"|rendezvous .{0,80}(?:timed out|timeout|failed|closed).{0,80})",
        _RENDEZVOUS,
        "communication",
        key="rendezvous",
        advice=(_RENDEZVOUS_DO,),
    ),
    row(
        ("due to the node running low on memory", "low on memory"),
        r"killed due to the node running low on memory|node running low on memory",
        _RAY_MEMORY,
        "oom",
        key="ray host memory",
    ),
    row(("ObjectStoreFull",), r"\bObjectStoreFullError\b", _RAY_STORE, "oom", key="ray store"),
    row(
        ("ActorDied", "RayActorError", "WorkerCrashedError", "worker died", "Worker exit type", "actor died"),
        r"(?P<what>The (?:actor|worker) died.{0,120}|A worker died or was killed.{0,80}|(?:ActorDiedError"
        r"|RayActorError|WorkerCrashedError)\b.{0,120}"
        r"|Worker exit type: (?!INTENDED)\w{3,30}.{0,120})",
        _ACTOR,
        "crash",
        "error",
        GENERIC,
        "ray worker",
        advice=(_ACTOR_DO,),
    ),
    row(
        ("has been marked dead", "NodeDiedError"),
        r"\bnode .{0,120}has been marked dead|NodeDiedError",
        _RAY_NODE,
        "communication",
        "error",
        key="ray node",
        flags=re.IGNORECASE,
    ),
    row(
        ("No available node types can fulfill",),
        r"No available node types can fulfill (?:resource requests? )?(?P<what>.{0,120})",
        _RAY_NONE,
        "configuration",
        "warning",
        key="ray resources",
    ),
    row(
        ("TIME LIMIT",),
        r"CANCELLED AT .{0,40}DUE TO TIME LIMIT|due to time limit",
        _TIME,
        "other",
        "error",
        key="time limit",
        flags=re.IGNORECASE,
    ),
    row(
        ("CANCELLED AT",),
        r"\*\*\* (?:STEP|JOB) [\d.]{1,20} ON .{1,120} CANCELLED AT",
        _CANCELLED,
        "other",
        "warning",
        key="cancelled",
    ),
    row(
        ("oom_kill event", "oom-kill event", "Out Of Memory"),
        r"Detected \d{1,6} oom.kill event|srun: error: .{0,120}: Out Of Memory",
        _CGROUP,
        "oom",
        "fatal",
        key="cgroup",
    ),
)
