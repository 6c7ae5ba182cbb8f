"""The text that starts the shim, in an interpreter that is ending: it is silent and does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_tui.shim import AREA, payload

# Modules go away one by one, and with them what an import, a codec or a name needs.
LATE = """
import builtins, ctypes, os, sys
class Late:
    def __init__(self, text):
        self.text, self.run, self.write = text, ctypes.pythonapi.PyRun_SimpleString, os.write
    def __del__(self):
        self.write(1, b"late ")
        self.write(1, b"%d" % self.run(self.text))
late = Late(open(sys.argv[1], "rb").read())
if sys.argv[2] == "main": keep = late
elif sys.argv[2] == "sys": sys.keep = late
elif sys.argv[2] == "builtins": builtins.keep = late
else: sys.modules["kept"] = late
del late
"""
# The shim's own thread meets the same a moment later.
THREAD = """
import os, sys, threading, time, types
text = open(sys.argv[1]).read()
keep = ("os", "sys", "threading", "types", "time", "builtins", "_thread", "__main__")
for name in list(sys.modules):
    if name not in keep:
        sys.modules[name] = None
sys.meta_path = None
exec(text)
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(10)
os.write(1, b"goes on")
os._exit(0)
"""
# What the outermost guard is for: nothing that it could name is there any more.
NAMELESS = """
import builtins, ctypes, os, sys
text = open(sys.argv[1], "rb").read()
run, write, leave = ctypes.pythonapi.PyRun_SimpleString, os.write, os._exit
vars(builtins).pop("exec")
vars(builtins).pop("Exception")
vars(builtins).pop("KeyboardInterrupt")
write(1, b"%d" % run(text))
leave(0)
"""


def pythons() -> Iterator[str]:
    yield sys.executable
    for version in ("3.8", "3.9", "3.13"):
        yield from sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))[:1]


@pytest.fixture(
    params=list(pythons()), ids=lambda path: path.partition("versions/")[2].partition("/")[0] or "own"
)
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "payload.py"
    path.write_text(payload(str(tmp_path / "private" / "1.sock")).replace(AREA, "None"))
    return path


def outcome(python: str, code: str, *arguments: object) -> tuple[int, str, str]:
    command = [python, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("where", ["main", "sys", "builtins", "modules"])
def test_started_while_modules_go_away_it_says_nothing(python: str, text: Path, where: str) -> None:
    code, out, err = outcome(python, LATE, text, where)
    assert (code, err) == (0, "")
    assert out.startswith("late ")


def test_a_boot_that_is_overtaken_by_the_end_says_why_in_its_file_only(python: str, text: Path) -> None:
    assert outcome(python, THREAD, text) == (0, "goes on", "")
    assert "Error(" in (text.parent / "private" / "1.sock.error").read_text()


def test_without_any_name_left_it_says_nothing(python: str, text: Path) -> None:
    assert outcome(python, NAMELESS, text) == (0, "0", "")
