"""Memory probe: one reading ten times a second and one right after an optimizer step.

The reading after the step is taken at the same point of each step, so that a series of them shows
growth and not the rise and fall within a step.  Both read counters that torch and the kernel keep.
"""

from functools import partial

# The long history keeps the extremes of this: a leak shows in the first that the device reports.
KEY = "allocated_bytes device_used_bytes rss_bytes"


def setup(api):
    """Register the two readings."""

    def after_step(step):
        device = api.device
        # On the training thread the counters are only taken; the shim's thread makes sense of them.
        api.emit("step", partial(device.decode, device.capture_at_step()), key=KEY)

    api.sample(10, lambda: api.device.memory(), kind="time", key=KEY)
    api.on_step(after_step)
