"""The dictionary of error codes: what a code means, which kind of fault it is, and who says so.

A kind says what all codes of one sort have in common: how bad, whether the Python line that is shown can be
believed, and what to do.  The tables are in codes_numbers.py and codes_words.py.
"""

from __future__ import annotations

import re
from functools import cache

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Attribution, Category, Message, Severity

from . import codes_numbers as numbers
from . import codes_words as words

EAGER = Message(
    "run without graph capture (eager mode): faults inside a replayed graph are told for the graph only"
)
BLOCKING = Message("run once with ASCEND_LAUNCH_BLOCKING=1: then the Python line is the operator's own")
MEMCHECK = Message(
    "run a few steps under mssanitizer --tool=memcheck with PYTORCH_NO_NPU_MEMORY_CACHING=1:"
    " it names the kernel and the address"
)
PLOG = Message(
    "look in the plog of this process (~/ascend/log/debug/plog): its first error is nearest to the cause"
)
FIRST_RANK = Message("look for the rank that failed or stopped first: the others only wait for it")
EXEC_TIMEOUT = Message(
    "raise HCCL_EXEC_TIMEOUT only where a rank is late for a good reason, such as a long save or evaluation"
)
SAME_CALLS = Message(
    "check that all ranks call the same collectives in the same order, with equal sizes and types"
)
CONNECT_TIMEOUT = Message(
    "the peer was late or dead: look at its log first; HCCL_CONNECT_TIMEOUT is how long ranks wait for"
    " each other"
)
NETWORK = Message(
    "check the links between the devices with hccn_tool, and whether the peer's process ended first"
)
PORTS = Message(
    "look for another job or a leftover process on these ports; HCCL_IF_BASE_PORT and"
    " HCCL_NPU_SOCKET_PORT_RANGE choose others"
)
HARDWARE = Message(
    "this is hardware: take the device out of the job, and look at npu-smi info -t ecc and the driver's log"
)
CARD = Message("look at npu-smi info: is the device there, healthy, and not held by another process")
STUCK = Message(
    "a kernel did not end: the fault's kernel and core say which; a loop or a wait inside it never finished"
)
SYNCHRONIZE = Message(
    "find what the stream still waits for: the stacks pane and the plog of every rank say it"
)
OVERFLOW = Message("look in the overflow pane which operator was first")
ARGUMENTS = Message("the check ran before the kernel: the Python line that is shown is the right one")
PACKAGES = Message(
    "check that CANN, its kernel packages and torch_npu belong together, and that ASCEND_OPP_PATH is set"
)
SETTINGS = Message("check the setting that the message names")
RESOURCES = Message(
    "something is made again and again and never released: streams, events, models or communicators"
)
CAPTURE = Message("leave this call out of the graph capture, or run without graphs")
NOT_THE_LINE = Message(
    "where Python shows a line, it is a synchronisation: there the host noticed the fault; the kernel was"
    " launched earlier"
)
CAUSE_ELSEWHERE = Message("this is a consequence: the cause is in what another rank or an earlier line says")


@frozen
class Kind:
    """What codes of one sort have in common."""

    category: Category
    severity: Severity
    attribution: Attribution = "exact"
    advice: tuple[Message, ...] = ()
    is_wrapper: bool = False
    """It says that something failed, and not what."""


_DEVICE = (EAGER, BLOCKING, MEMCHECK, PLOG)
KINDS = {
    "fault": Kind("device", "fatal", "async", _DEVICE),
    "model": Kind("device", "fatal", "async", _DEVICE, is_wrapper=True),
    "bounds": Kind("memory_access", "fatal", "async", _DEVICE),
    "stuck": Kind("device", "fatal", "async", (STUCK, BLOCKING, PLOG)),
    "wait": Kind("timeout", "fatal", "async", (SYNCHRONIZE, PLOG)),
    "hardware": Kind("device", "fatal", "async", (HARDWARE, PLOG)),
    "lost": Kind("device", "fatal", "async", (CARD, PLOG)),
    "start": Kind("device", "fatal", "exact", (CARD,)),
    "memory": Kind("oom", "error"),
    "host": Kind("oom", "error"),
    "check": Kind("usage", "error", "exact", (ARGUMENTS,)),
    "usage": Kind("usage", "error"),
    "context": Kind("usage", "error"),
    "capture": Kind("usage", "error", "exact", (CAPTURE,)),
    "resource": Kind("usage", "error", "likely", (RESOURCES,)),
    "setup": Kind("configuration", "error", "exact", (SETTINGS,)),
    "package": Kind("configuration", "error", "exact", (PACKAGES,)),
    "compile": Kind("compile", "error", "exact", (PACKAGES,)),
    "inner": Kind("other", "error", "likely", (PLOG,), is_wrapper=True),
    "collective": Kind("timeout", "fatal", "async", (FIRST_RANK, SAME_CALLS, EXEC_TIMEOUT)),
    "differs": Kind("communication", "error", "likely", (SAME_CALLS,)),
    "connect": Kind("timeout", "error", "likely", (CONNECT_TIMEOUT, NETWORK)),
    "link": Kind("communication", "error", "async", (NETWORK, FIRST_RANK)),
    "port": Kind("communication", "error", "exact", (PORTS,)),
    "peer": Kind("communication", "error", "likely", (FIRST_RANK, PLOG)),
    "stop": Kind("other", "warning", "async", (CAUSE_ELSEWHERE,), is_wrapper=True),
    "overflow": Kind("numeric", "error", "async", (OVERFLOW,)),
    "note": Kind("other", "info"),
}


@frozen
class Code:
    """One code: what its source says of it, in the source's words."""

    code: str
    says: str
    kind_name: str
    source: str

    @property
    def kind(self) -> Kind:
        """Return what is common to codes of this sort."""
        return KINDS[self.kind_name]


def _table(text: str, source: str) -> dict[str, Code]:
    rows = (line.split("|", 2) for line in text.strip().splitlines())
    return {code: Code(code, says, kind, source) for code, kind, says in rows}


@cache
def acl_codes() -> dict[str, Code]:
    """Return the numbers of ACL, the runtime and aclnn."""
    return {
        **_table(numbers.RUNTIME, numbers.RUNTIME_SOURCE),
        **_table(numbers.ACL, numbers.ACL_SOURCE),
        **_table(numbers.ACLNN, numbers.ACLNN_SOURCE),
    }


@cache
def cann_codes() -> dict[str, Code]:
    """Return the codes of CANN's components."""
    return {
        **_table(words.GUIDE_CODES, words.GUIDE_CODES_SOURCE),
        **_table(words.OPERATOR_CODES, words.OPERATOR_CODES_SOURCE),
        **_table(words.RUNTIME_CODES, words.RUNTIME_CODES_SOURCE),
        **_table(words.HCCL_CODES, words.HCCL_CODES_SOURCE),
    }


@cache
def _results() -> dict[str, Code]:
    return _table(words.RESULTS, words.RESULTS_SOURCE)


@cache
def _tasks() -> dict[str, Code]:
    return _table(words.TASKS, words.TASKS_SOURCE)


@cache
def _by_words() -> dict[str, Code]:
    # What stands in two tables is told by its number; of equal words the first number counts.
    found: dict[str, Code] = {}
    for table in (acl_codes(), _tasks()):
        for code in table.values():
            found.setdefault(_plain(code.says), code)
    return found


def acl(code: str | int) -> Code | None:
    """Return what a number of ACL, the runtime or aclnn means, such as 507035 or 161002."""
    return acl_codes().get(str(code))


def cann(code: str) -> Code | None:
    """Return what a code of CANN means, such as EI0006; an inner error has no words of its own."""
    known = cann_codes().get(code)
    if known is not None or not is_inner(code):
        return known
    says = f"inner error of {words.COMPONENTS[code[1]]}"
    return Code(code, says, "inner", words.COMPONENTS_SOURCE)


def is_inner(code: str) -> bool:
    """Tell whether a code says no more than that a component failed inside."""
    return bool(re.fullmatch(r"E[0-9A-Z]9\d{3}", code)) and code[1] in words.COMPONENTS


def hccl(result: str | int) -> Code | None:
    """Return what a result of a function of HCCL means."""
    return _results().get(str(result))


def task(result: str) -> Code | None:
    """Return what a result of the task scheduler means, such as 0x26."""
    return _tasks().get(result.lower())


def torch_npu(code: str) -> Code | None:
    """Return what torch_npu's own code means, such as ERR01100: which of its parts, and what failed."""
    found = re.fullmatch(r"ERR(\d{2})(\d{3})", code)
    module, says = (
        (words.TORCH_MODULES.get(found[1]), words.TORCH_CODES.get(found[2])) if found else (None, None)
    )
    if module is None or says is None:
        return None
    return Code(code, f"{module}: {says}", "inner", words.TORCH_SOURCE)


def said(text: str) -> Code | None:
    """Return the code whose words these are: torch_npu and the runtime often print the words alone."""
    return _by_words().get(_plain(text))


def _plain(text: str) -> str:
    return text[:200].strip(" .[]").lower()
