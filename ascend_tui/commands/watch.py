"""Watching targets: on the screen, or as JSON lines without one."""

from __future__ import annotations

import gc
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from ascend_tui.attach import has_shim, no_shim_to_watch, target_of, why_not
from ascend_tui.commands import GONE, OK, REFUSED, USAGE
from ascend_tui.commands.attach_log import AttachLog
from ascend_tui.commands.output import data, line, refuse, say
from ascend_tui.commands.plans import tell_plans
from ascend_tui.commands.ranks import RanksError, of_all
from ascend_tui.config import Config, as_mapping
from ascend_tui.frame import Frame, json_lines
from ascend_tui.frozen import frozen
from ascend_tui.plugin import load_all
from ascend_tui.rundir import RunFolder, default_root
from ascend_tui.session import Session
from ascend_tui.target import Refusal, RefusedError, Target
from ascend_tui.text import byte_size, duration

JOIN_S = 1.0


@frozen
class Watch:
    """How to watch: what the options of `attach`, `run` and `demo` have in common."""

    headless: bool = False
    json: bool = False
    seconds: float | None = None
    method: str = "auto"
    passive: bool = False


@frozen
class Joining:
    """What may join while others are watched: `more` names all there are now, `is_over` that none comes."""

    more: Callable[[], Sequence[Target]]
    is_over: Callable[[], bool]


def attach(pids: Sequence[int], how: Watch, config: Config, ranks: str = "", dry_run: bool = False) -> int:
    """Attach to running processes and watch them; of a launcher, to its ranks.

    What would be refused is refused here, before the screen starts and before anything is done to
    any of the targets.
    """
    asks = not how.headless and not dry_run and sys.stdin.isatty()
    try:
        targets = of_all([target_of(pid) for pid in dict.fromkeys(pids)], ranks, asks)
    except RefusedError as error:
        refuse(error.refusal, how.json)
        return REFUSED
    except RanksError as error:
        say(str(error))
        return USAGE
    if dry_run:
        return tell_plans(targets, how.method, how.json)
    for target in targets:
        refusal = None if how.passive else _why_not(target, config)
        if refusal is not None:
            refuse(refusal, how.json)
            say(f"to look at it from outside, nothing put in: ascend-tui attach {target.id.pid} --passive")
            return REFUSED
    if not targets:
        return OK
    if how.method == "gdb":
        from ascend_tui.inject import gdb

        say(f"warning: {gdb.WARNING}")
    if not can_show(how):
        return USAGE
    return watch(targets, how, config)


def _why_not(target: Target, config: Config) -> Refusal | None:
    if has_shim(target):
        return None
    return no_shim_to_watch(target) if config.readonly else why_not(target)


def can_show(how: Watch) -> bool:
    """Tell whether there is a terminal for the screen where one is needed, and say so if not."""
    if how.headless or (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    say("this is no terminal: add --headless (and --json for data)")
    return False


def watch(targets: Sequence[Target], how: Watch, config: Config, joining: Joining | None = None) -> int:
    """Watch targets until the user leaves, the time is over or all of them have ended."""
    folder = RunFolder(default_root(config.run_root), targets[0].id.pid)
    log = AttachLog(folder, aloud=how.headless)
    session = Session(
        load_all(),
        writable=not config.readonly,
        tick_s=config.tick_s,
        method=how.method,
        budget_share=config.budget_share,
        autostart=config.autostart,
        passive=how.passive,
        settings=as_mapping(config),
        on_attached=log.took,
    )
    session.add(*targets)
    if joining is not None:
        _let_join(session, targets, joining)
    if how.headless:
        _collect_garbage_again()
        return _headless(session, how, joining)
    return _screen(session, config, folder)


def _let_join(session: Session, targets: Sequence[Target], joining: Joining) -> None:
    """Add what comes later: the other ranks of a launcher, or those it starts again after a failure."""
    seen = {target.id for target in targets}

    def look() -> None:
        while not joining.is_over():
            for target in joining.more():
                if target.id not in seen:
                    seen.add(target.id)
                    session.add(target)
            time.sleep(JOIN_S)

    threading.Thread(target=look, name="joining", daemon=True).start()


def _collect_garbage_again() -> None:
    # What is imported by now stays for good: frozen, it is never searched again.
    gc.freeze()
    gc.enable()


def _screen(session: Session, config: Config, folder: RunFolder) -> int:
    # Textual costs 0.2 s to import; headless use does without.
    from ascend_tui.app import MonitorApp

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


def _headless(session: Session, how: Watch, joining: Joining | None) -> int:
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
            all_over = bool(states) and all(state in ("exited", "refused") for state in states)
            if all_over and (joining is None or joining.is_over()):
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
