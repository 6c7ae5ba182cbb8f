"""The process to attach to: what /proc says, why an attach would be refused, and how it ended."""

from __future__ import annotations

from ascend_tui.target.exits import Exit, ExitWatch
from ascend_tui.target.facts import Target, TargetGone, TargetId, list_python, read_target
from ascend_tui.target.paths import forget_socket, socket_path, socket_path_inside
from ascend_tui.target.preflight import preflight
from ascend_tui.target.refusal import Refusal, RefusedError

__all__ = [
    "Exit",
    "ExitWatch",
    "Refusal",
    "RefusedError",
    "Target",
    "TargetGone",
    "TargetId",
    "forget_socket",
    "list_python",
    "preflight",
    "read_target",
    "socket_path",
    "socket_path_inside",
]
