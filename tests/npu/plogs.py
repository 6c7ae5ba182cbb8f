"""The log of CANN: its files, and a line of it."""

from __future__ import annotations

import re
from pathlib import Path

# Tolerant: the versions of CANN differ in blanks, and old ones have no process name and no time.
LINE = re.compile(
    r"^\[(ERROR|WARNING|INFO|DEBUG|EVENT)\] (\w+)\((\d+)(?:,([^)]*))?\):?"
    r"(\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.\d{3})? ?(?:\[([^\]]*?):\s*(\d+)\])? ?(\d+)?\s*(.*)$"
)


def logs(folder: Path) -> list[Path]:
    """Return the log files below what ASCEND_PROCESS_LOG_PATH would name."""
    return sorted(folder.glob("debug/plog/plog-*.log"))
