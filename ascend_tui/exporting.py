"""Save what is on screen: the picture, and the numbers behind it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from ascend_tui.frame import Frame, as_json, json_lines

Export = Callable[[str, bytes], Path]
"""Write a file of this name into the run's folder, and say where it is."""


def save(export: Export, frame: Frame, picture: str) -> Path:
    """Write `picture` as SVG and `frame` as JSON lines; return their folder.  Raises OSError."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(frame.wall_s))
    numbers = "".join(json.dumps(one, allow_nan=False) + "\n" for one in json_lines(frame))
    export(f"screen-{moment}.svg", picture.encode())
    for target in frame.targets:
        for snapshot in target.plugins.values():
            # A plugin's snapshot may offer evidence: what is worth a file of its own, by name.
            for name, found in getattr(snapshot, "evidence", dict)().items():
                if isinstance(found, str):
                    # A text is a file already, and named like one.
                    export(name, found.encode("utf-8", "replace"))
                else:
                    export(f"{name}.json", (json.dumps(as_json(found), allow_nan=False) + "\n").encode())
    return export(f"snapshot-{moment}.json", numbers.encode()).parent
