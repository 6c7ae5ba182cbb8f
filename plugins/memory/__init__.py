"""Memory: is it a leak, a cache, or neither?"""

from ascend_tui.plugin import Command, Lease, Plugin
from ascend_tui.text import msgid

PLUGIN = Plugin(
    name="memory",
    title="Memory",
    collector="ascend_tui_plugins.memory.collector:MemoryCollector",
    pane="ascend_tui_plugins.memory.pane:MemoryPane",
    probe="ascend_tui_plugins.memory:probe.py probe_reuse.py probe_sites.py probe_history.py "
    "probe_storages.py probe_holders.py probe_segments.py probe_host.py probe_phases.py",
    sniff="ascend_tui_plugins.memory.files:sniff",
    outside="ascend_tui_plugins.memory.outside:outside",
    machine="ascend_tui_plugins.memory.live:machine",
    commands=(
        Command(
            name="reuse",
            title=msgid("reuse off"),
            cost=msgid("each call is measured and shown, ms; others on the card may take what is given back"),
            lease=Lease(steps=1000, seconds=600.0),
            hotkey="r",
            slows=True,
            words=("off", "on"),
        ),
        Command(
            name="holders",
            title=msgid("who holds it"),
            cost=msgid("ten steps, slower with small operators, then a pause of about 0.1 s"),
            lease=Lease(steps=10, seconds=120.0),
            hotkey="w",
            slows=True,
        ),
        Command(
            name="segments",
            title=msgid("segments"),
            cost=msgid("one look of some ms"),
            lease=Lease(steps=1, seconds=1.0),
            hotkey="f",
        ),
    ),
    order=10,
)
