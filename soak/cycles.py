"""Attach, watch, detach, kill, reconnect: again and again on one living training, by dice."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from ascend_tui.attach import Attached, attach
from ascend_tui.connection import ShimError
from ascend_tui.controls import Outcome
from ascend_tui.frame import Frame
from ascend_tui.plugin import load, load_all, probe_text
from ascend_tui.session import Session
from ascend_tui.target import RefusedError
from bench.target import median
from soak.killing import kill_helper, kill_monitor, start_of_a_helper_s
from soak.leftovers import View, look, look_until_as, resident_kib, usual
from soak.living import HarmError, Training, until
from soak.tally import Tally

METHODS = ("auto", "thread", "pending")
CLEAN_S = 10.0
"""How long after a detach the target may take to be as before: its workers come and go meanwhile."""
AGAIN_S = 20.0
MOST_AREAS = 5
LEFT = {"_ascend_tui_shim.shim.shell"}


class Soak:
    """One training, its undisturbed twin, and the dice."""

    def __init__(self, training: Training, twin: Training, tally: Tally) -> None:
        self.training, self.twin, self.tally = training, twin, tally
        self.dice = random.Random(tally.seed)
        self.target = training.target
        self.story: deque[str] = deque(maxlen=12)
        self.helper_start_s = start_of_a_helper_s()
        self.lives_s: deque[float] = deque(maxlen=15)
        self.memory = load("memory")
        self.plugins = load_all()
        self.areas: Counter[str] = Counter()
        self._last_calm: list[float] = []
        self.before = usual(self.target)

    # The things that are done.

    def cycle(self) -> None:
        """Attach in one of three ways, watch for a moment, detach."""
        method, way = self.dice.choice(METHODS), self.dice.random()
        calm = self._window_since(self._pause(0.05, 0.15))
        self._tell(f"attach by {method}, way {way:.2f}")
        if way < 0.1:
            self._by_a_session(method)
        else:
            attached = self._attach(method)
            if attached is not None and way < 0.3:
                # Left alone, as after a lost connection, and found again.
                attached.client.close()
                self._pause(0.0, 0.1)
                attached = self._attach(method)
            if attached is not None:
                if way > 0.5:
                    self._load(attached)
                self._compare(calm, self._window_since(self._watch(attached)))
                self._detach(attached)
        self.tally.cycles += 1
        self._check()

    def kill_a_helper(self) -> None:
        """Kill the helper at a random instant of its life, then reconnect and detach."""
        method = self.dice.choice(METHODS)
        life_s = median(self.lives_s) if self.lives_s else 60.0
        # Most of them while it may stop a thread, the others at any time from its start.
        begin_s = self.helper_start_s if self.dice.random() < 0.7 else 0.0
        delay_s = life_s if not self.lives_s else self.dice.uniform(min(begin_s, 0.9 * life_s), life_s)
        self._tell(f"kill the helper of {method} after {delay_s * 1e3:.1f} ms")
        lived_s, outcome = kill_helper(partial(self._raw_attach, method), delay_s)
        was_alive = lived_s is None
        self._count_kill("helper", was_alive)
        if lived_s is not None:
            self.lives_s.append(lived_s)
        if isinstance(outcome, RefusedError):
            self.tally.after_kill[f"refused: {outcome.refusal.code}"] += 1
        elif isinstance(outcome, Attached):
            # It had done its work, or an attach before it had.
            self.tally.after_kill["its shim"] += was_alive
            outcome.client.close()
        else:
            raise RuntimeError(f"the attach ended in {outcome!r}")
        self._afterwards(method)

    def kill_a_monitor(self) -> None:
        """Kill a whole monitor between its start and some time after its hello, then reconnect and detach."""
        method = self.dice.choice(METHODS)
        hello_s = (median(self.tally.hellos_ms[-50:]) if self.tally.hellos_ms else 200.0) / 1e3
        delay_s = self.dice.uniform(0.0, 2 * self.helper_start_s + 2 * hello_s + 0.3)
        self._tell(f"kill the monitor of {method} after {delay_s * 1e3:.1f} ms")
        self._count_kill("monitor", kill_monitor(self.training.pid, method, delay_s, self.dice))
        self._afterwards(method)

    def _count_kill(self, kind: str, was_alive: bool) -> None:
        if was_alive:
            self.tally.kills[kind] += 1
        else:
            self.tally.late += 1

    def _afterwards(self, method: str) -> None:
        """Reconnect as a user would, be it after some tries, and detach."""
        self.training.must_live()
        end = time.monotonic() + AGAIN_S
        attached = self._attach(method)
        while attached is None and time.monotonic() < end:
            time.sleep(0.05)
            attached = self._attach(method)
        if attached is None:
            raise HarmError(f"no attach succeeded for {AGAIN_S:.0f} s after a kill")
        self.tally.after_kill["a shim" if attached.method == "reused" else "no shim"] += 1
        if self.dice.random() < 0.5:
            self._load(attached)
        self._watch(attached)
        self._detach(attached)
        self._check()

    # What they are made of.

    def _raw_attach(self, method: str) -> Attached:
        return attach(self.target, name="soak", writable=True, method=method)

    def _attach(self, method: str) -> Attached | None:
        try:
            attached = self._raw_attach(method)
        except RefusedError as error:
            self.tally.refused[error.refusal.code] += 1
            self._tell(f"refused: {error.refusal.english()}")
            self.training.must_live()
            return None
        except ShimError as error:
            self.tally.refused[type(error).__name__] += 1
            self._tell(f"not attached: {error}")
            self.training.must_live()
            return None
        self.tally.attached[attached.method] += 1
        if attached.method != "reused":
            self.tally.stops_ms += attached.stops_ms
            self.tally.hellos_ms.append(attached.hello_ms)
        return attached

    def _load(self, attached: Attached) -> None:
        source, order = probe_text(self.memory), self.memory.order
        attached.client.request("probe", plugin="memory", source=source, order=order)

    def _watch(self, attached: Attached) -> float:
        """Read what comes for a moment; return when that began."""
        began = time.monotonic()
        end = began + self.dice.uniform(0.0, 0.3)
        while time.monotonic() < end:
            attached.client.receive()
            time.sleep(0.03)
        return began

    def _detach(self, attached: Attached) -> None:
        began = time.monotonic()
        self.tally.residue |= set(attached.client.request("detach")["residue"])
        self.tally.detaches_ms.append((time.monotonic() - began) * 1e3)
        attached.client.close()

    def _by_a_session(self, method: str) -> None:
        """Watch as the screen does: a session, with all plugins, until it is live; then remove the shim."""
        frames: list[Frame] = []
        session = Session(self.plugins, name="soak", tick_s=0.1, method=method)
        session.add(self.target)
        session.start(frames.append)
        told: list[Outcome] = []
        try:
            states = ("live", "refused", "exited")
            until(lambda: frames and frames[-1].targets and self._state(frames[-1]) in states, 30.0)
            state = self._state(frames[-1]) if frames and frames[-1].targets else "nothing"
            if state == "live":
                self.tally.attached["by a session"] += 1
                session.remove(self.target.id, told.append)
                until(lambda: told, 10.0)
        finally:
            session.stop()
        if not told or not told[0].ok:
            self.tally.refused[f"session: {state}"] += 1

    @staticmethod
    def _state(frame: Frame) -> str:
        return frame.targets[0].status.state

    def _pause(self, low_s: float, high_s: float) -> float:
        began = time.monotonic()
        time.sleep(self.dice.uniform(low_s, high_s))
        return began

    def _tell(self, text: str) -> None:
        self.story.append(f"step {self.training.count()}: {text}")

    # What is looked at.

    def _window_since(self, began: float) -> list[float]:
        """Return how long the steps took, in milliseconds, that began since then."""
        last = self.training.count()
        steps = self.training.steps(max(1, last - 40), last)
        return [(end - begin) * 1e3 for begin, end in steps if begin >= began]

    def _compare(self, calm: list[float], attached: list[float]) -> None:
        if len(calm) < 3 or len(attached) < 3:
            return
        tally = self.tally
        tally.with_ms += attached
        tally.without_ms += calm
        tally.ratios.append(median(attached) / median(calm))
        if self._last_calm:
            tally.floors.append(abs(median(calm) / median(self._last_calm) - 1.0))
        self._last_calm = calm

    def _check(self) -> None:
        """See that the target lives, goes on and is as before; raises HarmError when it does not."""
        view = look_until_as(self.before, self.target, CLEAN_S)
        self.training.must_live()
        if view is not None and view.shape != self.before.shape:
            self._left_over(view.more_than(self.before))
            # Counted once: what comes on top of it is news again.
            self.before = view
        self.training.must_go_on()
        done = self.tally.cycles + sum(self.tally.kills.values())
        if view is not None:
            self._count_areas(view)
        if view is not None and (done % 50 == 1 or dict(view.areas) != dict(self.areas)):
            self.note_growth(view)
        if done % 25 == 0:
            self.tally.hashes = self.training.must_equal(self.twin)
            self._look_inside()

    def _left_over(self, more: dict[str, int]) -> None:
        for kind, count in more.items():
            self.tally.leftovers[kind] += count
        if more:
            self._tell(f"left over: {more}")

    def _count_areas(self, view: View) -> None:
        """Count what killed helpers have left mapped: the next attach uses it, so there are never many."""
        count = sum(number for _, number in view.areas)
        self.tally.most_areas = max(self.tally.most_areas, count)
        if count > MOST_AREAS and not self.tally.leftovers["areas of killed helpers"]:
            self.tally.leftovers["areas of killed helpers"] = count

    def note_growth(self, view: View) -> None:
        """Note how much memory the target has by now."""
        self.areas = Counter(dict(view.areas))
        self.tally.growth.append(
            {
                "cycles": self.tally.cycles,
                "kills": sum(self.tally.kills.values()),
                "areas": dict(view.areas),
                "area_kib": view.area_kib,
                "mappings": view.mappings,
                "anonymous_kib": view.anonymous_kib,
                "rss_kib": view.rss_kib,
                "undisturbed_rss_kib": resident_kib(self.twin.pid),
            }
        )

    def _look_inside(self) -> None:
        inside = self.training.own_view()
        modules = {name for name in inside["modules"] if name.startswith("_ascend")}
        threads = [name for name in inside["threads"] if "ascend" in name or "Dummy" in name]
        found = {
            "modules": len(modules - LEFT),
            "Python threads": len(threads),
            "optimizer hooks": inside["optimizer_hooks"],
            "module hooks": inside["module_hooks"],
            "modes": inside["modes"],
            "names in __main__": len(inside["main_names"]),
        }
        for kind, count in found.items():
            if count:
                self.tally.leftovers[f"inside: {kind}"] += count

    def finish(self) -> None:
        """Wait for the twin, then compare every hash that both have."""
        # Each look before this one may have met the moment between two epochs.
        self._left_over(usual(self.target).more_than(self.before))
        if self.tally.leftovers["pages with code"] and self.tally.names_code:
            # Calls from C into Python need a page, which the detach names.
            self.tally.leftovers["pages with code"] -= 1
        self._look_inside()
        last = max(self.training.hashes(), default=0)
        until(lambda: max(self.twin.hashes(), default=0) >= last, 120.0, 0.1)
        self.twin.must_live()
        self.tally.hashes = self.training.must_equal(self.twin)
        self.tally.steps = last
        self.note_growth(look(self.target))


def run(
    tally: Tally, cycles: int, kills: int, minutes: float, tell: Callable[[str], None] = lambda text: None
) -> Tally:
    """Do `cycles` cycles and `kills` kills, mixed; at most so many minutes, 0 is without end."""
    began = time.monotonic()
    with Training(tally.device) as training, Training(tally.device, leader=training) as twin:
        training.wait_for_start()
        twin.wait_for_start()
        soak = Soak(training, twin, tally)
        told = 0.0
        try:
            while not minutes or time.monotonic() - began < minutes * 60:
                killed = sum(tally.kills.values())
                left = (max(0, cycles - tally.cycles), max(0, kills - killed))
                if not any(left):
                    break
                if soak.dice.random() * sum(left) >= left[1]:
                    soak.cycle()
                elif soak.dice.random() < 0.5:
                    soak.kill_a_helper()
                else:
                    soak.kill_a_monitor()
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    tell(f"{tally.cycles} cycles, {killed} kills, step {training.count()}")
            soak.finish()
        except HarmError as error:
            tally.harm = "\n".join([f"YES: {error}", "the last that was done:", *soak.story])
        except Exception as error:
            tally.harm = "\n".join([f"UNKNOWN, the soak failed: {error!r}", *soak.story])
            raise
        finally:
            tally.seconds = time.monotonic() - began
    return tally
