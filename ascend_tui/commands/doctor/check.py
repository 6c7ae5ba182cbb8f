"""One finding of the doctor."""

from __future__ import annotations

from typing import Literal

from ascend_tui.frozen import frozen

Level = Literal["ok", "warning", "error"]
START_WITH_US = "start with: ascend-tui run -- CMD"


@frozen
class Check:
    """Say what was found and the next step; `advice` is empty when nothing is to be done."""

    name: str
    level: Level
    found: str
    advice: str = ""
