"""What a monitor may ask of the shim, and the answers.  PROTOCOL.md is the written version."""

from __future__ import annotations

from typing import Any, Callable, Dict

from .. import wire
from . import process
from .api import Refused
from .server import Connection, batches

ORPHAN_S = 5.0
"""A costly command ends so long after its monitor is gone."""


class Desk:
    """Answer greetings and requests for one agent; on the shim's thread, one at a time."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def greet(self, connection: Connection, frame: Dict[str, Any]) -> None:
        """Answer a hello: agree on a protocol, say who we are, and send the past that is asked for."""
        agent = self._agent
        hello: Dict[str, Any] = {"type": "hello", "id": frame.get("id"), "protocols": list(wire.SUPPORTED)}
        version = wire.agree(frame.get("protocols"))
        if version is None:
            connection.send(dict(hello, ok=False, error="no common protocol"))
            connection.closing = True
            return
        client = _dict(frame.get("client"))
        connection.name = str(client.get("name", "unknown"))[:40]
        if not connection.pid and isinstance(client.get("pid"), int):
            connection.pid = client["pid"]
        connection.writable = frame.get("writable") is True
        connection.greeted = True
        others = [one.holder() for one in agent.server.connections.values() if one.greeted]
        others.remove(connection.holder())
        connection.send(
            dict(
                hello,
                ok=True,
                protocol=version,
                shim={"version": agent.version, "boot": agent.boot, "started": agent.started_wall},
                process=agent.facts,
                torch=process.torch_versions(),
                device=agent.device.describe(),
                last_seq=agent.history.last_seq,
                others=others,
            )
        )
        resume = _dict(frame.get("resume"))
        known = resume.get("boot") == agent.boot and isinstance(resume.get("seq"), int)
        for body, count in batches(agent.history.since(resume["seq"] if known else 0)):
            connection.send_body(body, count, may_drop=False)
        connection.send(agent.beat())

    def handle(self, connection: Connection, frame: Dict[str, Any]) -> None:
        """Answer one request; whatever is wrong with it becomes an answer too."""
        answer: Dict[str, Any] = {"type": "reply", "id": frame.get("id"), "ok": True}
        try:
            answer["result"] = self._carry_out(connection, frame)
            # What was asked for may wait for a boundary.
            self._agent.steps.wake()
        except Refused as error:
            answer.update(ok=False, error=str(error))
        except Exception as error:
            # Whatever a frame provokes, the shim and the training go on.
            answer.update(ok=False, error="malformed request: %r" % (error,))
        connection.send(answer)
        if self._agent.is_stopping:
            connection.closing = True

    def _carry_out(self, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
        if frame["type"] != "request":
            raise Refused("unknown frame type %r" % frame["type"][:40])
        name = str(frame.get("op"))
        operation = OPERATIONS.get(name)
        if operation is None:
            raise Refused("unknown operation %r; known: %s" % (name[:40], ", ".join(sorted(OPERATIONS))))
        if name not in HARMLESS and not connection.writable:
            raise Refused("this connection is read-only")
        return operation(self._agent, connection, frame)

    def gone(self, connection: Connection) -> None:
        """Let what a lost monitor held end soon."""
        self._agent.probes.orphan(connection, ORPHAN_S)


def _dict(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _status(agent: Any, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
    return dict(agent.beat())


def _probe(agent: Any, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
    order = int(frame.get("order", 100))
    return dict(agent.probes.load(str(frame["plugin"]), str(frame["source"]), order))


def _unprobe(agent: Any, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
    agent.probes.unload(str(frame["plugin"]))
    return {}


def _command(agent: Any, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
    plugin, name = str(frame["plugin"]), str(frame["name"])
    if frame.get("action") == "stop":
        return dict(agent.probes.stop(plugin, name, connection.name))
    return dict(
        agent.probes.start(
            plugin,
            name,
            dict(frame.get("arguments", {})),
            frame["lease"]["steps"],
            frame["lease"]["seconds"],
            connection.holder(),
            connection,
            frame.get("keep") is True,
        )
    )


def _release(agent: Any, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
    return {"ended": agent.probes.release(connection)}


def _mark(agent: Any, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
    data = {"sign": str(frame.get("sign", "m"))[:1], "label": str(frame.get("label", ""))[:200]}
    agent.emit("core", "mark", data, None)
    return {}


def _budget(agent: Any, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
    share = float(frame["share"])
    if not 0.0 < share <= 0.5:
        raise Refused("a budget is a share of the step time up to 0.5")
    agent.governor.budget = share
    return {"share": share}


def _detach(agent: Any, connection: Connection, frame: Dict[str, Any]) -> Dict[str, Any]:
    return {"residue": agent.detach()}


OPERATIONS: Dict[str, Callable[[Any, Connection, Dict[str, Any]], Dict[str, Any]]] = {
    "status": _status,
    "probe": _probe,
    "unprobe": _unprobe,
    "command": _command,
    "release": _release,
    "mark": _mark,
    "budget": _budget,
    "detach": _detach,
}
HARMLESS = ("status",)
