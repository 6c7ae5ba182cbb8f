"""The cooperative start: real programs, with the shim's payload in front of them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ascend_tui.inject.launch import PAYLOAD_VARIABLE, prepare

PAYLOAD = "import sys; sys.loaded = [@AREA@, __name__]\n"
SHOW = "import sys; print(getattr(sys, 'loaded', 'nothing'))"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "ours"
    made.mkdir(mode=0o700)
    return made


def clean_env(**more: str) -> dict[str, str]:
    dropped = {"PYTHONPATH", PAYLOAD_VARIABLE}
    return {**{key: value for key, value in os.environ.items() if key not in dropped}, **more}


def run(env: dict[str, str], *arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=env, cwd=cwd, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_payload_runs_before_the_program(directory: Path) -> None:
    env = prepare(clean_env(), PAYLOAD, directory)
    assert run(env, "-c", SHOW) == "[None, '_ascend_tui_payload']"


def test_the_environment_is_a_copy_and_the_files_are_private(directory: Path) -> None:
    before = clean_env(PYTHONPATH="/somewhere")
    kept = dict(before)
    env = prepare(before, PAYLOAD, directory)
    assert before == kept
    assert env["PYTHONPATH"] == f"{directory}{os.pathsep}/somewhere"
    assert env[PAYLOAD_VARIABLE] == str(directory / "payload.py")
    assert sorted(path.name for path in directory.iterdir()) == ["payload.py", "sitecustomize.py"]
    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert prepare(clean_env(), "pass", directory)["PYTHONPATH"] == str(directory)
    assert (directory / "payload.py").read_text() == "pass"


def test_without_the_variable_nothing_is_added(directory: Path) -> None:
    env = prepare(clean_env(), PAYLOAD, directory)
    del env[PAYLOAD_VARIABLE]
    assert run(env, "-c", SHOW) == "nothing"
    plain = run(clean_env(), "-c", "import sys; print(sorted(sys.modules))")
    ours = run(env, "-c", "import sys; print(sorted(sys.modules))")
    assert set(eval(ours)) - set(eval(plain)) <= {"sitecustomize", *importlib_modules()}


def importlib_modules() -> set[str]:
    """What looking for the user's own sitecustomize imports from the standard library."""
    code = "import sys; before = set(sys.modules); import importlib.util; print(set(sys.modules) - before)"
    return set(eval(run(clean_env(), "-c", code)))


@pytest.mark.parametrize("variable", ["set", "unset"])
def test_the_users_own_sitecustomize_still_runs(directory: Path, tmp_path: Path, variable: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys; sys.theirs = __file__; VALUE = 42\n")
    env = prepare(clean_env(PYTHONPATH=str(theirs)), PAYLOAD, directory)
    if variable == "unset":
        del env[PAYLOAD_VARIABLE]
    code = "import sys, sitecustomize; print(sys.theirs, sitecustomize.VALUE, hasattr(sys, 'loaded'))"
    loaded = variable == "set"
    assert run(env, "-c", code) == f"{theirs / 'sitecustomize.py'} 42 {loaded}"


def test_an_error_in_the_users_sitecustomize_is_theirs_to_see(directory: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")
    env = prepare(clean_env(PYTHONPATH=str(theirs)), PAYLOAD, directory)
    done = subprocess.run([sys.executable, "-c", SHOW], env=env, capture_output=True, text=True, timeout=30)
    assert "RuntimeError: theirs" in done.stderr
    assert "_ascend_tui_payload" in done.stdout


@pytest.mark.parametrize("broken", ["1/0", "def (", "raise KeyError", "import no_such_module"])
def test_a_broken_payload_does_not_stop_the_program(directory: Path, broken: str) -> None:
    env = prepare(clean_env(), broken, directory)
    assert run(env, "-c", "print('fine')") == "fine"
    env["ASCEND_TUI_DEBUG"] = "1"
    command = [sys.executable, "-c", "print('fine')"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "fine"
    assert "Error" in done.stderr


def test_a_missing_payload_does_not_stop_the_program(directory: Path) -> None:
    env = prepare(clean_env(), PAYLOAD, directory)
    (directory / "payload.py").unlink()
    assert run(env, "-c", "print('fine')") == "fine"


def test_an_exit_in_the_payload_does_not_end_the_program(directory: Path) -> None:
    env = prepare(clean_env(), "raise SystemExit(3)", directory)
    assert run(env, "-c", "print('fine')") == "fine"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_helper_children_of_multiprocessing_load_nothing(
    directory: Path, tmp_path: Path, method: str
) -> None:
    log = tmp_path / "log"
    payload = f"import os; open({str(log)!r}, 'a').write(str(os.getpid()) + ' ')"
    env = prepare(clean_env(), payload, directory)
    script = tmp_path / "main.py"
    script.write_text(
        "import multiprocessing, os\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
        "        pool.map(abs, range(4))\n"
        "    print(os.getpid())\n"
    )
    assert run(env, str(script)) == log.read_text().strip()


def test_a_program_that_is_a_module_or_reads_stdin(directory: Path) -> None:
    env = prepare(clean_env(), PAYLOAD, directory)
    assert "usage" in run(env, "-m", "json.tool", "-h").lower()
    done = subprocess.run([sys.executable], env=env, input=SHOW, capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "[None, '_ascend_tui_payload']"


def test_a_program_may_ask_to_be_traced_and_does_not_unless_it_is_told_to(
    directory: Path, tmp_path: Path
) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace, which would show the call, is not installed")
    for allow in (False, True):
        env = prepare(clean_env(), PAYLOAD, directory, allow_ptrace=allow)
        log = tmp_path / f"trace-{allow}"
        command = [strace, "-f", "-e", "trace=prctl", "-o", str(log), sys.executable, "-c", SHOW]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            pytest.skip(f"strace may not trace here: {done.stderr.strip()[-200:]}")
        # A kernel without Yama answers EINVAL, which is no fault: there nobody has to ask.
        assert done.stdout.strip() == "[None, '_ascend_tui_payload']"
        assert ("PR_SET_PTRACER" in log.read_text()) is allow


def test_the_workers_of_torchs_compiler_load_nothing(directory: Path, tmp_path: Path) -> None:
    worker = tmp_path / "torch" / "_inductor" / "compile_worker" / "__main__.py"
    worker.parent.mkdir(parents=True)
    worker.write_text(SHOW)
    assert run(prepare(clean_env(), PAYLOAD, directory), str(worker)) == "nothing"
