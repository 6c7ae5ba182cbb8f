"""What a line of CANN names besides its fault: chip, core, kernel, stream, task, operator, group."""

from __future__ import annotations

import re

from ascend_tui.plugin import Scalar

from .rule_table import number, short

LONGEST_NAME = 160
_INTEGERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("chip", re.compile(r"\bchip_?[iI]d[:=] ?(\d{1,6})")),
    ("die", re.compile(r"\bdie_?[iI]d[:=] ?(\d{1,6})")),
    ("core", re.compile(r"\bcore(?:_?[iI]d| id is)[:= ]{1,2}(\d{1,6})\b")),
    ("block", re.compile(r"\bblk:(\d{1,6})")),
    ("stream", re.compile(r"\bstream(?:_id=|_?I[dD][:= ]{0,2}\[|[iI]d[:=] ?|_id:)(\d{1,9})")),
    ("task", re.compile(r"\btask(?:_id=|_?I[dD][:= ]{0,2}\[|[iI]d[:=] ?|_id:)(\d{1,9})")),
)
_DEVICE = re.compile(
    r"\b(?:device_?[iI][dD][:= ]{0,2}\[?|dev_?[iI]d[:=] ?|[dD]evice\(|Device:|[dD]evice |DEVICE\[|device ID )"
    r"(\d{1,4})\b|设备 ?(\d{1,4})\b"
)
_TRIPLE = re.compile(r"\berrcode:\(((?:0[xX])?[0-9a-fA-F]{1,16}(?:, ?(?:0[xX])?[0-9a-fA-F]{1,16}){0,3})\)")
_ERROR_CODE = re.compile(r"\b(?:error code ?=|error ?[cC]ode:) ?(0[xX][0-9a-fA-F]{1,16}|\d{1,20})\b")
_KERNEL = re.compile(r"\b(?:fault kernel_name|kernel_?[nN]ame) ?= ?([^,\s\[\]]{1,300})")
_OPERATOR = re.compile(
    r"\b(?:fault op_name=|op_name[=:] ?|origin_op_name ?\[|working operator name is ?)([\w./:\-]{1,160})"
)
_HASH = re.compile(r"_(?:[0-9a-f]{32}|\d{15,20})(?=_|$).{0,200}$")


def facts_of(text: str) -> tuple[tuple[str, Scalar], ...]:
    """Return the named details of a line, in the order in which people ask for them."""
    told: list[tuple[str, Scalar]] = []
    for name, pattern in _INTEGERS:
        found = pattern.search(text)
        value = number(found[1]) if found else None
        if value is not None:
            told.append((name, value))
    kernel = _KERNEL.search(text)
    if kernel and kernel[1] not in ("none", "null"):
        told += kernel_facts(kernel[1])
    operator = _OPERATOR.search(text)
    if operator and not any(name == "operator" for name, _ in told):
        told.append(("operator", short(operator[1].rstrip("."), LONGEST_NAME)))
    device = device_of(text)
    if device is not None:
        told.append(("device", device))
    code = error_code_of(text)
    if code:
        told.append(("error_code", code))
    return tuple(told)


def kernel_facts(name: str) -> list[tuple[str, Scalar]]:
    """Return a kernel's name as people know it, the compiled one, and the operator that it was built for."""
    plain = demangled(name)
    told: list[tuple[str, Scalar]] = [("kernel", short(plain, LONGEST_NAME))]
    if plain != name:
        told.append(("mangled", short(name, LONGEST_NAME)))
    operator = _HASH.sub("", plain)
    if operator and operator != plain:
        told.append(("operator", short(operator, LONGEST_NAME)))
    return told


def kernel_of(text: str) -> str:
    """Return the name of the kernel of a line, as short as people know it, or nothing."""
    found = _KERNEL.search(text)
    if not found or found[1] in ("none", "null"):
        return ""
    plain = demangled(found[1])
    return short(_HASH.sub("", plain) or plain, LONGEST_NAME)


def device_of(text: str) -> int | None:
    """Return the device that a line names."""
    found = _DEVICE.search(text)
    return number(found[1] or found[2]) if found else None


def error_code_of(text: str) -> str:
    """Return the error bits of a core: the first word that is not zero; "error code = 0" is no "none"."""
    triple = _TRIPLE.search(text)
    words = triple[1].replace(" ", "").split(",") if triple else []
    found = _ERROR_CODE.search(text)
    words += [found[1]] if found else []
    return next((word.lower() for word in words if word.lower().strip("0x")), "")


def demangled(name: str) -> str:
    """Return a C++ name without its arguments: the nested names of the Itanium scheme, templates left out.

    What it cannot read it returns as it was.
    """
    if not name.startswith("_Z"):
        return name
    at, parts = 2, []
    is_nested = name.startswith("N", at)
    at += is_nested
    while is_nested and name[at : at + 1] in ("r", "V", "K", "R", "O"):
        at += 1
    if name.startswith("St", at):
        parts, at = ["std"], at + 2
    at += name.startswith("L", at)
    while at < len(name) and len(parts) < 16:
        length = re.match(r"[1-9]\d{0,3}", name[at : at + 4])
        if length is None:
            break
        start = at + len(length[0])
        at = start + int(length[0])
        if at > len(name):
            return name
        parts.append(name[start:at])
        if not is_nested:
            break
    return "::".join(parts) if parts else name
