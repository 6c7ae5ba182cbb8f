"""The rules of the house: who may import whom, what may travel into a training, what lies where."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_tui.config import tomllib

ROOT = Path(__file__).parent.parent.parent
LONGEST_FILE = 400

PYTHON_FILES = sorted([*ROOT.glob("ascend_tui/**/*.py"), *ROOT.glob("plugins/**/*.py")])
PROBES = sorted(ROOT.glob("plugins/*/probe*.py"))
TRAVELLING = [ROOT / "ascend_tui" / "wire.py", *sorted(ROOT.glob("ascend_tui/shim/*.py")), *PROBES]
PLUGIN_FILES = [path for path in PYTHON_FILES if path.is_relative_to(ROOT / "plugins") and path not in PROBES]

NO_SCREEN = (
    "ascend_tui.attach",
    "ascend_tui.config",
    "ascend_tui.inject.api",
    "ascend_tui.plugin",
    "ascend_tui.rundir",
    "ascend_tui.session",
    "ascend_tui.shim",
    "ascend_tui.target",
)
CONTRACT = {"frame", "frozen", "judging", "moments", "plugin", "series", "target", "text", "widgets"}
"""What a plugin may import of ascend_tui; CONTRIBUTING.md names the same."""


def name_of(path: Path) -> str:
    """Return the import name of a file of the tree."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts[0] = {"plugins": "ascend_tui_plugins"}.get(parts[0], parts[0])
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_with(*modules: str, path: str = "") -> set[str]:
    """Return the top-level names in sys.modules after `modules` were imported in a fresh interpreter."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "print(*{name.partition('.')[0] for name in sys.modules})\n"
    )
    env = {**os.environ, "PYTHONPATH": path} if path else None
    command = [sys.executable, "-c", code, *modules]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (level, module) of every import in a file, also of those inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


# Who imports whom.  The layers are contracts of import-linter, in pyproject.toml; these run the imports.


def test_the_whole_monitor_imports_no_torch() -> None:
    # A probe is text for the training, and the demo's training is a program of its own.
    skipped = (*PROBES, ROOT / "ascend_tui" / "demo" / "training.py")
    modules = [name_of(path) for path in PYTHON_FILES if path not in skipped]
    assert len(modules) > 50
    assert "ascend_tui.app" in modules
    assert imported_with(*modules).isdisjoint({"torch", "torch_npu"})


def test_the_test_above_would_see_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "guilty.py").write_text("def late():\n    import torch\n\n\nlate()\n")
    assert "torch" in imported_with("guilty", path=str(tmp_path))


def test_what_works_without_a_terminal_imports_no_textual() -> None:
    collectors = [name_of(path) for path in PLUGIN_FILES if path.name in ("collector.py", "__init__.py")]
    assert "ascend_tui_plugins.memory.collector" in collectors
    found = imported_with(*NO_SCREEN, *collectors)
    assert "textual" not in found


def test_the_command_line_starts_without_the_screen() -> None:
    # --help, --json and a refusal must not wait for what draws.
    assert imported_with("ascend_tui.cli").isdisjoint({"textual", "torch", "torch_npu"})


@pytest.mark.parametrize("path", PLUGIN_FILES, ids=short)
def test_a_plugin_imports_itself_relatively_and_the_contract_of_the_core(path: Path) -> None:
    for level, module in imports_of(path):
        package, _, rest = module.partition(".")
        assert package != "ascend_tui_plugins", f"{short(path)}: write a relative import"
        # A folder of a plugin's may reach up to the plugin, and no further.
        depth = len(path.relative_to(ROOT / "plugins").parts) - 1
        assert level <= max(depth, 1), f"{short(path)}: a plugin knows nothing of its neighbours"
        if package == "ascend_tui":
            assert rest.partition(".")[0] in CONTRACT, f"{short(path)}: {module} is not for plugins"


# What travels into the training.


@pytest.mark.parametrize("path", TRAVELLING, ids=short)
def test_what_travels_is_python_3_8_and_needs_the_standard_library_only(path: Path) -> None:
    ast.parse(path.read_text("utf-8"), feature_version=(3, 8))
    if sys.version_info < (3, 10):
        pytest.skip("sys.stdlib_module_names exists since Python 3.10")
    for level, module in imports_of(path):
        assert level > 0 or module.partition(".")[0] in sys.stdlib_module_names, f"imports {module}"


@pytest.mark.parametrize("path", TRAVELLING, ids=short)
def test_what_travels_never_imports_by_name(path: Path) -> None:
    # torch is taken from sys.modules: importing it could start what the training did not start.
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            assert called not in ("__import__", "import_module"), f"{short(path)}:{node.lineno}"


def test_what_travels_is_all_listed_and_a_probe_stands_alone() -> None:
    from ascend_tui import shim

    listed = {name for name, _ in shim.sources()}
    files = {"shim." + path.stem for path in ROOT.glob("ascend_tui/shim/*.py") if path.stem != "__init__"}
    assert listed == files | {"wire"}
    for path in PROBES:
        assert all(level == 0 for level, _ in imports_of(path)), short(path)


def python_3_8() -> str | None:
    """Return a Python 3.8 that runs, or None."""
    candidates = [shutil.which("python3.8"), *map(str, Path.home().glob(".pyenv/versions/3.8*/bin/python"))]
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-V"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and "Python 3.8" in done.stdout:
            return candidate
    return None


def test_a_real_python_3_8_compiles_and_runs_it() -> None:
    python = python_3_8()
    if python is None:
        pytest.skip("no Python 3.8 on PATH or below ~/.pyenv")
    code = (
        "import sys, importlib\n"
        "for path in sys.argv[2:]:\n"
        "    compile(open(path, encoding='utf-8').read(), path, 'exec')\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "for name in ('agent', 'server', 'probes'):\n"
        "    importlib.import_module('ascend_tui.shim.' + name)\n"
    )
    done = subprocess.run(
        [python, "-B", "-I", "-c", code, str(ROOT), *map(str, TRAVELLING)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# What lies where.


@pytest.mark.parametrize("path", PYTHON_FILES, ids=short)
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", PYTHON_FILES, ids=short)
def test_nothing_is_passed_over_in_silence(path: Path) -> None:
    # Bare and blind excepts and prints are ruff's to find.
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        assert not isinstance(node, ast.Pass), f"{short(path)}:{node.lineno}"


def test_every_file_named_in_the_layout_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    block = re.search(r"<!-- layout -->\s*```\n(.*?)```", text, re.S)
    assert block is not None
    named = [line.split()[0] for line in block.group(1).splitlines() if line.strip()]
    assert len(named) > 25
    missing = [name for name in named if not (ROOT / name).exists()]
    assert missing == []


def test_the_packages_and_plugins_of_the_tree_are_all_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = {name_of(path) for path in PYTHON_FILES if path.name == "__init__.py"}
    assert set(project["tool"]["setuptools"]["packages"]) == packages
    entries = project["project"]["entry-points"]["ascend_tui.plugins"]
    folders = {path.parent.name for path in ROOT.glob("plugins/*/__init__.py")}
    assert set(entries) == folders
    for name, value in entries.items():
        assert value == f"ascend_tui_plugins.{name}:PLUGIN"


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_the_documents_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in link:
            assert (ROOT / link).exists(), link


def test_the_translation_has_every_part_of_the_original() -> None:
    english = (ROOT / "README.md").read_text("utf-8")
    chinese = (ROOT / "README.zh-CN.md").read_text("utf-8")
    for pattern in (r"(?m)^#+ ", r"(?m)^```", r"(?m)^\|", r"(?m)^\s*[-*] ", r"\]\("):
        assert len(re.findall(pattern, english)) == len(re.findall(pattern, chinese)), pattern
    commands = re.findall(r"(?m)^(ascend-tui .*?)(?:  |$)", english)
    assert commands == re.findall(r"(?m)^(ascend-tui .*?)(?:  |$)", chinese)
