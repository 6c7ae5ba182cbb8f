"""One kind of metric line: what it holds, what was usual in it, and that its loss disappears."""

from __future__ import annotations

from typing import Literal

from ascend_tui.judging.losses import Losses

from .metric_lines import Layout
from .metric_names import JUDGED, normal
from .metric_track import Track
from .numeric_story import Row

MOST_WRITERS, MOST_TRACKS, MOST_FAMILIES = 48, 40, 1024
ALIKE = 0.6
"""Share of common names from which on two kinds of lines are one, some of whose names come and go."""
KNOWN = 2
"""Lines with a loss after which one without it is worth a word."""
REGULAR = 3
"""So many lines without a loss at equal distances are how this logger writes."""

Role = Literal["whole", "missing"]
_POLICY = (
    "reward",
    "advantage",
    "kl",
    "entropy",
    "policy",
    "pg",
    "vf",
    "actor",
    "critic",
    "return",
    "clipfrac",
)


class Writer:
    """Lines of one kind."""

    def __init__(self, layout: Layout) -> None:
        """Start with the first line's names."""
        self.family = layout.family
        self.key = "metrics " + " ".join(sorted(layout.family))[:200]
        self.losses = {
            normal(one) for one, kind in zip(layout.printed, layout.kinds) if kind in ("loss", "part")
        }
        self.total = next(
            (normal(one) for one, kind in zip(layout.printed, layout.kinds) if kind == "loss"), None
        )
        self.norms = {normal(one) for one, kind in zip(layout.printed, layout.kinds) if kind == "norm"}
        self.is_policy = any(word in name for name in layout.family for word in _POLICY)
        self.is_bare = "value" in layout.names
        self.is_climbing_told = self.total is not None and not self.is_policy and not self.is_bare
        """The losses of policies go up and down as they learn, and two columns may be of anything."""
        self.tracks: dict[str, Track] = {}
        self.climbs = Losses()
        self.rows = 0
        self.step: int | None = None
        self.stride = 0
        self.last: Row | None = None
        self.is_absent = False
        """The newest line had no loss."""
        self.is_loss_optional = False
        """Its lines have no loss now and then, which means nothing."""
        self.lost_at: list[int] = []
        """At which of the lines with a loss one without it came, one for each run of them."""

    def track(self, layout: Layout, at: int) -> Track | None:
        """Return the track of a column, None where there are too many."""
        name = layout.names[at]
        found = self.tracks.get(name)
        if found is None and len(self.tracks) < MOST_TRACKS:
            found = Track(name, layout.printed[at], layout.kinds[at], layout.units[at])
            self.tracks[name] = found
        return found

    def is_loss_taken_from(self, layout: Layout) -> bool:
        """Tell whether a line is one of these without its loss: all else is there, or nearly."""
        if self.total is None or {"loss", "part", "eval"} & set(layout.kinds):
            return False
        lost, common = self.family - layout.family, self.family & layout.family
        return self.total in lost and lost <= self.losses | self.norms and len(common) >= 3

    def is_regular(self) -> bool:
        """Tell whether the lines without a loss come at equal distances: that is how it is written."""
        gaps = [other - one for one, other in zip(self.lost_at, self.lost_at[1:])]
        return len(self.lost_at) > REGULAR and max(gaps) == min(gaps)


class Reading:
    """How the lines of one group are gone through: where each number stands, and which track it goes to."""

    __slots__ = (
        "epoch_at",
        "is_missing",
        "layout",
        "rank_at",
        "scale_at",
        "skipped_at",
        "step_at",
        "tracks",
        "writer",
    )

    def __init__(self, layout: Layout, writer: Writer, role: Role) -> None:
        """Look up what is the same for all lines of the group."""
        self.layout, self.writer, self.is_missing = layout, writer, role == "missing"
        places = {name: at for at, name in enumerate(layout.names)}
        self.step_at, self.epoch_at, self.rank_at = (
            places.get("step"),
            places.get("epoch"),
            places.get("rank"),
        )
        self.scale_at, self.skipped_at = places.get("loss_scale"), places.get("skipped")
        self.tracks = [
            (at, kind, writer.track(layout, at), kind in JUDGED)
            for at, kind in enumerate(layout.kinds)
            if kind not in ("step", "epoch", "rank")
        ]


class Writers:
    """All kinds of metric lines of a log, and which of them a layout belongs to."""

    def __init__(self) -> None:
        """Start with none."""
        self.all: list[Writer] = []
        self._known: dict[tuple[frozenset[str], bool], tuple[Writer, Role]] = {}

    def of(self, layout: Layout) -> tuple[Writer, Role]:
        """Return whose lines these are, and whether their loss is missing."""
        key = layout.family, "loss" in layout.kinds
        found = self._known.get(key)
        if found is None:
            found = self._find(layout)
            if len(self._known) < MOST_FAMILIES:
                self._known[key] = found
        return found

    def _find(self, layout: Layout) -> tuple[Writer, Role]:
        without = [one for one in self.all if one.is_loss_taken_from(layout)]
        if without:
            writer = max(without, key=lambda one: len(one.family & layout.family))
            return writer, "missing"
        has_loss = "loss" in layout.kinds
        alike = [
            (len(one.family & layout.family) / max(1, len(one.family | layout.family)), at)
            for at, one in enumerate(self.all)
            if (one.total is not None) == has_loss and one.is_bare == ("value" in layout.names)
        ]
        if alike and max(alike)[0] >= ALIKE:
            return self.all[max(alike)[1]], "whole"
        writer = Writer(layout)
        self.all.append(writer)
        if len(self.all) > MOST_WRITERS:
            self._forget(min(self.all[:-1], key=lambda one: one.rows))
        return writer, "whole"

    def _forget(self, writer: Writer) -> None:
        self.all.remove(writer)
        self._known = {key: value for key, value in self._known.items() if value[0] is not writer}
