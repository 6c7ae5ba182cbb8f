"""Reports of checkers that stand inside a log: mssanitizer, compute-sanitizer, AddressSanitizer, msmemscope.

A report is several lines.  Its first says what happened; those behind it add the kernel, the block and the
first frame that is not the toolkit's own.
"""

from __future__ import annotations

import re

from ascend_tui.plugin import Category, Message, Scalar, Severity

from ..sighting import CONTEXT, GENERIC, REASON, Found, Line, Sighting
from .rule_table import Row, custom, masked, number, row

_ACCESS = Message("{tool}: {what} of {bytes} bytes")
_ACCESS_PLAIN = Message("{tool}: {what}")
_RACE = Message("{tool}: a race at {memory} in {kernel} ({hazard})")
_SYNC = Message("{tool}: {what}")
_LEAK = Message("{tool}: {bytes} bytes leaked")
_LEAKS = Message("{tool}: memory leaked")
_LEAKED_MIB = Message("msmemscope: {size} MiB of {pool} leaked in {kernel} since step {step}")
_HELD = Message("msmemscope: a block has been held for {steps} steps: maybe a leak")
_UNUSED = Message("{tool}: {bytes} bytes were allocated and never used")
_INCOMPLETE = Message("the checker left out {count} records: its result is incomplete")
_INCOMPLETE_DO = Message("run it again with the --cache-size that the line names")
_UNINITIALISED = Message(
    "memory that was never written can hold anything: a source of NaN that comes and goes"
)
_TWO_CORES = Message("another core or thread writes the same place: what is read there depends on chance")
_LOOK = Message(
    "look at the frame of your own code that the report names: sizes of the last tile, offsets, masks"
)
_SOURCE = Message("the report knows no source: run it again with --check-cann-heap=yes")
_RUNTIME = Message("UndefinedBehaviorSanitizer: {what}")
_MORE = Message("a line inside the report of a checker")

_ASCEND = re.compile(r"^\s*(?:\[[^\]]{1,40}\]\s*)?={6} (?P<level>ERROR|WARNING|SUMMARY|\s{2,12}\S)", re.ASCII)
_ASCEND_HEAD = re.compile(
    r"={6} (?:ERROR|WARNING): (?P<what>illegal (?:read|write)|out of bounds|misaligned access"
    r"|uninitialized read"
    r"|illegal free|[Uu]nused memory)(?:\(\))?(?: of (?:size )?(?P<bytes>\d{1,18}) ?(?:byte\(s\))?)?"
)
_ASCEND_RACE = re.compile(
    r"={6} (?:ERROR|WARNING): Potential <?(?P<hazard>[\w/]{2,12})>? hazard detected at "
    r"<?(?P<memory>\w{1,10})>?(?: in <?(?P<kernel>[\w.$]{1,200})>?)?(?: on device (?P<device>\d{1,4}))?"
)
_ASCEND_SYNC = re.compile(
    r"={6} (?:ERROR|WARNING): (?P<what>Sync error detected.{0,120}|Unpaired set_flag instructions detected"
    r"|Redundant set_flag.{0,80})"
)
_ASCEND_LEAK = re.compile(
    r"={6} +(?:ERROR: LeakCheck: detected memory leaks|Direct leak of (?P<bytes>\d{1,18}) ?byte)"
    r"|^={6} ERROR: Detected memory leaks on device (?P<device>\d{1,4})"
)
_PLACE = re.compile(
    r"={6,9} +at (?:0x)?(?P<address>[0-9a-fA-F]{1,16}) (?:on (?P<memory>\w{1,10}) )?(?:when (?:reading"
    r"|writing) data )?(?:in|allocated in) (?P<kernel>[^\s(]{1,200})(?:\([^)]{0,200}\))?"
)
_BLOCK = re.compile(
    r"={6,9} +(?:by thread \((?P<thread>[\d,]{1,30})\) )?in block (?P<block>\w{0,8}\([\d, -]{1,30}\))(?: "
    r"on device (?P<device>\d{1,4}))?"
)
_FRAME = re.compile(r"={6} +(?:#\d{1,3} |code in )(?P<frame>[^\s:]{1,300}:\d{1,7}(?::\d{1,6})?)")
_ASAN_FRAME = re.compile(
    r"^\s*#\d{1,3} 0x[0-9a-f]{1,16} in (?P<function>\S{1,200}).{0,200}?\s(?P<frame>/?[\w./+-]{1,300}\.(?:c"
    r"|cc|cpp|cxx|h|hpp|cu|asc):\d{1,7}(?::\d{1,6})?)"
)
_OWN = re.compile(
    r"ASCEND_HOME_PATH|/Ascend/|/cann-\d|/tikcfw/|/ascend-toolkit/|/asc/impl/|kernel_operator_"
    r"|/usr/include/|/compiler-rt/|sanitizer_common|/gcc/"
)
_HASH = re.compile(r"_[0-9a-f]{24,64}(?=_|$)")
_CUDA_HEAD = re.compile(
    r"={9} (?:Error: )?(?P<what>Invalid __\w{1,12}__ (?:read|write|atomic)"
    r"|Uninitialized __\w{1,12}__ memory read|Misaligned (?:\w{1,12} )?(?:read|write|address)"
    r"|Barrier error detected|(?:Race|Potential \w{3} hazard) .{0,80}"
    r"|Program hit (?!cudaSuccess)\w{1,60}.{0,80}|Leaked)(?: of size)?(?: (?P<bytes>\d{1,18}) bytes)?"
)
_ASAN_HEAD = re.compile(
    r"(?:==\d{1,10}==\s?ERROR: (?P<tool>\w{3,20}Sanitizer): (?P<what>[\w-]{3,60}(?: \w{1,20}){0,5}?)(?= on "
    r"(?:unknown )?address| \(|:|$|\s{2}))"
    r"|WARNING: (?P<tool2>(?:Thread|Memory)Sanitizer): (?P<what2>[\w -]{3,60}?)(?= \(|$)"
)


def _kernel(name: str) -> str:
    return masked(_HASH.sub("", name), 200)


def _ascend(line: Line) -> Found:
    text = line.body[:2_000]
    if "======" not in text:
        return None
    return _ascend_head(text) or _more(text)


def _ascend_head(text: str) -> Sighting | None:
    head = _ASCEND_HEAD.search(text)
    if head:
        what, size = head["what"].lower(), number(head["bytes"])
        if what == "unused memory":
            return _made("other", "warning", _UNUSED, "mssanitizer", what, size)
        reason = (
            _UNINITIALISED if what.startswith("uninit") else _TWO_CORES if what == "out of bounds" else None
        )
        return _made("memory_access", "error", _ACCESS, "mssanitizer", what, size, reason)
    race = _ASCEND_RACE.search(text)
    if race:
        kernel = _kernel(race["kernel"] or "?")
        return Sighting(
            category="memory_access",
            severity="error",
            headline=Message.of(
                _RACE.text, tool="mssanitizer", memory=race["memory"], kernel=kernel, hazard=race["hazard"]
            ),
            knows=REASON,
            key=f"report race {kernel}",
            reason=_TWO_CORES,
            facts=(("kernel", kernel),) if race["kernel"] else (),
            device=number(race["device"]),
        )
    sync = _ASCEND_SYNC.search(text)
    if sync:
        told = _made(
            "device",
            "error" if "Sync error" in sync[0] else "warning",
            _SYNC,
            "mssanitizer",
            masked(sync["what"]),
            None,
        )
        return told
    leak = _ASCEND_LEAK.search(text)
    if leak:
        size = number(leak["bytes"])
        return Sighting(
            category="other",
            severity="error",
            headline=Message.of(_LEAK.text, tool="mssanitizer", bytes=size)
            if size is not None
            else Message.of(_LEAKS.text, tool="msmemscope" if leak["device"] else "mssanitizer"),
            knows=GENERIC if size is None else REASON,
            key="report leak",
            device=number(leak["device"]),
            facts=() if size is None else (("leaked_bytes", size),),
        )
    return None


def _made(
    category: Category,
    severity: Severity,
    headline: Message,
    tool: str,
    what: str,
    size: int | None,
    reason: Message | None = None,
) -> Sighting:
    places: dict[str, Scalar] = {"tool": tool, "what": what}
    if headline is _UNUSED:
        places = {"tool": tool}
    if size is None:
        headline = _ACCESS_PLAIN
        places = {"tool": tool, "what": what}
    else:
        places["bytes"] = size
    return Sighting(
        category=category,
        severity=severity,
        headline=Message.of(headline.text, **places),
        knows=REASON,
        key=f"report {what}",
        reason=reason,
        advice=(_LOOK,) if category == "memory_access" else (),
        facts=(("size_bytes", size),) if size is not None else (),
    )


def _more(text: str) -> Sighting | None:
    """Return what a line in the middle of a report adds: it goes with the first line of the report."""
    facts: list[tuple[str, Scalar]] = []
    advice: tuple[Message, ...] = ()
    device = None
    place, block, frame = _PLACE.search(text), _BLOCK.search(text), _FRAME.search(text)
    if place:
        name = place["kernel"]
        at = re.fullmatch(r"(?P<file>.{1,200}):\d{1,7}", name)
        if name.startswith("<unknown>"):
            advice = (_SOURCE,)
        elif at:
            facts.append(("place", masked(name)))
        else:
            facts.append(("kernel", _kernel(name)))
        if place["memory"]:
            facts.append(("memory", place["memory"]))
    elif block:
        facts.append(("block", block["block"]))
        if block["thread"]:
            facts.append(("thread", block["thread"]))
        device = number(block["device"])
        if device is not None:
            facts.append(("device", device))
    elif frame and not _OWN.search(frame["frame"]):
        facts.append(("place", masked(frame["frame"])))
    if not facts and not advice:
        return None
    return Sighting(
        category="memory_access",
        severity="info",
        headline=_MORE,
        knows=CONTEXT,
        key="report",
        advice=advice,
        facts=tuple(facts),
        device=device,
    )


def _cuda(line: Line) -> Found:
    found = _CUDA_HEAD.search(line.body[:2_000])
    if found is None:
        return None
    what = masked(found["what"])
    if what == "Leaked":
        return Sighting(
            "other",
            "error",
            Message.of(_LEAK.text, tool="compute-sanitizer", bytes=number(found["bytes"]) or 0),
            REASON,
            "report leak",
        )
    return _made("memory_access", "error", _ACCESS, "compute-sanitizer", what, number(found["bytes"]))


def _host(line: Line) -> Found:
    text = line.body[:2_000]
    found = _ASAN_HEAD.search(text)
    if found:
        tool, what = found["tool"] or found["tool2"], masked(found["what"] or found["what2"])
        leaks = "leak" in what
        return Sighting(
            category="other" if leaks else "memory_access",
            severity="error" if leaks else "fatal",
            headline=Message.of(_ACCESS_PLAIN.text, tool=tool, what=what),
            knows=REASON,
            key=f"report {what}",
            advice=() if leaks else (_LOOK,),
        )
    frame = _ASAN_FRAME.search(text)
    if frame is None or _OWN.search(frame["frame"]):
        return None
    place = f"{frame['frame']} in {frame['function']}"
    return Sighting("memory_access", "info", _MORE, CONTEXT, "report", facts=(("place", masked(place)),))


RULES: tuple[Row, ...] = (
    row(
        ("eak of ",),
        r"Direct (?P<pool>\w{1,30}) leak of (?P<size>\d{1,12}(?:\.\d{1,9})?) ?Mb\(s\) at 0x[0-9a-f]{1,16} "
        r"in (?P<kernel>\S{1,120}?) at step (?P<step>\d{1,12})",
        _LEAKED_MIB,
        "other",
        "error",
        REASON,
        "report leak {kernel}",
        facts=("kernel",),
    ),
    row(
        (" has last for ",),
        r"ptr: (?:0x)?[0-9a-fA-F]{1,16} has last(?:ed)? for (?P<steps>\d{1,9}) steps",
        _HELD,
        "other",
        "warning",
        key="report held",
    ),
    row(
        ("records undetected",),
        r"(?P<count>\d{1,12}) records undetected",
        _INCOMPLETE,
        "configuration",
        "warning",
        key="report incomplete",
        advice=(_INCOMPLETE_DO,),
        alone=True,
    ),
    custom(("========= ",), _cuda),
    custom(("====== ",), _ascend),
    custom(("Sanitizer: ", "# x"), _host),
    row(
        (": runtime error: ",),
        r"(?P<what>[\w./+-]{1,200}:\d{1,7}:\d{1,6}: runtime error: .{1,160})",
        _RUNTIME,
        "other",
        "warning",
        key="ubsan",
    ),
)
