"""The status line: the pulse of one target in one row."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal

from ascend_tui.frame import Cost, TargetStatus
from ascend_tui.frozen import frozen
from ascend_tui.text import clean, count, duration, fit, msgid, say, say_reason, share, tr, width
from ascend_tui.widgets.quiet import Span
from ascend_tui.widgets.quiet_line import QuietLine

_GAP = "  "
_PULSE = {
    "live": "●",
    "passive": "●",
    "attaching": "○",
    "waiting": "○",
    "disconnected": "✕",
    "exited": "✕",
    "refused": "✕",
}
_WORDS = {
    "attaching": msgid("attaching"),
    "waiting": msgid("waiting for the first step"),
    "live": msgid("live"),
    "passive": msgid("passive"),
    "disconnected": msgid("disconnected"),
    "exited": msgid("target exited"),
    "refused": msgid("refused"),
}


@frozen
class Part:
    """A piece of the status line; where room is short the highest `drop` goes first."""

    text: str
    role: str = ""
    drop: int = 0


def state_words(status: TargetStatus) -> str:
    """Say in which state the target is, and why."""
    word = tr(_WORDS[status.state])
    if status.reason is None:
        return f"{word}: {tr('how is unknown')}" if status.state == "exited" else word
    reason = say(status.reason)
    return reason if status.state == "exited" or reason == word else f"{word}: {reason}"


def identity(status: TargetStatus | None, position: tuple[int, int]) -> list[Part]:
    """Return who is watched: what stands at the left."""
    if status is None:
        return [Part("ascend-tui", "bold", 6), Part(tr("no target yet"), "dim")]
    parts = [
        Part("ascend-tui", "bold", 6),
        Part(f"{status.id.pid} {fit(clean(status.title), 40)}"),
    ]
    index, targets = position
    if status.rank is not None:
        world = "" if status.world_size is None else f"/{status.world_size}"
        parts.append(Part(f"{tr('rank')} {status.rank}{world}", drop=4))
    if targets > 1:
        parts.append(Part(f"<{index + 1}/{targets}>", drop=3))
    if status.device:
        parts.append(Part(clean(f"{status.device} {status.device_name}").strip(), drop=5))
    if status.cost.thinning > 1:
        parts.append(Part(tr("sampling 1/{n}: over budget", n=status.cost.thinning), "warn"))
    if status.notes:
        more = f" (+{len(status.notes) - 1})" if len(status.notes) > 1 else ""
        parts.append(Part(say(status.notes[0]) + more, "warn", 1))
    return parts


def pulse(
    status: TargetStatus | None,
    frozen_frames: int | None,
    silent_s: float = 0.0,
    behind: TargetStatus | None = None,
) -> list[Part]:
    """Return how it goes: what stands at the right.

    `silent_s` is for how long the session has sent nothing, where that is too long: then the last
    state is no longer known to be true.  `behind` is what a frozen screen hides, where it matters.
    """
    silence = Part(f"✕ {tr('no news for {time}', time=duration(silent_s))}", "bad")
    if status is None:
        return [silence] if silent_s else []
    parts = []
    if status.step is not None:
        parts.append(Part(f"{tr('step')} {count(status.step)}", drop=2))
    if status.step_time_s is not None:
        parts.append(Part(f"{duration(status.step_time_s):>7}", drop=4))
    if status.state == "live":
        parts.append(Part(own_cost(status.cost), drop=3))
    if status.dropped:
        parts.append(Part(tr("dropped {n}", n=count(status.dropped)), "warn", 3))
    if silent_s:
        parts.append(silence)
    elif frozen_frames is not None:
        now = f"  {state_words(behind)}" if behind is not None else ""
        parts.append(Part(f"‖ {tr('frozen')} +{frozen_frames}{now}", "warn"))
    elif status.state == "live":
        age = "" if status.sample_age_s is None else f" {_age(status.sample_age_s):>5}"
        parts.append(Part(f"●{age}", "good"))
    else:
        role = "bad" if _PULSE[status.state] == "✕" else "dim"
        parts.append(Part(f"{_PULSE[status.state]} {state_words(status)}", role))
    return parts


def _age(seconds: float) -> str:
    # One decimal and no milliseconds: this text changes with every tick.
    return f"{seconds:.1f} s" if seconds < 100 else duration(seconds)


def how_attached(status: TargetStatus) -> str:
    """Say by which layer a shim got in, and what it cost the training."""
    if status.stop_ms is None:
        return tr("{pid} attached by {method}", pid=status.id.pid, method=status.method)
    return tr(
        "{pid} attached by {method}, one thread stopped for {ms} ms: {reason}",
        pid=status.id.pid,
        method=status.method,
        ms=f"{status.stop_ms:.1f}",
        reason=say_reason(status.method_reason),
    )


def own_cost(cost: Cost) -> str:
    """Say what we cost the training; a share that is not known is not a zero."""
    if cost.share is None:
        return tr("ours unknown")
    return tr("ours {share}", share=f"{share(cost.share):>5}")


def fitted(parts: Sequence[Part], cells: int) -> list[Part]:
    """Drop parts by their `drop` until they fit; what may not be dropped is cut."""
    kept = list(parts)
    while kept and _cells(kept) > cells:
        worst = max(kept, key=lambda part: part.drop)
        if worst.drop == 0:
            break
        kept.remove(worst)
    if kept and _cells(kept) > cells:
        room = cells - _cells(kept[:-1]) - (len(_GAP) if kept[:-1] else 0)
        kept[-1] = Part(fit(kept[-1].text, max(room, 0)), kept[-1].role)
    return kept


def _cells(parts: Sequence[Part]) -> int:
    return sum(width(part.text) + len(_GAP) for part in parts) - len(_GAP) if parts else 0


def spans(parts: Sequence[Part]) -> list[Span]:
    """Set parts one behind the other with a gap between."""
    line: list[Span] = []
    for part in parts:
        line += [(_GAP, ""), (part.text, part.role)] if line else [(part.text, part.role)]
    return line


class StatusLine(Horizontal):
    """One row of three widgets, since Textual repaints a row from its widget's left edge."""

    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; }
    StatusLine #pace, StatusLine #state { width: auto; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        """Start empty."""
        super().__init__(id=id)
        self._identity = QuietLine(id="identity")
        self._pace = QuietLine(id="pace", right=True)
        self._state = QuietLine(id="state", right=True)

    def compose(self) -> ComposeResult:
        """Lay who it is, how it goes and in which state side by side."""
        yield self._identity
        yield self._pace
        yield self._state

    def show(
        self,
        status: TargetStatus | None,
        *,
        position: tuple[int, int] = (0, 1),
        frozen_frames: int | None = None,
        notice: str = "",
        silent_s: float = 0.0,
        behind: TargetStatus | None = None,
    ) -> None:
        """Show one target; a notice stands in place of its identity while there is one."""
        room = max(self.size.width - 2, 8)
        left = [Part(notice, "key")] if notice else identity(status, position)
        right = pulse(status, frozen_frames, silent_s, behind)
        # The state may never be lost, so the right side is fitted first; who it is keeps half the row.
        least = _cells(left) if notice else _cells(fitted(left, 0))
        right = fitted(right, max(room - least - len(_GAP), 8 if notice else room // 2))
        state, pace = right[-1:], right[:-1]
        taken = _set_width(self._state, _cells(state) + len(_GAP)) + _set_width(self._pace, _cells(pace))
        self._state.say(spans(state))
        self._pace.say(spans(pace))
        self._identity.say(spans(fitted(left, max(room - taken - (len(_GAP) if pace else 0), 0))))


def _set_width(line: QuietLine, cells: int) -> int:
    # A new width lays the whole screen out again: texts that change often have a fixed one.
    if line.styles.width is None or line.styles.width.value != cells:
        line.styles.width = cells
    return cells
