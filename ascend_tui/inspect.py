"""Files in, results out: the collectors of the plugins, used offline.

Each file is shown to the plugins in their order; the first that knows its kind reads it.  A file that
cannot be read, that nobody knows or whose reader fails costs only itself, and says why.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ascend_tui import plugin
from ascend_tui.frame import SCHEMA, as_json
from ascend_tui.frozen import frozen

HEAD = 1 << 20
"""Bytes of a file that a plugin sees to tell its kind: its beginning, and if that tells nothing its end."""
SEVERITIES = ("info", "warning", "error", "fatal")
OF_VERDICT = {
    "leak": "error",
    "host_leak": "error",
    "capacity": "error",
    "fragmentation": "warning",
    "external": "warning",
    "buffer_growth": "warning",
}
"""How grave a memory verdict is; the other ones are information."""
FOLDED = 100
"""Incidents that the digest of several files holds at most."""


@frozen
class Inspected:
    """One file: its kind, plugin and result, or in `trouble` why there is none.

    `unknown` tells that the file can be read and no plugin knows it.
    """

    file: str
    kind: str = ""
    plugin: str = ""
    result: Any = None
    trouble: str = ""
    unknown: bool = False
    baseline: str = ""
    """The file that the result is compared with."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `inspect --json` prints for the file."""
        return {
            "schema": SCHEMA,
            "file": self.file,
            "kind": self.kind,
            "plugin": self.plugin,
            "result": self.result,
        }


Beside = Callable[[Inspected, str], Inspected]


def inspect(
    paths: Iterable[Path], beside: Beside | None = None, settings: Mapping[str, Any] | None = None
) -> Iterator[Inspected]:
    """Yield a result for each file, folders walked in the order of their names, as plain JSON values.

    `beside` may put a result beside an earlier one before that (baseline.py).
    """
    for one, place in results(paths, settings):
        yield _plain(beside(one, place) if beside is not None and not one.trouble else one)


def results(
    paths: Iterable[Path], settings: Mapping[str, Any] | None = None
) -> Iterator[tuple[Inspected, str]]:
    """Yield what the plugins' readers return for each file, with its place in the folder that was named.

    Links in a folder are not followed to other folders, so that a circle of them ends.
    """
    readers, settings = _readers(), settings or {}
    for path in paths:
        for file, trouble in _files(path):
            one = Inspected(str(file), trouble=trouble) if trouble else _inspect(file, readers, settings)
            yield one, str(file.relative_to(path)) if file != path else file.name


def _plain(one: Inspected) -> Inspected:
    """Return a result of which whoever folds or prints it needs to know no plugin's classes."""
    try:
        return dataclasses.replace(one, result=as_json(one.result))
    except Exception as error:  # noqa: BLE001 - one file's trouble is not the next one's
        return failed(one, error)


def failed(one: Inspected, error: Exception) -> Inspected:
    """Return a file whose plugin failed, which costs only itself."""
    words = f"the plugin {one.plugin} failed: {type(error).__name__}: {error}"
    return Inspected(one.file, one.kind, one.plugin, trouble=words)


def nobody(event: plugin.Event) -> None:
    """Take an event of a collector that reads a file: what it has to say is in its result."""


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a path, each with what is wrong with it."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        yield path, _words(path, error)
        return
    if stat.S_ISREG(mode):
        yield path, ""
    elif stat.S_ISDIR(mode):
        yield from _walk(path)
    else:
        yield path, "is neither a file nor a folder"


def _walk(folder: Path) -> Iterator[tuple[Path, str]]:
    found = False
    denied: list[OSError] = []
    for root, folders, names in os.walk(folder, onerror=denied.append):
        folders.sort()
        for name in sorted(names):
            file = Path(root, name)
            # A pipe in a run's folder would block whoever opens it.
            if file.is_file():
                found = True
                yield file, ""
    for error in denied:
        yield Path(error.filename or folder), _words(folder, error)
    if not found and not denied:
        yield folder, "holds no file"


def _words(path: Path, error: OSError) -> str:
    if path.is_symlink() and not path.exists():
        return "is a link that leads nowhere"
    return f"cannot be read: {error.strerror or error}"


def _readers() -> list[tuple[plugin.Plugin, Any]]:
    """Return the plugins that read files, with their sniffer or with why it cannot be loaded."""
    found = []
    for one in plugin.load_all():
        if one.plugin is not None and one.plugin.sniff is not None:
            try:
                found.append((one.plugin, plugin.resolve(one.plugin.sniff)))
            except Exception as error:  # noqa: BLE001 - a broken plugin costs its own files only
                found.append((one.plugin, error))
    return found


def _inspect(
    file: Path, readers: Sequence[tuple[plugin.Plugin, Any]], settings: Mapping[str, Any]
) -> Inspected:
    try:
        head, tail = _ends(file)
    except OSError as error:
        return Inspected(str(file), trouble=_words(file, error))
    if not head:
        return Inspected(str(file), trouble="is empty")
    broken = ""
    for part in filter(None, (head, tail)):
        for one, sniff in readers:
            try:
                if isinstance(sniff, Exception):
                    raise sniff
                kind = sniff(part, file.name)
            except Exception as error:  # noqa: BLE001 - the others may know the file
                broken = f"the plugin {one.name} failed: {type(error).__name__}: {error}"
                continue
            if kind is not None:
                return _read(file, str(kind), one, settings)
    return Inspected(
        str(file), trouble=broken or "is nothing that an installed plugin reads", unknown=not broken
    )


def _ends(file: Path) -> tuple[bytes, bytes]:
    """Return the first bytes of a file, and the last ones where it is longer than these."""
    with file.open("rb") as opened:
        head = opened.read(HEAD)
        size = os.fstat(opened.fileno()).st_size
        if size <= HEAD:
            return head, b""
        opened.seek(max(HEAD, size - HEAD))
        return head, opened.read(HEAD)


def _read(file: Path, kind: str, one: plugin.Plugin, settings: Mapping[str, Any]) -> Inspected:
    found = Inspected(str(file), kind, one.name)
    try:
        collector = plugin.resolve(one.collector)(nobody)
        collector.configure(settings)
        return dataclasses.replace(found, result=collector.read(file))
    except OSError as error:
        return dataclasses.replace(found, trouble=_words(file, error))
    except Exception as error:  # noqa: BLE001 - one file's trouble is not the next one's
        return failed(found, error)


# What a result says, whichever plugin it is from.


def items(result: Any) -> list[Mapping[str, Any]]:
    """Return the incidents and findings of a result."""
    if not isinstance(result, Mapping):
        return []
    found = [one for name in ("incidents", "findings") for one in result.get(name) or ()]
    return [one for one in found if isinstance(one, Mapping)]


def verdict(result: Any) -> Mapping[str, Any] | None:
    """Return the verdict of a result, None where it has none."""
    found = result.get("verdict") if isinstance(result, Mapping) else None
    return found if isinstance(found, Mapping) else None


def severity(result: Any) -> str | None:
    """Return the worst severity of a result, None where it finds nothing to say."""
    found = [str(one.get("severity")) for one in items(result)]
    judged = verdict(result)
    if judged is not None:
        found.append(OF_VERDICT.get(str(judged.get("kind")), "info"))
    ranks = [SEVERITIES.index(word) for word in found if word in SEVERITIES]
    return SEVERITIES[max(ranks)] if ranks else None


class Digest:
    """Several files folded into one object, in memory that does not grow with them."""

    def __init__(self) -> None:
        """Start with no file."""
        self.files = 0
        self.kinds: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.severities: Counter[str] = Counter()
        self.unknown = 0
        self.troubles = 0
        self._folded: dict[tuple[str, str, str], dict[str, Any]] = {}

    def add(self, one: Inspected) -> None:
        """Count one file, and fold its incidents into those that say the same."""
        self.files += 1
        if one.trouble:
            self.unknown += one.unknown
            self.troubles += not one.unknown
            return
        self.kinds[one.kind] += 1
        judged, worst = verdict(one.result), severity(one.result)
        if judged is not None:
            self.verdicts[str(judged.get("kind"))] += 1
        if worst is not None:
            self.severities[worst] += 1
        for item in items(one.result):
            self._fold(one.file, item)

    def _fold(self, file: str, item: Mapping[str, Any]) -> None:
        headline = str(item.get("headline", ""))
        # Ranks and devices differ by their numbers only.
        key = (str(item.get("category")), str(item.get("severity")), re.sub(r"\d[\d.,]*", "#", headline))
        count = item.get("count")
        times = count if isinstance(count, int) else 1
        ranks = item.get("ranks") or []
        before = self._folded.get(key)
        if before is None:
            if len(self._folded) < FOLDED:
                self._folded[key] = {**item, "count": times, "ranks": sorted(ranks), "files": 1, "file": file}
            return
        before["count"] += times
        before["files"] += before.pop("last", before["file"]) != file
        before["last"] = file
        before["ranks"] = sorted({*before["ranks"], *ranks})

    def as_json(self) -> dict[str, Any]:
        """Return the last object of several files."""
        found = [{key: value for key, value in one.items() if key != "last"} for one in self._folded.values()]
        found.sort(
            key=lambda one: (
                -SEVERITIES.index(str(one["severity"])) if one.get("severity") in SEVERITIES else 0
            )
        )
        return {
            "schema": SCHEMA,
            "kind": "digest",
            "files": self.files,
            "kinds": dict(self.kinds),
            "verdicts": dict(self.verdicts),
            "severities": dict(self.severities),
            "unknown": self.unknown,
            "unreadable": self.troubles,
            "incidents": found,
        }
