"""What to do about a finding, and code that keeps its source out of half precision."""

from __future__ import annotations

import re

from ascend_tui.plugin import Message

from . import operators as of
from .origin import Finding
from .snapshot import LevelName, Output
from .values import is_narrow

MOST = 6
"""More advice than that is read by nobody."""
EARLY_STEPS = 100

WALK_BACK = Message(
    "look at the outputs before it, 5 to 10 back: where it blew up is the tipping point, not the source"
)
LOGITS = Message(
    "logits before a softmax are a typical place: scale queries before the product, or keep it in float32"
)
FIRST_FFN = Message("the first layer of a feed-forward network is a typical place: keep it in float32")
LOG = Message(
    "a logarithm in the loss is a typical place: use log_softmax, or clamp its input away from zero"
)
REDUCE = Message("a sum in float16 is a typical place: sum with dtype=torch.float32")
DEQUANT = Message(
    "check the scale of the dequantisation: values a constant factor too large are a wrong scale"
)
RECHECK = Message("after each change of the quantisation check for overflow again")
MASKED_ROW = Message(
    "a row with everything masked has nothing to normalise: leave such rows out, or unmask one position"
)
SMALL_MASK = Message(
    "mask with the type's most negative number instead of -Inf: a masked row stays finite then"
)
ZERO_TIMES = Message(
    "fill with masked_fill or torch.where: a mask that is multiplied makes NaN of 0 times Inf"
)
DENOMINATOR = Message(
    "add an epsilon that the type can hold to the denominator: below 6e-8 it is zero in float16"
)
ROOT = Message("add an epsilon inside the root: its gradient at zero is infinite")
OTHER_INPUT = Message("look at the other input of this operator: a number, a weight, or the data")
WRITTEN = Message("look at the line that writes into this tensor: the bad value comes from there")
UNDER_MASK = Message("look for Inf that a mask hides in forward: zero times Inf in backward is NaN")
WEIGHTS = Message(
    "load the checkpoint again and look for bad values before training: the weights themselves are bad"
)
INFECTED = Message("go back to a checkpoint from before it: a step with bad gradients has spoilt the weights")
SANITIZER = Message("run the sanitizer: this is no overflow, finite values cannot lead to it")
DIFFERS = Message("run the same batch twice: a result that differs is broken memory, not arithmetic")
FIXED_CORES = Message(
    "look at where in the tensor the bad values are: always the same blocks are one core or one kernel"
)
BF16 = Message("train in bfloat16: its range is that of float32")
EARLY = Message("watch the first {n} steps of a new run with modules on, then switch the check off")
FILTER = Message("watch only the modules around {place}: it costs less and can stay on")
SMALL = Message(
    "reproduce it small: batch 1, a short sequence, fixed input and seed; keep the batch that did it"
)
OPERATORS = Message("press {key}: the operators of the next 3 steps say where inside the module it was made")
SCALE = Message("loss scaling is for gradients that become zero: start lower, or let it find its own scale")
SLOW = Message(
    "look at learning rate, initialisation and data first: a loss that climbs to NaN is seldom an overflow"
)
LOGGED_ZERO = Message("set logging_nan_inf_filter=False: a trainer may write a loss of NaN as 0")
UNDERFLOW = Message("use a loss scale, or a larger one: gradients of float16 under 6e-8 are zero")
SATURATES = Message(
    "this chip clamps: values at the limit are the only sign of an overflow, so watch modules"
)
CLIP = Message("clamp or normalise what grows: it will leave float16 when it goes on like this")


def advise(finding: Finding, level: LevelName, step: int) -> tuple[Message, ...]:
    """Return what to do about a finding that was made at a level of watching."""
    first, source, cause = finding.first, finding.source, finding.cause
    at = source or first
    told = list(_BY_CAUSE.get(cause, ()))
    if finding.kind == "saturated":
        told.append(SATURATES)
    if finding.kind in ("near_limit", "huge"):
        told.append(CLIP)
    elif cause in ("near_run", "jump", "sudden"):
        told.append(WALK_BACK)
    told += _typical(at, cause)
    if finding.kind in ("nan", "inf", "saturated", "near_limit") and is_narrow(at.dtype):
        told.append(BF16)
    if finding.attribution != "exact" and level != "ops" and finding.kind not in ("parameter", "masked_row"):
        told.append(operators())
    if finding.severity == "error":
        told.append(SMALL)
    if first.path and first.part in ("output", "input") and level in ("modules", "ops"):
        told.append(Message.of(FILTER.text, place=first.path.rpartition(".")[0] or first.path))
    if step <= EARLY_STEPS:
        told.append(Message.of(EARLY.text, n=EARLY_STEPS))
    return tuple(dict.fromkeys(told))[:MOST]


def operators() -> Message:
    """Return the advice to look at operators."""
    return Message.of(OPERATORS.text, key="d")


_BY_CAUSE = {
    "logits": (LOGITS,),
    "log": (LOG,),
    "root": (DENOMINATOR,),
    "root_zero": (ROOT,),
    "divide": (DENOMINATOR,),
    "tiny": (DENOMINATOR,),
    "other_input": (OTHER_INPUT,),
    "written": (WRITTEN,),
    "reduction": (REDUCE,),
    "masked": (MASKED_ROW, SMALL_MASK),
    "zero_times_inf": (ZERO_TIMES,),
    "weights": (WEIGHTS,),
    "memory": (SANITIZER, DIFFERS, FIXED_CORES),
    "weights_or_memory": (WEIGHTS, SANITIZER, DIFFERS),
    "uninitialised": (SANITIZER, DIFFERS),
    "backward": (UNDER_MASK, ROOT),
    "underflow": (UNDERFLOW,),
}


def _typical(row: Output, cause: str) -> list[Message]:
    """Return what is known of places of this name, where the cause fits."""
    if cause not in ("near_run", "jump", "sudden", "product", "near", "unknown", "here", "cast"):
        return []
    told = []
    if of.is_quantised(row):
        told += [DEQUANT, RECHECK]
    if of.is_ffn(row):
        told.append(FIRST_FFN)
    if of.is_attention(row) or of.is_softmax(row):
        told.append(LOGITS)
    return told


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_DTYPE = {
    "softmax": "torch.softmax(x, dim=-1, dtype=torch.float32)",
    "log_softmax": "torch.log_softmax(x, dim=-1, dtype=torch.float32)",
    "sum": "x.sum(dim=-1, dtype=torch.float32)",
    "mean": "x.mean(dim=-1, dtype=torch.float32)",
    "cumsum": "x.cumsum(dim=-1, dtype=torch.float32)",
}
_FORMULAS = {
    "bmm": "torch.bmm(a.float(), b.float())",
    "mm": "torch.mm(a.float(), b.float())",
    "matmul": "torch.matmul(a.float(), b.float())",
    "mul": "a.float() * b.float()",
    "add": "a.float() + b.float()",
    "sub": "a.float() - b.float()",
    "div": "a.float() / b.float()",
    "exp": "x.float().exp()",
    "square": "x.float().square()",
    "log": "x.float().log()",
    "sqrt": "x.float().sqrt()",
    "rsqrt": "x.float().rsqrt()",
    "reciprocal": "x.float().reciprocal()",
}
_MODULE_OPS = (
    "addmm",
    "linear",
    "convolution",
    "native_layer_norm",
    "embedding",
    "gelu",
    "silu",
    "relu",
    "tanh",
)


def keep_fp32(row: Output | None, device: str = "") -> str:
    """Return code that keeps one output out of half precision, "" where there is none to give.

    Autocast alone would make it half again.  A name that is no Python name does not get into code.
    """
    if row is None or not (is_narrow(row.dtype) or row.dtype == "bfloat16") or row.phase != "forward":
        return ""
    name = of.plain(row.op)
    where = f"  # in {row.path}" if _parts(row.path) else ""
    if name in _OWN_DTYPE:
        return f"x = {_OWN_DTYPE[name]}{where}"
    of_module = row.module_type.lower().startswith(("linear", "conv")) and bool(_parts(row.path))
    formula = "" if of_module else _FORMULAS.get(name, "")
    kind = "a.device.type" if "a." in formula else "x.device.type"
    if _NAME.fullmatch(device):
        kind = f'"{device}"'
    if formula:
        return f"with torch.autocast({kind}, enabled=False):{where}\n    x = {formula}"
    if name and name not in _MODULE_OPS and not of_module:
        return ""
    return _of_module(row, kind)


def _of_module(row: Output, kind: str) -> str:
    parts = _parts(row.path)
    if row.part == "input" or not parts:
        return ""
    own, owner = parts[-1], ".".join(parts[:-1])
    if not own.isdigit():
        where = f"  # in the forward of {owner}" if owner else "  # in the forward of the model"
        return (
            f"self.{own}.float()  # once, before the optimizer is made, where its weights are half\n"
            f"with torch.autocast({kind}, enabled=False):{where}\n"
            f"    x = self.{own}(x.float())"
        )
    # A member of a Sequential is called by it, not by name: its own forward is wrapped.
    return (
        f'part = model.get_submodule("{row.path}").float()\n'
        "run = part.forward\n"
        "def forward(x):\n"
        f"    with torch.autocast({kind}, enabled=False):\n"
        "        return run(x.float())\n"
        "part.forward = forward"
    )


def _parts(path: str) -> list[str]:
    """Return the parts of a path, none where one of them could not be written in code."""
    parts = path.split(".") if path else []
    return (
        parts if all(_NAME.fullmatch(part) or (part.isdecimal() and part.isascii()) for part in parts) else []
    )
