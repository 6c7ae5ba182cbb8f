"""The moment of an out-of-memory error, explained by its own numbers.

The text of the error gives the same advice each time ("try setting max_split_size_mb"), which helps against
fragmentation only.  Its numbers say which case it is: what the device has in all (T), what is free (F), what
torch has reserved (V), what live tensors hold of that (A), and what was asked for (R).  T - F - V is held
outside torch's allocator, V - A is reserved and unused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.text import byte_size, msgid

Cause = Literal["leak", "fragmentation", "external", "capacity", "undecided"]
"""Words of the verdict of the memory plugin, of which a moment can show these."""
MUCH = 0.1
"""Share of the device that is unused in reserve, from which on a request fails for want of one piece."""
FOREIGN = 0.15
"""Share of the device that is held outside torch, from which on that is why; drivers and HCCL use less."""
FULL = 0.7
"""Share of what torch could have that live tensors hold, from which on the work is too large."""


@frozen
class OomNumbers:
    """What an out-of-memory error tells, in bytes; None is "not told".

    `device` is "npu:0"; `limit_bytes` is what the program allows itself of the device.
    """

    requested_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    largest_free_bytes: int | None = None
    inactive_split_bytes: int | None = None
    limit_bytes: int | None = None
    device: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> OomNumbers:
        """Take the numbers of a record or of a parsed text; what is no number of bytes counts as not told."""
        known = {
            name: int(value)
            for name in cls.__dataclass_fields__
            if name != "device"
            and isinstance(value := data.get(name), (int, float))
            and not isinstance(value, bool)
            and 0 <= value < 2**63
        }
        return cls(**known, device=str(data.get("device", "")))

    @property
    def outside_bytes(self) -> int | None:
        """Return what is held on the device outside torch's allocator."""
        if self.total_bytes is None or self.free_bytes is None or self.reserved_bytes is None:
            return None
        return max(0, self.total_bytes - self.free_bytes - self.reserved_bytes)

    @property
    def unused_bytes(self) -> int | None:
        """Return what torch has reserved and no live tensor holds."""
        if self.reserved_bytes is None or self.allocated_bytes is None:
            return None
        return max(0, self.reserved_bytes - self.allocated_bytes)


def explain_oom(numbers: OomNumbers, leak: bool = False) -> tuple[Cause, Message, Message | None]:
    """Return which case it was, why, and what to do: against the error's own advice where that is wrong.

    `leak` tells that a leak was found before; no single moment can show one.
    """
    if leak:
        return (
            "leak",
            Message.of("memory grew until it was full: a leak, not a size"),
            _no_split(numbers, _FREE),
        )
    asked = numbers.requested_bytes or 0
    total, held = numbers.total_bytes, numbers.allocated_bytes
    if numbers.limit_bytes is not None and held is not None and held + asked > numbers.limit_bytes:
        reason = Message.of(
            "the program allows itself {limit}, and {held} of it are in use",
            limit=byte_size(numbers.limit_bytes),
            held=byte_size(held),
        )
        return "capacity", reason, Message("set_per_process_memory_fraction is the limit, not the device")
    if total and asked > total:
        reason = Message.of(
            "{asked} in one piece were asked for, the device has {total}: too large, or a wrong shape",
            asked=byte_size(asked),
            total=byte_size(total),
        )
        return "capacity", reason, None
    if not total or held is None or numbers.reserved_bytes is None:
        return "undecided", Message("the error does not tell who holds the memory"), None
    outside, unused = numbers.outside_bytes or 0, numbers.unused_bytes or 0
    if _in_pieces(numbers, asked, total, outside, unused):
        return "fragmentation", _pieces(numbers, asked, unused), _expandable(numbers)
    if outside >= FOREIGN * total and held + asked <= total:
        reason = Message.of(
            "{outside} of {total} are held outside this process's torch allocator: another process or another"
            " allocator; this one holds {held}",
            outside=byte_size(outside),
            total=byte_size(total),
            held=byte_size(held),
        )
        return "external", reason, _no_split(numbers, _LOOK)
    if held + asked > total - outside or held >= FULL * (total - outside):
        reason = Message.of(
            "the device is full: live tensors hold {held} of {total}; this work does not fit",
            held=byte_size(held),
            total=byte_size(total),
        )
        return "capacity", reason, _no_split(numbers, _SMALLER)
    reason = Message.of(
        "{held} in live tensors, {unused} reserved and unused, {outside} outside torch: none of them is why",
        held=byte_size(held),
        unused=byte_size(unused),
        outside=byte_size(outside),
    )
    return "undecided", reason, None


def _in_pieces(numbers: OomNumbers, asked: int, total: int, outside: int, unused: int) -> bool:
    """Tell whether what was asked for was there, only not in one piece."""
    if unused < max(asked, 1) or unused < 0.5 * outside:
        return False
    largest = numbers.largest_free_bytes
    if largest is not None:
        return largest < asked and unused >= MUCH / 2 * total
    return unused >= MUCH * total


def _pieces(numbers: OomNumbers, asked: int, unused: int) -> Message:
    if numbers.largest_free_bytes is not None:
        return Message.of(
            "{unused} are reserved and unused, in pieces of at most {largest}; {asked} were asked for",
            unused=byte_size(unused),
            largest=byte_size(numbers.largest_free_bytes),
            asked=byte_size(asked),
        )
    return Message.of(
        "{unused} are reserved and unused, but not in one piece of {asked}",
        unused=byte_size(unused),
        asked=byte_size(asked),
    )


_FREE = msgid("find who holds it; {name} does not help")
_LOOK = msgid("look at {tool} for who else is on it; {name} does not help: {unused} are reserved and unused")
_SMALLER = msgid(
    "smaller batches, sharding or recomputing help; {name} does not: only {unused} are reserved and unused"
)


def _no_split(numbers: OomNumbers, text: str) -> Message:
    params = {
        "name": "max_split_size_mb",
        "tool": "nvidia-smi" if _is_cuda(numbers) else "npu-smi info",
        "unused": byte_size(numbers.unused_bytes or 0),
    }
    return Message.of(text, **{key: value for key, value in params.items() if "{" + key + "}" in text})


def _expandable(numbers: OomNumbers) -> Message:
    return Message.of(
        "{variable}=expandable_segments:True at the start lets pieces join; buckets of lengths help, too",
        variable="PYTORCH_CUDA_ALLOC_CONF" if _is_cuda(numbers) else "PYTORCH_NPU_ALLOC_CONF",
    )


def _is_cuda(numbers: OomNumbers) -> bool:
    return numbers.device.startswith(("cuda", "hip"))
