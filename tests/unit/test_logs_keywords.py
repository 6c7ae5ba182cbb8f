"""Keywords of the user: which lines they find, whatever the digits, and what is ignored."""

from __future__ import annotations

import string

import pytest
from ascend_tui_plugins.logs.keywords import LONGEST, Keywords
from ascend_tui_plugins.logs.sighting import HARMLESS, Sighting

NO_DIGITS = {ord(digit): None for digit in string.digits}


def one(keyword: str, weight: str = "error") -> Keywords:
    return Keywords({keyword: weight})


@pytest.mark.parametrize(
    ("keyword", "line"),
    [
        ("expert collapsed", "[rank0] Expert collapsed at layer 3"),
        ("nan", "loss is NaN."),
        ("溢出", "检测到梯度溢出了"),
        ("step 12", "stopped at step 12."),
        ("507011", "code 507011"),
        ("a.b", "value a.b"),
        (r"/lag \d{3} s/", "lag 123 s"),
        (r"/step \w+ failed/", "step 12 failed"),
        (r"/\b507\b/", "(507)"),
        (r"/(?i)LOSS [0-9.]+e/", "loss 1.5e3"),
        (r"/(\d+ ){2}x/", "1 2 x"),
        (r"/a.b{2}/", "a7bb"),
        (r"/[^ ]+:[1-3]/", "node4:2"),
        (r"/(?<=x)1/", "x1"),
        (r"/^\S{3}$/", "123"),
        (r"/(?P<what>card|node) \d lost/", "node 3 lost"),
        (r"/(a|\d)\1/", "x 44"),
    ],
)
def test_a_keyword_is_found_whatever_the_digits_of_the_line_are(keyword: str, line: str) -> None:
    words = one(keyword)
    found = words.sight(line)
    assert isinstance(found, Sighting)
    assert (found.severity, found.alone) == ("error", True)
    assert line in found.headline.render()
    # It is asked of one line of those that differ in digits only.
    assert words.is_special(line)
    assert words.is_special(line.translate(NO_DIGITS))


@pytest.mark.parametrize(
    ("keyword", "line"),
    [
        ("nan", "nanometre finance banana"),
        ("error", "errors errored"),
        ("lag", "flag"),
        (r"/Lag/", "lag"),
        ("a.b", "axb"),
    ],
)
def test_a_text_is_no_part_of_a_longer_word_and_no_pattern(keyword: str, line: str) -> None:
    assert one(keyword).sight(line) is None


def test_a_line_without_the_words_is_not_special() -> None:
    words = Keywords({"expert collapsed": "error", r"/lag \d+ s/": "warning"})
    assert not words.is_special("iteration 12 | loss 3.1")
    assert not Keywords().is_special("anything")
    assert not Keywords()
    assert words


def test_the_first_keyword_of_the_table_decides_and_ignore_is_harmless() -> None:
    words = Keywords({"benign lag": "ignore", "lag": "fatal"})
    assert words.sight("a benign lag") is HARMLESS
    found = words.sight("a long lag")
    assert isinstance(found, Sighting)
    assert (found.severity, found.key) == ("fatal", "keyword lag")


def test_a_long_line_costs_what_its_beginning_costs() -> None:
    words = one("needle")
    assert words.sight("x" * LONGEST + " needle") is None
    found = words.sight("y " * 1000 + "needle" + " z" * 500_000)
    assert isinstance(found, Sighting)
    assert len(found.headline.render()) < 500
