"""Out-of-memory errors in the text of a log: torch_npu, torch, CANN, MindSpore and the kernel.

Pure text in, numbers out; what the numbers mean is told elsewhere.  A line that belongs to the cascade of an
error (what failed because of it, a traceback, the same again from another rank) is no second error.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping

from ascend_tui.frozen import frozen
from ascend_tui.text import plain

BLOCK = 40
"""Lines after an error that may tell more of it."""
STEP_REACH = 200
"""Lines before an error in which its step is looked for."""
KEPT = 64
"""Errors that differ which are kept of one log."""

_SIZE = r"([\d.]+)\s*([KMGTP]?i?B|bytes?)"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}

_TORCH = re.compile(r"\b(NPU|CUDA|HIP|XPU|MPS|MUSA|GCU|MLU) out of memory\b", re.IGNORECASE)
_PLAIN = re.compile(
    r"\bOutOfMemoryError\s*[:(]|\bOut of memory: Killed process \d+|can't allocate memory"
    r"|\bstd::bad_alloc\b|\bCannot allocate memory\b|Malloc pin memory failed|内存不足|out of memory",
)
_CANN = re.compile(
    r"Memory_Allocation_Failure|\bEL0004\b|halMemAlloc failed|Malloc device memory failed"
    r"|Device malloc failed|DevMemAlloc \w+ ?\w* failed|allocate device memory failed"
    r"|(?:code|ret\w*|error|result)(?: is)?\W{1,4}207001\b|rtMalloc (?:execution )?failed"
    r"|aclrtMalloc\w* .{0,40}failed|Memory not enough|Memory isn'?t enough|Failed to allocate memory",
    re.IGNORECASE,
)
_PARTS = ("emory", "lloc", "207001", "EL0004", "内存不足")
"""One of them is in each of the above, and most lines of a log have none."""
_HARMLESS = re.compile(
    r"\b(?:avoid|prevent|may cause|might cause|could cause|in case of|if you (?:get|see|run)|to handle"
    r"|without|risk of|likely to)\b[^.]{0,50}out of memory|allocator backend|out of memory observer",
    re.IGNORECASE,
)
_NUMBERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("requested_bytes", re.compile(rf"[Tt]ried to allocate {_SIZE}")),
    (
        "requested_bytes",
        re.compile(rf"(?:Requested size|Trying to allocate|[RT]ried to allocate size)\D{{0,3}}{_SIZE}"),
    ),
    ("requested_bytes", re.compile(r"required size\[(\d+)()\]")),
    ("free_bytes", re.compile(r"free memory size\[(\d+)()\]")),
    ("requested_bytes", re.compile(rf"申请\s*{_SIZE}")),
    ("total_bytes", re.compile(rf"{_SIZE} total capacity")),
    ("total_bytes", re.compile(rf"total capacity of {_SIZE}")),
    ("free_bytes", re.compile(rf"; {_SIZE} free")),
    ("free_bytes", re.compile(rf"of which {_SIZE} is free")),
    ("allocated_bytes", re.compile(rf"{_SIZE} already allocated")),
    ("allocated_bytes", re.compile(rf"allocated memory {_SIZE} is allocated by PyTorch")),
    ("active_bytes", re.compile(rf"{_SIZE} current active")),
    ("reserved_bytes", re.compile(rf"{_SIZE} reserved in total by PyTorch")),
    ("limit_bytes", re.compile(rf"{_SIZE} (?:is )?allowed")),
    ("process_bytes", re.compile(rf"this process has {_SIZE} memory in use")),
    ("unused_bytes", re.compile(rf"and {_SIZE} is reserved by PyTorch but unallocated")),
    ("unused_bytes", re.compile(rf"{_SIZE} cached")),
)
_BARE = re.compile(
    r"\b(?:alloc(?:ation)? )?size[\s=:\[]+(\d{3,})(?:\s*B)?\b|you tried to allocate (\d{3,}) bytes"
)
_DEVICE = re.compile(
    r"\((?:NPU|GPU|HIP|XPU) (\d+);|\bGPU (\d+) has|\bopen device (\d+)|device[ _]?id[\s=:]+(\d+)"
    r"|\bDevice[: ]+(\d+)\b|设备\s*(\d+)",
    re.IGNORECASE,
)
_RANK = re.compile(r"\[rank[ :_]?(\d+)\]|\bRankID:(\d+)|\brank[\s=:]+(\d+)\b|_TP(\d+)\b", re.IGNORECASE)
_STEP = re.compile(
    r"\b(?:global_?|train_?)?(?:step|iteration|iter)\b[\s\]=:#\[]{0,3}(\d{1,9})\b", re.IGNORECASE
)
_REPEATED = re.compile(r"\[repeated (\d+)x across cluster\]")
_CODE = re.compile(r"\b(EL\d{4}|EE\d{4}|E[A-Z]\d{4}|207\d{3}|ERR\d{5})\b")
_OTHERS = re.compile(
    r"other process(?:es)? occupying|occupying this card|Close applications not in use", re.IGNORECASE
)
_START = re.compile(
    r"^\s*(?:\([^)]*\)\s*)*(?:\[\w+\d*\]:?\s*)*(?:\[?(?:TRACE|DEBUG|INFO|EVENT|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL|EXCEPTION)\b"
    r"|\[?[IWEF]\d{3,4} |\d{4}-\d\d-\d\d|E[A-Z]\d{4}\b|Traceback)"
)


@frozen
class OomText:
    """One error of a log with its repetitions.

    `style` is `torch`, `cann` or `host`; `numbers` are fields of bytes by name; `opening` tells that the
    device could not even be opened; `others` that the text itself blames another process.
    """

    style: str
    backend: str
    device: int | None
    numbers: Mapping[str, int]
    code: str = ""
    count: int = 1
    ranks: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    step: int | None = None
    line: int = 0
    opening: bool = False
    others: bool = False
    text: str = ""


def size(number: str, unit: str) -> int | None:
    """Return bytes from "22.00" and "MiB"; torch writes binary units."""
    try:
        value = float(number)
    except ValueError:
        return None
    letter = unit[:1].lower()
    found = value * 1024 ** _POWERS.get("" if letter == "b" else letter, 0)
    return int(found) if found < 2**63 else None


def is_oom(line: str) -> bool:
    """Tell whether a line says that memory ran out, and does not just speak of it."""
    if not any(part in line for part in _PARTS):
        return False
    if _TORCH.search(line) or _CANN.search(line):
        return True
    return bool(_PLAIN.search(line)) and not _HARMLESS.search(line)


def errors(lines: Iterable[str]) -> list[OomText]:
    """Return the errors of a log, the same ones of several lines or ranks folded into one."""
    return _Reader().read(lines)


class _Reader:
    def __init__(self) -> None:
        self.found: dict[tuple[object, ...], OomText] = {}
        self.before: deque[str] = deque(maxlen=STEP_REACH)
        self.open: deque[OomText] = deque(maxlen=1)
        self.since = 0
        self.last: dict[tuple[object, ...], int] = {}

    def read(self, lines: Iterable[str]) -> list[OomText]:
        for number, raw in enumerate(lines, 1):
            # A progress bar rewrites its line: each state of it counts as one.
            for line in plain(raw).split("\r"):
                self._line(number, line)
        self._close()
        return list(self.found.values())

    def _line(self, number: int, line: str) -> None:
        self.since += 1
        if not is_oom(line):
            if self.open:
                # A line that begins anew belongs to the error no more, except a trailer with rank and device.
                if self.since > BLOCK or (_START.match(line) and not re.search(r"RankID:", line)):
                    self._close()
                else:
                    self.open.append(self._with(self.open[0], line))
            self.before.append(line)
            return
        error = self._error(number, line)
        if self.open and self._continues(self.open[0], error, line):
            self.open.append(self._with(self.open[0], line))
            return
        self._close()
        self.open.append(error)
        self.since = 0

    def _continues(self, before: OomText, error: OomText, line: str) -> bool:
        """Tell whether this line is the same failure as the one before, told by the next layer."""
        if _REPEATED.search(line) or (error.device is not None and before.device not in (None, error.device)):
            return False
        if before.style == "cann" and error.style == "cann":
            asked, before_asked = error.numbers.get("requested_bytes"), before.numbers.get("requested_bytes")
            return self.since <= BLOCK and (not asked or not before_asked or asked == before_asked)
        return not error.numbers and not _RANK.search(line) and self.since <= 3

    def _error(self, number: int, line: str) -> OomText:
        torch = _TORCH.search(line)
        style = "torch" if torch else "cann" if _CANN.search(line) else "host"
        if re.search(
            r"pin memory failed|Killed process|DefaultCPUAllocator|bad_alloc|Cannot allocate memory", line
        ):
            style = "host"
        elif (
            not torch
            and style == "host"
            and re.search(r"OutOfMemoryError|out of memory|内存不足", line, re.IGNORECASE)
        ):
            style = "torch"
        repeated = _REPEATED.search(line)
        empty = OomText(
            style=style,
            backend=torch[1].lower() if torch else "npu" if style == "cann" else "",
            device=None,
            numbers={},
            count=max(1, int(repeated[1][:9])) if repeated else 1,
            step=self._step(line),
            line=number,
            text=line.strip()[:400],
        )
        return self._with(empty, line)

    def _step(self, line: str) -> int | None:
        """Return the step that this line names, or the nearest one before it."""
        for text in (line, *reversed(self.before)):
            found = _STEP.search(text)
            if found:
                return int(found[1])
        return None

    def _with(self, error: OomText, line: str) -> OomText:
        """Return the error with what this line tells beside."""
        numbers = dict(error.numbers)
        for name, pattern in _NUMBERS:
            match = pattern.search(line)
            value = size(match[1], match[2]) if match and name not in numbers else None
            if value is not None:
                numbers[name] = value
        bare = _BARE.search(line)
        if bare and "requested_bytes" not in numbers and error.style != "torch":
            numbers["requested_bytes"] = min(int((bare[1] or bare[2])[:18]), 2**63 - 1)
        code = _CODE.search(line)
        device = error.device if error.device is not None else _first(_DEVICE, line)
        rank = _first(_RANK, line)
        return OomText(
            style=error.style,
            backend=error.backend,
            device=device,
            numbers=numbers,
            code=error.code or (code[1] if code and error.style == "cann" else ""),
            count=error.count,
            ranks=tuple(sorted({*error.ranks, *([] if rank is None else [rank])})),
            devices=() if device is None else (device,),
            step=error.step,
            line=error.line,
            opening=error.opening
            or bool(re.search(r"\bopen device \d+ failed|rtSetDevice execution failed", line)),
            others=error.others or bool(_OTHERS.search(line)),
            text=error.text,
        )

    def _close(self) -> None:
        """Put the open error to its like: same layer, same cause to the eye."""
        if not self.open:
            return
        error = complete(self.open.pop())
        key = (error.style, error.backend, _cause(error), error.opening)
        before = self.found.get(key)
        again = error.line - self.last.get(key, -BLOCK) < BLOCK and error.style == "cann"
        self.last[key] = error.line
        if before is None:
            if len(self.found) < KEPT:
                self.found[key] = error
            return
        self.found[key] = OomText(
            style=before.style,
            backend=before.backend,
            device=before.device,
            numbers=before.numbers or error.numbers,
            code=before.code or error.code,
            # The layers above CANN tell its error again.
            count=before.count + (0 if again else error.count),
            ranks=tuple(sorted({*before.ranks, *error.ranks})),
            devices=tuple(sorted({*before.devices, *error.devices})),
            step=before.step,
            line=before.line,
            opening=before.opening,
            others=before.others or error.others,
            text=before.text,
        )


def complete(error: OomText) -> OomText:
    """Return the error with its reserve worked out where the text gives it in parts."""
    numbers = dict(error.numbers)
    unused = numbers.pop("unused_bytes", None)
    numbers.pop("process_bytes", None)
    if unused is not None and "reserved_bytes" not in numbers and "allocated_bytes" in numbers:
        numbers["reserved_bytes"] = numbers["allocated_bytes"] + unused
    fields = {name: getattr(error, name) for name in error.__dataclass_fields__}
    fields["numbers"] = numbers
    return OomText(**fields)


def _cause(error: OomText) -> tuple[object, ...]:
    """Return the numbers in shares of a tenth, so that ranks of one job fall together."""
    total = error.numbers.get("total_bytes")
    if not total:
        return (error.numbers.get("requested_bytes"),) if error.style == "cann" else ()
    held, free = error.numbers.get("allocated_bytes", 0), error.numbers.get("reserved_bytes", 0)
    return round(10 * held / total), round(10 * free / total)


def _first(pattern: re.Pattern[str], line: str) -> int | None:
    match = pattern.search(line)
    return None if match is None else next((int(group[:9]) for group in match.groups() if group), None)
