"""Logs: what happened, one line for each incident, wherever it was written."""

from ascend_tui.plugin import Command, Lease, Plugin
from ascend_tui.text import msgid

PLUGIN = Plugin(
    name="logs",
    title="Logs",
    collector="ascend_tui_plugins.logs.collector:LogsCollector",
    pane="ascend_tui_plugins.logs.pane:LogsPane",
    probe="ascend_tui_plugins.logs:probe.py",
    sniff="ascend_tui_plugins.logs.from_files:sniff",
    commands=(
        Command(
            name="tee",
            title=msgid("tee the output"),
            cost=msgid(
                "under 3 us for each write of stdout or stderr, up to 0.5 s at its exit; for an hour at most"
            ),
            lease=Lease(steps=1_000_000, seconds=3600.0),
            hotkey="W",
            words=("on", "off"),
        ),
    ),
    order=40,
)
