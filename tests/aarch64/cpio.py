"""Write cpio archives (newc), the form in which the kernel takes its first root file system.

Written here because it is forty lines, and `cpio` is on few machines.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


class Archive:
    """One archive being written; the kernel takes several of them one after the other as one."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._count = 0
        self._folders: set[str] = {"."}

    def tree(self, source: Path, under: str = "") -> None:
        """Add a folder with all it holds; modes are kept, the owner is always root."""
        for directory, folders, files in os.walk(source):
            folders.sort()
            relative = Path(under, os.path.relpath(directory, source))
            self.folder(str(relative), stat.S_IMODE(os.lstat(directory).st_mode))
            for name in sorted([*files, *(one for one in folders if Path(directory, one).is_symlink())]):
                path = Path(directory, name)
                facts = path.lstat()
                if stat.S_ISLNK(facts.st_mode):
                    self._entry(str(relative / name), facts.st_mode, os.readlink(path).encode())
                elif stat.S_ISREG(facts.st_mode):
                    self._entry(str(relative / name), facts.st_mode, path.read_bytes())

    def folder(self, name: str, mode: int = 0o755) -> None:
        """Add a folder, and first those above it: the kernel makes none that is not listed."""
        name = os.path.normpath(name)
        if name not in self._folders:
            self._folders.add(name)
            self.folder(os.path.dirname(name) or ".")
            self._entry(name, stat.S_IFDIR | mode, b"")

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Add one file."""
        self.folder(os.path.dirname(name) or ".")
        self._entry(name, stat.S_IFREG | mode, content)

    def close(self) -> None:
        """Write the end mark; the stream itself stays open."""
        self._entry("TRAILER!!!", 0, b"")

    def _entry(self, name: str, mode: int, content: bytes) -> None:
        self._count += 1
        encoded = os.path.normpath(name).encode() + b"\0"
        numbers = (self._count, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        head = b"070701" + b"".join(b"%08X" % number for number in numbers) + encoded
        self._out.write(head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4))
