"""Memory probe: one reading ten times a second and one right after an optimizer step.

The reading after the step is taken at the same point of each step, so that a series of them shows
growth and not the rise and fall within a step.  Both read counters that torch and the kernel keep.
"""


def setup(api):
    """Register the two readings.

    The long history keeps the extremes of host memory, which every device reports.
    """

    def reading():
        device = api.device
        values = device.memory()
        values["device"] = device.kind if device.index is None else "%s:%d" % (device.kind, device.index)
        return values

    api.sample(10, reading, kind="time", key="rss_bytes")
    api.on_step(lambda step: api.emit("step", reading(), key="rss_bytes"))
