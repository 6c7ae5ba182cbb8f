"""The proofs themselves, in short: each runs, and each would see the harm that it is there to see."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from trainings import PLAIN, Place, needs_ptrace, needs_torch, plain

from ascend_tui.attach import attach
from ascend_tui.target import read_target, socket_path
from soak import cycles, ranks, states, versions
from soak.leftovers import look, look_until_as, usual
from soak.living import HarmError, Training
from soak.tally import Tally

pytestmark = needs_ptrace
SEED = 11


@needs_torch
def test_a_short_soak_harms_nothing_and_leaves_nothing(place: Place) -> None:
    tally = Tally(SEED, place.device)
    cycles.run(tally, 8, 4, 3.0)
    assert tally.harm == ""
    assert (tally.cycles, sum(tally.kills.values())) == (8, 4)
    assert sum(tally.attached.values()) >= 8
    assert not +tally.leftovers
    assert tally.hashes > 5
    assert tally.is_good
    table = dict(row for row in tally.rows() if row[0] != "memory in the target")
    assert table["target harmed"] == "no"


@needs_torch
def test_a_soak_ends_at_the_first_harm_and_says_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def murder(soak: cycles.Soak) -> None:
        soak._tell("nothing good")
        os.kill(soak.training.pid, signal.SIGSEGV)
        soak.tally.cycles += 1
        soak._check()

    monkeypatch.setattr(cycles.Soak, "cycle", murder)
    tally = Tally(SEED, "cpu")
    cycles.run(tally, 50, 0, 1.0)
    assert tally.cycles == 1
    assert tally.harm.startswith("YES: the target ended with -11")
    assert "nothing good" in tally.harm
    assert not tally.is_good


def test_other_bits_are_harm() -> None:
    def run(*hashes: str) -> Any:
        return SimpleNamespace(hashes=lambda: {step * 20: one for step, one in enumerate(hashes)})

    assert Training.must_equal(run("a", "b", "c"), run("a", "b")) == 2
    with pytest.raises(HarmError, match="from step 20 on"):
        Training.must_equal(run("a", "b", "c"), run("a", "x", "c"))


def test_what_is_left_over_has_a_name_and_a_number() -> None:
    with plain("import ctypes\n" + PLAIN) as process:
        target = read_target(process.pid)
        before = usual(target, 5)
        client = attach(target, name="test", writable=True, method="thread").client
        view = look(target)
        # The shim's thread, the listener, our connection and the two ends of what wakes it.
        assert (
            view.more_than(before).items()
            >= {"threads": 1, "sockets of ours": 2, "path of the socket": 1}.items()
        )
        assert view.areas == (("borrowed", 1),)
        assert view.code == before.code
        client.request("detach")
        client.close()
        after = look_until_as(before, target, 5.0)
        assert after is not None
        assert after.more_than(before) == {}
        assert after.areas == ()
        # A path alone is left over too.
        other = socket.socket(socket.AF_UNIX)
        # The folder goes with the last socket in it.
        socket_path(target).parent.mkdir(mode=0o700, exist_ok=True)
        other.bind(str(socket_path(target)))
        other.close()
        assert look(target).more_than(before) == {"path of the socket": 1}
        socket_path(target).unlink()
    assert threading.active_count() < 20


def test_a_version_is_attached_to_again_and_again() -> None:
    found = [one for one in versions.found([sys.executable]) if one.path == sys.executable]
    assert len(found) == 1
    rows = versions.run(found[0], 3)
    assert [row.method for row in rows] == ["auto", "pending"]
    for row in rows:
        assert row.is_good, versions.as_json(row)
        assert sum(row.attached.values()) == 3


@pytest.mark.parametrize(
    ("state", "method", "expected"),
    [
        ("sleep", "thread", " ms"),
        ("sleep", "pending", "when it returns"),
        ("stopped", "auto", "refused: stopped"),
    ],
)
def test_a_state_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch, state: str, method: str, expected: str
) -> None:
    monkeypatch.setattr(states, "SECONDS", 1.5)
    cell = states.try_one(state, method)
    assert cell.harm == ""
    assert cell.did.endswith(expected)
    assert cell.late_ms is not None
    assert cell.text()


@needs_torch
def test_all_ranks_of_a_job_are_attached_by_one_session() -> None:
    (found,) = ranks.run(2, 1)
    assert (found["attached"], found["removed"], found["refused"], found["leftovers"]) == (2, 2, [], {})
    assert found["all_s"] is not None
