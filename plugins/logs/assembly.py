"""From lines that tell something to incidents: tracebacks put together, episodes opened and closed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from .blocks import Block
from .episodes import Episode
from .folding import Folded
from .knowledge import python_errors
from .plans import READ_OF_FLOOD, Plan, Plans
from .sighting import CONTEXT, GENERIC, Line, Sighting
from .snapshot import Incident
from .traces import Traces

QUIET_S = 3.0
"""After so long without a line of its stream an incident is over."""
MOST_EPISODES = 64
NEAR_LAUNCHER = 200
"""Lines after a fault in which a launcher tells which of its processes ended."""


class Assembly:
    """The incidents of all sources."""

    def __init__(self, plans: Plans) -> None:
        """Start with none."""
        self.folded = Folded()
        self.traces = Traces()
        self.harmless = 0
        self._plans = plans
        self._episodes: dict[Hashable, Episode] = {}
        self._plan_of: dict[tuple[int, int], Plan] = {}

    def take(self, block: Block, index: int, plan: Plan | None) -> None:
        """Take a line that may tell something; without a plan, one that may belong to a traceback."""
        if plan is not None and not self.traces and plan.is_counted_only(block.raws[index]):
            self._count(block, index, plan)
            return
        line = block.line(index)
        stream = (block.source, line.stream)
        frames = self.traces.take(stream, line)
        if frames == ():
            if plan is not None:
                plan.is_context = plan.story is None
            return
        is_chained = stream in self.traces.chained
        if frames is not None and python_errors.is_exception(line.body):
            told: tuple[Sighting, ...] | None = (python_errors.sight(line, frames, line.body.strip()),)
        elif plan is None:
            return
        else:
            told = self._plans.sight(line, plan)
        if not told:
            self.harmless += told is None
            if plan is not None:
                plan.tells_nothing(block.raws[index])
            return
        if plan is not None:
            plan.nothing, plan.told = 0, plan.told + 1
        self.traces.chained.discard(stream)
        for sighting in told:
            self._tell(stream, line, sighting, block, index, plan, is_chained)

    def incidents(self) -> tuple[Incident, ...]:
        """Return all incidents, those that are still being told among them."""
        told = (episode.incident() for episode in self._episodes.values())
        return self.folded.with_open([one for one in told if one is not None])

    def close_quiet(self, now_s: float) -> None:
        """End the incidents that nothing more was told of for a while."""
        for stream, episode in list(self._episodes.items()):
            if now_s - episode.last_s > QUIET_S:
                self._close(stream)

    def close_all(self) -> None:
        """End all of them: the input has ended."""
        for stream in list(self._episodes):
            self._close(stream)

    def _count(self, block: Block, index: int, plan: Plan) -> None:
        if plan.story is None:
            return
        if plan.hits % READ_OF_FLOOD:
            self.folded.seen_again(plan.story, block.source, 1, None, None)
        else:
            line = block.line(index)
            self.folded.seen_again(plan.story, block.source, line.repeated, line.wall_s, line.rank)

    def _tell(
        self,
        stream: Hashable,
        line: Line,
        sighting: Sighting,
        block: Block,
        index: int,
        plan: Plan | None,
        is_chained: bool,
    ) -> None:
        if sighting.alone:
            alone = Episode(block.source, block.now_s)
            alone.add(line, sighting, block.around(index))
            self._fold(alone, {line.number: plan})
            return
        episode = self._episodes.get(stream)
        if episode is not None and not (is_chained or episode.fits(line, sighting)):
            self._close(stream)
            episode = None
        if episode is None and sighting.knows <= GENERIC:
            episode = self._led_to(line, sighting)
        if episode is None:
            if sighting.knows <= CONTEXT:
                return
            if len(self._episodes) >= MOST_EPISODES:
                self._close(next(iter(self._episodes)))
            episode = self._episodes[stream] = Episode(block.source, block.now_s)
        episode.last_s = block.now_s
        episode.add(line, sighting, block.around(index))
        if plan is not None:
            self._plan_of[(block.source, line.number)] = plan

    def _led_to(self, line: Line, wrapper: Sighting) -> Episode | None:
        """Return the incident, of another stream, that a wrapper or a launcher's last words are about.

        Both are often written without the head that the lines of a rank have.
        """
        is_launchers = wrapper.category == "crash"
        for episode in reversed(list(self._episodes.values())):
            best = episode.best
            near = line.source == episode.source and line.number - episode.last_number <= NEAR_LAUNCHER
            same = is_launchers or line.pid in episode.pids or line.rank in episode.ranks
            if near and same and best is not None and best.knows > GENERIC:
                return episode
        return None

    def _close(self, stream: Hashable) -> None:
        episode = self._episodes.pop(stream)
        numbers = {line.number for line, _ in episode.sightings}
        self._fold(episode, {number: self._plan_of.pop((episode.source, number), None) for number in numbers})

    def _fold(self, episode: Episode, plans: Mapping[int, Plan | None]) -> None:
        """Put an incident to its like, and let the plans of its lines know what they told."""
        incident = episode.incident(with_context=False)
        key = self.folded.add(incident, episode.context) if incident is not None else None
        for line, _ in episode.sightings:
            plan = plans.get(line.number)
            if plan is not None and incident is not None:
                if line.number == incident.line:
                    plan.story, plan.is_context = key, False
                elif plan.story is None:
                    plan.is_context = True
