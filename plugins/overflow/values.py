"""What the values of one output say by themselves: bad, near the limit, huge, or a mask's."""

from __future__ import annotations

import math

from .operators import is_matmul
from .snapshot import Output

NEAR = 0.9
"""From this share of the largest value of float16 on, an output is near the limit."""
HUGE = 1e30
"""No healthy value of bfloat16 or float32 is beyond it, and neither is a power of ten that masks use."""
JUMP = 30.0
"""So many times larger than what it came from is no ordinary growth."""
_SANE = 1e6
"""A mask is huge on its negative side only: its other side is no larger than ordinary numbers."""
_ROUND = 0.01
"""A mask's number survives a cast or a few scores added to it within this share."""
_MASKS_FROM = 1e4
_STEP, _STEPPED = 5000.0, 0.001
"""Masks in float16 are written as -60000 too."""

LIMITS = {
    "float16": 65504.0,
    "half": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
    "double": 1.7976931348623157e308,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
}
_SMALLEST = {"float16": 5.960464477539063e-08, "half": 5.960464477539063e-08}
_HALVES = ("float16", "half", "float8_e4m3fn", "float8_e5m2")
_BIG_SHARE = 0.01
_BIG = 1e4


def limit(dtype: str) -> float:
    """Return the largest finite value of a type; one that is not known is taken for float32."""
    return LIMITS.get(dtype, LIMITS["float32"])


def smallest(dtype: str) -> float:
    """Return the smallest positive value of a type, subnormal ones too."""
    return _SMALLEST.get(dtype, 1.401298464324817e-45)


def is_narrow(dtype: str) -> bool:
    """Tell whether the type's range, not its precision, is what runs out."""
    return dtype in _HALVES


def is_float(dtype: str) -> bool:
    """Tell whether the type can hold a fraction; "" is unknown and counts as one."""
    return not dtype or dtype in LIMITS or dtype.startswith(("float", "bfloat", "complex"))


def is_finite(output: Output) -> bool:
    """Tell whether no value is NaN or infinite."""
    return math.isfinite(output.low) and math.isfinite(output.high) and not output.bad_count


def is_nan(output: Output) -> bool:
    """Tell whether a value is NaN."""
    return output.low != output.low or output.high != output.high


def is_only_minus_inf(output: Output) -> bool:
    """Tell whether its only bad values are -Inf, as in a mask."""
    return output.low == -math.inf and output.high < math.inf


def is_mask(output: Output) -> bool:
    """Tell whether its large values are a mask's: on the negative side alone, and a number that masks use.

    Masks are -Inf, the type's most negative number, or a power of ten; scores may have been added to them.
    """
    if is_matmul(output):
        return False
    if is_only_minus_inf(output):
        return True
    most = limit(output.dtype)
    low, high = output.low, output.high
    if not low < 0 or not high < min(most / 10, _SANE):
        return False
    size = -low
    if size < _MASKS_FROM:
        return False
    stepped = abs(size - _STEP * round(size / _STEP)) if size < _SANE else math.inf
    if high == 0 or stepped <= _STEPPED * size:
        return True
    # A mask that was cast to a wider type still holds the narrower one's most negative number.
    known = (most, LIMITS["float32"], LIMITS["bfloat16"], LIMITS["float16"], _power_of_ten(size))
    return any(abs(size / one - 1) <= _ROUND for one in known)


def is_near(output: Output, share: float = NEAR) -> bool:
    """Tell whether a finite value of float16 is near its limit, a mask's aside."""
    if not is_finite(output) or not is_narrow(output.dtype):
        return False
    return output.abs_max > share * limit(output.dtype) and not is_mask(output)


def is_huge(output: Output) -> bool:
    """Tell whether a finite value of a wide type is beyond what is healthy, a mask's aside."""
    if not is_finite(output) or is_narrow(output.dtype) or not is_float(output.dtype):
        return False
    return output.abs_max > HUGE and not is_mask(output)


def is_extreme(output: Output, share: float = NEAR) -> bool:
    """Tell whether it is near the limit or huge."""
    return is_near(output, share) or is_huge(output)


def is_clamped(output: Output) -> bool:
    """Tell whether a value is exactly the limit of its type, as a chip that knows no Inf leaves it."""
    if not is_finite(output) or not output.dtype:
        return False
    return output.abs_max >= limit(output.dtype) and not is_mask(output)


def is_big(output: Output) -> bool:
    """Tell whether it is so large that a jump to it matters."""
    size = output.abs_max
    return size >= (_BIG_SHARE * limit(output.dtype) if is_narrow(output.dtype) else _BIG)


def figure(value: float) -> str:
    """Return a value in few characters: 61,440, 3.4e+38, -Inf."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{value:.2g}"
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.3g}"


def extent(output: Output) -> str:
    """Return the values as "low to high", NaN where any is."""
    if is_nan(output):
        return "NaN"
    return f"{figure(output.low)} … {figure(output.high)}"


def _power_of_ten(size: float) -> float:
    return 10.0 ** round(math.log10(size)) if 0 < size < math.inf else math.inf
