"""Overflow: which output was the first bad one, and where it came from."""

from ascend_tui.plugin import Command, Lease, Plugin
from ascend_tui.text import msgid

PLUGIN = Plugin(
    name="overflow",
    title="Overflow",
    collector="ascend_tui_plugins.overflow.collector:OverflowCollector",
    pane="ascend_tui_plugins.overflow.pane:OverflowPane",
    probe="ascend_tui_plugins.overflow:probe_stats.py probe_flow.py probe.py probe_gradients.py "
    "probe_modules.py probe_ops.py probe_capture.py",
    sniff="ascend_tui_plugins.overflow.files:sniff",
    commands=(
        Command(
            name="gradients",
            title=msgid("loss and gradients"),
            cost=msgid("at most 0.5 %, by looking at fewer steps where they are short"),
            lease=Lease(steps=1_000_000, seconds=3600.0),
            words=("on", "off"),
            auto=True,
        ),
        Command(
            name="modules",
            title=msgid("overflow watch"),
            cost=msgid("every 10th step, about +1 %"),
            lease=Lease(steps=100_000, seconds=3600.0),
            hotkey="o",
            words=("on", "off"),
        ),
        Command(
            name="ops",
            title=msgid("drill down"),
            cost=msgid("operators of 3 steps, about +40 %, several times slower with small operators"),
            lease=Lease(steps=3, seconds=120.0),
            hotkey="d",
            slows=True,
        ),
        Command(
            name="capture",
            title=msgid("save the tensors"),
            cost=msgid("operators of 3 steps, and a pause to copy up to 256 MiB to the host"),
            lease=Lease(steps=3, seconds=120.0),
            slows=True,
        ),
    ),
    order=20,
)
