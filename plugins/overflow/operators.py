"""What is known of operators and modules by name: which family they are of, and what a name says."""

from __future__ import annotations

from .snapshot import Output

LOG = frozenset({"log", "log2", "log10", "log1p"})
ROOT = frozenset({"sqrt", "std", "std_mean"})
INVERSE_ROOT = frozenset({"rsqrt"})
DIVIDE = frozenset({"div", "divide", "true_divide", "truediv", "reciprocal", "addcdiv", "floordiv"})
MATMUL = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "linear", "einsum", "dot", "mv", "addmv"}
    | {"convolution", "conv1d", "conv2d", "conv3d", "inner", "tensordot", "npu_linear", "npu_bmm_v2"}
)
REDUCE = frozenset({"sum", "mean", "cumsum", "nansum", "sum_to_size", "trace"})
EXP = frozenset({"exp", "expm1", "exp2", "sinh", "cosh"})
POWER = frozenset({"pow", "square", "float_power"})
ADD = frozenset({"add", "sub", "rsub", "subtract", "iadd", "isub", "radd"})
MULTIPLY = frozenset({"mul", "multiply", "imul", "rmul"})
CAST = frozenset({"to_copy", "to", "half", "float", "type_as", "npu_dtype_cast", "type", "bfloat16"})
EMPTY = frozenset(
    {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
    | {"empty_with_format", "resize"}
)
LIKE = frozenset({"ones_like", "zeros_like", "full_like", "empty_like"})
"""They take the shape of their input, not its values."""
MASKING = frozenset(
    {"masked_fill", "full", "full_like", "new_full", "triu", "tril", "where", "scalar_tensor"}
)
WRITE = frozenset({"fill", "copy", "index_put", "masked_scatter", "scatter", "index_fill", "setitem"})
SAME = frozenset(
    {"clone", "contiguous", "view", "reshape", "unsafe_view", "transpose", "permute", "t", "slice", "select"}
    | {"expand", "squeeze", "unsqueeze", "alias", "detach", "narrow", "flip", "roll", "repeat", "flatten"}
    | {"diagonal", "unfold", "split", "chunk", "unbind"}
)
"""Their values are their one input's, so that a bad one cannot be new."""
BOUNDED = frozenset(
    {"relu", "sigmoid", "tanh", "sin", "cos", "abs", "neg", "hardtanh", "relu6", "max_pool2d", "amax", "amin"}
)
"""Their values are never larger than their one input's, or at most 1."""
PICK = frozenset({"gather", "index", "index_select", "take", "masked_select"})
"""They take some of the values of their first input."""
ROUNDS_TO_ZERO = frozenset({"softmax", "exp", "sigmoid", "prod"})
CLEANS = frozenset({"masked_fill", "where", "nan_to_num", "clamp", "masked_scatter", "index_put", "fill"})
"""They may take a bad value out again before anything uses it."""

_NORMS = ("norm",)
_FIRST_FFN = (
    "fc1",
    "up_proj",
    "gate_proj",
    "dense_h_to_4h",
    "c_fc",
    "linear1",
    "w1",
    "w3",
    "wi_0",
    "wi_1",
    "wi",
)
_FFN = ("mlp", "ffn", "feed_forward", "feedforward", "intermediate", "fc1", "up_proj", "gate_proj")
_ATTENTION = ("attn", "attention")
_LOSS = ("loss", "criterion", "cross_entropy", "nll")
_QUANTISED = ("dequant", "quant", "int8", "w8a8", "w4a16")
_MODULE_DOTS = ("Functional", "Torch", "Tensor", "NPU", "VF", "Aten", "Primitive", "Distributed", "Module")


def plain(op: str) -> str:
    """Return an operator's bare name: `aten::_softmax.out` and `Functional.softmax.0.forward` are softmax."""
    parts = op.rpartition("::")[2].split(".")
    name = parts[1] if len(parts) > 1 and parts[0] in _MODULE_DOTS else parts[0]
    return name.strip("_").lower()


def is_softmax(row: Output) -> bool:
    """Tell whether it is a softmax, a logarithm of one, or an attention fused around one."""
    name = plain(row.op)
    if name:
        return "softmax" in name or ("attention" in name and "backward" not in name)
    return "softmax" in row.module_type.lower()


def is_attention(row: Output) -> bool:
    """Tell whether the place is in an attention, by its names."""
    return _has(f"{row.path}.{row.module_type}.{plain(row.op)}", _ATTENTION)


def is_ffn(row: Output) -> bool:
    """Tell whether the place is in a feed-forward network, by its names."""
    return _has(row.path, _FFN) or row.path.rpartition(".")[2] in _FIRST_FFN


def is_loss(row: Output) -> bool:
    """Tell whether the place is the loss, by its names."""
    return row.part == "loss" or _has(f"{row.path}.{row.module_type}.{plain(row.op)}", _LOSS)


def is_quantised(row: Output) -> bool:
    """Tell whether quantised numbers are made whole here, by the names."""
    return _has(f"{row.path}.{row.module_type}.{plain(row.op)}", _QUANTISED)


def is_norm(row: Output) -> bool:
    """Tell whether it brings values to a scale of its own, so that a jump across it means nothing."""
    return _has(f"{row.module_type}.{plain(row.op)}", (*_NORMS, "softmax", "embedding"))


def is_embedding(row: Output) -> bool:
    """Tell whether it only copies rows of its weights."""
    return "embedding" in row.module_type.lower() or plain(row.op) == "embedding"


def is_matmul(row: Output) -> bool:
    """Tell whether it is a product of matrices."""
    name = plain(row.op)
    return name in MATMUL if name else row.module_type.lower().startswith(("linear", "conv"))


def _has(text: str, parts: tuple[str, ...]) -> bool:
    lower = text.lower()
    return any(part in lower for part in parts)
