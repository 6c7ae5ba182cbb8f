"""Would the dynamic loader find what a library needs?  Its search, as in ld.so(8); nothing is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ascend_tui.inject.elf import Elf, Links
from ascend_tui.inject.errors import InjectError

CACHE = "/etc/ld.so.cache"
DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


class Loader:
    """Search as a process with this LD_LIBRARY_PATH would; `seen` says where its paths are found from here.

    `loaded` are folders whose libraries are there already when the search begins. Left out: an RPATH handed
    down, hwcaps folders, and empty entries (the working folder): CANN uses none of them.
    """

    def __init__(
        self, library_path: str, loaded: Iterable[str] = (), seen: Callable[[str], Path] = Path
    ) -> None:
        self._seen = seen
        self._folders = [one for one in library_path.split(":") if one]
        self._loaded = list(loaded)
        self._cached = _read_cache(seen(CACHE))

    def missing(self, library: str) -> dict[str, str]:
        """Return each name that would not be found, with the library that needs it.

        Those that are found are asked for their own needs: a CANN without its driver fails one floor down.
        """
        start = self._read(library)
        if start is None:
            return {}
        machine, links = start
        absent: dict[str, str] = {}
        met, waiting = set(links.needed), [(library, links)]
        for path, links in waiting:
            for name in links.needed:
                found = self.find(name, machine, links, os.path.dirname(path))
                if found is None:
                    absent[name] = os.path.basename(path)
                    continue
                inner = self._read(found)
                if inner is not None and not met.issuperset(inner[1].needed):
                    fresh = tuple(one for one in inner[1].needed if one not in met)
                    met.update(fresh)
                    waiting.append((found, Links(fresh, inner[1].rpath, inner[1].runpath)))
        return absent

    def find(
        self, name: str, machine: int | None = None, links: Links | None = None, origin: str = ""
    ) -> str | None:
        """Return the first file of this name, of the right machine, or None."""
        if "/" in name:
            return name if os.path.exists(self._seen(name)) else None
        for path in self._candidates(name, links or Links(), origin):
            # The loader passes over a library of another machine and goes on.
            inner = self._read(path)
            if inner is not None and machine in (None, inner[0]):
                return path
        return None

    def _candidates(self, name: str, links: Links, origin: str) -> Iterator[str]:
        own = [one.replace("${ORIGIN}", "$ORIGIN") for one in links.runpath or links.rpath]
        own = [one.replace("$ORIGIN", origin) for one in own]
        before, after = ([], own) if links.runpath else (own, [])
        for folder in (*before, *self._folders, *after, *self._loaded):
            yield os.path.join(folder, name)
        yield from self._cached.get(name, ())
        for folder in DEFAULT:
            yield os.path.join(folder, name)

    def _read(self, path: str) -> tuple[int, Links] | None:
        try:
            with Elf(str(self._seen(path))) as elf:
                return elf.machine, elf.links()
        except (OSError, InjectError):
            return None


def _read_cache(path: Path) -> dict[str, list[str]]:
    """Return the paths in an ld.so.cache by file name.

    All its strings end with a zero byte, and those that begin with a slash are the libraries' paths: that is
    all we need, and it is so in the old format and in the new one.
    """
    found: dict[str, list[str]] = {}
    try:
        data = path.read_bytes()
    except OSError:
        return found
    for one in re.findall(rb"(?<=\0)/[^\0]+(?=\0)", data):
        text = one.decode("utf-8", "surrogateescape")
        found.setdefault(os.path.basename(text), []).append(text)
    return found
