"""One finding of the doctor."""

from __future__ import annotations

from typing import Literal

from ascend_tui.frozen import frozen

Level = Literal["ok", "warning", "error"]
START_WITH_US = "start with: ascend-tui run -- CMD"
IN_A_CONTAINER = (
    "docker: run --cap-add SYS_PTRACE, or for one that runs exec --privileged; Kubernetes: kubectl debug "
    "--profile=sysadmin --target=CONTAINER; or as root on the host, by the pid there"
)


@frozen
class Check:
    """Say what was found and the next step; `advice` is empty when nothing is to be done."""

    name: str
    level: Level
    found: str
    advice: str = ""
