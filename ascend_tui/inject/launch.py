"""The cooperative way in: an environment that makes a Python program load the shim when it starts.

No ptrace, so it works where tracing is forbidden. Python imports `sitecustomize` from PYTHONPATH at start;
ours runs the payload and then the user's own, which it would otherwise hide. Where this distribution is
installed for the training's own Python, its .pth file does the same when ASCEND_TUI is set (`start`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAYLOAD_VARIABLE = "ASCEND_TUI_PAYLOAD"
PTRACE_VARIABLE = "ASCEND_TUI_ALLOW_PTRACE"

# Runs inside the user's program before its first line: Python 3.8 syntax, standard library only, and whatever
# goes wrong in our part must not be seen there.
LOADER = """\
def _load_shim(text_of_payload):
    import os
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\\0")
    # Helper children of multiprocessing and of torch's compiler are part of a program, not programs.
    for word in words[1:]:
        if word == b"--multiprocessing-fork" or word.startswith(b"from multiprocessing."):
            return
        if b"/torch/_inductor/compile_worker/" in word:
            return
    if os.environ.get("ASCEND_TUI_ALLOW_PTRACE") == "1":
        import ctypes
        # PR_SET_PTRACER, any process: what Yama 1 asks of a process that is to be attached to.
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
    text = text_of_payload().replace("@AREA@", "None")
    exec(compile(text, "<ascend-tui-shim>", "exec"), {"__name__": "_ascend_tui_payload"})


def _try_shim(text_of_payload):
    try:
        _load_shim(text_of_payload)
    except (Exception, SystemExit):
        if __import__("os").environ.get("ASCEND_TUI_DEBUG"):
            __import__("traceback").print_exc()
"""
SITECUSTOMIZE = (
    '''\
"""Load the ascend-tui shim, then the sitecustomize that would have run without us."""


'''
    + LOADER
    + """

def _payload():
    with open(__import__("os").environ["ASCEND_TUI_PAYLOAD"], encoding="utf-8") as file:
        return file.read()


def _load_users():
    import importlib.util
    import os
    import sys
    ours = os.path.dirname(os.path.realpath(__file__))
    places = [p for p in sys.path if os.path.realpath(p or os.curdir) != ours]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __import__("os").environ.get("ASCEND_TUI_PAYLOAD"):
    _try_shim(_payload)
_load_users()
"""
)


def prepare(
    env: Mapping[str, str], payload: str, directory: Path, allow_ptrace: bool = False
) -> dict[str, str]:
    """Write the payload and a `sitecustomize` into `directory`, and return the environment that uses them.

    The environment is inherited, so that each rank that a launcher starts gets a shim of its own.
    `allow_ptrace` has every program declare that any process of this user may trace it (Yama 1).
    `env` itself is not changed. `directory` must exist and be the user's alone: whoever can write there runs
    code in the training. Raises OSError when it cannot be written.
    """
    payload_path = directory / "payload.py"
    for path, text in ((payload_path, payload), (directory / "sitecustomize.py", SITECUSTOMIZE)):
        _write_private(path, text)
    result = dict(env)
    # An empty entry in PYTHONPATH means the current directory: an unset one must not become one.
    paths = [str(directory)] + ([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])
    result["PYTHONPATH"] = os.pathsep.join(paths)
    result[PAYLOAD_VARIABLE] = str(payload_path)
    if allow_ptrace:
        result[PTRACE_VARIABLE] = "1"
    return result


def start() -> None:
    """Load the shim into this very process: what `ascend_tui.pth` calls when Python starts.

    Nothing of this package stays imported: the training may have modules of the same names in mind.
    """
    from ascend_tui import shim

    names: dict[str, Any] = {}
    exec(compile(LOADER, "<ascend-tui-shim>", "exec"), names)
    names["_try_shim"](shim.payload)
    for name in [name for name in sys.modules if name.partition(".")[0] == "ascend_tui"]:
        del sys.modules[name]


def _write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 that appears whole or not at all."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)
