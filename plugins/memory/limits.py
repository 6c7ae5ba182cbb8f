"""The least that means anything, for each quantity, and the shares from which a word is said."""

from __future__ import annotations

from .trend import Shape, Track, shape

MIB = 1 << 20
# The least growth that means anything, in bytes and as a share of the level: torch's counters are exact, the
# driver's come in large pages and with others' buffers, and host memory breathes.
FLOORS = {
    "allocated": (MIB, 0.0005),
    "peak": (4 * MIB, 0.005),
    "reserved": (4 * MIB, 0.005),
    "rss": (8 * MIB, 0.005),
    "workers": (16 * MIB, 0.01),
    "pinned": (4 * MIB, 0.005),
    "splits": (4 * MIB, 0.05),
    "device_used": (32 * MIB, 0.005),
    "outside": (32 * MIB, 0.005),
}
FLOOR_OF_FILE = 0.005
LEAST_STEPS = 60.0
LATELY = 3 * LEAST_STEPS
"""Growth that began no longer ago than this may still go on; what swings long after it does not."""
LEAST_POINTS = 15
LEAST_OF_HOST = 6
"""Of what is read once a second."""
FULL = 0.95
"""Share of the card that live tensors need at most, from which on it is simply too small."""
MOSTLY = 0.5
WARM_UP = 0.125
"""What grew in the first eighth of all that was seen grew as every training does when it begins."""
IN_PIECES = 0.2
"""Part of the unused reserve that lies in segments in use, from which on it is more than a cache."""
NEEDED = 0.3
"""Part of what the reserve gained that tensors' own peak must have gained for it to be theirs."""
LARGER_WORK = 4.0
"""How many times more than what stays after a step its peak must rise for the work to be what grows."""
ON_DEVICE = ("reserved", "device_used")
OTHERS = 0.1
"""Share of the card that processes which npu-smi names must hold for that to be a verdict."""
FOREIGN = 0.3
"""Share of the card that others hold, from which on that is worth a verdict although it does not grow."""


def least_of(name: str, level: float) -> float:
    """Return the least growth of a quantity at this level that means anything."""
    least, part = FLOORS.get(name, (MIB, 0.005))
    return max(least, part * abs(level))


def shape_of(name: str, track: Track, *, of_file: bool = False) -> Shape:
    """Return what a quantity does, by its own floor."""
    level = abs(track.last)
    if of_file:
        # In a file the numbers are rounded as somebody wrote them, and there may be very few.
        return shape(track, max(level * FLOOR_OF_FILE, 1.0), least_points=3)
    points = LEAST_OF_HOST if name in ("workers", "pinned") else LEAST_POINTS
    return shape(track, least_of(name, level), LEAST_STEPS, points)
