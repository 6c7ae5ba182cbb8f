"""Settings: precedence, origins, and errors that say where, what and what next."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_tui.config import KNOWN, ConfigError, Setting, default_file, effective, load


def by_key(settings: list[Setting]) -> dict[str, Setting]:
    return {one.key: one for one in settings}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_without_anything_every_setting_is_its_default() -> None:
    settings = effective(environment={"XDG_CONFIG_HOME": "/nowhere"})
    assert [one.key for one in settings] == [known.key for known in KNOWN]
    assert {one.origin for one in settings} == {"default"}
    assert load(environment={"XDG_CONFIG_HOME": "/nowhere"}).tick_s == 1.0


def test_command_line_beats_environment_beats_file_beats_default(file: Path) -> None:
    file.write_text('tick_s = 2\ntheme = "nord"\nlanguage = "zh_CN"\n')
    environment = {"ASCEND_TUI_TICK_S": "3", "ASCEND_TUI_THEME": "gruvbox"}
    found = by_key(effective({"tick_s": 4.0, "theme": None}, file, environment))
    assert (found["tick_s"].value, found["tick_s"].origin) == (4.0, "command line")
    assert (found["theme"].value, found["theme"].origin) == ("gruvbox", "environment ASCEND_TUI_THEME")
    assert (found["language"].value, found["language"].origin) == ("zh_CN", f"file {file}")
    assert found["mouse"].origin == "default"


def test_the_file_is_found_in_the_xdg_folder_and_by_its_variable(tmp_path: Path, file: Path) -> None:
    file.write_text("mouse = true\n")
    (tmp_path / "ascend-tui").mkdir()
    (tmp_path / "ascend-tui" / "config.toml").write_text("tick_s = 7\n")
    xdg = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert load(environment=xdg).tick_s == 7.0
    named = load(environment={**xdg, "ASCEND_TUI_CONFIG": str(file)})
    assert (named.mouse, named.tick_s) == (True, 1.0)
    assert default_file({"XDG_CONFIG_HOME": "relative"}).is_absolute()


def test_a_file_that_was_named_must_be_there(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file"):
        effective(file=file, environment={})
    with pytest.raises(ConfigError, match="cannot be read"):
        effective(environment={"ASCEND_TUI_CONFIG": str(file)})


@pytest.mark.parametrize(
    "text",
    [
        'tick_s = "fast"',
        'tick_s = "2"',
        "tick_s = true",
        "tick_s = 0",
        "tick_s = nan",
        "tick_s = inf",
        "tick_s = [1]",
        "theme = 3",
        'theme = "a\\u001b[2J"',
        'language = "fr"',
        "mouse = 1",
        'mouse = "yes"',
        "budget_share = 3",
        'run_root = "here"',
        "keys = 1",
        "[keys]\nzoom = 1",
        '[keys]\nzoom = ""',
    ],
)
def test_a_wrong_value_names_file_key_expectation_and_next_step(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        effective(file=file, environment={})
    key = "keys" if "keys" in text else text.split()[0]
    known = next(one for one in KNOWN if one.key == key)
    for part in (str(file), key, known.expected, "write it like this"):
        assert part in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.key)
def test_the_example_in_each_error_is_itself_right(file: Path, known: object) -> None:
    file.write_text(known.example)  # type: ignore[attr-defined]
    assert by_key(effective(file=file, environment={}))[known.key].origin == f"file {file}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.key)
def test_each_default_passes_its_own_check(known: object) -> None:
    assert known.read(known.default) == known.default  # type: ignore[attr-defined]


def test_an_unknown_key_is_an_error_with_a_suggestion(file: Path) -> None:
    file.write_text("tick = 1\n")
    with pytest.raises(ConfigError, match=r"no setting 'tick'; did you mean tick_s\?"):
        effective(file=file, environment={})
    file.write_text("qqq = 1\n")
    with pytest.raises(ConfigError, match="`ascend-tui config` lists"):
        effective(file=file, environment={})
    with pytest.raises(ConfigError, match="command line: there is no setting 'budget'"):
        effective({"budget": 1}, environment={})


@pytest.mark.parametrize("content", [b"tick_s = ", b"\xff\xfe", b"\x00"])
def test_what_is_not_toml_is_an_error_of_ours(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="not TOML"):
        effective(file=file, environment={})


def test_the_environment_speaks_text() -> None:
    environment = {
        "XDG_CONFIG_HOME": "/nowhere",
        "ASCEND_TUI_MOUSE": "on",
        "ASCEND_TUI_READONLY": "0",
        "ASCEND_TUI_KEYS": "zoom=Z memory.reuse=u",
        "ASCEND_TUI_THEME": "",
        "ASCEND_TUI_PAYLOAD": "something of ours that is no setting",
    }
    found = load(environment=environment)
    assert (found.mouse, found.readonly, found.theme) == (True, False, "")
    assert found.keys == {"zoom": "Z", "memory.reuse": "u"}
    with pytest.raises(ConfigError, match="environment ASCEND_TUI_MOUSE: mouse must be true or false"):
        load(environment={"ASCEND_TUI_MOUSE": "maybe"})
    with pytest.raises(ConfigError, match="ASCEND_TUI_KEYS"):
        load(environment={"ASCEND_TUI_KEYS": "zoom"})


def test_a_run_root_may_begin_with_a_tilde(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    file.write_text('run_root = "~/runs"\n')
    assert load(file=file, environment={}).run_root == "/home/someone/runs"


def test_keywords_and_globs_of_logs_come_from_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    file.write_text(
        'log_globs = ["/data/*/train.log", "~/runs/*.txt"]\n'
        '[log_keywords]\n"expert collapsed" = "error"\n"/lag \\\\d+ s/" = "warning"\n"专家失衡" = "ignore"\n'
    )
    found = load(file=file, environment={})
    assert found.log_keywords == {
        "expert collapsed": "error",
        r"/lag \d+ s/": "warning",
        "专家失衡": "ignore",
    }
    assert found.log_globs == ("/data/*/train.log", "/home/someone/runs/*.txt")


def test_keywords_and_globs_of_logs_can_come_from_the_environment() -> None:
    environment = {
        "XDG_CONFIG_HOME": "/nowhere",
        "ASCEND_TUI_LOG_KEYWORDS": "expert collapsed=error; a=b=warning;",
        "ASCEND_TUI_LOG_GLOBS": "/data/*.log:/scratch/out.txt",
    }
    found = load(environment=environment)
    assert found.log_keywords == {"expert collapsed": "error", "a=b": "warning"}
    assert found.log_globs == ("/data/*.log", "/scratch/out.txt")
    with pytest.raises(ConfigError, match=r"ASCEND_TUI_LOG_KEYWORDS.*TEXT=SEVERITY"):
        load(environment={"ASCEND_TUI_LOG_KEYWORDS": "lag"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[log_keywords]\nlag = "bad"', "'lag' has 'bad'"),
        ("[log_keywords]\nlag = 3", "'lag' has 3"),
        ('[log_keywords]\n" " = "error"', "nothing that a line could hold"),
        ('[log_keywords]\n"//" = "error"', "nothing that a line could hold"),
        ('[log_keywords]\n"/(lag/" = "error"', "'/(lag/' is no regular expression: missing )"),
        ('[log_keywords]\n"/.*/" = "error"', "matches a line with nothing in it"),
        ('[log_keywords]\n"' + "x" * 501 + '" = "error"', "longer than 500 characters"),
        ("log_keywords = 1", "found 1"),
        ('log_keywords = "lag=error"', "found 'lag=error'"),
        ('log_globs = "/a.log"', "found '/a.log'"),
        ('log_globs = ["run.log"]', "'run.log' is no path that begins with / or ~"),
        ("log_globs = [1]", "1 is no path"),
        ("log_globs = [" + '"/a",' * 101 + "]", "101 are too many"),
    ],
)
def test_a_wrong_keyword_or_glob_says_which_and_how_it_is_written(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        effective(file=file, environment={})
    key = "log_keywords" if "log_keywords" in text else "log_globs"
    known = next(one for one in KNOWN if one.key == key)
    for part in (str(file), key, known.expected, said, "write it like this"):
        assert part in str(caught.value)


def test_more_keywords_than_are_looked_for_are_an_error(file: Path) -> None:
    file.write_text("[log_keywords]\n" + "".join(f'"word{n}" = "info"\n' for n in range(201)))
    with pytest.raises(ConfigError, match="201 are too many, 200 are looked for at most"):
        effective(file=file, environment={})
