"""From a pid to a greeted shim: reuse the one that is there, else inject it and wait for its hello."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascend_tui import shim
from ascend_tui.connection import ShimClient, ShimError, ShimGone, ShimShut, ShimSilent
from ascend_tui.frozen import frozen
from ascend_tui.inject import inject
from ascend_tui.inject.plan import Plan, plan_injection, plan_reuse
from ascend_tui.inject.silence import Watch
from ascend_tui.target import (
    Refusal,
    RefusedError,
    Target,
    TargetGone,
    preflight,
    read_target,
    socket_path,
)
from ascend_tui.target.paths import no_room

BOOT_S = 8.0
SHUT_S = 1.0
"""How long a shim that hangs up on a greeting may be one that is being removed."""
POLL_S = 0.002
STANDS_STILL = ("gone", "zombie", "stopped", "traced", "uninterruptible")
"""The refusals that explain why a shim does not answer."""


@frozen
class Attached:
    """A greeted shim and how we came to it; times in milliseconds."""

    client: ShimClient
    method: str
    reason: str
    stops_ms: tuple[float, ...]
    hello_ms: float
    warning: str = ""
    """What this way in may have done to the training."""

    @property
    def longest_stop_ms(self) -> float:
        """The longest time for which a thread of the training was stopped."""
        return max(self.stops_ms, default=0.0)


def target_of(pid: int) -> Target:
    """Return the facts of a process.  Raises RefusedError when there is none."""
    try:
        return read_target(pid)
    except TargetGone:
        raise RefusedError(_hidden(pid) if _is_hidden(pid) else _gone(pid)) from None


def has_shim(target: Target) -> bool:
    """Tell whether a shim answers in `target`; the path of its socket may outlive it."""
    # Not Path.exists(): it raises in the private folder of another user.
    if not os.path.exists(socket_path(target)):
        return False
    try:
        ShimClient.connect(target, name="look", writable=False).close()
    except ShimError:
        return False
    return True


def why_not(target: Target) -> Refusal | None:
    """Return why an injection into `target` would be refused, also when it has ended meanwhile."""
    try:
        return preflight(target) or no_room(target)
    except TargetGone:
        return _gone(target.id.pid)


def attach(
    target: Target,
    *,
    name: str,
    writable: bool,
    method: str = "auto",
    resume: Mapping[str, Any] | None = None,
    may_inject: bool = True,
    on_progress: Callable[[str], None] | None = None,
) -> Attached:
    """Return a greeted shim in `target`, injected if none is there yet and `may_inject`.

    Raises RefusedError with the reason and the next step, before anything was done to the target
    where that can be known before; ShimError when there is a shim that cannot be spoken to, and
    ShimGone when there is none and none may be injected.
    """
    began = time.monotonic()
    tell = on_progress or (lambda text: None)
    tell("looking for a shim")
    client = _present(target, name, writable, resume, may_inject)
    if client is not None:
        return Attached(client, "reused", "a shim was already there", (), _ms(began))
    tell("checking what an attach needs")
    refusal = why_not(target)
    if refusal is not None:
        raise RefusedError(refusal)
    with _alone(target) as was_alone:
        client = None if was_alone else _present(target, name, writable, resume, may_inject)
        if client is not None:
            return Attached(client, "reused", "another monitor put it in just now", (), _ms(began))
        error_file = socket_path(target).with_name(socket_path(target).name + ".error")
        # What an earlier boot, or an earlier process of this pid, left there is no news.
        _take(error_file)
        tell("injecting the shim")
        try:
            done = inject(target, shim.payload(), method)
        except TargetGone:
            raise RefusedError(_gone(target.id.pid)) from None
        tell("waiting for the shim")
        handed_over, watch = time.monotonic(), Watch(target)
        while True:
            try:
                client = ShimClient.connect(target, name=name, writable=writable, resume=resume)
                return Attached(client, done.method, done.reason, done.stops_ms, _ms(began), done.warning)
            except (ShimGone, ShimShut, ShimSilent):
                why = _take(error_file)
            if why:
                raise RefusedError(_did_not_start(target, why))
            waited_s = time.monotonic() - handed_over
            if waited_s > BOOT_S:
                raise RefusedError(why_not(target) or watch.refusal(done, waited_s))
            time.sleep(POLL_S)


def plan(target: Target, method: str = "auto") -> Plan | Refusal:
    """Return what `attach` would do to `target` now, or why it would be refused; nothing is touched."""
    if has_shim(target):
        return plan_reuse(target, method)
    try:
        return why_not(target) or plan_injection(target, shim.payload(), method)
    except TargetGone:
        return _gone(target.id.pid)


@contextmanager
def _alone(target: Target) -> Iterator[bool]:
    """Keep other monitors from injecting until the shim has answered; tell whether none had begun before us.

    The lock is on a folder of /proc: it leaves no file behind and ends with its holder.
    """
    try:
        descriptor = os.open(f"/proc/{target.id.pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise RefusedError(why_not(target) or _gone(target.id.pid)) from None
    was_alone = True
    try:
        end = time.monotonic() + 2 * BOOT_S
        while time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                was_alone = False
                time.sleep(POLL_S)
        yield was_alone
    finally:
        os.close(descriptor)


def _present(
    target: Target, name: str, writable: bool, resume: Mapping[str, Any] | None, may_inject: bool
) -> ShimClient | None:
    """Greet the shim that is there; None when there is none and one may be injected."""
    end = time.monotonic() + SHUT_S
    while True:
        try:
            return ShimClient.connect(target, name=name, writable=writable, resume=resume)
        except ShimGone:
            if not may_inject:
                raise
            return None
        except ShimShut:
            # A shim that is being removed is gone in a moment; one that is full stays full.
            if time.monotonic() > end:
                raise
        except ShimSilent:
            refusal = why_not(target)
            # Whether it may be traced is of no interest here: nothing will be injected.
            if refusal is not None and refusal.code in STANDS_STILL:
                raise RefusedError(refusal) from None
            raise
        time.sleep(POLL_S)


def _ms(began: float) -> float:
    return (time.monotonic() - began) * 1e3


def _take(error_file: Path) -> str:
    """Return what a boot that failed left there, once; empty when nothing did."""
    try:
        text = error_file.read_text(errors="replace")[:500]
        if text:
            error_file.unlink()
    except OSError:
        return ""
    return text


def _gone(pid: int) -> Refusal:
    return Refusal(
        "gone",
        "cannot attach to {pid}",
        "there is no such process",
        "list what can be attached to with: ascend-tui ps",
        (("pid", pid),),
    )


def _is_hidden(pid: int) -> bool:
    """Tell whether a process exists that /proc does not show to this user (hidepid)."""
    if pid <= 0 or os.path.exists(f"/proc/{pid}"):
        return False
    try:
        os.kill(pid, 0)  # signal 0 is none: only the rights are checked
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _hidden(pid: int) -> Refusal:
    return Refusal(
        "hidden",
        "cannot attach to {pid}",
        "it belongs to another user, and /proc does not show it to you (hidepid)",
        "run as its user or as root",
        (("pid", pid),),
    )


def no_shim_to_watch(target: Target) -> Refusal:
    """Return the refusal of a read-only monitor where no shim is."""
    return Refusal(
        "readonly",
        "cannot watch {pid} read-only",
        "there is no shim in it, and --readonly puts none in",
        "attach once without --readonly; q leaves the shim, which any number of read-only monitors can watch",
        (("pid", target.id.pid),),
    )


def _did_not_start(target: Target, why: str) -> Refusal:
    return Refusal(
        "boot",
        "the shim did not start in {pid}",
        "{why}",
        "the training is untouched; remove what the reason names, then attach again",
        (("pid", target.id.pid), ("why", why)),
    )
