"""The files of the corpus that tell of memory: what `inspect` says of each, and what of it is as expected."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.target import table

ABOUT_MEMORY = ("M", "S", "L12", "L13", "L15")
"""How the names of such files begin: series, npu-smi, and texts of out-of-memory errors."""
HEAD = ["file", "said", "checks"]


def check(folder: Path) -> bool:
    """Print a row for each file by the corpus's own check.py; return whether all its checks hold."""
    checker = _checker(folder / "check.py")
    # It calls the command by its name.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    lines = (folder / "expected.tsv").read_text(encoding="utf-8").splitlines()[1:]
    facts = [line.split("\t") for line in lines if line.startswith(ABOUT_MEMORY)]
    rows, wrong = [], []
    held = asked = 0
    for name in dict.fromkeys(fact[0] for fact in facts):
        found = checker.inspect(folder / name)
        mine = [fact for fact in facts if fact[0] == name and fact[2] != "judge"]
        mine += [[name, mine[0][1], "kind", mine[0][1]]] if mine else []
        right = [fact for fact in mine if _holds(checker, fact, found)]
        held, asked = held + len(right), asked + len(mine)
        rows.append([name, _said(found), f"{len(right)} of {len(mine)}"])
        wrong += [f"{name}: {fact[2]} {fact[3]}" for fact in mine if fact not in right]
    table(f"corpus: {held} of {asked} checks hold", HEAD, rows)
    for line in wrong:
        print(f"WRONG {line}")
    return held == asked


def _checker(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_check", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _holds(checker: ModuleType, fact: list[str], found: Any) -> bool:
    if isinstance(found, str):
        return False
    try:
        return bool(checker.evaluate(fact[2], fact[3], found)[0])
    except (TypeError, ValueError, LookupError, AttributeError):
        return False  # An answer of another shape.


def _said(found: Any) -> str:
    """Return the verdicts of an answer, or its first sentence, or what went wrong."""
    if isinstance(found, str):
        return found[:60]
    kinds, headlines = [], []
    for path, value in (pair for one in found for pair in _walk(one)):
        if path[-2:] == ("verdict", "kind"):
            kinds.append(str(value))
        elif path[-1:] in (("headline",), ("health",)):
            headlines.append(str(value))
    return ", ".join(dict.fromkeys(kinds)) or "; ".join(dict.fromkeys(headlines))[:60] or "nothing"


def _walk(node: Any, path: tuple[str, ...] = ()) -> Any:
    yield path, node
    numbered = enumerate(node) if isinstance(node, list) else ()
    for key, child in node.items() if isinstance(node, dict) else numbered:
        yield from _walk(child, (*path, str(key)))
