"""The process to attach to: what /proc says, why an attach would be refused, and how it ended."""

from __future__ import annotations

from ascend_tui.target.exits import Exit, ExitWatch
from ascend_tui.target.facts import Target, TargetGone, TargetId, list_python, read_target
from ascend_tui.target.family import is_launcher, rank_of, ranks_below
from ascend_tui.target.paths import forget_socket, socket_path, socket_path_inside
from ascend_tui.target.preflight import preflight
from ascend_tui.target.proc import state_of
from ascend_tui.target.refusal import Refusal, RefusedError
from ascend_tui.target.versions import torch_versions

__all__ = [
    "Exit",
    "ExitWatch",
    "Refusal",
    "RefusedError",
    "Target",
    "TargetGone",
    "TargetId",
    "forget_socket",
    "is_launcher",
    "list_python",
    "preflight",
    "rank_of",
    "ranks_below",
    "read_target",
    "socket_path",
    "socket_path_inside",
    "state_of",
    "torch_versions",
]
