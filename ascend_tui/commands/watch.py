"""Watching targets: on the screen, or as JSON lines without one."""

from __future__ import annotations

import gc
import queue
import sys
import time
from collections.abc import Sequence
from functools import partial

from ascend_tui.attach import has_shim, no_shim_to_watch, target_of, why_not
from ascend_tui.commands import GONE, OK, REFUSED, USAGE
from ascend_tui.commands.output import data, line, refuse, say
from ascend_tui.config import Config
from ascend_tui.frame import Frame, json_lines
from ascend_tui.frozen import frozen
from ascend_tui.plugin import load_all
from ascend_tui.rundir import RunFolder, default_root
from ascend_tui.session import Session
from ascend_tui.target import RefusedError, Target
from ascend_tui.text import byte_size, duration


@frozen
class Watch:
    """How to watch: what the options of `attach`, `run` and `demo` have in common."""

    headless: bool = False
    json: bool = False
    seconds: float | None = None
    method: str = "auto"


def attach(pids: Sequence[int], how: Watch, config: Config, dry_run: bool = False) -> int:
    """Attach to running processes and watch them.

    What would be refused is refused here, before the screen starts and before anything is done to
    any of the targets.
    """
    targets = []
    for pid in dict.fromkeys(pids):
        try:
            target = target_of(pid)
            refusal = None
            if not has_shim(target):
                refusal = no_shim_to_watch(target) if config.readonly else why_not(target)
        except RefusedError as error:
            refusal = error.refusal
        if refusal is not None:
            refuse(refusal, how.json)
            return REFUSED
        targets.append(target)
    if dry_run:
        return _tell_plan(targets, how)
    if not can_show(how):
        return USAGE
    return watch(targets, how, config)


def can_show(how: Watch) -> bool:
    """Tell whether there is a terminal for the screen where one is needed, and say so if not."""
    if how.headless or (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    say("this is no terminal: add --headless (and --json for data)")
    return False


def _tell_plan(targets: Sequence[Target], how: Watch) -> int:
    for target in targets:
        shim = has_shim(target)
        plan = "use the shim that is there" if shim else f"inject the shim by ptrace, method {how.method}"
        if how.json:
            data({"pid": target.id.pid, "title": target.title, "python": target.python, "plan": plan})
        else:
            line(f"{target.id.pid} {target.title}: nothing stops an attach; it would {plan}")
    return OK


def watch(targets: Sequence[Target], how: Watch, config: Config) -> int:
    """Watch targets until the user leaves, the time is over or all of them have ended."""
    session = Session(
        load_all(),
        writable=not config.readonly,
        tick_s=config.tick_s,
        method=how.method,
        budget_share=config.budget_share,
    )
    for target in targets:
        session.add(target)
    if how.headless:
        _collect_garbage_again()
        return _headless(session, targets, how)
    return _screen(session, targets, config)


def _collect_garbage_again() -> None:
    # What is imported by now stays for good: frozen, it is never searched again.
    gc.freeze()
    gc.enable()


def _screen(session: Session, targets: Sequence[Target], config: Config) -> int:
    # Textual costs 0.2 s to import; headless use does without.
    from ascend_tui.app import MonitorApp

    folder = RunFolder(default_root(config.run_root), targets[0].id.pid)
    app = MonitorApp(
        session,
        session.plugins,
        theme=config.theme or None,
        mouse=config.mouse,
        tick_s=config.tick_s,
        readonly=config.readonly,
        language=config.language or None,
        keymap=config.keys,
        export=partial(folder.write, "export"),
    )
    _collect_garbage_again()
    app.run()
    for text in app.farewell:
        line(text)
    return app.return_code or OK


def _headless(session: Session, targets: Sequence[Target], how: Watch) -> int:
    frames: queue.Queue[Frame] = queue.Queue()
    session.start(frames.put)
    end = None if how.seconds is None else time.monotonic() + how.seconds
    code = OK
    try:
        while end is None or time.monotonic() < end:
            left = 1.0 if end is None else max(0.0, end - time.monotonic())
            try:
                frame = frames.get(timeout=min(left, 1.0))
            except queue.Empty:
                continue
            _print(frame, how.json)
            states = [one.status.state for one in frame.targets]
            if len(states) == len(targets) and all(state in ("exited", "refused") for state in states):
                code = REFUSED if "refused" in states else GONE
                for one in frame.targets:
                    say(f"{one.status.id.pid}: {one.status.reason.render() if one.status.reason else ''}")
                break
    except KeyboardInterrupt:
        say("stopped; the idle shim stays, remove it with: ascend-tui detach PID")
    finally:
        session.stop()
    return code


def _print(frame: Frame, as_data: bool) -> None:
    for one in json_lines(frame):
        if as_data:
            data(one)
    if as_data:
        return
    for target in frame.targets:
        status = target.status
        words = [f"{status.id.pid} {status.title}", status.state]
        if status.reason is not None:
            words.append(status.reason.render())
        if status.step is not None:
            words.append(f"step {status.step:,}")
        if status.step_time_s is not None:
            words.append(duration(status.step_time_s))
        memory = getattr(target.plugins.get("memory"), "current", None)
        if memory is not None and memory.rss_bytes is not None:
            words.append(f"rss {byte_size(memory.rss_bytes)}")
        line("  ".join(words))
