"""Stacks: what does the training do while no step ends?"""

from ascend_tui.plugin import Plugin

PLUGIN = Plugin(
    name="stacks",
    title="Stacks",
    collector="ascend_tui_plugins.stacks.collector:StacksCollector",
    pane="ascend_tui_plugins.stacks.pane:StacksPane",
    probe="ascend_tui_plugins.stacks:probe.py",
    order=90,
)
