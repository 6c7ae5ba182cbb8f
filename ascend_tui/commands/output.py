"""Where the commands' words go: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

from ascend_tui.frame import SCHEMA, as_json
from ascend_tui.target import Refusal
from ascend_tui.text import clean


def data(value: Any) -> None:
    """Print one JSON object on one line, at once, in UTF-8 whatever the locale is."""
    text = json.dumps(as_json(value), allow_nan=False, ensure_ascii=False) + "\n"
    sys.stdout.flush()
    # Half a surrogate pair (a file name that is no UTF-8) becomes its JSON escape.
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def line(text: str) -> None:
    """Print one line of a result; what the terminal's encoding lacks becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write((clean(text) + "\n").encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def say(text: str) -> None:
    """Print one line for the person, which is no data."""
    sys.stderr.write(f"ascend-tui: {clean(text)}\n")
    sys.stderr.flush()


def refuse(refusal: Refusal, as_data: bool) -> None:
    """Tell a refusal: what, why and the next step."""
    if as_data:
        data({"schema": SCHEMA, "refused": refusal.as_json()})
    say(refusal.english())
