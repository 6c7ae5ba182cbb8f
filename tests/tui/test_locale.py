"""The catalogues are complete, not stale, and compiled."""

from __future__ import annotations

import gettext
import string

import pytest
from messages import CATALOGUE, in_catalogue, in_sources

from ascend_tui import text
from ascend_tui.plugin import Message


def places(sentence: str) -> set[str]:
    """Return the names of a sentence's {places}."""
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def test_every_sentence_has_a_translation() -> None:
    have = in_catalogue()
    missing = sorted(sentence for sentence in in_sources() if not have.get(sentence))
    assert not missing, f"add to {CATALOGUE.name}, see its head: {missing}"


def test_no_translation_is_of_a_sentence_that_is_gone() -> None:
    stale = sorted(set(in_catalogue()) - in_sources())
    assert not stale, f"take out of {CATALOGUE.name}, see its head: {stale}"


def test_a_translation_has_the_places_of_its_sentence() -> None:
    wrong = [one for one, translated in in_catalogue().items() if places(one) != places(translated)]
    assert not wrong


def test_the_compiled_catalogue_is_the_written_one() -> None:
    with CATALOGUE.with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    stale = [one for one, translated in in_catalogue().items() if compiled.gettext(one) != translated]
    assert not stale, "run: pybabel compile --directory ascend_tui/locale --domain ascend_tui"
    assert len(compiled._catalog) == len(in_catalogue()) + 1  # type: ignore[attr-defined]


def test_the_extractor_sees_the_ways_a_sentence_is_written() -> None:
    found = in_sources()
    assert "attaching" in found  # in a table, by msgid
    assert "fill the screen with this pane, and back" in found  # a key
    assert "Memory" in found  # a plugin's title
    assert "target exited (code {code})" in found  # Message.of
    assert "there is no such process" in found  # a Refusal
    assert "Lift that limit, or start the training with `ascend-tui run -- CMD`" in found  # a sum


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LC_MESSAGES": "zh_TW"}, "zh_CN"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_language_of_the_locale(environment: dict[str, str], code: str) -> None:
    assert text.language_of(environment) == code


def test_a_sentence_that_does_not_fit_its_parameters_is_shown_bare() -> None:
    assert text.say(Message.of("{a} and {b}", a=1)) == "{a} and {b}"
    assert text.say(Message.of("{broken", a=1)) == "{broken"
    assert text.say(Message("")) == ""
    text.set_language("zh_CN")
    assert text.tr("no such sentence") == "no such sentence"
    assert text.tr("since step {step}", step="\x1b[1m5") == "自第 ␛[1m5 步起"
