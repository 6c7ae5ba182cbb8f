"""One root for every file this program leaves behind, by run, kind and round.

Diagnosis files are compared with those of the round before, so nothing is ever overwritten, and one
`rm -r` of one folder removes all traces of a run.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path

MOST_NAME_BYTES = 120
_ROUND = re.compile(r"(\d+)-(.*)", re.S)


class RunFolderError(OSError):
    """A file could not be put into the run folder: what, why, and what to do.

    It is an OSError: whoever is prepared for a write that fails is prepared for this one.
    """

    def __init__(self, what: str, why: str, next_step: str) -> None:
        super().__init__(f"{what}: {why}; {next_step}")
        self.what = what
        self.why = why
        self.next_step = next_step


def default_root(run_root: str = "", environment: Mapping[str, str] | None = None) -> Path:
    """Return the root: the setting `run_root`, else the user's state folder."""
    if run_root:
        return Path(run_root).expanduser()
    base = (os.environ if environment is None else environment).get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    folder = Path(base) if base.startswith("/") else Path(os.path.expanduser("~/.local/state"))
    return folder / "ascend-tui"


class RunFolder:
    """The files of one monitor on one target: `<root>/<YYYYmmdd-HHMMSS>-<pid>/<kind>/<round>-<name>`.

    Nothing is created before the first file is asked for.
    """

    def __init__(self, root: str | os.PathLike[str], pid: int, now: float | None = None) -> None:
        """Name the folder after `pid` and the local time at `now` (Unix seconds, by default this moment)."""
        self.folder = Path(root) / f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{pid}"

    def path(self, kind: str, name: str) -> Path:
        """Return a new, empty file of mode 0600 for `name`; the round grows with each of that name.

        Raises RunFolderError.
        """
        return self._new(kind, name, _touch)

    def directory(self, kind: str, name: str) -> Path:
        """Return a new, empty directory instead of a file.  Raises RunFolderError."""
        return self._new(kind, name, _mkdir)

    def write(self, kind: str, name: str, data: bytes) -> Path:
        """Write `data` into a new file; a file that cannot be finished is removed.

        Raises RunFolderError.
        """
        path = self.path(kind, name)
        try:
            path.write_bytes(data)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise _error(f"cannot write {path}", error) from None
        return path

    def _new(self, kind: str, name: str, create: Callable[[Path], None]) -> Path:
        folder = self.folder / clean_name(kind)
        name = clean_name(name)
        try:
            self._make(folder)
            number = _last_round(folder, name) + 1
            while True:
                path = folder / f"{number:03d}-{name}"
                try:
                    create(path)
                except FileExistsError:
                    # Another monitor on the same target took the round in between.
                    number += 1
                    continue
                return path
        except OSError as error:
            raise _error(f"cannot create a file in {folder}", error) from None

    def _make(self, folder: Path) -> None:
        root = self.folder.parent
        os.makedirs(root.parent, exist_ok=True)
        for one in (root, self.folder, folder):
            try:
                os.mkdir(one, 0o700)
            except FileExistsError:
                # The root may be a link and shared; below it, a link put there first would lead elsewhere.
                if one == root and one.is_dir():
                    continue
                seen = os.lstat(one)
                if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
                    why = "it is not a directory of this user"
                    raise NotADirectoryError(errno.ENOTDIR, why, str(one)) from None


def clean_name(text: str) -> str:
    """Return `text` as one file name: no separators, nothing a terminal obeys, not hidden, not too long."""
    kept = "".join("_" if char in "/\\" or unicodedata.category(char)[0] == "C" else char for char in text)
    kept = kept.strip()
    if kept.startswith("."):
        kept = "_" + kept[1:]
    stem, dot, suffix = kept.rpartition(".")
    if not dot or len(suffix) > 10:
        stem, dot, suffix = kept, "", ""
    room = MOST_NAME_BYTES - len((dot + suffix).encode())
    stem = stem.encode()[:room].decode("utf-8", "ignore")
    return (stem + dot + suffix) or "unnamed"


def _last_round(folder: Path, name: str) -> int:
    rounds = [0]
    for entry in os.listdir(folder):
        found = _ROUND.fullmatch(entry)
        if found is not None and found.group(2) == name:
            rounds.append(int(found.group(1)))
    return max(rounds)


def _touch(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _mkdir(path: Path) -> None:
    os.mkdir(path, 0o700)


def _error(what: str, error: OSError) -> RunFolderError:
    why = error.strerror or type(error).__name__
    return RunFolderError(what, why, "free space there, or choose another folder with the setting run_root")
