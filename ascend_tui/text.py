"""Words and numbers of the screen: its language, and what makes foreign text safe to show.

Sentences are English in the source and are translated when they are drawn, never before, so that
the language can change while the screen is up.
"""

from __future__ import annotations

import gettext
import math
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from rich.cells import cell_len, set_cell_size

from ascend_tui.plugin import Message, Scalar

LANGUAGES = ("en", "zh_CN")
_CATALOGUES = Path(__file__).parent / "locale"
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_GONE = ("Cf", "Zl", "Zp")
_HIDDEN = ("Cs", "Co", "Cn")

_language = "en"
_catalogue: gettext.NullTranslations = gettext.NullTranslations()


def set_language(code: str) -> None:
    """Speak `code` from the next drawn sentence on; an unknown one is English."""
    global _language, _catalogue
    _language = code if code in LANGUAGES else "en"
    _catalogue = gettext.translation("ascend_tui", _CATALOGUES, [_language], fallback=True)


def language() -> str:
    """Return the code of the present language."""
    return _language


def language_of(environment: Mapping[str, str]) -> str:
    """Return the language that the locale variables ask for."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environment.get(name):
            return "zh_CN" if environment[name].startswith("zh") else "en"
    return "en"


def msgid(text: str) -> str:
    """Mark a literal for the catalogue where it cannot be translated yet."""
    return text


def tr(text: str, **params: Scalar) -> str:
    """Translate an English sentence and fill its {named} places."""
    return say(Message.of(text, **params))


def say(message: Message) -> str:
    """Render a message in the present language, safe to draw.

    A message whose places do not fit its parameters is shown as its bare text: a plugin's slip
    in a sentence must not take the screen down.
    """
    for translate in (_catalogue.gettext, str):
        try:
            return clean(message.render(translate if message.text else str))
        except (KeyError, IndexError, ValueError):
            continue
    return clean(message.text)


def say_reason(reason: str) -> str:
    """Return why an attach took its layer: sentences that were joined where no catalogue is known."""
    parts = (part.partition(": ") for part in reason.split("; "))
    return "; ".join(f"{tr(head)}{colon}{tr(rest) if rest else ''}" for head, colon, rest in parts)


def clean(text: str) -> str:
    """Return `text` on one line, without anything a terminal obeys.

    Control characters become their pictures (ESC is ␛), direction overrides and other invisible
    characters vanish, what no terminal can draw becomes a question mark.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_clean_character(character) for character in text)


def _clean_character(character: str) -> str:
    if character in "\t\n\r":
        return " "
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    category = unicodedata.category(character)
    # Variation selectors change the width of the character before them, each terminal in its way.
    if category in _GONE or 0xFE00 <= code <= 0xFE0F:
        return ""
    return "?" if category == "Cc" or category in _HIDDEN else character


def plain(line: str) -> str:
    """Return a line without the colours and cursor movements of a terminal."""
    return _ANSI.sub("", line) if "\x1b" in line else line


def width(text: str) -> int:
    """Return how many cells `text` takes."""
    return cell_len(text)


def fit(text: str, cells: int) -> str:
    """Return `text` cut to at most `cells` cells, the cut shown by an ellipsis."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…" if cells > 0 else ""


def fold(text: str, cells: int) -> list[str]:
    """Break a text into lines of at most `cells` columns, at spaces where there are any."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if width(joined) <= cells:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        # Chinese has no spaces, and a path can be longer than a line.
        for character in word:
            if width(lines[-1] + character) > cells:
                lines.append("")
            lines[-1] += character
    return lines


def count(value: float) -> str:
    """Return a whole number with its thousands apart."""
    return f"{value:,.0f}"


def share(value: float) -> str:
    """Return a share as per cent with one decimal."""
    return f"{value * 100:.1f} %"


_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def byte_unit(value: float) -> tuple[float, str]:
    """Return the divisor and the name of the binary unit in which `value` reads best."""
    power = 0
    while abs(value) >= 1024 ** (power + 1) and power + 1 < len(_BYTES):
        power += 1
    return float(1024**power), _BYTES[power]


def digits(value: float) -> str:
    """Return a number in three significant digits, at most four characters under 1,000."""
    size = abs(value)
    places = 0 if size >= 99.95 or value == 0 else 1 if size >= 9.995 else 2
    return f"{value:.{places}f}"


def byte_size(value: float) -> str:
    """Return an amount of memory in its own unit."""
    divisor, unit = byte_unit(value)
    return f"{digits(value / divisor)} {unit}"


def duration(seconds: float) -> str:
    """Return a time from microseconds to days, in two parts at most."""
    if not math.isfinite(seconds):
        return "∞"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{digits(seconds)} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 60:
        return f"{minutes} min {int(seconds) % 60:02d} s" if minutes < 10 else f"{minutes} min"
    return f"{hours} h {minutes % 60:02d} min" if hours < 48 else f"{days} d {hours % 24} h"
