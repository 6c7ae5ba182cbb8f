"""A raw client of the shim's socket and a starter of targets, for tests that must not trust the product."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from ascend_tui import shim

TARGETS = Path(__file__).parent.parent / "targets"


class Client:
    """One connection; what the shim sends by itself is kept in `records`, `events` and `beats`."""

    def __init__(self, path, timeout_s=20.0):
        self.records, self.events, self.beats, self.others = [], [], [], []
        self._buffer, self._next_id = b"", 0
        end = time.monotonic() + timeout_s
        while True:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self.socket.connect(str(path))
                break
            except OSError:
                self.socket.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Hang up."""
        self.socket.close()

    def send(self, frame):
        """Send one frame."""
        self.raw(json.dumps(frame).encode())

    def raw(self, body):
        """Send one frame of these bytes."""
        self.socket.sendall(struct.pack(">I", len(body)) + body)

    def frame(self, timeout_s=10.0):
        """Return the next frame, None when the other side hung up.  Raises TimeoutError."""
        end = time.monotonic() + timeout_s
        while True:
            if len(self._buffer) >= 4:
                (length,) = struct.unpack_from(">I", self._buffer)
                if len(self._buffer) >= 4 + length:
                    body, self._buffer = self._buffer[4 : 4 + length], self._buffer[4 + length :]
                    return self._sort(json.loads(body, parse_constant=self._refuse))
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("no frame")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._buffer += data

    @staticmethod
    def _refuse(text):
        raise AssertionError(text + " is not strict JSON")

    def _sort(self, frame):
        kind = frame["type"]
        if kind == "records":
            self.records += frame["records"]
        else:
            {"event": self.events, "beat": self.beats}.get(kind, self.others).append(frame)
        return frame

    def until(self, holds, timeout_s=10.0):
        """Read until `holds(frame)`; return that frame."""
        end = time.monotonic() + timeout_s
        while True:
            frame = self.frame(max(0.01, end - time.monotonic()))
            assert frame is not None, "the shim hung up"
            if holds(frame):
                return frame

    def hello(self, name="test", writable=True, **more):
        """Greet and return the answer; the past that comes with it is in `records`."""
        self.send(
            {
                "type": "hello",
                "id": 0,
                "protocols": [1],
                "client": {"name": name},
                "writable": writable,
                **more,
            }
        )
        answer = self.until(lambda frame: frame["type"] == "hello")
        if answer["ok"]:
            self.until(lambda frame: frame["type"] == "beat")
        return answer

    def ask(self, op, timeout_s=10.0, **more):
        """Send a request and return its reply."""
        self._next_id += 1
        identity = self._next_id
        self.send({"type": "request", "id": identity, "op": op, **more})
        return self.until(lambda frame: frame["type"] == "reply" and frame["id"] == identity, timeout_s)

    def probe(self, name, source, **more):
        """Load a probe."""
        return self.ask("probe", plugin=name, source=source, **more)

    def start(self, plugin, name, steps=5, seconds=10.0, **more):
        """Start a command."""
        lease = {"steps": steps, "seconds": seconds}
        return self.ask("command", plugin=plugin, name=name, lease=lease, **more)

    def stop(self, plugin, name):
        """Stop a command."""
        return self.ask("command", plugin=plugin, name=name, action="stop")

    def event(self, timeout_s=10.0, **wanted):
        """Return the first event, past or to come, with these values; a tuple is any of its values."""
        any_of = {key: value if isinstance(value, tuple) else (value,) for key, value in wanted.items()}
        found = lambda one: all(one.get(key) in values for key, values in any_of.items())  # noqa: E731
        for one in self.events:
            if found(one):
                return one
        return self.until(lambda frame: frame["type"] == "event" and found(frame), timeout_s)

    def beat(self, holds=lambda beat: True, timeout_s=10.0):
        """Return the next beat for which `holds`."""
        return self.until(lambda frame: frame["type"] == "beat" and holds(frame), timeout_s)


def text(path):
    """Return the shim as text that listens at `path`, for a process that nobody maps pages into."""
    return shim.payload(str(path)).replace(shim.AREA, "None")


@contextlib.contextmanager
def target(directory, script, *arguments, boot=True, after=0.0, env=None, place=None):
    """Run a target with the shim in it; gives its Popen, with `path` the socket.

    `place` is where it trains: its device goes to a script of ours as an option, and to all as DEVICE.
    """
    path = Path(directory) / "s" / "x.sock"
    hurry = Path(directory) / ("hurry" if boot else "hurry-undisturbed")
    command = [sys.executable]
    if boot:
        source = Path(directory) / "shim.txt"
        source.write_text(text(path))
        command += [str(TARGETS / "run.py"), "--boot", str(source), "--after", str(after)]
    environment = dict(os.environ) if place is None else {**place.environment(), "DEVICE": place.device}
    if os.sep not in str(script):
        script = TARGETS / script
        arguments += () if place is None else ("--device", place.device)
    process = subprocess.Popen(
        [*command, str(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "HURRY": str(hurry), **(env or {})},
    )
    process.path, process.hurry = path, hurry
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
