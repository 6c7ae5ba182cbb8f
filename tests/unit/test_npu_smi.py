"""The text of npu-smi: every layout of its tables, and the command itself where it exists.

The files of tests/corpus/npu_smi were written for these tests, in the layouts of real drivers.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ascend_tui_plugins.memory.files import sniff
from ascend_tui_plugins.memory.files.npu_smi import Card, CardProcess, cards, findings
from ascend_tui_plugins.memory.live import query
from hypothesis import given, settings
from hypothesis import strategies as st

TEXTS = Path(__file__).parent.parent / "corpus" / "npu_smi"

TWO_DIES = (TEXTS / "two_dies_no_processes_of_one.txt").read_text("utf-8")
DUO = (TEXTS / "duo_without_hbm.txt").read_text("utf-8")
IDLE = (TEXTS / "one_card_idle.txt").read_text("utf-8")


def read(text: str) -> list[Card]:
    return cards(text.splitlines())


def said(text: str) -> list[tuple[str, str, str]]:
    return [(one.severity, one.category, one.headline.render()) for one in findings(read(text))]


def test_two_dies_of_one_npu_are_two_devices_by_their_physical_number() -> None:
    first, second = read(TWO_DIES)
    assert (first.index, first.npu, first.chip, first.name, first.bus_id) == (
        6,
        3,
        0,
        "Ascend910",
        "0000:3A:00.0",
    )
    assert (second.index, second.npu, second.chip) == (7, 3, 1)
    assert (first.power_w, second.power_w) == (201.5, None)
    assert (first.temp_c, first.aicore_percent) == (88.0, 12.0)
    assert (second.hbm_used_mib, second.hbm_total_mib) == (51200, 65536)
    # A pool of no size is none.
    assert (second.memory_used_mib, second.memory_total_mib) == (None, None)


def test_processes_belong_to_their_die_and_may_have_no_name() -> None:
    first, second = read(TWO_DIES)
    assert first.processes == ()
    assert second.processes == (CardProcess(8123, "python3.1", 24000), CardProcess(8124, "", 24100))
    assert second.unaccounted_mib == 51200 - 48100


def test_heat_bad_health_and_unseen_holders_are_told() -> None:
    assert said(TWO_DIES) == [
        ("warning", "device", "device 6: 88 °C, over 85 °C the chip may lower its clock"),
        (
            "warning",
            "usage",
            "device 6: 40,960 MiB in use and no process is shown: another container or namespace may"
            " hold them",
        ),
        ("error", "device", "device 7: health is Alarm"),
    ]


def test_a_warning_is_no_alarm_and_85_degrees_are_not_over_85() -> None:
    assert said(DUO) == [("warning", "device", "device 1: health is Warning")]
    assert said(IDLE.replace("37  ", "85  ")) == []


def test_without_an_hbm_column_the_memory_is_that_of_the_chip() -> None:
    first, second = read(DUO)
    assert (first.index, second.index, first.npu) == (0, 1, 4)
    assert (first.hbm_used_mib, first.hbm_total_mib) == (None, None)
    assert (first.memory_used_mib, first.memory_total_mib, first.used_mib) == (2110, 43693, 2110)
    assert first.power_w is None
    # No table of processes is not a table without any.
    assert (first.processes, first.unaccounted_mib) == (None, None)


def test_no_running_processes_are_no_processes() -> None:
    (card,) = read(IDLE)
    assert (card.npu, card.index, card.processes, card.unaccounted_mib) == (6, 0, (), 2811)
    assert said(IDLE) == []


def test_visible_processes_that_hold_little_of_what_is_used() -> None:
    text = IDLE.replace(" 2811 ", "30811 ").replace(
        "| No running processes found in NPU 6",
        "| 6       0                 | 77 | python | 150 | NA |\n| 6 0 | NA | python | - | 5 |\n|",
    )
    (card,) = read(text)
    assert card.processes is not None
    assert [(one.pid, one.memory_mib, one.container_pid) for one in card.processes] == [
        (77, 150, None),
        (None, None, None),
    ]
    assert card.unaccounted_mib == 30811 - 150
    assert "30,661 of 30,811 MiB in use belong to no visible process" in said(text)[0][2]


@pytest.mark.parametrize(
    "change", [str.lower, lambda text: text.replace("+", " "), lambda text: f"$ npu-smi info\n{text}\n$"]
)
def test_borders_case_of_borders_and_words_around_do_not_matter(change) -> None:  # type: ignore[no-untyped-def]
    if change is str.lower:
        text = "\n".join(line.lower() if line.startswith("+") else line for line in TWO_DIES.splitlines())
    else:
        text = change(TWO_DIES)
    assert read(text) == read(TWO_DIES)
    assert sniff(text.encode(), "any.log") == "npu_smi"


def test_a_text_that_is_cut_in_the_middle_of_a_chip_gives_the_whole_ones() -> None:
    rows = TWO_DIES.splitlines()
    for count in range(len(rows)):
        found = read("\n".join(rows[:count]))
        assert [card.index for card in found] == [6, 7][: len(found)]
    lost = "\n".join(row for row in rows if "3A:00.0" not in row)
    assert [card.index for card in read(lost)] == [7]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_text_gives_cards_or_none(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([TWO_DIES, DUO, IDLE]))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=12)) + text[at + data.draw(st.integers(0, 60)) :]
    for card in read(text):
        assert isinstance(card.index, int)
    findings(read(text))


# The command, played by a script: no machine with a card is needed.


def place(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "npu-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_command_is_asked_for_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path, f'[ "$1" = info ] && cat "{TEXTS / "one_card_idle.txt"}"', monkeypatch)
    assert query(30) == read(IDLE)


def test_without_the_command_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert query(1) == "npu-smi is not on the PATH"


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its child keeps the output open, as that of a driver that hangs does.
    place(tmp_path, "sleep 60 & sleep 60", monkeypatch)
    begun = time.monotonic()
    assert query(0.5) == "npu-smi did not answer within 0.5 s"
    assert time.monotonic() - begun < 30


def test_a_command_that_fails_or_floods_gives_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, 'echo "dcmi module initialize failed. ret is -8005" >&2; exit 5', monkeypatch)
    assert query(30) == "npu-smi ended with 5 and shows no card: dcmi module initialize failed. ret is -8005"
    place(tmp_path, "head -c 4000000 /dev/zero", monkeypatch)
    reason = query(30)
    assert isinstance(reason, str)
    assert len(reason) < 400
