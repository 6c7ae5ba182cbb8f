"""Files found by a pattern, and by their names alone: what looks like a log, what a rotated one is called."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator

from ascend_tui.target.paths import seen_from_here

MOST_ENTRIES = 20_000
MOST_MATCHES = 64
_WILD = re.compile(r"[*?\[]")
_LOG_NAME = re.compile(r"\.(?:log|txt|out|err|jsonl)(?:\.|$)|^(?:log|stdout|stderr|nohup)$", re.I)
_LOG_FOLDER = re.compile(r"^logs?(?:[._-]|$)|[._-]logs?$", re.I)
_NO_LOG = re.compile(
    r"tfevents|-(?:wal|shm|journal)$|\.(?:ptt?|pth|ckpt|safetensors|bin|np[yz]|h5|hdf5|pkl|pickle|mindir|om|onnx|pb"
    r"|db|sqlite3?|lmdb|mdb|so|parquet|arrow|idx|json|csv|ya?ml|gz|bz2|xz|zst|zip|tar|png|jpe?g|mp4|wandb|trace|prof"
    r"|lock|pid|tmp)$",
    re.I,
)
_ROTATED = re.compile(r"[.-](?:\d{1,4}|\d{4}-?\d\d-?\d\d[\d_.T:-]{0,16})(\.gz|\.bz2|\.xz)?$")


def is_log(path: str) -> bool:
    """Tell by its name whether an open file is a log: by its ending, or by a folder `log`, `run_logs`.

    Checkpoints, databases, event files of TensorBoard and the like are never one, wherever they lie.
    """
    folder, name = os.path.split(path)
    if _NO_LOG.search(name):
        return False
    return bool(_LOG_NAME.search(name)) or any(_LOG_FOLDER.search(one) for one in folder.split("/")[-3:])


def base_of(name: str) -> str:
    """Return what a rotated file was called before: `a.log` of `a.log.2.gz` and `a.log-20260101`."""
    return _ROTATED.sub("", name)


def rotations(path: str) -> list[str]:
    """Return the rotated files beside a log, oldest first by when they were last written."""
    folder, name = os.path.split(path)
    found: list[tuple[float, str]] = []
    try:
        names = os.listdir(folder or ".")[:MOST_ENTRIES]
    except OSError:
        return []
    for one in names:
        if one != name and base_of(one) == name:
            try:
                found.append((os.stat(os.path.join(folder, one)).st_mtime, os.path.join(folder, one)))
            except OSError:
                continue
    return [one for _, one in sorted(found)]


def matching(pid: int, pattern: str, since_s: float = 0.0) -> list[tuple[str, str]]:
    """Return the files that match an absolute pattern in a process's file system, as (its path, ours).

    `**` stands for any folders.  Only files written since `since_s` count: `runs/*/train.log` names those of
    every run there ever was.  The walk ends after so many entries, whatever is not looked at by then: a
    pattern above a data set must not cost minutes.
    """
    words = os.path.normpath(pattern).split("/")
    fixed = next((at for at, word in enumerate(words) if _WILD.search(word)), len(words))
    # Without the folders in front, whose links must be followed as the process would.
    start = "/".join(words[:fixed]) or "/"
    walked = set(_walk(start, seen_from_here(pid, start).as_posix(), words[fixed:], [MOST_ENTRIES]))
    found = [(_written_s(here), path, here) for path, here in walked]
    newest = sorted((one for one in found if one[0] >= since_s), reverse=True)[:MOST_MATCHES]
    return sorted((path, here) for _, path, here in newest)


def _written_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return float("-inf")


def _walk(inside: str, here: str, words: list[str], left: list[int]) -> Iterator[tuple[str, str]]:
    if not words:
        if os.path.isfile(here):
            yield inside, here
        return
    word, rest = words[0], words[1:]
    if word == "**":
        yield from _walk(inside, here, rest, left)
    elif not _WILD.search(word):
        yield from _walk(os.path.join(inside, word), os.path.join(here, word), rest, left)
        return
    try:
        with os.scandir(here) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    return
                if word == "**":
                    # Not through links, which may lead back.
                    if entry.is_dir(follow_symlinks=False):
                        yield from _walk(os.path.join(inside, entry.name), entry.path, words, left)
                elif fnmatch.fnmatchcase(entry.name, word) and (
                    not entry.name.startswith(".") or word.startswith(".")
                ):
                    yield from _walk(os.path.join(inside, entry.name), entry.path, rest, left)
    except OSError:
        return
