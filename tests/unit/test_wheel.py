"""The wheel: what is in it, and that it works where nothing of the source tree is in reach."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SETUPTOOLS = 77
SHIPPED = ("ascend_tui", "plugins", "pyproject.toml", "setup.py", "ascend_tui.pth", "README.md", "LICENSE")

pytestmark = pytest.mark.timeout(300)


def run(*command: object, cwd: Path | None = None) -> str:
    """Return what a command prints; it runs without this environment's paths."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel, built from a copy so that nothing stale or ignored can slip in."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("building a wheel needs pip, which is not installed here")
    try:
        found = version("setuptools")
    except PackageNotFoundError:
        found = "0"
    if int(found.partition(".")[0]) < SETUPTOOLS:
        pytest.skip(f"building a wheel needs setuptools {SETUPTOOLS} or newer, here is {found}")
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation", "-q", "-w", out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the python of a clean environment that holds the wheel and borrows only its dependencies."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    places = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    packages = Path(run(python, "-c", places).strip())
    # A plain path line: it comes after the environment's own packages and its own .pth files are not read,
    # so the editable install of this tree stays out of reach.
    (packages / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    # pip itself is borrowed too; it must not think that the editable install is what it is asked for.
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--ignore-installed", wheel)
    return python


def test_the_wheel_holds_all_and_only_what_belongs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    info = next(top for top in tops if top.endswith(".dist-info"))
    assert tops == {"ascend_tui", "ascend_tui_plugins", "ascend_tui.pth", info}
    for folder, package in (("ascend_tui", "ascend_tui"), ("plugins", "ascend_tui_plugins")):
        for path in (ROOT / folder).rglob("*"):
            wanted = path.suffix in (".py", ".tcss", ".mo") or path.name == "PROTOCOL.md"
            if wanted and "__pycache__" not in path.parts:
                assert f"{package}/{path.relative_to(ROOT / folder)}" in names
    assert "ascend_tui/app.tcss" in names
    assert "ascend_tui/PROTOCOL.md" in names
    assert "ascend_tui_plugins/memory/probe.py" in names
    assert not [name for name in names if name.endswith((".pyc", ".po", ".pot"))]
    assert f"{info}/licenses/LICENSE" in names


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    assert wheel.name.startswith("ascend_tui_monitor-")
    assert wheel.name.endswith("-py3-none-any.whl")
    archive = zipfile.ZipFile(wheel)
    info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = archive.read(info).decode()
    assert "Name: ascend-tui-monitor" in metadata
    assert "Requires-Python: >=3.9" in metadata
    needed = [
        line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line
    ]
    # A monitor must not drag another torch into the environment of a training.
    assert not [line for line in needed if "torch" in line]


def test_it_imports_from_where_it_was_installed(site: Path) -> None:
    code = "import ascend_tui, ascend_tui_plugins.memory as m; print(ascend_tui.__file__); print(m.__file__)"
    for file in run(site, "-c", code, cwd=site.parent).splitlines():
        assert Path(file).is_relative_to(site.parent.parent), file


def test_plugins_probe_and_protocol_are_found(site: Path) -> None:
    code = (
        "from ascend_tui import plugin, shim\n"
        "from importlib.resources import files\n"
        "print(*plugin.names())\n"
        "assert all(one.failed is None for one in plugin.load_all()), plugin.load_all()\n"
        "assert 'def setup' in plugin.probe_text(plugin.load('memory'))\n"
        "assert len(shim.payload()) > 10000\n"
        "assert files('ascend_tui').joinpath('PROTOCOL.md').read_text('utf-8')\n"
    )
    assert "memory" in run(site, "-c", code, cwd=site.parent).split()


def test_the_screen_can_be_built(site: Path) -> None:
    if importlib.util.find_spec("textual") is None:
        pytest.skip("textual is not installed here to be borrowed")
    code = "from ascend_tui.app import MonitorApp; print(MonitorApp.CSS_PATH)"
    assert run(site, "-c", code, cwd=site.parent).strip() == "app.tcss"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_command_answers(site: Path, option: str) -> None:
    printed = run(site.parent / "ascend-tui", option, cwd=site.parent)
    assert "ascend-tui" in printed
    if option == "--version":
        from ascend_tui import __version__

        assert __version__ in printed


def test_a_variable_starts_the_shim_and_without_it_nothing_is_added(site: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\n"
        "end = time.monotonic() + float(sys.argv[1])\n"
        "while '_ascend_tui_shim.shim.agent' not in sys.modules and time.monotonic() < end:\n"
        "    time.sleep(0.01)\n"
        "print(*sorted(sys.modules))\n"
    )

    def modules(seconds: float, **more: str) -> set[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ASCEND"))}
        command = [str(site), str(program), str(seconds)]
        done = subprocess.run(
            command, env={**env, **more}, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    plain = modules(0)
    for value in ("", "0"):
        assert modules(0, ASCEND_TUI=value) == plain
    assert not [name for name in plain if "ascend" in name]
    with_shim = modules(20, ASCEND_TUI="1")
    assert "_ascend_tui_shim.shim.agent" in with_shim
    # The package itself does not stay imported: the training is not to meet it.
    assert not [name for name in with_shim if name.partition(".")[0] == "ascend_tui"]
