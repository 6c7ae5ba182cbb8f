"""The tee on streams of this process that lead into pipes; only the shim around it is played."""

from __future__ import annotations

import codecs
import contextlib
import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).parents[2] / "plugins" / "logs" / "probe.py").read_text()


class Refused(Exception):
    """What the shim raises where a probe refuses."""


class Api:
    """What a probe is given, as far as the tee asks for it."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.residue: list[str] = []
        self.commands: dict[str, tuple[Any, Any]] = {}
        self.samplers: list[tuple[float, Callable[[], Any]]] = []
        self.closers: list[Callable[[], Any]] = []

    def command(self, name: str, start: Any, stop: Any) -> None:
        self.commands[name] = (start, stop)

    def sample(self, hz: float, call: Any) -> None:
        self.samplers.append((hz, call))

    def on_close(self, call: Any) -> None:
        self.closers.append(call)

    def emit(self, kind: str, data: dict[str, Any]) -> None:
        self.records.append((kind, data))

    def leaves(self, what: str) -> None:
        self.residue.append(what)

    def refuse(self, why: str) -> None:
        raise Refused(why)


class Pipe:
    """A stream into a pipe, as Python makes its own; `seen` is what arrives at the other end."""

    def __init__(self, kind: str = "line") -> None:
        self.end, number = os.pipe()
        os.set_blocking(self.end, False)
        self.raw = io.FileIO(number, "w")
        if kind == "unbuffered":
            self.stream = io.TextIOWrapper(self.raw, "utf-8", write_through=True)  # type: ignore[type-var]
        else:
            self.stream = io.TextIOWrapper(
                io.BufferedWriter(self.raw), "utf-8", line_buffering=kind == "line"
            )

    def seen(self) -> bytes:
        self.stream.flush()
        found = b""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.end, 1 << 16):
                found += data
        return found


class Teed:
    """This process with a stdout and a stderr into pipes, and the tee loaded, not started."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: str = "line") -> None:
        self.patch = patch
        self.out, self.err = Pipe(kind), Pipe(kind)
        self.api = Api()
        self.space: dict[str, Any] = {"__name__": "_ascend_tui_probe_logs"}
        exec(compile(TEXT, "<ascend-tui-probe-logs>", "exec"), self.space)
        self.before = self.view()
        self.space["setup"](self.api)
        ((_, self.drain),) = self.api.samplers
        self.start_command, self.stop = self.api.commands["tee"]
        self.tee = self.stop.__self__

    def install(self) -> None:
        """Have print write there; in the test itself, because pytest sets the streams before each phase."""
        for name, pipe in (("stdout", self.out), ("stderr", self.err)):
            self.patch.setattr(sys, name, pipe.stream)
            self.patch.setattr(sys, f"__{name}__", pipe.stream)

    def start(self) -> dict[str, Any]:
        told: dict[str, Any] = self.start_command({}, 10, 10.0)
        return told

    def view(self) -> list[Any]:
        """Return what could be changed by us, by identity."""
        pipes = [self.out, self.err]
        things = [one for pipe in pipes for one in (pipe.stream, pipe.stream.buffer, pipe.raw)]
        return [(type(one), {key: id(value) for key, value in vars(one).items()}) for one in things]

    def texts(self, stream: str) -> str:
        """Return what the records tell of a stream, after one more drain."""
        self.tee.sent_s -= 1.0
        self.drain()
        return "".join(
            one["text"] for kind, one in self.api.records if kind == "text" and one["stream"] == stream
        )

    def dropped(self) -> int:
        return sum(one["dropped"] for kind, one in self.api.records if kind == "text")


@pytest.fixture(params=["line", "block", "unbuffered"])
def teed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Teed]:
    one = Teed(monkeypatch, request.param)
    yield one
    one.stop()
    assert one.view() == one.before


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[Teed]:
    one = Teed(monkeypatch)
    yield one
    one.stop()


def same(teed: Teed) -> tuple[str, str]:
    """Assert that both ends got the same; return it."""
    out, err = teed.out.seen().decode(), teed.err.seen().decode()
    assert (teed.texts("stdout"), teed.texts("stderr")) == (out, err)
    assert teed.dropped() == 0
    return out, err


# What is seen.


def test_nothing_is_touched_before_the_start(teed: Teed) -> None:
    teed.install()
    print("one")
    assert teed.view() == teed.before
    assert teed.texts("stdout") == ""
    assert teed.api.records == []


def test_print_logging_and_direct_writes_come_unchanged_with_their_stream(teed: Teed) -> None:
    teed.install()
    handler = logging.StreamHandler()  # Made before the start: it keeps the stream.
    bar = sys.stderr.write  # So does a progress bar, with its method.
    rows = [
        {"stream": "stdout", "to": "pipe", "teed": True},
        {"stream": "stderr", "to": "pipe", "teed": True},
    ]
    assert teed.start() == {"streams": rows}
    assert teed.api.records == [("streams", {"streams": rows})]
    print("a", 1, sep="-")
    assert sys.stdout.write("zwölf 损失\n") == 9
    sys.stdout.buffer.write(b"bytes\n") if hasattr(sys.stdout.buffer, "raw") else print("bytes")
    sys.stdout.writelines(["x\n", "y\n"])
    handler.emit(logging.makeLogRecord({"msg": "logged %d", "args": (7,)}))
    bar("\r 10%")
    out, err = same(teed)
    assert sorted(out.splitlines()) == sorted(["a-1", "zwölf 损失", "bytes", "x", "y"])
    assert err == "logged 7\n\r 10%"


def test_streams_of_the_program_that_end_in_ours_are_seen_once(teed: Teed) -> None:
    teed.install()

    class Both:
        """As scripts write it: to the screen and to a file."""

        def __init__(self, screen: Any) -> None:
            self.screen, self.log = screen, io.StringIO()

        def write(self, text: str) -> None:
            self.screen.write(text)
            self.log.write(text)

    both = Both(sys.stdout)
    teed.patch.setattr(sys, "stdout", both)
    told = teed.start()
    assert len(told["streams"]) == 2
    print("through both")
    codecs.getwriter("utf-8")(teed.err.stream.buffer).write("through a codec\n")
    assert same(teed) == ("through both\n", "through a codec\n")
    assert both.log.getvalue() == "through both\n"
    assert "write" not in vars(both)


def test_a_stream_that_comes_later_is_seen_from_the_next_look_on(plain: Teed) -> None:
    plain.install()
    plain.start()
    late = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(os.dup(plain.out.raw.fileno()), "w")), line_buffering=True
    )
    plain.patch.setattr(sys, "stdout", late)
    plain.drain()
    print("late")
    assert plain.texts("stdout") == "late\n"
    with contextlib.redirect_stdout(io.StringIO()) as kept:
        plain.drain()
        print("kept")
    assert kept.getvalue() == "kept\n"
    assert vars(kept) == {}
    assert plain.texts("stdout") == "late\n"
    plain.stop()
    assert "write" not in vars(late.buffer.raw)  # type: ignore[attr-defined]
    late.close()


class Notebook(io.TextIOBase):
    """A stream that leads to no descriptor, as that of a notebook's kernel."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.thread = threading.main_thread()
        self.error = {"not a stream": sys.__stderr__}

    def write(self, text: str) -> int:
        if text == "boom":
            raise ValueError("of the program")
        self.got.append(text)
        return len(text)


def test_a_stream_without_a_descriptor_is_covered_itself(plain: Teed) -> None:
    plain.install()
    notebook = Notebook()
    for name in ("stdout", "__stdout__"):
        plain.patch.setattr(sys, name, notebook)
    assert {"stream": "stdout", "to": "object", "teed": True} in plain.start()["streams"]
    print("损失 1.5")
    assert sys.stdout.write("four") == 4
    with pytest.raises(ValueError, match="of the program"):
        sys.stdout.write("boom")
    assert plain.texts("stdout") == "损失 1.5\nfour"
    assert "".join(notebook.got) == "损失 1.5\nfour"
    plain.stop()
    assert "write" not in vars(notebook)
    assert plain.api.residue == []


def test_what_keeps_a_write_of_ours_is_named_and_passes_through(plain: Teed) -> None:
    plain.install()
    notebook = Notebook()
    plain.patch.setattr(sys, "stdout", notebook)
    plain.start()
    bar = notebook.write
    plain.stop()
    (left,) = plain.api.residue
    assert left == "a write of stdout that passes through (something of the program keeps it)"
    bar("still")
    assert notebook.got == ["still"]
    del plain.api.records[:]
    assert plain.texts("stdout") == ""


def test_who_wraps_ours_keeps_the_wrapping_and_it_is_named(plain: Teed) -> None:
    plain.install()
    plain.start()
    ours = plain.out.raw.write
    calls = []

    def wrapping(data: Any) -> Any:
        calls.append(bytes(data))
        return ours(data)

    plain.out.raw.write = wrapping  # type: ignore[method-assign]
    plain.stop()
    print("after")
    assert calls == [b"after\n"]
    assert plain.out.seen() == b"after\n"
    assert plain.api.residue == ["a write of stdout that passes through (somebody wrapped it again)"]
    assert plain.texts("stdout") == ""


@pytest.mark.parametrize("missing", [None, io.StringIO()])
def test_without_streams_it_is_refused_with_the_reason(plain: Teed, missing: Any) -> None:
    plain.install()
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        plain.patch.setattr(sys, name, missing)
    with pytest.raises(Refused, match="neither a stdout nor a stderr"):
        plain.start()
    assert plain.drain() is None


def test_files_are_left_to_who_reads_files_and_a_silenced_rank_stays_silent(
    plain: Teed, tmp_path: Path
) -> None:
    plain.install()
    with (tmp_path / "log").open("w") as file, open(os.devnull, "w") as nowhere:
        plain.patch.setattr(sys, "stdout", nowhere)
        plain.patch.setattr(sys, "stderr", file)
        told = plain.start()["streams"]
        assert [(one["to"], one["teed"]) for one in told] == [
            ("pipe", True),
            ("null", False),
            ("pipe", True),
            ("file", False),
        ]
        print("nothing")
        print("something", file=sys.stderr)
    assert (plain.texts("stdout"), plain.texts("stderr")) == ("", "")


# What it must not do.


def test_an_exception_of_the_stream_and_a_reader_that_is_gone_pass_through(plain: Teed) -> None:
    plain.install()
    plain.start()
    os.close(plain.out.end)
    with pytest.raises(BrokenPipeError):
        print("nobody")
    plain.out.end = os.open(os.devnull, os.O_RDONLY)
    assert plain.texts("stdout") == ""
    with pytest.raises(TypeError):
        sys.stdout.write(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        sys.stderr.buffer.write("text")  # type: ignore[arg-type]
    assert plain.drain() is None
    # What is still in the buffer would be written by the destructor.
    plain.patch.setattr(plain.out.raw, "write", lambda data: len(data))
    plain.out.stream.flush()
    plain.patch.undo()


def test_what_a_full_pipe_takes_is_what_is_told(plain: Teed) -> None:
    plain.install()
    os.set_blocking(plain.out.raw.fileno(), False)
    plain.start()
    text = "".join(f"line {number:06d}\n" for number in range(8000))
    with pytest.raises(BlockingIOError):
        print(text)
    got = b""
    with contextlib.suppress(BlockingIOError):
        got = os.read(plain.out.end, 1 << 20)
    told = plain.texts("stdout").encode()
    # One pipe's worth: what was not taken is not told, and is told when it is.
    assert len(told) == len(got) == 65536
    assert told == got
    os.set_blocking(plain.out.raw.fileno(), True)
    rest = plain.out.seen()
    assert plain.texts("stdout").encode() == got + rest


def test_a_fault_of_ours_ends_the_tee_and_no_print(plain: Teed) -> None:
    plain.install()
    plain.start()
    lane = plain.tee.lanes[0]
    lane.room = "no number"
    print("one")
    print("two")
    assert plain.out.seen() == b"one\ntwo\n"
    with pytest.raises(TypeError):
        plain.drain()
    # The shim disables a probe whose sampler raises, and calls what it left for that.
    for close in plain.api.closers:
        close()
    assert plain.view() == plain.before


@pytest.mark.parametrize("kind", ["raw", "object"])
def test_what_a_handler_of_a_signal_raises_is_the_programs(plain: Teed, kind: str) -> None:
    plain.install()
    if kind == "object":
        plain.patch.setattr(sys, "stdout", Notebook())
    plain.start()

    class Room:
        """Stands for the moment: a handler runs in the middle of our code."""

        def __lt__(self, other: Any) -> Any:
            raise TimeoutError("time is up")

        __gt__ = __lt__

    (lane, *_) = [one for one in plain.tee.lanes if one.is_raw == (kind == "raw")]
    lane.room = Room()
    with pytest.raises(TimeoutError):
        print("one")
    lane.room = 1000
    assert plain.drain() is None


def test_a_print_inside_a_print_and_many_threads_lose_nothing(teed: Teed) -> None:
    teed.install()

    class Talks:
        def __str__(self) -> str:
            print("inner")
            return "outer"

    teed.start()
    print(Talks())

    def talk(name: int) -> None:
        for number in range(50):
            sys.stdout.write(f"{name} {number}\n")

    threads = [threading.Thread(target=talk, args=(name,)) for name in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    out = teed.out.seen().decode()
    # Without a buffer, and so without its lock, two threads may write in another order than they tell of it.
    assert sorted(teed.texts("stdout").splitlines()) == sorted(out.splitlines())
    assert sorted(out.splitlines()) == sorted(
        ["inner", "outer", *(f"{name} {number}" for name in range(4) for number in range(50))]
    )


def test_a_forked_child_prints_and_keeps_nothing(plain: Teed) -> None:
    plain.install()
    plain.start()
    pid = os.fork()
    if not pid:
        for _ in range(10):
            print("child")
        os._exit(len(plain.tee.lanes[0].pieces))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert plain.out.seen() == b"child\n" * 10
    assert plain.texts("stdout") == ""


def test_two_hundred_starts_and_stops_leave_nothing(teed: Teed) -> None:
    teed.install()
    expected = ""
    for number in range(200):
        teed.start()
        print("on", number)
        sys.stdout.flush()
        expected += f"on {number}\n"
        teed.stop()
        assert teed.view() == teed.before
        print("off", number)
        sys.stdout.flush()
    teed.out.stream.flush()
    told = [one for kind, one in teed.api.records if kind == "text"]
    assert "".join(one["text"] for one in told) == expected
    assert set(teed.api.residue) <= {"one exit function of Python's module weakref (Python keeps its place)"}
    teed.start()
    teed.start()
    print("once")
    assert teed.out.seen().endswith(b"once\n")
    assert teed.texts("stdout").endswith("once\n")
    assert teed.texts("stdout").count("once") == 1


# Budgets.


def flood(teed: Teed, lines: int) -> None:
    for number in range(lines):
        teed.out.raw.write(b"line %06d of a flood of lines\n" % number)
        os.read(teed.out.end, 1 << 16)


def test_a_flood_is_cut_at_whole_lines_and_counted(plain: Teed) -> None:
    plain.install()
    plain.start()
    size = len("line 000000 of a flood of lines\n")
    flood(plain, 20000)
    lane = plain.tee.lanes[0]
    assert sum(len(piece) for _, piece, _ in lane.pieces) <= plain.space["ROOM_BYTES"]
    plain.texts("stdout")
    flood(plain, 10)
    for _ in range(20):
        plain.texts("stdout")
    told = [one for kind, one in plain.api.records if kind == "text"]
    assert all(len(one["text"]) <= plain.space["RECORD_BYTES"] for one in told)
    text = "".join(one["text"] for one in told)
    assert len(text) + plain.dropped() == 20010 * size
    assert plain.dropped() > 15000 * size
    gap, *_ = [number for number, one in enumerate(told) if one["dropped"]]
    # Only the line before the gap may be broken: what follows it begins with a whole one.
    before, after = ("".join(one["text"] for one in part) for part in (told[:gap], told[gap:]))
    assert {len(one) for one in before.splitlines()[:-1]} == {size - 1}
    assert before.startswith("line 000000 of")
    assert after.splitlines() == [f"line {number:06d} of a flood of lines" for number in range(1, 10)]


def test_what_is_sent_in_a_second_is_bounded(plain: Teed) -> None:
    plain.install()
    plain.start()
    now = [1000.0]
    plain.patch.setattr(plain.space["time"], "monotonic", lambda: now[0])
    plain.tee.sent_s = now[0]
    for _ in range(10):
        flood(plain, 20000)
        now[0] += 0.1
        plain.drain()
    sent = sum(len(one["text"]) for kind, one in plain.api.records if kind == "text")
    assert 200 << 10 < sent <= 256 << 10
    assert len(plain.api.records) <= 31


def test_characters_that_are_cut_by_a_block_or_by_a_record_stay_whole(plain: Teed) -> None:
    plain.install()
    plain.start()
    for part in (b"\xe6\x8d", b"\x9f \xff ", "损失".encode() * 10000, b"\n"):
        plain.out.raw.write(part)
        os.read(plain.out.end, 1 << 16)
    assert plain.texts("stdout") == "损 \ufffd " + "损失" * 10000 + "\n"
    assert max(len(one["text"].encode()) for kind, one in plain.api.records if kind == "text") < 20010


def test_the_encoding_is_that_of_the_stream(plain: Teed) -> None:
    plain.install()
    stream = io.TextIOWrapper(io.BufferedWriter(plain.out.raw), "gbk", line_buffering=True)
    for name in ("stdout", "__stdout__"):
        plain.patch.setattr(sys, name, stream)
    plain.start()
    print("显存溢出")
    assert plain.texts("stdout") == "显存溢出\n"
    stream.detach()


# The end of the program.


def test_the_exit_waits_for_the_last_words_and_not_for_long(plain: Teed) -> None:
    plain.install()
    plain.start()
    at_exit = plain.tee.at_exit
    done: list[float] = []

    def leave() -> None:
        begun = time.monotonic()
        _, call, args, _ = at_exit.peek()
        call(*args)
        done.append(time.monotonic() - begun)

    thread = threading.Thread(target=leave)
    thread.start()
    while not done:
        plain.drain()
        time.sleep(0.05)
    assert done[0] < 0.4
    leave()  # The shim is dead: nobody drains.
    assert 0.4 < done[1] < 2.0
    plain.stop()
    assert not at_exit.alive


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 looks for signals at any instruction")
def test_no_byte_is_written_twice_where_handlers_raise(plain: Teed) -> None:
    plain.install()

    # Each line is written at once; a handler that raises comes at any instruction of print and of ours.
    class Now(Exception):
        """Raised by the handler."""

    def handler(*_: object) -> None:
        raise Now

    plain.start()
    before = signal.signal(signal.SIGALRM, handler)
    number = caught = 0
    got = b""
    end = time.monotonic() + 2.0
    try:
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + (number % 40) * 1e-6)
                for _ in range(4):
                    number += 1
                    print(f"{number:08d}")
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Now:
                caught += 1
            got += plain.out.seen()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    got += plain.out.seen()
    lines = [line for line in got.decode().splitlines() if line]
    assert caught > 100
    assert len(lines) > 1000
    # A print may be cut short by the exception, but nothing comes twice.
    assert len(set(lines)) == len(lines)
