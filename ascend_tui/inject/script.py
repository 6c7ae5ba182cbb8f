"""A short-lived script in the target's /tmp, for the two ways in that make the target read a file."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack, suppress
from pathlib import PurePosixPath
from types import TracebackType

from ascend_tui.inject.errors import InjectError
from ascend_tui.target import Target, socket_path_inside
from ascend_tui.target.paths import seen_from_here

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The first act of the script is to remove itself: so that it has begun can be seen from here.
_FIRST = """exec('''
try:
    __import__("os").unlink({path!r})
except KeyboardInterrupt:
    # A Ctrl-C that arrives in here belongs to the training.
    __import__("_thread").interrupt_main()
except Exception:
    None
''', {{}})
"""


class Script:
    """A file that only the target's user can read, in the private folder of the socket.

    Use as a context manager: it is gone at the end, whether it has run or not. Raises InjectError with
    `code` when it cannot be written.
    """

    def __init__(self, target: Target, payload: str, code: str) -> None:
        inside = PurePosixPath(socket_path_inside(target))
        self._folder_name, self._name = inside.parent.name, f"{inside.stem}-{secrets.token_hex(8)}.py"
        self.path = str(inside.with_name(self._name))
        """As the target names it."""
        self._made = self._written = False
        self._open = ExitStack()
        try:
            # Step by step and never through a link: root must not be led out of the target's own /tmp.
            above = seen_from_here(target.id.pid, str(inside.parent.parent))
            self._above = self._keep(os.open(above, _FOLDER))
            self._folder = self._private_folder(target)
            self._write(target, _FIRST.format(path=self.path) + payload)
        except OSError as error:
            self.close()
            raise InjectError(code, f"its script cannot be written: {error}") from None

    def __enter__(self) -> Script:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def has_run(self) -> bool:
        """Tell whether the target has begun to run it."""
        try:
            os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return True
        return False

    def close(self) -> None:
        """Remove it if it is still there, and the folder if that was made for it."""
        with self._open, suppress(OSError):
            if self._written:
                os.unlink(self._name, dir_fd=self._folder)
            # A script that has run does not come here: the folder is the shim's from then on.
            if self._made:
                os.rmdir(self._folder_name, dir_fd=self._above)

    def _keep(self, descriptor: int) -> int:
        self._open.callback(os.close, descriptor)
        return descriptor

    def _private_folder(self, target: Target) -> int:
        with suppress(FileExistsError):
            os.mkdir(self._folder_name, 0o700, dir_fd=self._above)
            self._made = True
        folder = self._keep(os.open(self._folder_name, _FOLDER, dir_fd=self._above))
        if self._made:
            _give(folder, target)
        seen = os.fstat(folder)
        if seen.st_uid != target.uid or seen.st_mode & 0o077:
            raise PermissionError(f"{self._folder_name} is not a private folder of user {target.uid}")
        return folder

    def _write(self, target: Target, text: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._name, flags, 0o600, dir_fd=self._folder)
        self._written = True
        with open(descriptor, "w", encoding="utf-8") as file:
            _give(file.fileno(), target)
            file.write(text)


def _give(descriptor: int, target: Target) -> None:
    if os.geteuid() != target.uid:
        os.fchown(descriptor, target.uid, -1)
