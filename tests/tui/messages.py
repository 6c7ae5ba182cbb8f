"""Which sentences the catalogues have to hold: read from the sources, without running them.

`python tests/tui/messages.py` prints what a catalogue is missing, as entries to fill in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from babel.messages.pofile import read_po

ROOT = Path(__file__).parents[2]
SOURCES = ("ascend_tui", "plugins")
CATALOGUE = ROOT / "ascend_tui" / "locale" / "zh_CN" / "LC_MESSAGES" / "ascend_tui.po"
# Call -> which of its arguments are shown, by place or by name.
SHOWN: dict[str, tuple[int | str, ...]] = {
    "tr": (0,),
    "msgid": (0,),
    "Message": (0,),
    "of": (0,),
    "Binding": (2, "description"),
    "Key": ("title", "short"),
    "Plugin": (1, "title"),
    "Command": (1, 2, "title", "cost"),
    "Refusal": (1, 2, 3),
    "_refuse": (2, 3, "what"),
}
# Tables of sentences that are passed on by name.
TABLES = {"SENTENCES", "UNKNOWN", "what"}
# Why an attach took its layer, in inject/: what these are, and what `why_not` returns.
REASONS = {"ASKED_FOR", "NOTHING_STOPS", "WAITS", "WARNING", "why"}


def in_sources() -> set[str]:
    """Return every sentence of the sources."""
    found: set[str] = set()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name.startswith("probe") or "shim" in path.parts:
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= set(_of_tree(tree))
            if path.parent.name == "inject":
                found |= set(_reasons(tree))
    # Severities are words of the contract, drawn as they are.
    found |= {"info", "warning", "error", "fatal"}
    return {text for text in found if any(part.isalpha() for part in _outside_places(text))}


def in_catalogue() -> dict[str, str]:
    """Return every sentence of the catalogue with its translation."""
    with CATALOGUE.open("rb") as file:
        return {str(entry.id): str(entry.string) for entry in read_po(file) if entry.id}


def _of_tree(tree: ast.Module) -> Iterator[str]:
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            texts = list(_texts(node.value, known))
            if isinstance(node.value, (ast.Constant, ast.BinOp)) and len(texts) == 1:
                known[name] = texts[0]
            if name in TABLES:
                yield from (text for text in texts if " " in text)
        elif isinstance(node, ast.Call):
            wanted = SHOWN.get(getattr(node.func, "id", getattr(node.func, "attr", "")), ())
            given: list[tuple[int | str | None, ast.expr]] = list(enumerate(node.args))
            given += [(keyword.arg, keyword.value) for keyword in node.keywords]
            for place, value in given:
                if place in wanted:
                    yield from _texts(value, known)


def _reasons(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in REASONS:
            yield from _texts(node.value, {})
        elif isinstance(node, ast.FunctionDef) and node.name == "why_not":
            for one in ast.walk(node):
                if isinstance(one, ast.Return) and one.value is not None:
                    yield from _texts(one.value, {})
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            shown = node.args[2:3] if name == "Choice" else []
            shown += [one.value for one in node.keywords if name == "_replace" and one.arg == "reason"]
            for value in shown:
                yield from _texts(value, {})


def _texts(node: ast.expr, known: dict[str, str]) -> Iterator[str]:
    """Return the texts an expression can be: constants, sums of them, and choices between them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name) and node.id in known:
        yield known[node.id]
    elif isinstance(node, ast.BinOp):
        left, right = list(_texts(node.left, known)), list(_texts(node.right, known))
        yield from (one + other for one in left for other in right)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, known)
        yield from _texts(node.orelse, known)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _texts(value, known)
    elif isinstance(node, (ast.Tuple, ast.List)):
        for value in node.elts:
            yield from _texts(value, known)


def _outside_places(text: str) -> str:
    while "{" in text and "}" in text[text.index("{") :]:
        start = text.index("{")
        text = text[:start] + text[text.index("}", start) + 1 :]
    return text


if __name__ == "__main__":
    have = in_catalogue() if CATALOGUE.exists() else {}
    for text in sorted(in_sources() - set(have)):
        print('msgid "{}"\nmsgstr ""\n'.format(text.replace("\\", "\\\\").replace('"', '\\"')))
