"""The commands of `ascend-tui`: parse, call one function, return its exit code."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Sequence

import ascend_tui
from ascend_tui.commands import OK, REFUSED, USAGE
from ascend_tui.commands.output import line, say
from ascend_tui.config import ConfigError, as_mapping, effective, load
from ascend_tui.rundir import RunFolderError

SEVERITIES = ("info", "warning", "error", "fatal")
METHODS = ("auto", "remote_exec", "thread", "pending", "gdb")
EPILOG = """\
examples:
  ascend-tui demo --fault leak             a training of ours that leaks, attached and watched
  ascend-tui demo --fault overflow         one whose activations leave float16: where, and from what
  ascend-tui demo --fault hang             one that hangs: the stack of every thread
  ascend-tui ps                            what can be attached to
  ascend-tui attach 41233                  attach to a running training; q leaves, Q removes the shim
  ascend-tui run -- python train.py        start with the shim inside, no ptrace needed
  ascend-tui attach 41233 --headless --json --seconds 60 > memory.jsonl
  ascend-tui inspect train.log memory.csv  what files say: out of memory, a leak, a first bad output
  ascend-tui inspect NEW --baseline OLD    two profiles: which operators became slower

exit codes: 0 ok, 1 findings, 2 usage, 3 refused, 4 target gone
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.  stdout is data, stderr is diagnostics."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        return _dispatch(options)
    except ConfigError as error:
        say(str(error))
        return USAGE
    except RunFolderError as error:
        say(str(error))
        return REFUSED
    except KeyboardInterrupt:
        say("interrupted")
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # `| head` closed our stdout: not a fault, and nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def build_parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    parser = argparse.ArgumentParser(
        prog="ascend-tui",
        description="Attach to a running PyTorch training and watch it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ascend-tui {ascend_tui.__version__}")
    parser.add_argument("--config", metavar="FILE", help="read the settings from FILE")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    one = commands.add_parser("attach", help="attach to running trainings and watch them")
    one.add_argument("pid", type=int, nargs="+", metavar="PID")
    _watching(one)
    one.add_argument("--method", choices=METHODS, default="auto", help="how to inject: auto takes the safest")
    one.add_argument("--readonly", action="store_true", help="only watch: start nothing, put no shim in")
    one.add_argument("--passive", action="store_true", help="put nothing in: look from outside only")
    one.add_argument("--ranks", default="", metavar="LIST", help="of a launcher: all, none, or 0,2-5")
    one.add_argument("--dry-run", action="store_true", help="only say what would be done, or what stops it")

    one = commands.add_parser("run", help="start a training with the shim inside (no ptrace)")
    _watching(one)
    one.add_argument(
        "--allow-ptrace", action="store_true", help="let this user's processes attach to it (PR_SET_PTRACER)"
    )
    one.add_argument(
        "--no-reuse", action="store_true", help="without the NPU and CUDA allocators' cache, from the start"
    )
    one.add_argument("words", nargs=argparse.REMAINDER, metavar="-- CMD ...")

    one = commands.add_parser("demo", help="watch a small real training of ours")
    one.add_argument("--fault", default="none", help="what goes wrong in it: none, leak, overflow, hang")
    _watching(one)

    one = commands.add_parser("ps", help="list what can be attached to")
    _json(one)

    one = commands.add_parser("do", help="what a hotkey does, for scripts")
    one.add_argument("pid", type=int, metavar="PID")
    one.add_argument("name", metavar="PLUGIN.COMMAND")
    one.add_argument("words", nargs="*", metavar="start|stop key=value")
    one.add_argument("--no-wait", action="store_true", help="do not wait for the end of its lease")
    _json(one)

    one = commands.add_parser("detach", help="remove the shim from a process")
    one.add_argument("pid", type=int, metavar="PID")
    _json(one)

    one = commands.add_parser("doctor", help="what stands in the way on this machine")
    one.add_argument("pid", type=int, nargs="?", metavar="PID")
    _json(one)

    one = commands.add_parser("inspect", help="what logs, series, profiles and npu-smi texts say")
    one.add_argument("files", nargs="+", metavar="FILE|DIR")
    _json(one)
    one.add_argument("--fail-on", choices=SEVERITIES, help="exit 1 when something is at least so grave")
    one.add_argument(
        "--baseline", metavar="OLD", help="an earlier profile, or a folder of them, to compare with"
    )

    commands.add_parser("config", help="the effective settings and where each comes from")
    return parser


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")


def _watching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--headless", action="store_true", help="no screen: one line per target and tick")
    _json(parser)
    parser.add_argument("--seconds", type=float, metavar="S", help="with --headless: end after S seconds")
    parser.add_argument("--tick", type=float, metavar="S", help="seconds between two frames (1)")
    parser.add_argument("--theme", metavar="NAME", help="colours of the screen")
    parser.add_argument("--language", metavar="CODE", help="en or zh_CN")
    parser.add_argument("--mouse", action="store_true", help="let the screen have the mouse")


def _dispatch(options: argparse.Namespace) -> int:
    # Each command imports what it needs: `ps` must not wait for the screen's libraries.
    if options.command is None:
        from ascend_tui.commands.ps import ps

        say("attach to one of these with: ascend-tui attach PID (ascend-tui --help tells more)")
        return ps(False)
    if options.command == "ps":
        from ascend_tui.commands.ps import ps

        return ps(options.json)
    if options.command == "doctor":
        from ascend_tui.commands.doctor import doctor

        return doctor(options.pid, options.json)
    if options.command == "detach":
        from ascend_tui.commands.manage import detach

        return detach(options.pid, options.json)
    if options.command == "do":
        from ascend_tui.commands.manage import do

        return do(options.pid, options.name, options.words, options.json, not options.no_wait)
    if options.command == "inspect":
        from ascend_tui.commands.inspect import inspect_files

        settings = as_mapping(load())
        return inspect_files(options.files, options.json, options.fail_on, options.baseline, settings)
    if options.command == "config":
        for setting in effective(file=options.config):
            line(f"{setting.key} = {setting.value!r}    # {setting.origin}")
        return OK
    return _watch(options)


def _watch(options: argparse.Namespace) -> int:
    # Nothing of a thousand imports is garbage: looking for it costs a tenth of the time to the first picture.
    gc.disable()
    from ascend_tui.commands.watch import Watch, attach, can_show

    given = {"tick_s": options.tick, "theme": options.theme, "language": options.language}
    # A switch that is not given says nothing: the file may have it on.
    given.update({name: True for name in ("readonly", "mouse") if getattr(options, name, False)})
    config = load(given, options.config)
    how = Watch(
        headless=options.headless or options.json,
        json=options.json,
        seconds=options.seconds,
        method=getattr(options, "method", "auto"),
        passive=getattr(options, "passive", False),
    )
    if options.command == "attach":
        return attach(options.pid, how, config, options.ranks, options.dry_run)
    if not can_show(how):
        return USAGE
    if options.command == "demo":
        from ascend_tui.commands.demo import demo

        return demo(options.fault, how, config)
    from ascend_tui.commands.run import run

    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    return run(words, how, config, options.allow_ptrace, options.no_reuse)
