"""The monitor's end of a shim's socket: connect, be sure who answers, ask and listen."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from ascend_tui import wire
from ascend_tui.target import Target, socket_path
from ascend_tui.target.paths import started_then

HELLO_S = 3.0
SEND_S = 1.0
"""A shim that reads nothing for so long is given up: the other targets' thread waits here."""
REQUEST_S = 10.0


class ShimError(Exception):
    """The shim cannot be spoken to; the text says why."""


class ShimGone(ShimError):
    """There is no shim at the socket, or it closed the connection."""


class ShimSilent(ShimError):
    """There is a shim, but it does not answer: its process stands still or holds the interpreter."""


class ShimShut(ShimError):
    """There is a shim, but it hung up before it said who it is: it has its fill of monitors, or is ending."""


class ShimClient:
    """One connection.  Frames that are no reply are kept in `inbox` until `receive` hands them out."""

    def __init__(self, target: Target, sock: socket.socket) -> None:
        self.target = target
        self.hello: Mapping[str, Any] = {}
        self.inbox: list[dict[str, Any]] = []
        self._sock = sock
        self._decoder = wire.Decoder(wire.MAX_TO_MONITOR_BYTES)
        self._next_id = 1
        self._end: ShimError | None = None

    @classmethod
    def connect(
        cls, target: Target, *, name: str, writable: bool, resume: Mapping[str, Any] | None = None
    ) -> ShimClient:
        """Return a greeted connection to the shim of `target`.

        Raises ShimGone when nobody listens, ShimSilent or ShimShut when the shim that is there does not
        greet back, ShimError when somebody else or an unknown version answers.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(HELLO_S)
        try:
            sock.connect(str(socket_path(target)))
        except (BlockingIOError, socket.timeout):
            # The queue of the listener is full: it exists, and nobody serves it.
            sock.close()
            raise ShimSilent(f"the shim of {target.id.pid} takes no connection") from None
        except OSError as error:
            sock.close()
            raise ShimGone(f"no shim listens for {target.id.pid}: {error.strerror or error}") from None
        client = cls(target, sock)
        try:
            client._check_peer()
            client._greet(name, writable, resume)
        except ShimGone:
            client.close()
            raise ShimShut(
                f"the shim of {target.id.pid} hung up at once: it has 16 monitors already, or is ending"
            ) from None
        except BaseException:
            client.close()
            raise
        return client

    def _check_peer(self) -> None:
        packed = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = struct.unpack("3i", packed)
        # The listener's credentials are those of the process that bound it; 0 is "in another pid namespace".
        if pid not in (0, self.target.id.pid) or uid not in (self.target.uid, 0):
            raise ShimError(f"the socket of {self.target.id.pid} belongs to process {pid} of user {uid}")

    def _greet(self, name: str, writable: bool, resume: Mapping[str, Any] | None) -> None:
        frame: dict[str, Any] = {
            "type": "hello",
            "id": 0,
            "protocols": list(wire.SUPPORTED),
            "client": {"name": name, "pid": os.getpid()},
            "writable": writable,
        }
        if resume:
            frame["resume"] = dict(resume)
        self._send(frame)
        hello = self._wait("hello", 0, HELLO_S)
        if hello.get("ok") is not True:
            raise ShimError(
                f"the shim speaks protocols {hello.get('protocols')}, this monitor {wire.SUPPORTED}"
            )
        process = hello.get("process")
        if not isinstance(process, dict) or not started_then(self.target, process.get("start_ticks")):
            raise ShimError(f"another process answers at the socket of {self.target.id.pid}")
        self.hello = hello
        self._sock.settimeout(SEND_S)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._sock.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """Return the frames that are there, without waiting.

        Raises ShimError once the connection has ended and everything before its end was returned.
        """
        frames, self.inbox = self.inbox, []
        while self._end is None and len(frames) <= 64 and self._is_readable(0):
            try:
                frames += self._read()
            except ShimError as error:
                # What came before the end (the last records, the answer to a detach) still counts.
                self._end = error
        if self._end is not None and not frames:
            raise self._end
        return frames

    @property
    def has_ended(self) -> bool:
        """Tell whether the end of the connection was seen; `receive` may still hand out what came before."""
        return self._end is not None

    def _is_readable(self, seconds: float) -> bool:
        # Not select(): it fails for descriptors above 1023.
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def send_request(self, operation: str, **fields: Any) -> int:
        """Send a request and return its id; the reply arrives among the frames."""
        identity = self._next_id
        self._next_id += 1
        self._send({"type": "request", "id": identity, "op": operation, **fields})
        return identity

    def request(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Send a request and wait for its result.  Raises ShimError with the shim's reason."""
        reply = self._wait("reply", self.send_request(operation, **fields), REQUEST_S)
        if reply.get("ok") is not True:
            raise ShimError(str(reply.get("error", "the shim refused without a reason")))
        result = reply.get("result")
        return result if isinstance(result, dict) else {}

    def _wait(self, kind: str, identity: int, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0 or not self._is_readable(left):
                raise ShimSilent(f"the shim did not answer within {seconds:.0f} s")
            found = None
            for frame in self._read():
                if found is None and frame["type"] == kind and frame.get("id") == identity:
                    found = frame
                elif frame["type"] == "bye":
                    raise ShimError(f"the shim closed the connection: {frame.get('reason')}")
                else:
                    self.inbox.append(frame)
            if found is not None:
                return found

    def _read(self) -> list[dict[str, Any]]:
        try:
            data = self._sock.recv(1 << 18)
        except OSError as error:
            raise ShimGone(f"the connection broke: {error}") from None
        if not data:
            raise ShimGone("the shim closed the connection")
        try:
            return self._decoder.feed(data)
        except wire.FrameError as error:
            raise ShimError(f"the shim sent a broken frame: {error}") from None

    def _send(self, frame: dict[str, Any]) -> None:
        try:
            data = wire.encode(frame, wire.MAX_TO_SHIM_BYTES)
        except wire.FrameError as error:
            raise ShimError(f"it is too large to be sent: {error}") from None
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise ShimGone(f"the connection broke: {error}") from None

    def close(self) -> None:
        """Close the connection; the shim ends by lease what it held."""
        self._sock.close()
