"""Settings and where each came from: command line over environment over file over default.

One table drives the reading, the checks, the error texts and `ascend-tui config`.  A setting that
nobody knows is an error, not a silence: a typed-wrong budget that is ignored would be found by the
training, weeks later.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ascend_tui.frozen import frozen

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "ASCEND_TUI_"
FILE_VARIABLE = PREFIX + "CONFIG"
LANGUAGES = ("", "en", "zh_CN")

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_WEIGHTS = ("ignore", "info", "warning", "error", "fatal")
_MOST_KEYWORDS, _LONGEST_KEYWORD, _MOST_GLOBS = 200, 500, 100


class ConfigError(Exception):
    """A setting that cannot be used; the text says where it stands, what was expected and what to do."""


@frozen
class Setting:
    """One effective value.  `origin` is "default", "file PATH", "environment NAME" or "command line"."""

    key: str
    value: Any
    origin: str


@frozen
class Config:
    """All settings by name, for the code that uses them."""

    tick_s: float
    theme: str
    language: str
    mouse: bool
    readonly: bool
    budget_share: float
    autostart: bool
    run_root: str
    keys: Mapping[str, str]
    log_keywords: Mapping[str, str]
    log_globs: tuple[str, ...]


class _Unfit(Exception):
    """A value is not what its setting takes; the text, where there is one, says what of it."""


@frozen
class Known:
    """One row of the table: `read` turns what was found into the value, or raises _Unfit."""

    key: str
    default: Any
    expected: str
    example: str
    meaning: str
    read: Callable[[Any], Any]


def _number(low: float, high: float) -> Callable[[Any], float]:
    def read(found: Any) -> float:
        try:
            value = float(found) if isinstance(found, str) else found
        except ValueError:
            raise _Unfit from None
        # A bool is an int in Python; "mouse = true" pasted on the wrong line must not become 1 second.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise _Unfit
        if not low <= value <= high:
            raise _Unfit
        return float(value)

    return read


def _switch(found: Any) -> bool:
    if isinstance(found, bool):
        return found
    if isinstance(found, str) and found.lower() in _TRUE + _FALSE:
        return found.lower() in _TRUE
    raise _Unfit


def _text(found: Any) -> str:
    if not isinstance(found, str) or not (found.isprintable() or not found):
        raise _Unfit
    return found


def _language(found: Any) -> str:
    if found not in LANGUAGES:
        raise _Unfit
    return str(found)


def _folder(found: Any) -> str:
    path = _text(found)
    # A relative one would mean another folder in each shell.
    if path and not path.startswith(("/", "~")):
        raise _Unfit
    return os.path.expanduser(path)


def _table(found: Any) -> Mapping[str, str]:
    if isinstance(found, str):
        pairs = [pair.partition("=") for pair in found.split() if pair]
        if not all(separator for _, separator, _ in pairs):
            raise _Unfit
        found = {key: value for key, _, value in pairs}
    if not isinstance(found, Mapping):
        raise _Unfit
    if not all(
        isinstance(item, str) and item and item.isprintable() for pair in found.items() for item in pair
    ):
        raise _Unfit
    return dict(found)


def _keywords(found: Any) -> Mapping[str, str]:
    if isinstance(found, str):
        pairs = [pair.rpartition("=") for pair in found.split(";") if pair.strip()]
        if not all(separator for _, separator, _ in pairs):
            raise _Unfit("each pair, set apart by ;, is TEXT=SEVERITY")
        found = {text.strip(): weight.strip() for text, _, weight in pairs}
    if not isinstance(found, Mapping):
        raise _Unfit
    if len(found) > _MOST_KEYWORDS:
        raise _Unfit(f"{len(found)} are too many, {_MOST_KEYWORDS} are looked for at most")
    for text, weight in found.items():
        if not isinstance(text, str) or not text.strip() or not text.isprintable() or text == "//":
            raise _Unfit(f"{text!r} is nothing that a line could hold")
        if len(text) > _LONGEST_KEYWORD:
            raise _Unfit(f"{text[:20]!r}… is longer than {_LONGEST_KEYWORD} characters")
        if weight not in _WEIGHTS:
            raise _Unfit(f"{text!r} has {weight!r}")
        if len(text) > 2 and text[0] == text[-1] == "/":
            try:
                empty = re.compile(text[1:-1]).search("") is not None
            except (re.error, OverflowError, RecursionError) as error:
                raise _Unfit(f"{text!r} is no regular expression: {error}") from None
            if empty:
                raise _Unfit(f"{text!r} matches a line with nothing in it")
    return dict(found)


def _globs(found: Any) -> tuple[str, ...]:
    if isinstance(found, str):
        found = [path for path in found.split(os.pathsep) if path]
    if not isinstance(found, (list, tuple)):
        raise _Unfit
    if len(found) > _MOST_GLOBS:
        raise _Unfit(f"{len(found)} are too many, {_MOST_GLOBS} are looked at at most")
    paths = []
    for path in found:
        # A relative one would mean other files in each shell.
        if not isinstance(path, str) or not path.startswith(("/", "~")) or not path.isprintable():
            raise _Unfit(f"{path!r} is no path that begins with / or ~")
        paths.append(os.path.expanduser(path))
    return tuple(paths)


KNOWN = (
    Known(
        "tick_s",
        1.0,
        "a number from 0.1 to 60",
        "tick_s = 1.0",
        "seconds between two frames",
        _number(0.1, 60),
    ),
    Known(
        "theme",
        "",
        "a name",
        'theme = "ansi-dark"',
        "colours; empty: chosen for the terminal",
        _text,
    ),
    Known(
        "language",
        "",
        '"en", "zh_CN" or ""',
        'language = "zh_CN"',
        "language of the screen; empty: the locale's",
        _language,
    ),
    Known(
        "mouse",
        False,
        "true or false",
        "mouse = true",
        "take the mouse from the terminal",
        _switch,
    ),
    Known(
        "readonly",
        False,
        "true or false",
        "readonly = true",
        "start no command in the training",
        _switch,
    ),
    Known(
        "budget_share",
        0.03,
        "a share of the step time from 0.001 to 0.5",
        "budget_share = 0.03",
        "what checks may cost before they are thinned",
        _number(0.001, 0.5),
    ),
    Known(
        "autostart",
        True,
        "true or false",
        "autostart = true",
        "start what costs next to nothing with the attach: the watch of loss and gradients",
        _switch,
    ),
    Known(
        "run_root",
        "",
        "an absolute folder",
        'run_root = "~/ascend-tui"',
        "where artefacts go; empty: the user's state folder",
        _folder,
    ),
    Known(
        "keys",
        {},
        "a table from action to key",
        '[keys]\nzoom = "Z"',
        "keys that differ",
        _table,
    ),
    Known(
        "log_keywords",
        {},
        'a table from a text, or a /regular expression/, to "ignore", "info", "warning", "error" or "fatal"',
        '[log_keywords]\n"expert collapsed" = "error"',
        "lines of logs that are worth an incident, or none",
        _keywords,
    ),
    Known(
        "log_globs",
        (),
        "a list of absolute paths, with * where any name fits",
        'log_globs = ["~/runs/*/train.log"]',
        "log files that are read beside those that the process tells of",
        _globs,
    ),
)
"""Every setting there is."""

_BY_KEY = {known.key: known for known in KNOWN}


def effective(
    options: Mapping[str, Any] | None = None,
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Setting]:
    """Return every setting with its value and origin, in the order of the table.

    `options` is what the command line gave, None standing for "not given"; `file` is its `--config`.
    Raises ConfigError for the first thing that is wrong.
    """
    environ = os.environ if environment is None else environment
    given = {key: value for key, value in (options or {}).items() if value is not None}
    for key in given:
        _look_up(key, "command line")
    path = _file(file, environ)
    in_file = _read_file(path) if path is not None else {}
    return [_choose(known, given, environ, in_file, path) for known in KNOWN]


def load(
    options: Mapping[str, Any] | None = None,
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Return the effective settings by name; the arguments are those of `effective`."""
    return Config(**{one.key: one.value for one in effective(options, file, environment)})


def as_mapping(config: Config) -> dict[str, Any]:
    """Return settings by their keys, as a plugin gets them."""
    return {known.key: getattr(config, known.key) for known in KNOWN}


def default_file(environment: Mapping[str, str]) -> Path:
    """Return where the settings file lies when nobody names one."""
    base = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification has relative paths ignored.
    folder = Path(base) if base.startswith("/") else Path(os.path.expanduser("~/.config"))
    return folder / "ascend-tui" / "config.toml"


def _choose(
    known: Known,
    given: Mapping[str, Any],
    environment: Mapping[str, str],
    in_file: Mapping[str, Any],
    path: Path | None,
) -> Setting:
    variable = PREFIX + known.key.upper()
    if known.key in given:
        return _setting(known, given[known.key], "command line")
    if environment.get(variable):
        return _setting(known, environment[variable], f"environment {variable}")
    if known.key in in_file:
        found = in_file[known.key]
        # TOML has types of its own: text where a number belongs is a slip there, not a spelling.
        if isinstance(found, str) and not isinstance(known.default, str):
            raise _error(known, found, f"file {path}")
        return _setting(known, found, f"file {path}")
    return Setting(known.key, known.default, "default")


def _setting(known: Known, found: Any, origin: str) -> Setting:
    try:
        return Setting(known.key, known.read(found), origin)
    except _Unfit as unfit:
        raise _error(known, found, origin, str(unfit)) from None


def _error(known: Known, found: Any, origin: str, why: str = "") -> ConfigError:
    if origin.startswith("file"):
        next_step = "write it like this: " + known.example.replace("\n", ", then ")
    elif origin.startswith("environment"):
        next_step = f"change the variable, or take it away (default: {known.default!r})"
    else:
        next_step = f"change the option, or leave it out (default: {known.default!r})"
    said = why or f"found {found!r}"
    return ConfigError(f"{origin}: {known.key} must be {known.expected}, {said}; {next_step}")


def _look_up(key: str, origin: str) -> Known:
    if key in _BY_KEY:
        return _BY_KEY[key]
    near = difflib.get_close_matches(key, _BY_KEY, n=1)
    hint = f"did you mean {near[0]}?" if near else "`ascend-tui config` lists the settings"
    raise ConfigError(f"{origin}: there is no setting {key!r}; {hint}")


def _file(file: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to read; only the default one may be absent."""
    named = file if file is not None else environment.get(FILE_VARIABLE) or None
    path = Path(named).expanduser() if named is not None else default_file(environment)
    # Not Path.exists(): it raises in the folder of another user, whose HOME `sudo` may have left us.
    if named is None and not os.path.exists(path):
        return None
    return path


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            found: dict[str, Any] = tomllib.load(stream)
    except OSError as error:
        next_step = "make it readable, or name another one with --config"
        raise ConfigError(f"file {path}: cannot be read ({error.strerror}); {next_step}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"file {path}: not TOML ({error}); mend that line, or move the file away") from None
    for key in found:
        _look_up(key, f"file {path}")
    return found
