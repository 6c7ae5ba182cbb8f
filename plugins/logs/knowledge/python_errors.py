"""Exceptions of Python: what they say, where in the program's own code, and who knows better.

An exception often only wraps what the device, the runtime or a peer did: the rules of lines are asked about
its text first.  Its last frame is mostly inside a library; the place that helps is the last one of the
program's own.
"""

from __future__ import annotations

import re

from ascend_tui.plugin import Message, Scalar

from ..sighting import CONTEXT, GENERIC, Line, Sighting
from . import rules
from .python_exceptions import MEANINGS, SCALE, Meaning
from .rule_table import key_of, masked, number, short

_MOST_LINES = 40
_MOST_LINE = 20_000
_NAME = (
    r"(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,12}(?:_{0,2}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit|Expired"
    r"|Conflict|Iteration)|Exception"
    r"|KeyboardInterrupt|SystemExit|OutOfMemory|GeneratorExit|OutOfResources|Unsupported|Timeout|Empty"
    r"|BackendCompilerFailed"
    r"|Died|Exit|NoValidChoices))(?P<inner>\(\w{1,80}\))?"
)
_HEAD = re.compile(rf"{_NAME}(?::\s*(?P<says>.*)|\s*)$", re.DOTALL)
_START = re.compile(rf"{_NAME}(?::(?:\s|$)|\s*$)")
_ANY_NAME = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200}):\s*(?P<says>.*)$", re.DOTALL)
_METRIC = re.compile(
    r"(?:Mean|Root|Squared|Absolute|Percentage|Rate|Median|Abs|Rel|Max|Test|Val|Train)\w{0,40}Error"
)
_FIGURE = re.compile(r"\s*[-+]?(?:\d{1,18}\.\d{0,18}(?:[eE][-+]?\d{1,4})?|nan|inf)\b")
_FRAME = re.compile(
    r'\s*File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9})(?:, in (?P<where>[^\n]{1,200}))?'
)
_STANDARD = re.compile(
    r"/lib(?:64)?/python3(?:\.\d{1,2})?/(?!site-packages|dist-packages)|^<|/runpy\.py$|/importlib/"
)
_CORE = re.compile(
    r"/(?:site|dist)-packages/(?:torch|torch_npu|torchair|torchvision|numpy|mindspore|apex|triton|ray"
    r"|pandas|multiprocess)/"
    r"|/(?:torch|torch_npu)/(?:nn|utils|autograd|distributed|_ops|optim|_dynamo|_inductor|npu|cuda)\b"
)
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/(?:transformers|accelerate|deepspeed|megatron|mindspeed|lightning"
    r"|pytorch_lightning|vllm"
    r"|vllm_ascend|peft|trl|datasets|safetensors|modelscope|sglang|verl)/"
)
_CALL = re.compile(r"\b(?P<call>(?:torch_npu|torch\.ops|torch\.npu)(?:\.\w{1,80}){1,4})\s*\(")
_SYNC = re.compile(
    r"\b(?P<call>[\w.]{0,120}\.(?:item|tolist|cpu|numpy|synchronize|nonzero)|torch\.npu\.synchronize)\s*\("
)
_RANK = re.compile(r"\s*\[?[Rr]ank[ :=_]?(?P<rank>\d{1,6})\b")
_CHAIN = re.compile(
    r"\n\s*(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):\s*\n"
)
_SCALER_FRAME = re.compile(r"scaler|/amp/|loss_scal|unscale|grad_scale", re.IGNORECASE)

_SAYS = Message("{type}: {says}")
_BARE = Message("{type}")
_BEFORE = Message("before it: {type}: {says}")
_NOTICED = Message("the frame is only where the host noticed it: the device works behind the host")


def is_exception(body: str) -> bool:
    """Tell whether a line is what an exception says: `RuntimeError: text`, at its beginning."""
    found = _START.match(body[:1_500])
    if found is None or found["name"].endswith("Warning"):
        return False
    rest = body[found.end() : found.end() + 40]
    # A metric may be named like an error.
    return not (_METRIC.search(found["name"]) and _FIGURE.match(rest))


def sight(line: Line, frames: tuple[str, ...], exception: str) -> Sighting:
    """Return what an exception tells, with the place in the program's own code where there is one.

    `frames` are those of its traceback, the oldest first; of a chain the exception that knows most, else the
    last, is told, and the first beside it.
    """
    parts = [part for part in _CHAIN.split(exception) if part.strip()] or [exception]
    told = [_one(line, frames, part) for part in (parts[0], *parts[1:][-3:])]
    best = told[0]
    for one in told[1:]:
        if one.knows >= best.knows:
            best = one
    evidence = best.evidence
    if len(told) > 1:
        first = parts[0] if best is not told[0] else parts[-1]
        name, says = _split(first)
        evidence = (*evidence, Message.of(_BEFORE.text, type=name, says=short(says, 200)))
    facts = _placed(best, frames)
    is_late = best.attribution == "async" and any(name == "place" for name, _ in facts)
    return _with(
        best,
        facts=facts,
        evidence=evidence,
        reason=best.reason or (_NOTICED if is_late else None),
        rank=best.rank if best.rank is not None else _rank(parts[-1]),
    )


def _one(line: Line, frames: tuple[str, ...], exception: str) -> Sighting:
    """Return what one exception tells: by the rules of lines where they know it, else by its type and "
    "words."""
    known = _known(line, exception)
    name, says = _split(exception)
    own = _meaning(name, says, frames)
    if known is not None and (own is MEANINGS[-1] or known.category != "other" or known.knows > GENERIC):
        return known
    if not says and name in ("AssertionError", "Exception", "RuntimeError", "ValueError"):
        says = _code_of(frames[-1]) if frames else ""
    headline = (
        Message.of(_SAYS.text, type=name, says=masked(says)) if says else Message.of(_BARE.text, type=name)
    )
    return Sighting(
        category=own.category,
        severity=own.severity,
        headline=headline,
        knows=own.knows,
        key=key_of(f"{name} {says}"),
        attribution=own.attribution,
        reason=own.reason,
        advice=own.advice,
    )


def _known(line: Line, exception: str) -> Sighting | None:
    """Return what the rules of lines know of the text of an exception, the best of all its lines."""
    best: Sighting | None = None
    for text in exception.splitlines()[:_MOST_LINES]:
        text = text[:_MOST_LINE]
        if not text.strip():
            continue
        plain = Line(
            text,
            text.strip(),
            line.number,
            line.source,
            line.rank,
            line.stream,
            line.pid,
            line.device,
            line.wall_s,
        )
        found = rules.sight(plain)
        for one in found if isinstance(found, tuple) else ():
            if one.knows > CONTEXT and (best is None or one.knows > best.knows):
                best = one
    return best


def _split(exception: str) -> tuple[str, str]:
    """Return the short name of an exception and what it says."""
    text = exception.strip()[: 2 * _MOST_LINE]
    found = _HEAD.match(text) or _ANY_NAME.match(text)
    if found is None:
        return short(text.split("\n", 1)[0], 80) if " " not in text[:80] else "Exception", text
    name = found["name"].rpartition(".")[2]
    inner = found.groupdict().get("inner")
    return name + (inner or ""), (found["says"] or "").strip()


def _meaning(name: str, says: str, frames: tuple[str, ...]) -> Meaning:
    text = says[:2_000]
    kind = name.partition("(")[0]
    for one in MEANINGS:
        if not one.types.fullmatch(kind) or (one.words is not None and not one.words.search(text)):
            continue
        if one.key == SCALE and frames and not any(_SCALER_FRAME.search(frame) for frame in frames[-4:]):
            continue
        return one
    return MEANINGS[-1]


def _placed(told: Sighting, frames: tuple[str, ...]) -> tuple[tuple[str, Scalar], ...]:
    """Return the facts with the place in the program, and the call at which the host noticed a late fault."""
    facts = dict(told.facts)
    # Of a launcher's own error the frames are the launcher's: the process that failed stands elsewhere.
    is_launcher = told.category == "crash" and told.knows <= GENERIC
    place = "" if is_launcher else place_of(frames)
    if place:
        facts["place"] = place
    if told.attribution == "async" or told.category == "device":
        at = _noticed_at(frames)
        if at:
            facts.setdefault("host_at", at)
    return tuple(facts.items())


def place_of(frames: tuple[str, ...]) -> str:
    """Return the last frame of the program's own; of libraries only where all are, of torch last of all."""
    best, best_class = "", 4
    for frame in reversed(frames):
        found = _FRAME.match(frame)
        if found is None:
            continue
        kind = _class_of(found["file"])
        if kind < best_class:
            where = f" in {found['where']}" if found["where"] else ""
            best, best_class = short(f"{found['file']}:{found['line']}{where}"), kind
    return best


def _class_of(file: str) -> int:
    if _STANDARD.search(file):
        return 3
    if _CORE.search(file):
        return 2
    return 1 if _LIBRARY.search(file) else 0


def _noticed_at(frames: tuple[str, ...]) -> str:
    """Return the last call into torch_npu, else the last that waits for the device."""
    for pattern in (_CALL, _SYNC):
        for frame in reversed(frames):
            found = pattern.search(_code_of(frame))
            if found:
                return short(found["call"], 120)
    return ""


def _code_of(frame: str) -> str:
    return frame.partition("\n")[2].strip()[:300]


def _rank(exception: str) -> int | None:
    """Return the rank that an exception begins with, as checks of distributed trainers do."""
    found = _RANK.match(_split(exception)[1])
    return number(found["rank"]) if found else None


def _with(told: Sighting, **fields: object) -> Sighting:
    kept = {name: getattr(told, name) for name in Sighting.__dataclass_fields__}
    return Sighting(**{**kept, **fields})
