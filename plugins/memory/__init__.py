"""Memory: is it a leak, a cache, or neither?"""

from ascend_tui.plugin import Plugin

PLUGIN = Plugin(
    name="memory",
    title="Memory",
    collector="ascend_tui_plugins.memory.collector:MemoryCollector",
    pane="ascend_tui_plugins.memory.pane:MemoryPane",
    probe="ascend_tui_plugins.memory:probe.py",
    outside="ascend_tui_plugins.memory.outside:outside",
    order=10,
)
