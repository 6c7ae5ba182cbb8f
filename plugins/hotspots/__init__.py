"""Hotspots: where the step's time goes, live and from profiles."""

from ascend_tui.plugin import Command, Lease, Plugin
from ascend_tui.text import msgid

PLUGIN = Plugin(
    name="hotspots",
    title="Hotspots",
    collector="ascend_tui_plugins.hotspots.collector:HotspotsCollector",
    pane="ascend_tui_plugins.hotspots.pane:HotspotsPane",
    probe="ascend_tui_plugins.hotspots:probe_events.py probe_kernels.py probe_sites.py probe_analysis.py "
    "probe_capture.py probe.py",
    sniff="ascend_tui_plugins.hotspots.files:sniff",
    commands=(
        Command(
            name="sample",
            title=msgid("operators of some steps"),
            cost=msgid("now and then a step, in all at most 0.2 %"),
            lease=Lease(steps=1_000_000, seconds=3600.0),
            words=("on", "off"),
            auto=True,
        ),
        Command(
            name="profile",
            title=msgid("profile now"),
            cost=msgid("one step, its pause is shown"),
            lease=Lease(steps=3, seconds=120.0),
            hotkey="p",
        ),
        Command(
            name="capture",
            title=msgid("capture a step"),
            cost=msgid(
                "one slow step by torch_npu.profiler; its analysis takes seconds of a core and 0.4 GB"
            ),
            lease=Lease(steps=3, seconds=300.0),
            slows=True,
        ),
    ),
    order=30,
)
