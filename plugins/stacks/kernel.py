"""What the kernel's words for a waiting thread mean."""

from __future__ import annotations

from .snapshot import Does

# Beginnings of the kernel functions in which a thread can wait (/proc/PID/task/TID/wchan).
_FUNCTIONS: tuple[tuple[str, Does], ...] = (
    ("futex", "lock"),
    ("do_futex", "lock"),
    ("hrtimer_nanosleep", "sleep"),
    ("do_nanosleep", "sleep"),
    ("poll_schedule_timeout", "poll"),
    ("do_sys_poll", "poll"),
    ("do_poll", "poll"),
    ("do_select", "poll"),
    ("ep_poll", "poll"),
    ("do_epoll_wait", "poll"),
    ("sk_wait", "network"),
    ("sk_stream", "network"),
    ("tcp_", "network"),
    ("inet_csk", "network"),
    ("unix_", "network"),
    ("__skb_wait", "network"),
    ("wait_woken", "network"),
    ("pipe_", "pipe"),
    ("anon_pipe_", "pipe"),
    ("do_wait", "process"),
    ("kernel_wait4", "process"),
    ("io_schedule", "disk"),
    ("folio_wait", "disk"),
    ("wait_on_page", "disk"),
    ("rpc_", "disk"),
    ("nfs", "disk"),
)
# The same by the number of the system call, for kernels that keep the function to themselves.
_CALLS: dict[str, dict[Does, tuple[int, ...]]] = {
    "x86_64": {
        "lock": (202, 449),
        "sleep": (35, 230),
        "poll": (7, 23, 232, 270, 271, 281, 441),
        "network": (42, 43, 44, 45, 46, 47, 288, 299, 307),
        "process": (61, 247),
        "driver": (16,),
    },
    "aarch64": {
        "lock": (98, 449),
        "sleep": (101, 115),
        "poll": (22, 72, 73, 441),
        "network": (202, 203, 206, 207, 211, 212, 242, 243, 269),
        "process": (95, 260),
        "driver": (29,),
    },
}


def does(state: str, function: str, call: int | None, machine: str) -> Does:
    """Return what a thread does; `function` and `call` are where it waits, as far as they are known."""
    if state == "R":
        return "runs"
    calls = _CALLS.get(machine, {})
    named = next((word for word, numbers in calls.items() if call in numbers), None)
    # Whatever the driver waits for inside its ioctl, it is the driver that does not answer.
    if named == "driver":
        return "driver"
    for beginning, word in _FUNCTIONS:
        if function.startswith(beginning):
            return word
    if named is not None:
        return named
    return "disk" if state == "D" else "unknown"
