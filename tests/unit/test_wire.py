"""Frames: what goes in comes out, whatever else comes in is a FrameError and nothing worse."""

from __future__ import annotations

import json
import math
import socket
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_tui import wire
from ascend_tui.wire import Decoder, FrameError, agree, decode, encode, plain

LIMIT = 1 << 16
TRANSCRIPT = Path(__file__).parent.parent / "corpus" / "wire_v1.jsonl"

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**38), 10**38)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def framed(body: bytes, length: int | None = None) -> bytes:
    return struct.pack(">I", len(body) if length is None else length) + body


# Round trips.


@given(st.dictionaries(st.text(), json_values, max_size=5), st.integers(1, 7))
def test_what_goes_in_comes_out_however_the_stream_is_cut(fields: dict[str, Any], step: int) -> None:
    frame = {**fields, "type": "x"}
    stream = encode(frame, LIMIT) * 2
    decoder = Decoder(LIMIT)
    got = []
    for at in range(0, len(stream), step):
        got += decoder.feed(stream[at : at + step])
    assert got == [frame, frame]


def test_non_finite_numbers_and_foreign_objects_become_text() -> None:
    frame = {
        "type": "x",
        "a": [math.nan, math.inf, -math.inf, 1.5],
        "b": {1: (2, 3)},
        "c": Path("/x"),
        "d": {"e": b"f"},
    }
    (got,) = Decoder(LIMIT).feed(encode(frame, LIMIT))
    assert got == {
        "type": "x",
        "a": ["NaN", "Infinity", "-Infinity", 1.5],
        "b": {"1": [2, 3]},
        "c": "/x",
        "d": {"e": "b'f'"},
    }


def test_plain_leaves_plain_things_alone() -> None:
    value = {"a": [None, True, 1, 1.5, "x"]}
    assert plain(value) == value


def test_a_frame_over_the_limit_is_refused_by_its_sender() -> None:
    frame = {"type": "x", "text": "y" * 100}
    size = len(encode(frame, LIMIT)) - 4
    assert encode(frame, size)
    with pytest.raises(FrameError, match=f"frame of {size} bytes, the limit is {size - 1}"):
        encode(frame, size - 1)


def test_the_limits_are_those_that_are_written_down() -> None:
    assert (wire.MAX_TO_SHIM_BYTES, wire.MAX_TO_MONITOR_BYTES) == (1 << 20, 4 << 20)


# What comes from outside.


def test_a_truncated_frame_waits_for_its_rest() -> None:
    whole = encode({"type": "x"}, LIMIT)
    for cut in range(len(whole)):
        decoder = Decoder(LIMIT)
        assert decoder.feed(whole[:cut]) == []
        assert decoder.feed(whole[cut:]) == [{"type": "x"}]


@pytest.mark.parametrize("length", [0, 1, LIMIT + 1, 0xFFFFFFFF])
def test_a_length_out_of_bounds_is_refused_before_its_body_comes(length: int) -> None:
    with pytest.raises(FrameError, match="outside"):
        Decoder(LIMIT).feed(struct.pack(">I", length))


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'"x"',
        b"12",
        b"null",
        b'{"type":1}',
        b'{"type":null}',
        b'{"type":"x"',
        b'{"type":"x"} {}',
        b'{"type":"x","a":NaN}',
        b'{"type":"x","a":Infinity}',
        b'{"type":"x","a":-Infinity}',
        b'{"type":"x","a":' + b"9" * 41 + b"}",
        b'{"type":"x","a":"\xff"}',
        b'\xff\xfe{"type":"x"}',
        b'{"type":"x","a":"\x01"}',
        b'{"type":"x","a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"type":"x","a":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
        b"\x00\x00",
    ],
    ids=lambda body: body[:30].decode("latin-1"),
)
def test_what_is_not_one_strict_object_with_a_type_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(body)
    with pytest.raises(FrameError):
        Decoder(LIMIT).feed(framed(body))


def test_a_number_too_large_for_a_float_does_not_become_infinite() -> None:
    with pytest.raises(FrameError):
        decode(b'{"type":"x","a":1e999}')


def test_a_value_too_deep_to_send_is_an_error_of_its_frame() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(FrameError):
        encode({"type": "x", "a": deep}, LIMIT)


def test_a_decoder_holds_one_frame_at_most() -> None:
    decoder = Decoder(100)
    for _ in range(1000):
        decoder.feed(encode({"type": "x"}, 100))
    assert len(decoder._buffer) == 0


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_a_frame_error(data: bytes) -> None:
    for attempt in (lambda: Decoder(LIMIT).feed(data), lambda: Decoder(LIMIT).feed(framed(data))):
        try:
            frames = attempt()
        except FrameError:
            continue
        assert all(isinstance(frame["type"], str) for frame in frames)


@given(st.text(max_size=200), st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_a_damaged_frame_raises_nothing_but_a_frame_error(text: str, at: int, damage: bytes) -> None:
    whole = bytearray(encode({"type": "x", "text": text, "n": [1, 2.5, None]}, LIMIT))
    whole[at : at + len(damage)] = damage
    try:
        frames = Decoder(LIMIT).feed(bytes(whole))
    except FrameError:
        return
    assert all(isinstance(frame["type"], str) for frame in frames)


# Agreement on a version.


@pytest.mark.parametrize(
    ("theirs", "ours", "agreed"),
    [
        ([1], (1,), 1),
        ([1, 2], (1,), 1),
        ([2], (1,), None),
        ([1], (1, 2), 1),
        ([1, 2, 3], (1, 2), 2),
        ([3, 2, 1], (1, 2), 2),
        ([], (1,), None),
        (None, (1,), None),
        ("1", (1,), None),
        ({"1": 1}, (1,), None),
        (["1", [1], {}], (1,), None),
    ],
)
def test_both_sides_take_the_newest_version_that_both_know(
    monkeypatch: pytest.MonkeyPatch, theirs: Any, ours: tuple[int, ...], agreed: int | None
) -> None:
    monkeypatch.setattr(wire, "SUPPORTED", ours)
    assert agree(theirs) == agreed


def test_the_version_of_the_transcript_is_still_supported() -> None:
    assert 1 in wire.SUPPORTED
    assert max(wire.SUPPORTED) == wire.PROTOCOL


# The transcript.


def transcript() -> list[dict[str, Any]]:
    return [json.loads(line) for line in TRANSCRIPT.read_text().splitlines()[1:]]


def test_the_transcript_can_still_be_read() -> None:
    lines = transcript()
    assert len(lines) >= 40
    limits = {"monitor": wire.MAX_TO_SHIM_BYTES, "shim": wire.MAX_TO_MONITOR_BYTES}
    decoders = {(line["connection"], line["from"]): Decoder(limits[line["from"]]) for line in lines}
    for line in lines:
        stream = bytes.fromhex(line["head"]) + line["body"].encode()
        assert decoders[line["connection"], line["from"]].feed(stream) == [json.loads(line["body"])]
        assert encode(json.loads(line["body"]), LIMIT) == stream


@pytest.fixture
def shim(tmp_path: Path, root: Path) -> Iterator[str]:
    """Return the socket of a shim that lives in a process of its own, without torch."""
    path = tmp_path / "s" / "1.sock"
    code = "import sys, time; from ascend_tui.shim import agent; agent.begin(sys.argv[1], '1', None)"
    code += "; time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=root)
    try:
        end = time.monotonic() + 20
        while not path.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert path.exists(), "the shim did not start"
        yield str(path)
    finally:
        process.kill()
        process.wait()


class Monitor:
    """One connection that only knows what the transcript says."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        # The path appears a moment before the socket listens.
        end = time.monotonic() + 5
        while self.sock.connect_ex(path) != 0 and time.monotonic() < end:
            time.sleep(0.01)
        self.decoder = Decoder(wire.MAX_TO_MONITOR_BYTES)
        self.got: list[dict[str, Any]] = []

    def say(self, stream: bytes, identity: object) -> None:
        """Send one frame and read until its answer came or the connection ended."""
        self.sock.sendall(stream)
        self.read_until(lambda frame: frame.get("id") == identity)

    def read_until(self, wanted: Any, seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.sock.settimeout(max(0.01, end - time.monotonic()))
            try:
                data = self.sock.recv(1 << 16)
            except socket.timeout:
                return
            frames = self.decoder.feed(data)
            self.got += frames
            if not data or any(wanted(frame) for frame in frames):
                return


def kind(frame: dict[str, Any]) -> tuple[Any, ...]:
    return (frame["type"], frame.get("event"), frame.get("ok"))


def assert_like(found: Any, written: Any, where: str) -> None:
    """Check that `found` has at least what is `written`, in the same types."""
    if written is None or found is None:
        return
    if isinstance(written, dict):
        assert isinstance(found, dict), where
        # Tables of what happens to be there.
        if where.endswith((".torch", ".faults", ".data")):
            return
        for key, value in written.items():
            assert key in found, f"{where}.{key} is missing"
            assert_like(found[key], value, f"{where}.{key}")
    elif isinstance(written, list):
        assert isinstance(found, list), where
        for one in found[:1] if written else ():
            assert_like(one, written[0], f"{where}[0]")
    elif isinstance(written, (int, float)) and not isinstance(written, bool):
        assert isinstance(found, (int, float)), where
    else:
        assert type(found) is type(written), where


def test_the_shim_of_today_answers_the_monitor_of_the_transcript(shim: str) -> None:
    monitors: dict[int, Monitor] = {}
    written: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in transcript():
        frame = json.loads(line["body"])
        number = line["connection"]
        if line["from"] == "shim":
            written[number].append(frame)
            continue
        if number not in monitors:
            monitors[number] = Monitor(shim)
        monitor = monitors[number]
        monitor.say(bytes.fromhex(line["head"]) + line["body"].encode(), frame["id"])
        if frame.get("op") in ("probe", "mark", "command"):
            # What is not an answer: the samples, the mark's record, the event.
            monitor.read_until(lambda frame: frame["type"] in ("records", "event"), 2.0)
    got = {number: monitor.got for number, monitor in monitors.items()}
    for number, frames in written.items():
        for frame in frames:
            if frame["type"] in ("hello", "reply"):
                answers = [one for one in got[number] if one.get("id") == frame["id"]]
                assert len(answers) == 1, frame
                assert kind(answers[0]) == kind(frame)
                assert_like(answers[0], frame, f"{frame['type']} {frame['id']}")
    everything = [frame for frames in got.values() for frame in frames]
    for frame in [one for frames in written.values() for one in frames]:
        if frame["type"] in ("hello", "reply") or frame.get("event") in ("probe", "gap"):
            continue
        alike = [one for one in everything if kind(one) == kind(frame)]
        assert alike, f"no frame like {frame}"
        for one in alike:
            assert_like(one, frame, frame["type"])
    numbers = [record["seq"] for frame in got[1] if frame["type"] == "records" for record in frame["records"]]
    assert numbers == sorted(set(numbers))
