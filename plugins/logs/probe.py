"""Tee probe: what Python writes to stdout and stderr, as text for the monitor, on request.

The copy is taken where Python hands bytes to the kernel: the raw file below a stream gets an attribute
`write` of ours, which calls its own.  The streams stay the same objects, and all that is above them is seen,
whenever it was made: print, logging, progress bars that keep a stream's `write`, streams of the program's own
that end there.  Nothing of ours runs between the parts of a print: threads' lines mix no more than before.

What does not go through Python is not seen: C and C++ (glog, CANN's log on stdout, faulthandler), and other
processes.  Nor is what Python has not written yet: into a pipe it keeps up to 8 KiB until somebody flushes.
"""

import codecs
import io
import os
import stat
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any

DRAINS_HZ = 10
BYTES_PER_S = 256 << 10
ROOM_BYTES = 128 << 10
"""What waits of one stream, at most."""
PIECE_BYTES = 64
"""What a piece takes beside its text."""
RECORD_BYTES = 20000
"""As JSON no byte is more than six, and the history takes no record over 128 KiB."""
EXIT_S = 0.5
MOST_OBJECTS, DEEPEST, MOST_STREAMS = 64, 6, 16


def setup(api):
    """Offer the command; nothing is touched before it is started."""
    tee = Tee(api)
    api.command("tee", tee.start, tee.stop)
    api.sample(DRAINS_HZ, tee.drain)
    api.on_close(tee.stop)


class Lane:
    """One raw file, or one stream of the program's own, whose writes are copied."""

    def __init__(self, name, holder, encoding, place):
        self.name = name
        self.holder = holder
        self.place = place
        self.is_raw = isinstance(holder, io.FileIO)
        self.on = True
        self.fault: Any = None
        # Of the writing threads.
        self.pieces: deque[Any] = deque()
        self.room = ROOM_BYTES
        self.lost = 0
        # Of the shim's thread: [bytes that are missing before it, what to send], oldest first.
        self.parts: deque[Any] = deque()
        self.part_bytes = 0
        self.gap = 0
        self.is_cut = False
        self.decoder = decoder_of(encoding)
        self.before = self.ours = None

    def put_in(self):
        """Cover `write`; False where the object does not let us."""
        attributes = attributes_of(self.holder)
        if attributes is None:
            return False
        self.before = attributes.get("write")
        make = copying if self.is_raw else copying_text
        self.ours = make(self.holder.write, self, os.getpid())
        attributes["write"] = self.ours
        if self.holder.write is self.ours:
            return True
        self.take_out()
        return False

    def take_out(self):
        """Uncover `write`; say what has to stay, else nothing."""
        self.on = False
        attributes = attributes_of(self.holder) or {}
        if self.ours is None:
            return ""
        if attributes.get("write") is not self.ours:
            return "a write of %s that passes through (somebody wrapped it again)" % self.name
        if self.before is None:
            del attributes["write"]
        else:
            attributes["write"] = self.before
        # A progress bar keeps the `write` of its stream.  Ours are the attribute here and the argument there.
        if not self.is_raw and sys.getrefcount(self.ours) > 2:
            return "a write of %s that passes through (something of the program keeps it)" % self.name
        return ""

    def collect(self):
        """Take over what was written, and make room for more."""
        while self.pieces:
            lost, piece, written = self.pieces.popleft()
            if type(piece) is str:
                piece = piece.encode("utf-8", "replace")
                written = len(piece)
            written = written or 0
            self.miss(lost)
            self.keep(piece[:written])
            self.miss(written - len(piece))
        # Without a call in between no other thread comes in between.
        lost, self.lost = self.lost, 0
        self.miss(lost)
        self.room = ROOM_BYTES - self.part_bytes

    def miss(self, count):
        if count > 0:
            self.gap += count
            self.is_cut = True

    def keep(self, seen):
        if self.is_cut:
            # Half a line may have half a number: what comes after a gap begins with a whole one.
            ends = [at for at in (seen.find(b"\n"), seen.find(b"\r")) if at >= 0]
            begin = min(ends) + 1 if ends else len(seen)
            self.gap += begin
            self.is_cut = not ends
            seen = seen[begin:]
        if seen:
            if self.gap or not self.parts:
                self.parts.append([self.gap, bytearray()])
                self.gap = 0
            self.parts[-1][1] += seen
            self.part_bytes += len(seen)

    def take(self, most):
        """Return the next record and its number of bytes, None when there is nothing to tell."""
        if not self.parts:
            dropped, self.gap = self.gap, 0
            return ({"stream": self.name, "text": "", "dropped": dropped}, 0) if dropped else None
        part = self.parts[0]
        dropped, part[0] = part[0], 0
        text = bytes(part[1][:most])
        del part[1][:most]
        self.part_bytes -= len(text)
        if not part[1]:
            self.parts.popleft()
        if dropped:
            self.decoder.reset()
        return {"stream": self.name, "text": self.decoder.decode(text), "dropped": dropped}, len(text)


def copying(original, lane, pid):
    """Return a `write` for a raw file, which copies what the original has written.

    The buffer above counts on the number that it returns: if a signal's handler raised after the write and
    before that, the bytes would be written twice.  Python looks for signals where a call ends: behind the
    write there is none, and the write itself is an iterator taken apart.  (Python 3.8 and 3.9 look anywhere.)
    """
    pieces, getpid, types = lane.pieces, os.getpid, (memoryview, bytes)

    def write(data):
        nonlocal pieces
        room = 0
        piece = None
        try:
            if lane.on and type(data) in types and getpid() == pid:
                room = max(lane.room, 0)
                piece = bytes(data[:room])
                lane.room = room - len(piece) - PIECE_BYTES
        except Exception as error:
            if is_from_below(error):
                raise
            lane.fault, lane.on, piece = error, False, None
        if piece is None:
            return original(data)
        (written,) = map(original, (data,))
        if not room:
            lane.lost += written or 0
            return written
        pieces += ((lane.lost, piece, written),)
        lane.lost = 0
        return written

    return write


def is_from_below(error):
    """Tell whether it came from deeper: we call no Python code, so that is the handler of a signal."""
    return getattr(error.__traceback__, "tb_next", None) is not None


def copying_text(original, lane, pid):
    """Return a `write` for a stream of the program's own, which copies the text that it is given."""

    def write(*args, **named):
        result = original(*args, **named)
        try:
            if lane.on and args and type(args[0]) is str and os.getpid() == pid:
                text, room = args[0], max(lane.room, 0)
                if room:
                    lane.pieces.append((lane.lost, text[:room], None))
                    lane.lost, lane.room = 0, room - len(text) - PIECE_BYTES
                lane.lost += max(0, len(text) - room)
        except Exception as error:
            if is_from_below(error):
                raise
            lane.fault, lane.on = error, False
        return result

    return write


class Tee:
    """The command, and what it has in the process while it is on.  On the shim's thread."""

    def __init__(self, api):
        self.api = api
        self.on = False
        self.lanes = []
        self.seen = [0, 0]
        self.streams: dict[int, Any] = {}
        self.sent_s = 0.0
        self.at_exit: Any = None
        self.drains = 0
        self.drained = threading.Condition()

    def start(self, arguments, steps, seconds):
        """Cover what Python writes through; a second start only lasts longer."""
        if self.on:
            return self.told()
        self.streams = {}
        self.look(with_objects=True)
        if not self.streams:
            self.api.refuse("Python has neither a stdout nor a stderr here; read the files that it has open")
        self.on = True
        self.sent_s = time.monotonic()
        if not getattr(weakref.finalize, "_registered_with_atexit", True):
            self.api.leaves("one exit function of Python's module weakref (Python keeps its place)")
        self.at_exit = weakref.finalize(self, wait_for_drains, weakref.ref(self), os.getpid())
        self.api.emit("streams", self.told())
        return self.told()

    def stop(self):
        """Uncover everything, send what is left, and name what stays."""
        lanes, self.lanes, self.on = self.lanes, [], False
        if self.at_exit is not None:
            self.at_exit.detach()
        for left in filter(None, [lane.take_out() for lane in lanes]):
            self.api.leaves(left)
        for lane in lanes:
            lane.collect()
            self.send(lane, ROOM_BYTES)
        self.api.emit("streams", {"streams": [dict(one, teed=False) for one in self.streams.values()]})

    def told(self):
        """Return which streams there are, where they lead to, and whether they are copied."""
        return {"streams": [dict(one) for one in self.streams.values()]}

    def look(self, with_objects=False):
        """Cover what is not covered yet."""
        self.seen = [id(vars(sys).get(name)) for name in ("stdout", "stderr")]
        for name in ("stdout", "stderr"):
            for attribute in ("__%s__" % name, name):
                stream = getattr(sys, attribute, None)
                raws = [] if stream is None else raws_of(stream)
                # Beside ours a stream of the program's own may feed another pipe, with the same text.
                for raw, encoding in [one for one in raws if one[0].fileno() in (1, 2)] or raws:
                    self.cover_raw(name, raw, encoding, attribute == name)
                # What goes into a string is the program's own.
                is_string = isinstance(stream, (io.StringIO, io.TextIOWrapper))
                if with_objects and stream is not None and not raws and not is_string:
                    self.cover(Lane(name, stream, "utf-8", "object"))

    def cover_raw(self, name, raw, encoding, is_own):
        try:
            number = raw.fileno()
            place = place_of(number)
        except (OSError, ValueError):
            return
        name = {1: "stdout", 2: "stderr"}.get(number, name)
        # Files are read without us; a program that silences itself means it, a shell does not.
        is_silenced = is_own and place == "null" and number not in (1, 2)
        lane = Lane(name, raw, encoding, place)
        if is_silenced or place == "file":
            self.streams.setdefault(id(raw), {"stream": name, "to": place, "teed": False})
        else:
            self.cover(lane)

    def cover(self, lane):
        if not any(one.holder is lane.holder for one in self.lanes):
            self.lanes.append(lane)
            is_teed = lane.put_in()
            if not is_teed:
                self.lanes.remove(lane)
            self.streams[id(lane.holder)] = {"stream": lane.name, "to": lane.place, "teed": is_teed}

    def drain(self):
        """Send what was written since the last time; ten times a second."""
        if not self.on:
            return
        for lane in self.lanes:
            if lane.fault is not None:
                raise lane.fault
        seen = [id(vars(sys).get(name)) for name in ("stdout", "stderr")]
        if self.seen != seen and len(self.streams) < MOST_STREAMS:
            before = len(self.lanes)
            self.look()
            if len(self.lanes) != before:
                self.api.emit("streams", self.told())
        now = time.monotonic()
        most = int(min(1.0, now - self.sent_s) * BYTES_PER_S)
        self.sent_s = now
        for lane in self.lanes:
            lane.collect()
        # The one with the least first, so that a flood of one does not hold up the other.
        for lane in sorted(self.lanes, key=lambda one: one.part_bytes):
            most -= self.send(lane, most)
        self.lanes = [one for one in self.lanes if one.parts or not (one.is_raw and one.holder.closed)]
        with self.drained:
            self.drains += 1
            self.drained.notify_all()

    def send(self, lane, most):
        """Emit records of at most so many bytes; return how many it were."""
        sent = 0
        while sent < most or not lane.parts:
            told = lane.take(min(RECORD_BYTES, most - sent))
            if told is None:
                break
            self.api.emit("text", told[0])
            sent += told[1]
        return sent


def wait_for_drains(tee, pid):
    """Wait, where Python exits, for the last words to be sent: but for what it flushes only after that."""
    one = tee()
    if one is None or os.getpid() != pid:
        return
    end = time.monotonic() + EXIT_S
    with one.drained:
        # What the first drain emits is sent before the second.
        wanted = one.drains + 2
        while one.on and one.drains < wanted and time.monotonic() < end:
            one.drained.wait(end - time.monotonic())


def raws_of(stream):
    """Return [(raw file, encoding)] of what a stream writes to, also through objects of the program's own.

    Of those only attributes are looked at, so that no code of the program runs here.
    """
    found, seen, queue = [], {0}, deque([(stream, "utf-8", 0)])
    while queue and len(seen) < MOST_OBJECTS:
        one, encoding, depth = queue.popleft()
        if id(one) in seen or depth > DEEPEST:
            continue
        seen.add(id(one))
        try:
            if isinstance(one, io.FileIO):
                if not one.closed and one.writable():
                    found.append((one, encoding))
            elif isinstance(one, io.TextIOWrapper):
                queue.append((one.buffer, one.encoding, depth + 1))
            elif isinstance(one, (io.BufferedWriter, io.BufferedRandom)):
                queue.append((one.raw, encoding, depth + 1))
            elif isinstance(one, (list, tuple)):
                queue.extend((part, encoding, depth + 1) for part in one[:MOST_OBJECTS])
            elif not depth or (hasattr(type(one), "write") and not isinstance(one, type)):
                inner = attributes_of(one) or {}
                queue.extend((part, encoding, depth + 1) for part in list(inner.values())[:MOST_OBJECTS])
        except (AttributeError, RuntimeError, ValueError):
            continue  # Detached, or changed by another thread.
    return found


def attributes_of(one):
    """Return the attributes of an object, past any code of its class; None where it has none."""
    try:
        found = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def place_of(number):
    """Return what a descriptor leads to.  Raises OSError where it is closed."""
    status = os.fstat(number)
    if stat.S_ISCHR(status.st_mode):
        # 1:3 is the kernel's number of /dev/null.
        is_null = status.st_rdev == os.makedev(1, 3)
        return "null" if is_null else "terminal" if os.isatty(number) else "other"
    kinds = {stat.S_IFREG: "file", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(status.st_mode), "other")


def decoder_of(encoding):
    """Return a decoder that takes pieces; ASCII is part of UTF-8, which is what C programs print."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError):
        name = "utf-8"
    return codecs.getincrementaldecoder("utf-8" if name == "ascii" else name)("replace")
