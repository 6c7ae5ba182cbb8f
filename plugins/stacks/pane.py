"""The stacks pane: for how long no step has ended, what main does, and where every thread stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from textual.widget import Widget

from ascend_tui.frame import TargetStatus
from ascend_tui.text import clean, count, duration, fit, msgid, say, share, tr, width
from ascend_tui.widgets.pane import Pane
from ascend_tui.widgets.quiet import Line, Span
from ascend_tui.widgets.quiet_line import QuietLine

from .snapshot import StackFrame, StacksSnapshot, ThreadStack

_DOES = {
    "runs": msgid("computes"),
    "lock": msgid("waits for a lock or another thread"),
    "sleep": msgid("sleeps"),
    "network": msgid("waits for a socket"),
    "pipe": msgid("waits at a pipe"),
    "poll": msgid("waits for something to read"),
    "process": msgid("waits for a process"),
    "driver": msgid("in a driver (ioctl)"),
    "disk": msgid("in the kernel (state D)"),
    "unknown": msgid("waits"),
}
# The folder before what a library's file is known by, of installed packages and of Python itself.
_LIBRARY = re.compile(r"^.*/(?:site-packages|dist-packages)/|^.*/lib/python3\.\d+t?/")
_FUNCTION_CELLS = 34
_THREAD_STARTS = ("run", "_bootstrap_inner", "_bootstrap")
"""What threading.py calls at the outer end of each stack, and tells nobody anything."""
_INDENT = "   "
_OTHER_ROWS = 4


class StacksPane(Pane):
    """Draw a StacksSnapshot."""

    DEFAULT_CSS = """
    StacksPane #verdict { height: 3; margin: 0 1; }
    StacksPane #stacks { height: 1fr; margin: 0 1; }
    StacksPane #more { height: 1; margin: 0 1; }
    """

    def body(self) -> Iterable[Widget]:
        """Set the verdict above the stacks, and what is out of sight below them."""
        self.verdict = QuietLine(id="verdict")
        self.stacks = QuietLine(id="stacks")
        self.more = QuietLine(id="more")
        self.top = 0
        return (self.verdict, self.stacks, self.more)

    def draw(self, snapshot: StacksSnapshot, status: TargetStatus) -> None:
        """Bring verdict and stacks up to this snapshot."""
        if snapshot.state == "waiting":
            return
        self.verdict.say(*_verdict(snapshot))
        lines = _stacks(snapshot, max(self.size.width - 2, 1))
        self.top = max(0, min(self.top, len(lines) - self._room()))
        self.stacks.say(*lines[self.top : self.top + self._room()])
        self.more.say(_more(snapshot, self.top, len(lines) - self.top - self._room()))

    def scroll_lines(self, by: int, pages: bool = False) -> None:
        """Go up or down in the stacks."""
        self.top += by * (max(self._room() - 1, 1) if pages else 1)
        self.redraw()

    def _room(self) -> int:
        """Return the rows there are for the stacks; the widget's own size is that before a new layout."""
        return max(self.size.height - _OTHER_ROWS - bool(self.notice()), 1)

    def summary(self, snapshot: StacksSnapshot) -> str:
        """Return the verdict; constant while steps end, so that the line costs nothing."""
        if snapshot.stuck == "moving":
            return tr("steps end; when none does, the stack of every thread is here")
        doing = "" if snapshot.doing is None else say(snapshot.doing)
        return f"{_since(snapshot)}; {doing}" if doing else _since(snapshot)

    def rests(self, snapshot: StacksSnapshot | None) -> bool:
        """Rest while the training goes on, be it that it validates or saves."""
        return snapshot is None or snapshot.stuck != "still"

    def is_urgent(self, snapshot: StacksSnapshot) -> bool:
        """Come up as soon as the main thread is known to stand still."""
        return snapshot.stuck == "still"


def _since(snapshot: StacksSnapshot) -> str:
    """Say for how long no step has ended, as far as that is known."""
    if snapshot.since_step_s is not None:
        return tr("no step has ended for {time}", time=_whole(snapshot.since_step_s))
    since = _whole(snapshot.since_attach_s or 0.0)
    return tr("no step has ended since the attach {time} ago (before that is not known)", time=since)


def _whole(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else duration(seconds)


def _verdict(snapshot: StacksSnapshot) -> list[Line]:
    if snapshot.stuck == "moving":
        step = "" if snapshot.step_s is None else duration(snapshot.step_s)
        words = tr("steps end; the median step takes {time}", time=step) if step else tr("steps end")
        return [[(f"= {words}", "good")], [(_quiet_words(), "dim")]]
    bad = snapshot.stuck == "still"
    first: list[Span] = [(("! " if bad else "? ") + _since(snapshot), "bad" if bad else "bold")]
    if snapshot.since_step_s is not None and snapshot.step_s is not None:
        first.append((f"   {tr('the median step takes {time}', time=duration(snapshot.step_s))}", "dim"))
    second = "" if snapshot.doing is None else say(snapshot.doing)
    held = "" if snapshot.still_s is None else tr("there for {time} at least", time=_whole(snapshot.still_s))
    third = "   ".join(filter(None, ["" if snapshot.cause is None else say(snapshot.cause), held]))
    return [first, [(f"  {second}", "")], [(f"  {third}", "dim")]]


def _quiet_words() -> str:
    return "  " + tr("nothing is read of the threads meanwhile")


def _stacks(snapshot: StacksSnapshot, room: int) -> list[Line]:
    """Return the threads, main first; those that stand at the same place are one."""
    lines: list[Line] = []
    folded: dict[tuple[Any, ...], list[ThreadStack]] = {}
    for thread in snapshot.threads:
        folded.setdefault((thread.is_main, thread.frames, thread.does), []).append(thread)
    for same in folded.values():
        if lines:
            lines.append("")
        lines.append(_head(same))
        if same[0].called:
            lines.append(_called(same[0].called, room))
        lines += [_frame(frame, room) for frame in _telling(same[0].frames)]
        if same[0].is_cut:
            lines.append([(f"{_INDENT}…", "dim")])
    return lines


def _telling(frames: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
    end = len(frames)
    while end > 1 and frames[end - 1].file.endswith("/threading.py"):
        if frames[end - 1].function.rpartition(".")[2] not in _THREAD_STARTS:
            break
        end -= 1
    return frames[:end]


def _head(same: list[ThreadStack]) -> Line:
    thread = same[0]
    line: list[Span] = [(clean(thread.name) or tr("a thread without a name"), "bold")]
    if len(same) > 1:
        line.append((f" × {len(same)}", "bold"))
    if thread.does is not None:
        line.append((f"  {tr(_DOES[thread.does])}", "warn" if thread.is_main else ""))
    if thread.cpu_share is not None and thread.cpu_share >= 0.01:
        line.append((f"  {tr('runs {share} of the time', share=share(thread.cpu_share))}", "dim"))
    if len(same) == 1 and thread.native_id is not None:
        line.append((f"  {tr('thread {id}', id=thread.native_id)}", "dim"))
    return line


def _called(name: str, room: int) -> Line:
    words = tr("enters a with block") if name == "with" else f"{clean(name)}()"
    return [(_INDENT + _padded(words, room), ""), (tr("C code, only its name is known"), "dim")]


def _frame(frame: StackFrame, room: int) -> Line:
    """Return one call: a library's file by its name there, the user's own whole, to be opened."""
    left = _INDENT + _padded(clean(frame.function), room)
    place = clean(f"{_LIBRARY.sub('', frame.file)}:{frame.line or '?'}")
    return [(left, ""), (_fit_end(place, max(room - width(left), 8)), "dim")]


def _padded(text: str, room: int) -> str:
    column = min(_FUNCTION_CELLS, room // 2)
    text = fit(text, column)
    return text + " " * (column - width(text) + 1)


def _fit_end(text: str, cells: int) -> str:
    if width(text) <= cells:
        return text
    while text and width(text) >= cells:
        text = text[1:]
    return "…" + text


def _more(snapshot: StacksSnapshot, above: int, below: int) -> Line:
    """Say what is out of sight, and what has no Python stack."""
    if not snapshot.threads:
        return ""
    words = [tr("innermost call first")]
    if above > 0 or below > 0:
        words.append(tr("↑ {above} ↓ {below} lines more", above=max(above, 0), below=max(below, 0)))
    if snapshot.threads_left_out:
        words.append(tr("{n} more Python threads", n=count(snapshot.threads_left_out)))
    if snapshot.native_threads:
        names = ", ".join(f"{clean(one.name)} × {one.count}" for one in snapshot.native_threads[:3])
        more = sum(one.count for one in snapshot.native_threads[3:]) + snapshot.native_left_out
        names += f", … × {count(more)}" if more else ""
        words.append(tr("threads without Python code: {names}", names=names))
    return [(" · ".join(words), "dim")]
