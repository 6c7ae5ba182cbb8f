"""The shim's socket: who may connect, what they may say, and what they are sent.

All of it runs on the shim's one thread, which serialises what several monitors ask.  A hostile or
broken connection is closed and costs nobody else anything.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from .. import wire

MOST_CONNECTIONS = 16
HELLO_S = 5.0
BACKLOG_BYTES = 2 << 20
"""A monitor that reads so much too late gets no records, and is not listened to, until it reads."""
READ_BYTES = 1 << 16


class Connection:
    """One monitor: its socket, what is still to be sent, and what it said of itself."""

    def __init__(self, sock: socket.socket, pid: int, uid: int) -> None:
        self.sock = sock
        self.pid = pid
        self.uid = uid
        self.since_mono = time.monotonic()
        self.decoder = wire.Decoder(wire.MAX_TO_SHIM_BYTES)
        self.out = bytearray()
        self.greeted = False
        self.writable = False
        self.name = "unknown"
        self.dropped = 0
        """Records that this monitor did not get because it did not read."""
        self._untold = 0
        self.closing = False
        self.deaf = False
        """Nothing can be sent any more; what it said before it left is still to be read."""

    def holder(self) -> Dict[str, Any]:
        """Return who this is, as others are told of it."""
        return {"name": self.name, "pid": self.pid, "uid": self.uid}

    def send(self, frame: Dict[str, Any]) -> None:
        """Queue one frame; one that is too large becomes an error that says so."""
        if self.deaf:
            return
        try:
            self.out += wire.encode(frame, wire.MAX_TO_MONITOR_BYTES)
        except wire.FrameError as error:
            short = {
                "type": "reply",
                "id": frame.get("id"),
                "ok": False,
                "error": "the answer is too large: %s" % error,
            }
            self.out += wire.encode(short, wire.MAX_TO_MONITOR_BYTES)

    def is_behind(self) -> bool:
        """Tell whether the other side reads too slowly to be sent or asked anything more."""
        return len(self.out) > BACKLOG_BYTES

    def send_body(self, body: bytes, records: int, may_drop: bool) -> bool:
        """Queue a frame of so many records; a slow monitor loses them, never the training its memory."""
        if self.deaf:
            return False
        if may_drop and self.is_behind():
            self.dropped += records
            self._untold += records
            return False
        if self._untold:
            self.send({"type": "event", "event": "gap", "wall": time.time(), "records": self._untold})
            self._untold = 0
        self.out += struct.pack(">I", len(body)) + body
        return True

    def flush(self) -> bool:
        """Send what the socket takes; False when the connection is to be closed."""
        while self.out:
            try:
                sent = self.sock.send(memoryview(self.out)[: 1 << 16])
            except BlockingIOError:
                return True
            except OSError:
                # It left, perhaps right after a last request ("release"): the end of its words closes.
                self.deaf = True
                self.out.clear()
                break
            del self.out[:sent]
        return not self.closing


if TYPE_CHECKING:
    # At run time the caches of typing would keep this class, and so each detached shim, alive.
    Handler = Callable[[Connection, Dict[str, Any]], None]
    Gone = Callable[[Connection], None]


class Server:
    """Listen below a private directory and carry frames.

    `handle(connection, frame)` is called for each frame after the hello, `greet(connection, frame)`
    for the hello itself, `gone(connection)` when a greeted one ends.
    """

    def __init__(self, path: str, greet: Handler, handle: Handler, gone: Gone) -> None:
        self.path = path
        self.connections: Dict[int, Connection] = {}
        self.refused = 0
        self._greet, self._handle, self._gone = greet, handle, gone
        self._listener: Optional[socket.socket] = None
        self._identity = (0, 0)
        self._poll = select.poll()
        self._welcome = (os.geteuid(), *_roots())

    def open(self) -> None:
        """Bind the socket, 0600 in a 0700 directory that is ours.  Raises OSError with the reason."""
        directory = os.path.dirname(self.path)
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            seen = os.lstat(directory)
            private = stat.S_ISDIR(seen.st_mode) and not stat.S_IMODE(seen.st_mode) & 0o077
            if not private or seen.st_uid != os.geteuid():
                why = "%s is not a directory of uid %d with mode 0700; remove it"
                raise OSError(why % (directory, os.geteuid())) from None
        if len(self.path.encode()) > 107:
            raise OSError("the socket path is longer than 107 bytes: %s" % self.path)
        self._refuse_another()
        for stale in (self.path, self.path + ".error"):
            try:
                os.unlink(stale)
            except FileNotFoundError:
                continue
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self.path)
            os.chmod(self.path, 0o600)
            listener.setblocking(False)
            listener.listen(MOST_CONNECTIONS)
        except OSError:
            listener.close()
            raise
        if self._listener is not None:
            self._poll.unregister(self._listener)
            self._listener.close()
        self._listener = listener
        self._poll.register(listener, select.POLLIN)
        seen = os.lstat(self.path)
        self._identity = (seen.st_dev, seen.st_ino)

    def _refuse_another(self) -> None:
        """Raise OSError when somebody else listens at our path: two pid namespaces may share a /tmp."""
        if self._listener is not None and self.is_in_place():
            return
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.setblocking(False)
            probe.connect(self.path)
        except OSError:
            return
        finally:
            probe.close()
        raise OSError("another process listens at %s" % self.path)

    def is_in_place(self) -> bool:
        """Tell whether the path still leads to our socket: cleaners of /tmp remove old ones."""
        try:
            seen = os.lstat(self.path)
        except OSError:
            return False
        return (seen.st_dev, seen.st_ino) == self._identity

    def poll(self, seconds: float) -> None:
        """Wait at most `seconds` for traffic and carry it."""
        for descriptor, events in self._poll.poll(max(0.0, seconds) * 1000):
            if self._listener is not None and descriptor == self._listener.fileno():
                self._accept()
            elif descriptor in self.connections:
                self._serve(self.connections[descriptor], events)
        now = time.monotonic()
        for connection in list(self.connections.values()):
            if not connection.greeted and now - connection.since_mono > HELLO_S:
                self.close(connection)

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # Out of descriptors: whoever waits stays in the queue, and poll would return at once again.
            time.sleep(0.05)
            return
        sock.setblocking(False)
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        # Across pid namespaces the kernel gives pid 0; the uid is what decides.
        if uid not in self._welcome or len(self.connections) >= MOST_CONNECTIONS:
            self.refused += 1
            sock.close()
            return
        self.connections[sock.fileno()] = Connection(sock, pid, uid)
        self._poll.register(sock, select.POLLIN)

    def _serve(self, connection: Connection, events: int) -> None:
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL):
            try:
                data = connection.sock.recv(READ_BYTES)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""
            if data == b"":
                self.close(connection)
                return
            if data:
                try:
                    frames = connection.decoder.feed(data)
                except wire.FrameError as error:
                    self._expel(connection, str(error))
                    return
                for frame in frames:
                    self._dispatch(connection, frame)
        self.flush(connection)

    def _dispatch(self, connection: Connection, frame: Dict[str, Any]) -> None:
        if connection.closing:
            return
        if connection.greeted:
            self._handle(connection, frame)
        elif frame["type"] == "hello":
            self._greet(connection, frame)
        else:
            self._expel(connection, "the first frame must be a hello")

    def _expel(self, connection: Connection, why: str) -> None:
        connection.send({"type": "bye", "reason": why})
        connection.flush()
        self.close(connection)

    def flush(self, connection: Connection) -> None:
        """Send what waits for one connection and keep polling for room where some is left."""
        if not connection.flush():
            self.close(connection)
        elif connection.sock.fileno() >= 0:
            events = (select.POLLOUT if connection.out else 0) | (
                0 if connection.is_behind() else select.POLLIN
            )
            self._poll.modify(connection.sock, events)

    def broadcast(self, frame: Dict[str, Any]) -> None:
        """Send one frame to every greeted connection."""
        for connection in list(self.connections.values()):
            if connection.greeted and not connection.is_behind():
                connection.send(frame)
                self.flush(connection)

    def broadcast_records(self, records: List[bytes]) -> None:
        """Send records, whose JSON is ready, to every greeted connection."""
        for body, count in batches(records):
            for connection in list(self.connections.values()):
                if connection.greeted:
                    connection.send_body(body, count, may_drop=True)
                    self.flush(connection)

    def close(self, connection: Connection) -> None:
        """Drop one connection."""
        descriptor = connection.sock.fileno()
        if self.connections.pop(descriptor, None) is None:
            return
        self._poll.unregister(descriptor)
        connection.sock.close()
        if connection.greeted:
            self._gone(connection)

    def close_all(self, unlink: bool) -> None:
        """Close everything; `unlink` also takes the socket's path away (not after a fork)."""
        for connection in list(self.connections.values()):
            connection.sock.close()
        self.connections.clear()
        self.stop_listening(unlink)

    def stop_listening(self, unlink: bool) -> None:
        """Let nobody in any more; a next shim of this process can have the path from here on."""
        in_place = self.is_in_place()
        if self._listener is not None:
            self._poll.unregister(self._listener)
            self._listener.close()
            self._listener = None
        if unlink and in_place:
            self._identity = (0, 0)
            os.unlink(self.path)
            try:
                os.rmdir(os.path.dirname(self.path))
            except OSError:
                return  # other shims of this user live there


def _roots() -> Tuple[int, ...]:
    """Return the user ids of a root: 0, and in a user namespace what the root outside of it looks like.

    An id that is not mapped shows as the overflow id. Nobody else who is shown so can come in: the folder
    is 0700, and to pass it takes its owner or a root.
    """
    try:
        with open("/proc/self/uid_map") as file:
            whole = [line.split() for line in file] == [["0", "0", "4294967295"]]
        with open("/proc/sys/kernel/overflowuid") as file:
            return (0,) if whole else (0, int(file.read()))
    except (OSError, ValueError):
        return (0,)


def batches(records: List[bytes]) -> List[Tuple[bytes, int]]:
    """Pack records into frame bodies well below the limit, each with its number of records."""
    bodies: List[Tuple[bytes, int]] = []
    part: List[bytes] = []
    size = 0
    for record in records:
        if part and size + len(record) > 256 << 10:
            bodies.append((_body(part), len(part)))
            part, size = [], 0
        part.append(record)
        size += len(record) + 1
    if part:
        bodies.append((_body(part), len(part)))
    return bodies


def _body(records: List[bytes]) -> bytes:
    return b'{"type":"records","records":[' + b",".join(records) + b"]}"
