"""The one thing pyproject.toml cannot say: a file beside the packages, which Python reads when it starts."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

START = "ascend_tui.pth"


class BuildWithStart(build_py):
    """Put the .pth file where site-packages begins; an editable install has none."""

    def run(self) -> None:
        """Build as always, then copy."""
        super().run()
        if not self.editable_mode:
            shutil.copyfile(START, Path(self.build_lib) / START)

    def get_outputs(self, include_bytecode: bool = True) -> list:
        """Name the file too, so that it is uninstalled."""
        ours = [] if self.editable_mode else [str(Path(self.build_lib) / START)]
        return [*super().get_outputs(include_bytecode), *ours]


setup(cmdclass={"build_py": BuildWithStart})
