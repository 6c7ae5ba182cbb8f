"""A line as it was written becomes one that rules can read: cleaned, and without what loggers put before it.

Launchers, workers, Python's loggers, glog, CANN's plog and its error trailers each put their own head before
a line, and often several: `(Worker_TP0 pid=8) ERROR 03-25 06:14:02 [executor.py:880] [rank1]: text`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ascend_tui.text import plain

from .sighting import Line
from .stamps import GLOG, SHORT, STAMP, wall_of

LONGEST = 1 << 20
"""Characters of a line that are looked at."""
_HEADS = 10

_LEVELS = {
    **dict.fromkeys(("debug", "trace", "d", "verbose", "调试"), "debug"),
    **dict.fromkeys(("info", "notice", "event", "i", "success", "信息"), "info"),
    **dict.fromkeys(("warning", "warn", "w", "警告", "告警"), "warning"),
    **dict.fromkeys(("error", "err", "e", "exception", "错误"), "error"),
    **dict.fromkeys(("fatal", "critical", "f", "crit", "严重", "致命"), "fatal"),
}
_WORDS = r"DEBUG|TRACE|INFO|NOTICE|EVENT|WARNING|WARN|ERROR|ERR|EXCEPTION|CRITICAL|FATAL|SUCCESS"
_SIGNS = "，。：；、（）【】“”！？—…·％"
_CHINESE = "调试|信息|警告|告警|错误|严重|致命"

_WORKER = re.compile(
    r"\((?P<worker>[A-Za-z_][\w.:\- ]{0,60}?)\s?pid=(?P<pid>\d{1,9})(?:, ip=[^)\s]{1,60})?\) ?"
)
_RANK = re.compile(
    r"\[(?:rank|default)[ :_]?(?P<rank>\d{1,6})\]:? ?|\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err)>: ?",
    re.IGNORECASE,
)
_RANK_LATER = re.compile(r"\[Rank[ :_]?(?P<rank>\d{1,6})\] ?", re.IGNORECASE)
_PLOG = re.compile(
    rf"\[(?P<level>{_WORDS})\] ?(?P<logger>[A-Z][A-Z0-9_]{{1,20}})"
    r"\((?P<pid>\d{1,9})(?:,(?P<rest>[^)\n]{0,80}))?\):?"
    r"(?P<tail>[^\[]{0,32})(?:\[[^\]]{1,120}?:\s*\d{1,6}\])? ?"
    r"(?:\[?(?:tid:)?\d{1,9}\](?=\S)|\[tid:\d{1,9}\]|\d{1,9}(?= ))? ?"
)
_TRAILER = re.compile(
    r"\[ERROR\] (?P<stamp>[0-9\-:]{10,25}) \(PID:(?P<pid>\d{1,9}), Device:(?P<device>-?\d{1,4}),"
    r" RankID:(?P<rank>-?\d{1,6})\) ?"
)
_CANN_PID = re.compile(r"\[PID: ?(?P<pid>\d{1,9})\] ?")
_PIPE_HEAD = re.compile(rf"\[(?P<level>{_WORDS})\|(?P<rest>[^\]]{{1,80}})\]", re.IGNORECASE)
_LEVEL = re.compile(
    rf"\[(?:(?P<a>{_WORDS})|(?P<b>{_CHINESE}))\] ?|【(?P<c>{_CHINESE})】 ?"
    rf"|(?P<d>{_WORDS})\b(?::? |:|$)"
)
_ONE_LETTER = re.compile(r"\[?(?P<level>[WEF]) (?=[\w./]{1,60}\.(?:cpp|cc|ts|py|h):\d)")
_FILE = re.compile(r"\[?(?P<file>[\w./\-]{1,120}\.(?:py|cpp|cc|ts|h|c)):\d{1,6}(?::[\w<>]{1,60})?\] ?")
_TID = re.compile(r"\d{2,9} (?=[\w./\-]{1,120}\.(?:py|cpp|cc|ts|h|c):\d)")
_NAME = re.compile(rf"(?:- )?(?!(?:{_WORDS})\b)" r"(?P<logger>[A-Za-z_][\w.:]{0,100})(?: -|:\d{1,6} >>| >>) ")
_DASH = re.compile(r"(?:[-|] |>> )")
_BRACKET_STAMP = re.compile(r"\[(?=20\d\d[-/]\d\d[-/]\d\d[ T_-])")
_REPEATED = re.compile(r"\[repeated (\d{1,6})x across cluster\]|\blast message repeated (\d{1,6}) times?\b")
_TP = re.compile(r"_?TP(\d{1,5})")
_OUTER = re.compile(r"_?(?:DP|PP)([1-9]\d{0,4})")


def text_of(raw: bytes) -> str:
    """Return the text of a line: UTF-8, else GB18030 where all of it is Chinese, else what can be read."""
    raw = raw[:LONGEST]
    if raw.isascii():
        return raw.decode("ascii")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = error.start >= len(raw) - 3 and error.reason == "unexpected end of data"
    if not is_cut:
        try:
            text = raw.decode("gb18030")
        except UnicodeDecodeError:
            text = ""
        foreign = [one for one in text if one > "\x7f"]
        if foreign and all(
            "\u4e00" <= one <= "\u9fa5" or one in "，。：；、（）【】“”！？—…·％" for one in foreign
        ):
            return text
    return raw.decode("utf-8", "replace")


def cleaned(raw: bytes) -> str:
    """Return the text of a line without escapes, NUL bytes and what a carriage return has overwritten."""
    text = plain(text_of(raw)).replace("\0", "")
    if "\r" in text:
        states = [part for part in text.split("\r") if part.strip()]
        text = states[-1] if states else ""
    return text.rstrip()


def parse(
    raw: bytes, number: int = 0, source: int = 0, rank: int | None = None, year: int | None = None
) -> Line:
    """Return a line with its heads taken off.

    `rank` is that of its source where it has one of its own; `year` completes dates that have none.
    """
    return parse_text(cleaned(raw), number, source, rank, year)


def parse_text(
    text: str, number: int = 0, source: int = 0, rank: int | None = None, year: int | None = None
) -> Line:
    """Return a cleaned line with its heads taken off."""
    head = _Head(text, rank, year)
    head.read()
    repeated = _REPEATED.search(text) if "repeated " in text else None
    return Line(
        text=text,
        body=text[head.at :],
        number=number,
        source=source,
        rank=head.rank,
        stream=head.stream,
        pid=head.pid,
        device=head.device,
        wall_s=head.wall_s,
        level=head.level,
        logger=head.logger,
        repeated=1 + int(repeated[1] or repeated[2]) if repeated else 1,
    )


def with_body(line: Line, body: str) -> Line:
    """Return the line with another body, as where two messages were glued together."""
    return replace(line, body=body)


class _Head:
    """What stands before the body, read piece by piece."""

    def __init__(self, text: str, rank: int | None, year: int | None) -> None:
        self.text, self.year = text, year
        self.at = 0
        self.rank, self.pid, self.device = rank, None, None  # type: int | None, int | None, int | None
        self.wall_s: float | None = None
        self.level = self.logger = self.stream = ""
        if rank is not None:
            self.stream = f"rank {rank}"

    def read(self) -> None:
        for _ in range(_HEADS):
            before = self.at
            # Indented text behind a head is the body, as in tracebacks; some loggers pad the level's word.
            if before and not self.take(_PAD) and self.text.startswith("  ", before):
                return
            for piece in _PIECES:
                if piece(self):
                    break
            if self.at == before:
                return

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def worker(self) -> bool:
        found = self.take(_WORKER)
        if found is None:
            return False
        self.pid = int(found["pid"])
        # A worker writes its own name inside that of its launcher.
        self.stream = f"pid {self.pid}"
        of_tensor = _TP.search(found["worker"])
        if of_tensor and not _OUTER.search(found["worker"]):
            self.rank = int(of_tensor[1])
        return True

    def ranked(self) -> bool:
        found = self.take(_RANK) or (self.take(_RANK_LATER) if self.at else None)
        if found is None:
            return False
        groups = found.groupdict()
        self.rank = int(groups["rank"] or groups.get("mpi") or 0)
        self.stream = f"rank {self.rank}"
        return True

    def plog(self) -> bool:
        found = self.take(_PLOG)
        if found is None:
            return False
        self.level = _LEVELS[found["level"].lower()]
        self.logger, self.pid = found["logger"], int(found["pid"])
        self.stream = self.stream or f"pid {self.pid}"
        self.stamp(found["tail"])
        return True

    def trailer(self) -> bool:
        found = self.take(_TRAILER)
        if found is None:
            return False
        self.level, self.pid = "error", int(found["pid"])
        self.stamp(found["stamp"])
        if int(found["device"]) >= 0:
            self.device = int(found["device"])
        if int(found["rank"]) >= 0:
            self.rank = int(found["rank"])
        return True

    def piped(self) -> bool:
        found = self.take(_PIPE_HEAD)
        if found is None:
            return False
        self.level = _LEVELS[found["level"].lower()]
        self.stamp(found["rest"])
        self.take(_SPACE)
        return True

    def glog(self) -> bool:
        at = self.at + (self.text[self.at : self.at + 1] == "[")
        found = GLOG.match(self.text, at)
        if found is None:
            return False
        self.level = _LEVELS[found["level"].lower()]
        self.wall_s = wall_of(found, self.year) if self.wall_s is None else self.wall_s
        self.at = found.end()
        self.take(_SPACE)
        self.take(_TID)
        self.take(_FILE)
        return True

    def dated(self) -> bool:
        at = self.at
        is_bracket = self.take(_BRACKET_STAMP) is not None
        found = self.take(STAMP) or self.take(SHORT)
        if found is None:
            self.at = at
            return False
        self.wall_s = wall_of(found, self.year) if self.wall_s is None else self.wall_s
        if is_bracket:
            inner = _INSIDE.match(self.text, self.at)
            if inner is None:
                return True
            if inner["level"]:
                self.level = self.level or _LEVELS[inner["level"].lower()]
            self.at = inner.end()
        else:
            self.take(_SPACE)
        return True

    def levelled(self) -> bool:
        found = self.take(_LEVEL)
        if found is None:
            return False
        word = next(one for one in (found["a"], found["b"], found["c"], found["d"]) if one)
        self.level = self.level or _LEVELS[word.lower()]
        return True

    def lettered(self) -> bool:
        found = self.take(_ONE_LETTER)
        if found is None:
            return False
        self.level = self.level or _LEVELS[found["level"].lower()]
        self.take(_FILE)
        return True

    def filed(self) -> bool:
        found = self.take(_FILE) if self.at else None
        if found is None:
            return False
        self.logger = self.logger or found["file"]
        return True

    def named(self) -> bool:
        found = self.take(_NAME) if self.wall_s is not None else None
        if found is None:
            return False
        self.logger = self.logger or found["logger"]
        return True

    def dashed(self) -> bool:
        return self.at > 0 and self.take(_DASH) is not None

    def stamp(self, text: str) -> None:
        found = STAMP.search(text)
        if found is not None and self.wall_s is None:
            self.wall_s = wall_of(found, self.year)


_SPACE = re.compile(r" ?")
_PAD = re.compile(r" +(?=[|\-] )")
_INSIDE = re.compile(rf"(?: ?,\d+)?(?: (?P<level>{_WORDS}))?\] ?")
_PIECES = (
    _Head.worker,
    _Head.ranked,
    _Head.plog,
    _Head.trailer,
    _Head.piped,
    _Head.glog,
    _Head.dated,
    _Head.lettered,
    _Head.levelled,
    _Head.named,
    _Head.filed,
    _Head.dashed,
)


def cann_time(body: str, year: int | None = None) -> float | None:
    """Return the time inside a message of CANN: `EZ9999: [PID: 1] 2025-02-16-12:18:25.258.321 …`."""
    found = STAMP.search(body[:200])
    return wall_of(found, year) if found else None
