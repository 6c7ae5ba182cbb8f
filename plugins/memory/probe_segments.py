"""Segments, a part of the memory probe: the allocator's segments once, and its numbers at an OOM.

A snapshot is built while the interpreter is held: 0.1 s for 20,000 blocks on two slow cores.
"""

import threading
import time
from typing import Any

MOST_SEGMENTS, MOST_BLOCKS = 48, 600
PINNED_SHARE = 0.1
STATES = {"active_allocated": "active", "inactive": "free"}
QUIET_S = 1.0
"""A training that catches its OOMs and tries again may have many a second."""
SENT_S = 0.3
"""Most trainings end with their OOM, sooner than the shim's thread would look for records."""


def setup(api):
    """Offer the command and listen for an OOM."""
    segments = Segments(api)
    api.command("segments", segments.start)
    api.on_oom(segments.at_oom)


class Segments:
    """What the allocator of the device in use says of its segments."""

    def __init__(self, api):
        self.api = api
        self.last_oom_mono = 0.0
        self.ooms = 0

    def start(self, arguments, steps, seconds):
        """Send one summary; refuses where there is nothing to be listed."""
        if self.api.device.kind == "cpu":
            self.api.refuse("on the cpu there is no caching allocator: the C library's heap cannot be listed")
        try:
            found = self.summary(self.api.device.index)
        except RuntimeError as error:
            self.api.refuse("this allocator gives no snapshot: %s" % str(error)[:200])
        if not found["count"]:
            self.api.refuse("the allocator keeps no segments (its cache is off, or nothing is allocated)")
        self.api.emit("segments", found)
        return {"count": found["count"]}

    def summary(self, index):
        """Return the sums and a picture of one device's segments."""
        core = core_of(self.api.device)
        read = getattr(core, "_%s_memorySnapshot" % self.api.device.kind)
        try:
            snapshot = read(None)
        except TypeError:
            # Older ones take no pool.
            snapshot = read()
        return dict(
            summed([one for one in snapshot["segments"] if one["device"] == index]), step=self.api.step
        )

    def at_oom(self, index, requested, total, free):
        """Send the numbers of this moment; on the thread whose allocation failed, before it is told.

        Nothing is allocated on the device; the allocator's lock is free by now.  It waits until the shim's
        thread has the record, a tenth of a second as a rule and SENT_S at most.
        """
        self.ooms += 1
        now = time.monotonic()
        if now - self.last_oom_mono < QUIET_S:
            return
        self.last_oom_mono = now
        kind = self.api.device.kind
        found = {
            "device": "%s:%d" % (kind, index),
            "wall": time.time(),
            "count": self.ooms,
            "requested_bytes": requested,
            "total_bytes": total,
            "free_bytes": free,
        }
        try:
            stats = getattr(core_of(self.api.device), "_%s_memoryStats" % kind)(index)
            for name in ("allocated_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes"):
                found[name] = int(stats[name]["all"]["current"])
            segments = self.summary(index)
            found["largest_free_bytes"] = segments["largest_free_bytes"]
            self.api.emit("segments", segments)
        except (RuntimeError, KeyError, TypeError) as error:
            found["why"] = str(error)[:200]
        taken = threading.Event()

        def record():
            taken.set()
            return found

        self.api.emit("oom", record)
        taken.wait(SENT_S)


def core_of(device):
    return device.torch_npu._C if device.kind == "npu" else device.torch._C


def summed(segments):
    """Return what the segments hold in all; every byte of them is active, releasable or an inactive split."""
    reserved = active = releasable = splits = largest = pinned = pinned_bytes = 0
    for one in segments:
        total, used = one["total_size"], one["active_size"]
        reserved += total
        active += used
        if not used:
            releasable += total
        else:
            splits += total - used
            if used < total * PINNED_SHARE:
                pinned += 1
                pinned_bytes += total - used
        largest = max([largest, *(block["size"] for block in one["blocks"] if block["state"] == "inactive")])
    return {
        "count": len(segments),
        "reserved_bytes": reserved,
        "active_bytes": active,
        "largest_free_bytes": largest,
        "releasable_bytes": releasable,
        "inactive_split_bytes": splits,
        "pinned": pinned,
        "pinned_bytes": pinned_bytes,
        "shown": picture(segments),
    }


def picture(segments):
    """Return the largest segments with their blocks, small neighbours joined, in at most MOST_BLOCKS."""
    shown = sorted(segments, key=lambda one: one["total_size"], reverse=True)[:MOST_SEGMENTS]
    runs = [joined(one["blocks"], 0) for one in shown]
    left, drawn = MOST_BLOCKS, {}
    # What a segment of few blocks does not need is for those of many.
    for rank, at in enumerate(sorted(range(len(shown)), key=lambda at: len(runs[at]))):
        room, cut = left // (len(shown) - rank), 512
        blocks = runs[at]
        while len(blocks) > room:
            blocks, cut = joined(shown[at]["blocks"], cut), cut * 2
        drawn[at] = blocks
        left -= len(blocks)
    return [
        {
            "total_bytes": one["total_size"],
            "active_bytes": one["active_size"],
            "stream": one["stream"],
            "blocks": drawn[at],
        }
        for at, one in enumerate(shown)
    ]


def joined(blocks, cut):
    """Return [bytes, state] of neighbours of one state, and of small neighbours by what most of them is.

    Blocks below `cut` bytes are joined until they are as large together.
    """
    runs: Any = []
    for block in blocks:
        state, size = STATES.get(block["state"], "pending"), block["size"]
        last = runs[-1] if runs else {}
        if last.keys() == {state} or (last and size < cut and sum(last.values()) < cut):
            last[state] = last.get(state, 0) + size
        else:
            runs.append({state: size})
    return [[sum(parts.values()), max(parts, key=parts.__getitem__)] for parts in runs]
