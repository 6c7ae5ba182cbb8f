"""Find the pairs of a name and a number in one line, whoever printed it.

Each number is looked at together with the few characters before it, so that a long line costs no more than
its length.  Code, configuration, names of files and prose about numbers hold no metrics.
"""

from __future__ import annotations

import re

from ascend_tui.frozen import frozen

from .metric_names import JUDGED, NAMES, ORDER, SCALED, SPACED, Kind, is_average, kind_of, normal

LONGEST = 1 << 16
"""Characters of a line that can be one of metrics."""
MOST_PAIRS, MOST_VALUES, FEW_VALUES = 400, 2000, 200
"""Numbers of a line that are looked at, and how many where none of them has a name: tensors have none."""
_BRACKETS = re.compile(r"\w?\(|\)")
_NEAR = 72
_VALUE = re.compile(
    r"(?<![\w.])[-+]?(?:nan(?:\.0)?|inf(?:inity)?(?:\.0)?|\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)"
    r"|(?:\d{1,24}(?:\.\d{1,24})?|\.\d{1,24})(?:e[-+]?\d{1,4})?)",
    re.IGNORECASE,
)
_AVERAGE = re.compile(r"\s?\(\s*(?:[-+]?(?:nan|inf|[\d.]{1,24}(?:e[-+]?\d{1,4})?))\s*\)", re.IGNORECASE)
_OF = re.compile(r"\s{0,8}/\s{0,8}\d{1,12}(?![\d/:.])")
_UNIT = re.compile(r"[A-Za-zμ%/]{1,12}(?![\w=])")
_ALONE = re.compile(r"\s?(?:\]|/)")
_BEHIND = re.compile(r"(?!\(ind\))[\w(]|\.[A-Za-z_]|:\d|-\w|/[A-Za-z_.]|==")
_WRAP = re.compile(r"(?:\w{1,16}\.){0,2}(?:tensor|float16|float32|float64|array|float|bfloat16)\(\[?$")
_MS_WRAP = re.compile(r"Tensor\([^()]{0,60}value=$")
_PARTS = re.compile(r"[|,;\t{}()\[\]<>、，。；：】【•\"'`*#]|\s{2,}|\s[-–:]\s|\s\|\s|[^\x00-\x7f]\s")
_OWN_UNIT = re.compile(r"\s?\(([\w/%. ]{1,24})\)$")
_DOUBTFUL = re.compile(
    r"\b(?:if|when|whether|unless|until|case|because|since|check|checks?|avoid|prevent|why|may|might|can|could|should|while"
    r"|skip|ignore|assert)\b|如果|是否|若",
    re.IGNORECASE,
)
_OTHER_TEXT = re.compile(
    r"^\s*(?:import|from|def|class|assert|raise|return|if|elif|while|for|export|File|>{2,}|\$|#)\s"
    r"|\w(?:Namespace|Config|Arguments|Args)\(|^\s*Namespace\(|\bFile \"|\btorch\.\w+\(|\bPASSED\b"
    r"|\blambda\b",
)
_TENSOR_DUMP = re.compile(r"(?:[-\d.e+]{1,24}\s?,\s?){12}", re.IGNORECASE)
_BARE = re.compile(r"^\s*\d{1,12}[\s,]{1,8}(-?(?:\d{1,12}\.\d{1,20}(?:e[-+]?\d{1,4})?|nan|inf))\s*$")
_POSITION = re.compile(r"(?<![\d/.:\-])(\d{1,12})\s{0,8}/\s{0,8}\d{1,12}(?![\d/:.])")
_CHINESE_STEP = re.compile(r"第\s{0,4}(\d{1,12})\s{0,4}(?:步|次迭代|个?迭代)")
_HINT = re.compile(
    r"loss|grad|norm|scale|ppl|perplex|cost|xent|nll|\blr\b|learning|throughput|tflops|tokens|samples|speed|损失|学习率"
    r"|梯度|吞吐",
    re.IGNORECASE,
)


@frozen
class Pair:
    """A name and its number: `start` and `end` are where the number stands in the line."""

    printed: str
    kind: Kind
    name: str
    value: float
    start: int
    end: int
    unit: str = ""


def is_hinted(text: str) -> bool:
    """Tell whether a line could hold a metric at all: cheap, and right only where it says no."""
    return len(text) <= LONGEST and (_HINT.search(text) is not None or _BARE.match(text) is not None)


def pairs_of(text: str, start: int = 0) -> list[Pair]:
    """Return the named numbers of a line from `start` on; none where it is no line of metrics."""
    if len(text) > LONGEST:
        return []
    bare = _BARE.match(text, start)
    if bare is not None:
        return _bare(text, bare, start)
    if _OTHER_TEXT.search(text[start:] if start else text):
        return []
    found: list[Pair] = []
    calls: list[bool] = []
    last = start
    for seen, value in enumerate(_VALUE.finditer(text, start)):
        at, end = value.span()
        between = text[last:at]
        if "(" in between or ")" in between:
            _enter(calls, between)
        last = end
        if seen > MOST_VALUES or (seen > FEW_VALUES and not found):
            break
        if not between or between[-1] in ",/-":
            continue
        pair = _pair(text, between[-_NEAR:], at, end, calls)
        if pair is None:
            continue
        found.append(pair)
        average = _AVERAGE.match(text, end)
        if average is not None and pair.kind not in ("step", "epoch"):
            last = average.end()
        if len(found) >= MOST_PAIRS:
            break
    return _meant(text, start, found)


def _bare(text: str, bare: re.Match[str], start: int) -> list[Pair]:
    """Return the pairs of two columns without a word: a step and what was measured at it."""
    step = _VALUE.search(text, start)
    if step is None:
        return []
    one = Pair("", "step", "step", number(step[0]), *step.span())
    return [one, Pair("", "loss", "value", number(bare[1]), bare.start(1), bare.end(1))]


def _enter(calls: list[bool], text: str) -> None:
    """Keep which brackets are open behind a piece of the line, and whether each is that of a call."""
    for bracket in _BRACKETS.finditer(text):
        if bracket[0] == ")":
            del calls[-1:]
        else:
            calls.append(len(bracket[0]) > 1)
            del calls[:-16]


def _pair(text: str, between: str, at: int, end: int, calls: list[bool]) -> Pair | None:
    before, sign, is_wrapped = _sign(between)
    if not sign or any(calls[:-1] if is_wrapped else calls):
        return None
    if is_wrapped and between.rstrip().endswith("[") and not _ALONE.match(text, end):
        return None
    printed, unit = _printed(before, sign)
    if not printed:
        return None
    kind, name = kind_of(printed)
    token = text[at:end]
    behind = _BEHIND.match(text, end)
    if behind is not None and not is_wrapped and _AVERAGE.match(text, end) is None:
        own = _UNIT.match(text, end) if token[-1].isdigit() else None
        if own is None or kind not in ("shown", "other"):
            return None
        unit = unit or own[0]
    if (sign == "[" and kind not in ("step", "epoch")) or (sign == "|" and kind in ("other", "shown")):
        return None
    # One number in brackets is a number; several are a tensor, but for the rates of several groups.
    if sign == "=[" and not (kind == "rate" or (kind != "other" and _ALONE.match(text, end))):
        return None
    if sign in (" ", "is") and not _is_meant(text, token, sign, printed, kind):
        return None
    if kind in ("step", "epoch", "rank") and not (token[0].isdigit()):
        return None
    return Pair(printed, kind, name, number(token), at, end, unit)


def _is_meant(text: str, token: str, sign: str, printed: str, kind: Kind) -> bool:
    """Tell whether a name and a number are a pair though no sign but a space, or `is`, stands between."""
    if kind in ("step", "epoch", "rank"):
        return sign == " "
    if sign == " " and (token.isdigit() or normal(printed) not in SPACED):
        return False
    return kind != "other" and _DOUBTFUL.search(text) is None


def _sign(between: str) -> tuple[str, str, bool]:
    """Return what stands before the sign of a number, the sign, and whether a call wraps the number."""
    text = between.rstrip()
    is_wrapped = False
    wrap = (
        _WRAP.search(text)
        if text.endswith(("(", "(["))
        else _MS_WRAP.search(text)
        if text.endswith("=")
        else None
    )
    if wrap is not None:
        text, is_wrapped = text[: wrap.start()].rstrip(), True
    if text[-1:] in ("'", '"') and text[:-1].rstrip()[-1:] in (":", "="):
        text = text[:-1].rstrip()
    last = text[-1:]
    if last and last in ":=：":
        rest = text[:-1].rstrip()
        if rest[-1:] in ("=", "!", "<", ">", ":", "+", "*"):
            return "", "", False
        return rest, ":", is_wrapped
    if last and last in "]】":
        return text, "]", is_wrapped
    if last == "[":
        rest = text[:-1].rstrip()
        is_list = rest[-1:] in (":", "=")
        return (rest[:-1].rstrip(), "=[", is_wrapped) if is_list else (rest, "[", is_wrapped)
    if text.endswith((" is", "为")):
        return text.removesuffix("为").removesuffix(" is").rstrip(), "is", is_wrapped
    if last == "|":
        return text[:-1].rstrip(), "|", is_wrapped
    return text, " " if between[-1:].isspace() and text else "", is_wrapped


def _printed(before: str, sign: str) -> tuple[str, str]:
    """Return the name at the end of a text and the unit that it gives itself: `max mem (MB)`."""
    unit = ""
    own = _OWN_UNIT.search(before)
    if own is not None:
        before, unit = before[: own.start()], own[1]
    is_quoted = before[-1:] in ("'", '"')
    before = before.rstrip("'\"`*]】) .:")
    cuts = [found.end() for found in _PARTS.finditer(before)]
    part = before[cuts[-1] if cuts else 0 :].strip()
    if not part or not (part[0].isalpha() or part[0] == "_" or part[0].isdigit()):
        part = part.lstrip("-–>=~_:./ ")
    words = part.split()
    for many in range(min(5, len(words)), 0, -1):
        phrase = " ".join(words[-many:])
        if normal(phrase) in NAMES:
            # `max grad norm` is not `grad norm`: a word before says that it is something else.
            wider = " ".join(words[-many - 1 :])
            if len(words) > many and kind_of(wider)[0] in ("setting", "eval"):
                return wider, unit
            return phrase, unit
    if not words:
        return "", unit
    is_field = is_quoted or (cuts and before[cuts[-1] - 1 : cuts[-1]] == "|") or sign == "]"
    whole = part if is_field else " ".join(words[-2:])
    name = whole if is_field or kind_of(whole)[0] in ("setting", "eval") else words[-1]
    return (name, unit) if name[0].isalpha() or name[0] == "_" else ("", unit)


def _meant(text: str, start: int, found: list[Pair]) -> list[Pair]:
    """Return the pairs that count: one step, one total loss, no average beside the number itself."""
    if not any(pair.kind not in ("other", "setting", "step", "epoch", "rank") for pair in found):
        return []
    found = [pair for pair in found if pair.kind != "setting"]
    found = _one(found, "step")
    found = _one(found, "epoch")
    if any(pair.kind in ("loss", "part", "norm") and not is_average(pair.printed) for pair in found):
        found = [pair for pair in found if pair.kind not in ("loss", "part") or not is_average(pair.printed)]
    found = _total(found)
    if not any(pair.kind == "step" for pair in found):
        place = _CHINESE_STEP.search(text, start) or _POSITION.search(text, start)
        if place is not None:
            found.insert(0, Pair("", "step", "step", float(place[1]), place.start(1), place.end(1)))
    measured = any(pair.kind in JUDGED or pair.kind == "step" for pair in found)
    # A configuration names a loss scale too, and 0 is how it asks for one that moves.
    judged = any(pair.kind in JUDGED or (pair.kind in SCALED and measured) for pair in found)
    if not measured:
        found = [pair for pair in found if pair.kind not in SCALED]
    has_step = any(pair.kind in ("step", "epoch") for pair in found)
    followed = any(pair.kind in ("shown", "rate") for pair in found)
    if (not judged and not (has_step and followed)) or _TENSOR_DUMP.search(text[:4000]):
        return []
    return found


def _one(found: list[Pair], kind: Kind) -> list[Pair]:
    """Return the pairs with only the foremost of one kind."""
    several = [pair for pair in found if pair.kind == kind]
    if len(several) < 2:
        return found
    first = min(several, key=lambda pair: ORDER.get(normal(pair.printed), len(ORDER)))
    return [pair for pair in found if pair.kind != kind or pair is first]


def _total(found: list[Pair]) -> list[Pair]:
    """Return the pairs with one total loss; what else is called so is a part with its own name."""
    totals = [pair for pair in found if pair.kind == "loss"]
    if len(totals) < 2:
        return found
    first = min(totals, key=lambda pair: ORDER.get(normal(pair.printed), len(ORDER)))
    return [
        pair
        if pair.kind != "loss" or pair is first
        else Pair(pair.printed, "part", normal(pair.printed), pair.value, pair.start, pair.end, pair.unit)
        for pair in found
    ]


def number(token: str) -> float:
    """Return the number that a token writes, with or without commas between its thousands."""
    token = token.replace(",", "")
    return float(token[:-2] if token[-2:] == ".0" and token[-3:-2].isalpha() else token)
