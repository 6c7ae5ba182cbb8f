"""Frames on the unix socket between the shim and a monitor; PROTOCOL.md is the written version.

This file is used on both sides: the monitor imports it, and its text travels with the shim into
the training process.  Hence Python 3.8 syntax and the standard library only.

A frame is a 4-byte big-endian length and that many bytes of one UTF-8 JSON object, strict JSON:
non-finite numbers travel as the strings "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Dict, List, Optional

PROTOCOL = 1
"""The version this side speaks best."""
SUPPORTED = (1,)
"""Every version this side can speak.  The newest previous one stays here: a shim outlives upgrades."""

MAX_TO_SHIM_BYTES = 1 << 20
MAX_TO_MONITOR_BYTES = 4 << 20
_HEAD = struct.Struct(">I")


class FrameError(Exception):
    """The bytes are not a legal frame; the connection that sent them is of no further use."""


def plain(value: Any) -> Any:
    """Turn `value` into what strict JSON can hold: non-finite floats and unknown objects become text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def encode(frame: Dict[str, Any], limit_bytes: int) -> bytes:
    """Return the bytes of one frame.

    Raises FrameError when it is larger than the other side accepts: an answer that is too large
    must become an error that says so, never a connection that dies.
    """
    try:
        body = json.dumps(frame, allow_nan=False, separators=(",", ":"), ensure_ascii=True).encode()
    except (TypeError, ValueError):
        # The quick way failed on a NaN or a foreign object; the slow walk mends both.
        try:
            body = json.dumps(plain(frame), allow_nan=False, separators=(",", ":")).encode()
        except RecursionError:
            raise FrameError("nested too deeply") from None
    except RecursionError:
        raise FrameError("nested too deeply") from None
    if len(body) > limit_bytes:
        raise FrameError("frame of %d bytes, the limit is %d" % (len(body), limit_bytes))
    return _HEAD.pack(len(body)) + body


def _number(text: str) -> int:
    if len(text) > 40:
        raise ValueError("number of %d digits" % len(text))
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("%s is larger than a double" % text[:40])
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError("%s is not JSON" % text)


def decode(body: bytes) -> Dict[str, Any]:
    """Return the object of one frame body.  Raises FrameError on anything but one JSON object."""
    try:
        text = body.decode("utf-8")
        frame = json.loads(text, parse_int=_number, parse_float=_finite, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError("not JSON: %s" % error) from None
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise FrameError("not an object with a type")
    return frame


class Decoder:
    """Cut a byte stream into frames, holding at most one frame of `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """Return the frames completed by `data`.  Raises FrameError; the stream is then out of step."""
        self._buffer += data
        frames: List[Dict[str, Any]] = []
        while len(self._buffer) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._buffer)
            if not 2 <= length <= self._limit_bytes:
                raise FrameError("frame length %d outside 2..%d" % (length, self._limit_bytes))
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            frames.append(decode(bytes(self._buffer[_HEAD.size : end])))
            del self._buffer[:end]
        return frames


def agree(theirs: Any) -> Optional[int]:
    """Return the highest protocol both sides speak, or None.  `theirs` is the other side's list."""
    if not isinstance(theirs, list):
        return None
    common = [version for version in SUPPORTED if version in theirs]
    return max(common) if common else None
