"""Faults of the device: what a core, a kernel or the hardware did.

A kernel runs long after it was launched.  What Python shows is where the host waited for it, so that every
fault of a device is "async"; the device's own words (errorStr) are the reason, register dumps are not.
"""

from __future__ import annotations

import re

from ascend_tui.plugin import Category, Message, Scalar

from ..sighting import CONTEXT, GENERIC, REASON, SPECIFIC, Found, Line, Rule, Sighting
from . import codes
from .rule_table import key_of, near, short
from .rules_facts import demangled, device_of, facts_of, kernel_of

_ERROR_STRING = re.compile(r"\berrorStr: ?(.{1,600}?)(?=\.? fixp_error|\[FUNC:|\. For details|$)")
_ADDRESS = re.compile(
    r"out of (?:bounds|range)|misalign|not aligned|unaligned|ddr address"
    r"|address.{0,60}(?:invalid|illegal|conflict|overflow)",
    re.IGNORECASE,
)
_BITS = re.compile(r"\bECC\b|parity|RAS alarm", re.IGNORECASE)
_UNIT = re.compile(
    r"there is an? (?:exception of )?(?P<a>[\w ]{2,40}?)(?: exception| error exception| error|,)"
    r"|the error is (?P<b>[\w ]{2,40}?)(?:,| error)",
    re.IGNORECASE,
)
_CORE_LINE = re.compile(
    r"The error from (?:the )?device ?\(|An error occurs on the device ?\(", re.IGNORECASE
)
_KERNEL_FAILED = re.compile(
    r"\b(?P<unit>AI ?Core|AI ?CPU|AI ?Vec\w*|Vector core|FFTS\w*)? ?kernel execut\w{1,4} fail", re.IGNORECASE
)
_AS_REPORTED = re.compile(r"current working operator name is ?(?P<operator>[\w./:\-]{1,160})?")
_SYMBOL = re.compile(r"\bsymbol=([\w.$]{1,300})(\+0x[0-9a-fA-F]{1,8})?")

_DUMPED = Message("the device dumped its registers")
_ILLEGAL = Message("illegal device memory access: {reason}")
_FAULT = Message("device fault: {reason}")
_UNCORRECTABLE = Message("memory error of the device's hardware: {reason}")
_NOT_ABOVE = Message(
    'torch_npu names this operator; the error that it calls "above" has to be looked for before this line'
)


def error_string(line: Line) -> Found:
    """Tell the device's own reason; a line that also names the core gives its numbers, too."""
    text = near(line.text, ("errorStr",))
    found = _ERROR_STRING.search(text)
    if found is None:
        return None
    reason = short(found[1].rstrip(". "), 240)
    kind = codes.KINDS[
        "hardware" if _BITS.search(reason) else "bounds" if _ADDRESS.search(reason) else "fault"
    ]
    words = (
        _UNCORRECTABLE if _BITS.search(reason) else _ILLEGAL if kind.category == "memory_access" else _FAULT
    )
    return _fault(line, text, kind, Message.of(words.text, reason=reason), REASON, f"device {key_of(reason)}")


def core(line: Line) -> Found:
    """Tell which core of which chip failed."""
    text = near(line.text, ("error from", "error occurs on the device"))
    if not _CORE_LINE.search(text):
        return None
    unit = _UNIT.search(text)
    name = short(next((group for group in unit.groups() if group), "core") if unit else "core", 60).lower()
    facts = dict(facts_of(text))
    place = facts.get("core")
    if place is None:
        words = Message.of("{unit} error on the device", unit=name)
    else:
        words = Message.of("{unit} error on the device, core {core}", unit=name, core=place)
    return _fault(line, text, codes.KINDS["fault"], words, SPECIFIC, f"device {key_of(name)}")


def kernel(line: Line) -> Found:
    """Tell which kernel failed."""
    text = near(line.text, ("kernel execut", "fault kernel_name"))
    failed = _KERNEL_FAILED.search(text)
    if failed is None and "fault kernel_name" not in text:
        return None
    facts = dict(facts_of(text))
    name = kernel_of(text) or facts.get("operator", "")
    if name:
        words = Message.of("kernel {kernel} failed on the device", kernel=name)
    else:
        words = Message("a kernel failed on the device")
    return _fault(line, text, codes.KINDS["fault"], words, SPECIFIC, f"device kernel {key_of(str(name))}")


def as_reported(line: Line) -> Found:
    """Tell which operator torch_npu's queue was at: better than the Python line, and no reason."""
    text = near(line.text, ("working operator name is",))
    found = _AS_REPORTED.search(text)
    if found is None:
        return None
    name = short((found["operator"] or "").rstrip("."), 160)
    if name:
        words = Message.of("inner error, reported by torch_npu at the operator {operator}", operator=name)
    else:
        words = Message("inner error, reported by torch_npu without an operator")
    return Sighting(
        category="device",
        severity="fatal",
        headline=words,
        knows=SPECIFIC,
        key=f"device inner {key_of(name)}",
        attribution="async",
        reason=codes.NOT_THE_LINE,
        evidence=(_NOT_ABOVE,),
        advice=(codes.BLOCKING, codes.PLOG),
        facts=(("operator", name),) if name else (),
    )


_HARDWARE: tuple[tuple[re.Pattern[str], str, Category, Message], ...] = (
    (
        re.compile(r"multi[ -]?bit ECC|Uncorrectable ECC", re.IGNORECASE),
        "ecc",
        "device",
        Message("HBM memory error that cannot be corrected (ECC): hardware"),
    ),
    (
        re.compile(r"\bUCE ERROR\b|\bUCEError\b|reason=\[?device mem error|\bdevice MEM ERROR\b"),
        "uce",
        "device",
        Message("memory of the device has an error that cannot be corrected (UCE): hardware"),
    ),
    (
        re.compile(r"\bSUSPECT MEM ERROR\b|suspect (?:device )?mem error", re.IGNORECASE),
        "suspect memory",
        "device",
        Message("an error of the device's memory is suspected: hardware"),
    ),
    (
        re.compile(r"\bSUSPECT REMOTE ERROR\b|suspect remote error", re.IGNORECASE),
        "suspect remote",
        "device",
        Message("an error of another device is suspected: a copy from it failed"),
    ),
    (
        re.compile(
            r"\b(?:HCCS|UB|L3 PORT) (?:LINK )?ERROR\b|reason=\[?(?:device network )?link error", re.IGNORECASE
        ),
        "link",
        "device",
        Message("the link between devices has an error: hardware"),
    ),
    (
        re.compile(r"\bHCCL OP RETRY FAILED\b|hccl op(?:eration)? retry failed", re.IGNORECASE),
        "retry",
        "communication",
        Message("HCCL tried a collective again, and failed"),
    ),
)
_NOT_IT = re.compile(
    r"retSize is 0\b|no (?:UCE|ECC) error|(?:check|enable|support|set)\w{0,3} (?:UCE|ECC)\b"
    r"|ECC\b[^.,;|]{0,40}[:=] ?0\b",
    re.IGNORECASE,
)
_STOPPED = re.compile(r"\bFORCE STOP\b|ForceStopError|reason=\[?device task abort")


def hardware(line: Line) -> Found:
    """Tell of memory and links that fail, and of what stops because of it."""
    text = near(line.text, ("ECC", "UCE", "ERROR", "error", "STOP"))
    if _NOT_IT.search(text) or line.level == "debug":
        return None
    for pattern, key, category, words in _HARDWARE:
        if pattern.search(text):
            kind = codes.KINDS["hardware" if category == "device" else "peer"]
            knows = REASON if key == "ecc" else SPECIFIC
            return _fault(line, text, kind, words, knows, f"hardware {key}")
    if _STOPPED.search(text):
        stop = codes.KINDS["stop"]
        return Sighting(
            category=stop.category,
            severity=stop.severity,
            headline=Message("stopped on purpose (FORCE STOP), as a consequence of another fault"),
            knows=GENERIC,
            key="force stop",
            attribution=stop.attribution,
            advice=stop.advice,
            device=device_of(text),
        )
    return None


def dumped(line: Line) -> Found:
    """Take what only tells of a dump, a symbol or a register; where a symbol is named, it is a fact."""
    text = near(line.text, ("symbol=", "Dump", "dump"))
    facts: list[tuple[str, Scalar]] = [*facts_of(text)]
    symbol = _SYMBOL.search(text)
    if symbol:
        facts.append(("symbol", short(demangled(symbol[1]) + (symbol[2] or ""), 160)))
    place = re.search(r"\binnerSrc=(\S{1,300})", text)
    if place:
        facts.append(("kernel_line", short(place[1], 240)))
    return Sighting("device", "info", _DUMPED, CONTEXT, "device dump", "async", facts=tuple(facts))


def _fault(line: Line, text: str, kind: codes.Kind, words: Message, knows: int, key: str) -> Sighting:
    facts = facts_of(text)
    device = next((value for name, value in facts if name == "device" and isinstance(value, int)), None)
    return Sighting(
        category=kind.category,
        severity=kind.severity,
        headline=words,
        knows=knows,
        key=key,
        attribution=kind.attribution,
        reason=codes.NOT_THE_LINE if kind.attribution == "async" else None,
        advice=kind.advice,
        facts=facts,
        device=device if device is not None else line.device,
    )


_HARDWARE_NEEDLES = (
    "ECC|UCE|MEM ERROR|mem error|REMOTE ERROR|remote error|LINK ERROR|link error|ORT ERROR|RETRY FAILED"
    "|retry failed"
    "|FORCE STOP|ForceStopError|device task abort"
)
_DUMP_NEEDLES = (
    "[Dump]|add error register|AdumpException|symbol information|outerSrc=|innerSrc=|report error module_type"
    "|core list[|coreId(|args print end|EXCEPTION STREAM:|Exception info:TGID|Message info[|Other info["
    "|kernel_symbol_locator|kernel_info_collector"
)
RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("errorStr",), error_string),
    (("error from device", "error from the device", "rror occurs on the device"), core),
    (("kernel execut", "fault kernel_name"), kernel),
    (("working operator name is",), as_reported),
    (tuple(_HARDWARE_NEEDLES.split("|")), hardware),
    (tuple(_DUMP_NEEDLES.split("|")), dumped),
)
