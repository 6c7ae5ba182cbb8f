"""Files that grow, are emptied, renamed, removed, packed: every line comes once, whole, and in order."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ascend_tui_plugins.logs.reading import follow as follow_module
from ascend_tui_plugins.logs.reading.follow import Chunk, Follower, read_file
from ascend_tui_plugins.logs.reading.follow_file import LONGEST_BYTES, Tail, open_file
from ascend_tui_plugins.logs.reading.places import Place
from ascend_tui_plugins.logs.reading.places_found import base_of, is_log, rotations
from ascend_tui_plugins.logs.reading.sources import identity_of
from ascend_tui_plugins.logs.snapshot import SourceKind, SourceState

from ascend_tui.target.proc import read_stat

WHOLE = 1 << 62


class Desk:
    """A follower of this very process, whose places a test says: paths, each with its kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first_bytes: int = 64 << 20) -> None:
        self.places: list[Place] = []
        monkeypatch.setattr(follow_module, "places", lambda pid, globs: tuple(self.places))
        me = read_stat(os.getpid())
        assert me is not None
        self.follower = Follower(os.getpid(), me.start_ticks, (), first_bytes)
        # No file of a test is of an earlier process.
        monkeypatch.setattr(follow_module, "started_s", lambda ticks: 0.0)
        self.now_s = 1000.0

    def put(
        self, path: Path, kind: SourceKind = "glob", series: str = "", state: SourceState = "reading"
    ) -> None:
        """Say that there is a place now."""
        there = path.exists()
        self.places.append(
            Place(
                kind,
                series or str(path),
                str(path),
                str(path) if there else None,
                state if there else "waiting",
                beside=str(path),
                identity=identity_of(str(path)),
                size_bytes=path.stat().st_size if there else 0,
            )
        )

    def look(self, *paths: Path, after_s: float = 1.0) -> None:
        """Look again, at these paths."""
        self.now_s += after_s
        if paths:
            self.places = []
            for path in paths:
                self.put(path)
        self.follower.look(self.now_s)

    def read(self, most_bytes: int = 1 << 22, after_s: float = 0.1) -> list[Chunk]:
        """Read once."""
        self.now_s += after_s
        return self.follower.read(most_bytes, self.now_s)

    def all(self, source: int = 0) -> bytes:
        """Read until nothing is left, and return what one source gave."""
        found = b""
        while chunks := self.read():
            found += b"".join(chunk.data for chunk in chunks if chunk.source == source)
        return found


@pytest.fixture(name="desk")
def _desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def lines(first: int, last: int) -> bytes:
    return b"".join(b"step %d loss 0.5\n" % at for at in range(first, last))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_file_that_grows_gives_each_line_once(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 10))
    desk.look(path)
    assert desk.all() == lines(0, 10)
    assert desk.all() == b""
    append(path, lines(10, 12))
    assert desk.all() == lines(10, 12)
    (source,) = desk.follower.sources()
    assert (source.lines, source.read_bytes, source.behind_bytes) == (12, len(lines(0, 12)), 0)
    assert (source.state, source.skipped_bytes, source.size_bytes) == ("reading", 0, len(lines(0, 12)))


def test_only_the_end_is_read_at_first_from_a_line_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    whole = lines(0, 1000)
    path.write_bytes(whole)
    desk = Desk(monkeypatch, first_bytes=100)
    desk.look(path)
    (source,) = desk.follower.sources()
    got = desk.all()
    assert whole.endswith(got)
    assert got.startswith(b"step ")
    assert 80 < len(got) <= 100
    assert source.skipped_bytes == len(whole) - len(got)


def test_the_first_bytes_are_shared_and_small_files_are_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small, large, larger = (tmp_path / name for name in ("a.log", "b.log", "c.log"))
    small.write_bytes(lines(0, 10))
    large.write_bytes(lines(0, 5000))
    larger.write_bytes(lines(0, 9000))
    desk = Desk(monkeypatch, first_bytes=20_000)
    desk.look(small, large, larger)
    got = [source.behind_bytes for source in desk.follower.sources()]
    assert got[0] == len(lines(0, 10))
    assert sum(got) <= 20_000
    assert got[1] > 9000
    assert got[2] > 9000


def test_a_cut_at_a_line_end_loses_no_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"aaaa\nbbbb\n")
    desk = Desk(monkeypatch, first_bytes=5)
    desk.look(path)
    assert desk.all() == b"bbbb\n"


def test_an_unfinished_line_waits_for_its_end(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"one\ntw")
    desk.look(path)
    assert [chunk.data for chunk in desk.read()] == [b"one\n"]
    assert desk.read(after_s=1.0) == []
    append(path, b"o\n")
    assert desk.read() == [Chunk(0, b"two\n")]


def test_an_unfinished_line_is_taken_after_two_seconds(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"one\nEnter PEM pass phrase:")
    desk.look(path)
    assert [chunk.data for chunk in desk.read()] == [b"one\n"]
    assert desk.read(after_s=0.5) == []
    assert desk.read(after_s=2.1) == [Chunk(0, b"Enter PEM pass phrase:", goes_on=True)]
    append(path, b" ok\n")
    assert desk.read() == [Chunk(0, b" ok\n")]


def test_a_progress_bar_gives_its_complete_states(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "bar.log"
    path.write_bytes(b" 1%|#\r 2%|##\r 3%|")
    desk.look(path)
    assert desk.read() == []
    append(path, b"###\r 4%")
    assert desk.read(after_s=2.5) == [Chunk(0, b" 1%|#\r 2%|##\r 3%|###\r", goes_on=True)]


def test_a_line_of_megabytes_is_cut_but_not_within_a_character(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    long = "误".encode() * 1_200_000 + b"\nshort\n"
    path.write_bytes(b"x\n" + long)
    desk.look(path)
    chunks = []
    while got := desk.read():
        chunks += got
    assert b"".join(chunk.data for chunk in chunks) == b"x\n" + long
    assert all(len(chunk.data) <= LONGEST_BYTES for chunk in chunks)
    assert [chunk.goes_on for chunk in chunks] == [False, True, True, True, False]
    for chunk in chunks:
        chunk.data.decode()


def test_renamed_and_made_anew(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 3))
    desk.look(path)
    assert desk.all() == lines(0, 3)
    append(path, lines(3, 5))
    path.rename(tmp_path / "train.log.1")
    path.write_bytes(lines(5, 7))
    desk.look(path)
    assert desk.all() == lines(3, 7)
    # Whoever writes goes on in the old file until it reopens.
    append(tmp_path / "train.log.1", b"late\n")
    assert desk.all() == b"late\n"
    append(path, lines(7, 8))
    assert desk.all() == lines(7, 8)
    assert len(desk.follower.sources()) == 1


def test_a_renamed_file_is_let_go_after_a_while(desk: Desk, tmp_path: Path) -> None:
    path, old = tmp_path / "train.log", tmp_path / "train.log.1"
    path.write_bytes(lines(0, 3))
    desk.look(path)
    desk.all()
    path.rename(old)
    path.write_bytes(lines(3, 4))
    desk.look(path)
    assert desk.all() == lines(3, 4)
    assert str(old) in open_names()
    desk.read(after_s=6.0)
    assert str(old) not in open_names()


def test_rotations_between_two_looks_are_not_lost(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 3))
    desk.look(path)
    desk.all()
    for at in range(3):
        for number in (2, 1):
            older = tmp_path / f"train.log.{number}"
            if older.exists():
                older.rename(tmp_path / f"train.log.{number + 1}")
        path.rename(tmp_path / "train.log.1")
        path.write_bytes(lines(3 + at, 4 + at))
        os.utime(path, (2000 + at, 2000 + at))
    os.utime(tmp_path / "train.log.3", (1000, 1000))
    desk.look(path)
    assert desk.all() == lines(3, 6)


def test_emptied_in_place(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 50) + b"unfin")
    desk.look(path)
    assert desk.all() == lines(0, 50)
    path.write_bytes(lines(50, 52))
    assert desk.read() == [Chunk(0, b"unfin"), Chunk(0, lines(50, 52), is_new=True)]
    (source,) = desk.follower.sources()
    assert source.why is not None
    assert (
        source.why.render() == "It was emptied while it was read (1x), and is read from its beginning again"
    )


def test_emptied_and_longer_than_before_already(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 5))
    desk.look(path)
    desk.all()
    path.write_bytes(lines(100, 130))
    assert desk.all() == lines(100, 130)


def test_copied_and_emptied_loses_nothing_that_the_copy_has(desk: Desk, tmp_path: Path) -> None:
    path, copy = tmp_path / "train.log", tmp_path / "train.log.1"
    path.write_bytes(lines(0, 20))
    desk.look(path)
    desk.all()
    append(path, lines(20, 25))
    copy.write_bytes(path.read_bytes())
    os.truncate(path, 0)
    append(path, lines(25, 26))
    assert desk.all() == lines(20, 26)


def test_the_hole_of_a_writer_that_goes_on_at_its_old_place_is_skipped(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with path.open("wb", buffering=0) as writer:
        writer.write(lines(0, 2000))
        desk.look(path)
        assert desk.all() == lines(0, 2000)
        os.truncate(path, 0)
        assert desk.read() == []
        writer.write(lines(2000, 2003))
    assert desk.all() == lines(2000, 2003)


def test_a_hundred_megabytes_of_nothing_cost_no_time(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with path.open("wb") as file:
        file.seek(100 << 20)
        file.write(b"after the hole\n")
    desk.look(path)
    begin_s = time.perf_counter()
    assert desk.all() == b"after the hole\n"
    assert time.perf_counter() - begin_s < 1.0


def test_zeros_that_are_written_are_skipped_too(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"a\n" + b"\0" * 10_000 + b"b\n")
    desk.look(path)
    assert desk.all()[:2] == b"a\n"


def test_removed_and_read_to_its_end(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 3))
    desk.look(path)
    desk.all()
    append(path, lines(3, 4) + b"last word")
    path.unlink()
    desk.places = []
    desk.look()
    assert desk.all() == lines(3, 4) + b"last word"
    (source,) = desk.follower.sources()
    assert source.state == "ended"
    assert not [name for name in open_names() if name.startswith(str(path))]


def test_comes_late(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    desk.look(path)
    (source,) = desk.follower.sources()
    assert (source.state, source.behind_bytes) == ("waiting", 0)
    assert desk.read() == []
    path.write_bytes(lines(0, 2))
    desk.look(path)
    assert desk.all() == lines(0, 2)
    assert [source.state for source in desk.follower.sources()] == ["reading"]


def test_a_pattern_that_matches_late_stays_one_source(desk: Desk, tmp_path: Path) -> None:
    desk.places = [Place("glob", "*.log", "*.log", state="waiting")]
    desk.look()
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 2))
    desk.look(path)
    assert desk.all() == lines(0, 2)
    assert [source.name for source in desk.follower.sources()] == [str(path)]


def test_files_of_one_series_follow_each_other(desk: Desk, tmp_path: Path) -> None:
    names = [tmp_path / f"plog-7_2026010100000{at}000.log" for at in range(4)]
    for at, path in enumerate(names[:2]):
        path.write_bytes(lines(at, at + 1))
        desk.put(path, "plog", "plog-7_*.log")
    desk.look()
    assert desk.all() == lines(0, 2)
    for at, path in enumerate(names[2:], 2):
        path.write_bytes(lines(at, at + 1))
        desk.put(path, "plog", "plog-7_*.log")
    desk.look()
    assert desk.all() == lines(2, 4)
    # The oldest is removed by CANN; what is read is not read again.
    names[0].unlink()
    desk.places = desk.places[1:]
    desk.look()
    desk.look()
    append(names[3], lines(4, 5))
    assert desk.all() == lines(4, 5)
    assert len(desk.follower.sources()) == 1


@pytest.mark.parametrize(
    ("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]
)
def test_what_was_rotated_away_and_packed_comes_first(
    desk: Desk, tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "train.log"
    (tmp_path / f"train.log.2.{ending}").write_bytes(pack(lines(0, 300)))
    (tmp_path / "train.log.1").write_bytes(lines(300, 302))
    path.write_bytes(lines(302, 304))
    for at, name in enumerate((f"train.log.2.{ending}", "train.log.1", "train.log")):
        os.utime(tmp_path / name, (5000 + at, 5000 + at))
    desk.look(path)
    assert desk.all() == lines(0, 304)
    assert desk.all() == b""


def test_what_was_rotated_away_is_left_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    (tmp_path / "train.log.2").write_bytes(lines(0, 100))
    (tmp_path / "train.log.1").write_bytes(lines(100, 200))
    path.write_bytes(lines(200, 300))
    for at, name in enumerate(("train.log.2", "train.log.1", "train.log")):
        os.utime(tmp_path / name, (5000 + at, 5000 + at))
    desk = Desk(monkeypatch, first_bytes=len(lines(200, 300)) + 170)
    desk.look(path)
    got = desk.all()
    assert lines(100, 300).endswith(got)
    assert len(lines(200, 300)) < len(got) <= len(lines(200, 300)) + 170


def test_rotated_files_of_an_earlier_process_are_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    (tmp_path / "train.log.1").write_bytes(b"of yesterday\n")
    os.utime(tmp_path / "train.log.1", (5000, 5000))
    path.write_bytes(b"of today\n")
    desk = Desk(monkeypatch)
    monkeypatch.setattr(follow_module, "started_s", lambda ticks: time.time() - 60)
    desk.look(path)
    assert desk.all() == b"of today\n"


def test_a_damaged_packed_file_ends_where_it_is_damaged(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    noise = b"".join(b"%x\n" % random.Random(at).getrandbits(256) for at in range(50_000))
    (tmp_path / "train.log.1.gz").write_bytes(gzip.compress(noise)[:-50_000])
    path.write_bytes(b"now\n")
    desk.look(path)
    got = desk.all()
    assert got.endswith(b"now\n")
    assert noise.startswith(got[: -len(b"now\n")][:-100])
    assert len(got) > 1_000_000


def test_a_flood_does_not_starve_the_others(desk: Desk, tmp_path: Path) -> None:
    flood, quiet = tmp_path / "flood.log", tmp_path / "quiet.log"
    flood.write_bytes(lines(0, 400_000))
    quiet.write_bytes(lines(0, 3))
    desk.look(flood, quiet)
    got = desk.read(1 << 20)
    assert sum(len(chunk.data) for chunk in got) < 2.2 * (1 << 20)
    assert lines(0, 3) in [chunk.data for chunk in got if chunk.source == 1]
    assert {chunk.source for chunk in got} == {0, 1}
    behind = desk.follower.sources()[0].behind_bytes
    assert behind == flood.stat().st_size - sum(len(chunk.data) for chunk in got if chunk.source == 0)


def test_an_error_of_the_disk_is_a_state_and_reading_goes_on_after_it(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 5))
    desk.look(path)
    desk.all()
    append(path, lines(5, 6))

    def stale(descriptor: int, count: int, offset: int) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as broken:
        broken.setattr("ascend_tui_plugins.logs.reading.follow_file.os.pread", stale)
        assert desk.read() == []
        (source,) = desk.follower.sources()
        assert source.state == "unreadable"
        assert source.why is not None
        assert "network file system" in source.why.render()
    desk.look(path)
    assert desk.all() == lines(5, 6)
    assert desk.follower.sources()[0].state == "reading"


def test_a_pipe_in_the_place_of_a_file_is_not_opened(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    os.mkfifo(path)
    desk.look(path)
    assert desk.read() == []
    with pytest.raises(OSError, match="no regular file"):
        open_file(str(path))


def test_memory_does_not_grow_with_what_is_read(desk: Desk, tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "train.log"
    path.write_bytes(b"x" * 30 + b"\n" + b"y" * (40 << 20))
    desk.look(path)
    tracemalloc.start()
    while desk.read(1 << 20):
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_lines_come_once_whatever_the_pieces_in_which_they_are_written(tmp_path: Path) -> None:
    chance = random.Random(8)
    path = tmp_path / "train.log"
    path.touch()
    tail = Tail(str(path), WHOLE)
    whole = b"".join(
        bytes(chance.choices(b"abc\r\xe8\xaf", k=chance.randrange(200))) + b"\n" for _ in range(500)
    )
    written, now_s, got = 0, 0.0, b""
    while written < len(whole):
        step = chance.randrange(1, 400)
        append(path, whole[written : written + step])
        written += step
        now_s += chance.choice((0.1, 3.0))
        while (piece := tail.read(chance.choice((1, 50, 100_000)), now_s)) is not None:
            assert piece.data
            assert piece.goes_on or piece.data.endswith(b"\n")
            got += piece.data
    assert got == whole


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_told_twice_whatever_happens_to_a_file(
    desk: Desk, tmp_path: Path, seed: int
) -> None:
    """A writer that renames, and one that copies and empties, at any time between looks and reads."""
    chance = random.Random(seed)
    path = tmp_path / "train.log"
    path.touch()
    desk.look(path)
    count, got, stamp = 0, b"", 5000
    for _ in range(250):
        act = chance.choice(("write", "write", "write", "read", "look", "rotate"))
        if act == "write":
            more = chance.randrange(1, 30)
            append(path, lines(count, count + more))
            count += more
        elif act == "read":
            got += b"".join(chunk.data for chunk in desk.read(chance.choice((100, 1 << 20))))
        elif act == "look":
            desk.look(path)
        else:
            # Names as numbers: what `train.log.1` is called does not matter, when it was written does.
            stamp += 1
            old = tmp_path / f"train.log-20260101-{stamp}"
            if seed % 2:
                # Where it was read between, the copy made last is the one to look into.
                desk.look(path)
                got += desk.all()
                old.write_bytes(path.read_bytes())
                os.truncate(path, 0)
            else:
                path.rename(old)
                path.touch()
            os.utime(old, (stamp, stamp))
    desk.look(path)
    got += desk.all()
    desk.look(path)
    got += desk.all()
    assert got == lines(0, count)


def test_read_file_gives_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(lines(0, 200_000) + b"no end")
    blocks = list(read_file(path))
    assert b"".join(blocks) == lines(0, 200_000) + b"no end"
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    assert all(len(block) <= 2 << 20 for block in blocks)
    assert len(blocks) >= 3


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.log.gz", gzip.compress),
        ("a.log.bz2", bz2.compress),
        ("a.log.xz", lzma.compress),
        ("a", gzip.compress),
    ],
)
def test_read_file_unpacks(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / name
    path.write_bytes(pack(lines(0, 5000)))
    assert b"".join(read_file(path)) == lines(0, 5000)


def test_read_file_of_a_download_that_broke_off_gives_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    noise = b"".join(b"%x\n" % random.Random(at).getrandbits(256) for at in range(20_000))
    path.write_bytes(gzip.compress(noise)[:-1000])
    got: list[bytes] = []
    with pytest.raises(OSError, match="damaged"):
        got.extend(read_file(path))
    assert noise.startswith(b"".join(got))
    assert len(b"".join(got)) > len(noise) - 200_000


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8-sig"])
def test_read_file_knows_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.log"
    mark = "" if encoding == "utf-8-sig" else "\ufeff"
    path.write_bytes(f"{mark}损失 = nan\n第二行\n".encode(encoding))
    assert b"".join(read_file(path)) == "损失 = nan\n第二行\n".encode()


def test_read_file_cuts_a_line_without_an_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"z" * (3 << 20))
    blocks = list(read_file(path))
    assert [len(block) for block in blocks] == [1 << 20] * 3


def test_read_file_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_file(tmp_path / "none"))
    with pytest.raises(OSError, match="no regular file"):
        list(read_file(tmp_path))
    (tmp_path / "empty").touch()
    assert list(read_file(tmp_path / "empty")) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/r/train.log", True),
        ("/r/nohup.out", True),
        ("/r/log.txt", True),
        ("/r/metrics.jsonl", True),
        ("/r/mindspore.host.root.log.ERROR.20260101-120000.77", True),
        ("/r/logs/rank_0", True),
        ("/r/msrun_log/rank0", True),
        ("/r/logs/model.pt", False),
        ("/r/logs/events.out.tfevents.1700000000.host.1.0", False),
        ("/r/log/runs.sqlite", False),
        ("/r/log/runs.db-wal", False),
        ("/r/catalogs/part", False),
        ("/r/blog/part", False),
        ("/r/data.bin", False),
        ("/r/loss.csv", False),
        ("/r/libx.so", False),
    ],
)
def test_what_is_a_log_by_its_name(name: str, expected: bool) -> None:
    assert is_log(name) is expected


def test_what_a_rotated_file_was_called() -> None:
    assert {
        base_of(f"a.log{end}") for end in (".1", ".2.gz", "-20260101", ".2026-01-01", "-20260101.xz")
    } == {"a.log"}
    assert base_of("a.log.12.bz2") == "a.log"
    assert base_of("rank_0.log") == "rank_0.log"
    assert base_of("model.7b") == "model.7b"


def test_rotations_are_those_of_this_file(tmp_path: Path) -> None:
    for at, name in enumerate(("a.log.2.gz", "a.log.1", "a.log", "ba.log.1", "a.log.old", "a.logs.1")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert [Path(one).name for one in rotations(str(tmp_path / "a.log"))] == ["a.log.2.gz", "a.log.1"]


def open_names() -> list[str]:
    """Return what this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return found
