"""Readers for single /proc files; they return None where this user may not look."""

from __future__ import annotations

import os

from ascend_tui.frozen import frozen


@frozen
class Stat:
    """The fields of /proc/PID/stat that are used here."""

    comm: str
    state: str
    ppid: int
    flags: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    exit_status: int


def read_bytes(path: str) -> bytes | None:
    """Return the file's content, or None when it is gone or may not be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def read_link(path: str) -> str | None:
    """Return where a /proc link points, or None when it is gone or may not be read."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def read_stat(pid: int) -> Stat | None:
    """Return the parsed /proc/PID/stat, or None when there is no such process."""
    raw = read_bytes(f"/proc/{pid}/stat")
    if not raw:
        return None
    # The command is in parentheses and may itself hold spaces and parentheses: cut at the last one.
    head, _, tail = raw.decode("utf-8", "replace").rpartition(")")
    fields = tail.split()
    return Stat(
        comm=head.partition("(")[2],
        state=fields[0],
        ppid=int(fields[1]),
        flags=int(fields[6]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
    )


def state_of(pid: int) -> str:
    """Return the state letter of a process (R, S, D, T, t, Z, X); empty when there is none."""
    stat = read_stat(pid)
    return stat.state if stat is not None else ""


def read_status(pid: int) -> dict[str, str] | None:
    """Return /proc/PID/status as a dict of stripped strings, or None when there is no such process."""
    raw = read_bytes(f"/proc/{pid}/status")
    if not raw:
        return None
    pairs = (line.partition(":") for line in raw.decode("utf-8", "replace").splitlines())
    return {key: value.strip() for key, _, value in pairs}


def boot_time() -> int:
    """Return when this machine (or its time namespace) booted, in unix seconds."""
    for line in (read_bytes("/proc/stat") or b"").splitlines():
        if line.startswith(b"btime "):
            return int(line.split()[1])
    return 0
