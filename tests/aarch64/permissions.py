"""Yama's rules as the preflight tells them; Debian's kernel has Yama, most test machines do not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ascend_tui.inject import helper
from ascend_tui.inject.errors import InjectError
from ascend_tui.target import preflight, read_target
from tests.aarch64 import targets
from tests.aarch64.injecting import in_child, request

SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
USER = 1000


@contextmanager
def of_a_user() -> Iterator[subprocess.Popen[str]]:
    """Start a process of a user without rights; a line to it makes it traceable for everybody."""
    command = [sys.executable, targets.__file__, "permit", str(USER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def ask(pid: int, as_user: bool) -> tuple[str, str]:
    """Return the code of preflight's refusal and then the injector's, "" where there is none."""

    def work() -> object:
        if as_user:
            os.setuid(USER)
        target = read_target(pid)
        refusal = preflight(target)
        if refusal is not None:
            print(f"as {'user' if as_user else 'root'}: {refusal.english()}", flush=True)
        code = "" if refusal is None else refusal.code
        try:
            helper.perform(request(pid, "thread", "# @AREA@"))
        except InjectError as error:
            return code, error.code
        return code, ""

    status, answer = in_child(work)
    assert status == 0
    assert isinstance(answer, list)
    return answer[0], answer[1]


def permit(process: subprocess.Popen[str]) -> None:
    """Let it call PR_SET_PTRACER."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "permitted\n"


def check(scope: int, expected: dict[str, tuple[str, str]], count: int) -> tuple[int, str]:
    """Ask as user and as root, before and after the target has permitted it."""
    SCOPE.write_text(str(scope))
    seen = {}
    with of_a_user() as process:
        seen["user"] = ask(process.pid, True)
        seen["root"] = ask(process.pid, False)
        permit(process)
        seen["user, permitted"] = ask(process.pid, True)
    assert seen == expected, f"{seen}, expected {expected}"
    words = (f"{who}: {codes[0] or 'attached'}" for who, codes in seen.items())
    return len(seen), "; ".join(words)


FINE = ("", "")
SCOPES = {
    0: {"user": FINE, "root": FINE, "user, permitted": FINE},
    1: {"user": ("yama_1", "ptrace_refused"), "root": FINE, "user, permitted": FINE},
    2: {"user": ("yama_2", "ptrace_refused"), "root": FINE, "user, permitted": ("yama_2", "ptrace_refused")},
    3: dict.fromkeys(("user", "root", "user, permitted"), ("yama_3", "ptrace_refused")),
}
# In this order: 3 cannot be taken back.
CHECKS = {f"yama {scope}": partial(check, scope, expected) for scope, expected in SCOPES.items()}
