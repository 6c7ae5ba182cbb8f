"""The cooperative way in: an environment that makes a Python program load the shim when it starts.

No ptrace, so it works where tracing is forbidden. Python imports `sitecustomize` from PYTHONPATH at start;
ours runs the payload and then the user's own, which it would otherwise hide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PAYLOAD_VARIABLE = "ASCEND_TUI_PAYLOAD"

# Runs inside the user's program before its first line: Python 3.8 syntax, standard library only, and whatever
# goes wrong in our part must not be seen there.
SITECUSTOMIZE = '''\
"""Load the ascend-tui shim, then the sitecustomize that would have run without us."""


def _load_shim():
    import os
    path = os.environ.get("ASCEND_TUI_PAYLOAD")
    if not path:
        return
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\\0")
    # Helper children of multiprocessing are part of a program, not programs: they get no shim.
    for word in words[1:]:
        if word == b"--multiprocessing-fork" or word.startswith(b"from multiprocessing."):
            return
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("@AREA@", "None")
    exec(compile(text, "<ascend-tui-shim>", "exec"), {"__name__": "_ascend_tui_payload"})


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


try:
    _load_shim()
except (Exception, SystemExit):
    if __import__("os").environ.get("ASCEND_TUI_DEBUG"):
        __import__("traceback").print_exc()
_load_users()
'''


def prepare(env: Mapping[str, str], payload: str, directory: Path) -> dict[str, str]:
    """Write the payload and a `sitecustomize` into `directory`, and return the environment that uses them.

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
    return result


def _write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 that appears whole or not at all."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)
