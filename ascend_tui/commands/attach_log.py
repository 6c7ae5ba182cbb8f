"""A line for every attach: who put a shim into what, when, by which layer and why."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ascend_tui.attach import Attached
from ascend_tui.commands.output import say
from ascend_tui.rundir import RunFolder
from ascend_tui.target import Target


class AttachLog:
    """Write the lines into the run's folder, and to stderr where no screen has the terminal."""

    def __init__(self, folder: RunFolder, aloud: bool) -> None:
        self._folder = folder
        self._aloud = aloud
        self._path: Path | None = None

    def took(self, target: Target, attached: Attached) -> None:
        """Note one attach; a folder that cannot be written costs the log, never the attach."""
        fields = {
            "time": time.time(),
            "uid": os.getuid(),
            "pid": target.id.pid,
            "start_ticks": target.id.start_ticks,
            "title": target.title,
            "method": attached.method,
            "reason": attached.reason,
            "stops_ms": [round(stop, 3) for stop in attached.stops_ms],
            "hello_ms": round(attached.hello_ms, 1),
        }
        if self._aloud:
            longest_ms = max(attached.stops_ms, default=0.0)
            stopped = f"; one thread stopped for {longest_ms:.1f} ms" if attached.stops_ms else ""
            what = f"attached to {target.id.pid} ({target.title}) by {attached.method}"
            say(f"{what}: {attached.reason}{stopped}")
        try:
            if self._path is None:
                self._path = self._folder.path("attach", "attach.jsonl")
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(fields) + "\n")
        except OSError as error:
            if self._aloud:
                say(f"this attach is not in the log: {error}")
