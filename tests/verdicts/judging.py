"""Compare what was said in a run with what is true."""

from __future__ import annotations

from dataclasses import dataclass

from tests.verdicts.running import Run, Seen


@dataclass(frozen=True)
class Row:
    """A line of the table; steps are those of the training.

    `steps_to` is how long after the onset the verdict became right and stayed so, None when it did not.
    `false_alarms` are verdicts that may never be seen, each with the first step at which it was; `missed` are
    those of which one should have been seen for a time.
    """

    case: str
    device: str
    seed: int
    expected: str
    got: str
    confidence: float
    onset: int
    since: float | None
    planted: float | None
    slope: float | None
    within: int
    steps_to: float | None
    revisions: int
    false_alarms: tuple[tuple[str, int], ...]
    said: str
    missed: str
    story: tuple[tuple[int, str], ...] = ()

    @property
    def holds(self) -> bool:
        """Tell whether the verdict is right, in time, and no false alarm was given."""
        return (
            self.steps_to is not None
            and self.steps_to <= self.within
            and not self.false_alarms
            and not self.missed
        )


def judge(run: Run) -> Row:
    """Return the row of a run."""
    case, truth = run.case, run.case.truths[run.device]

    def step_of(seen: Seen) -> float:
        return seen.step - run.offset

    right_from = None
    false: dict[str, int] = {}
    story: list[tuple[int, str]] = []
    for seen in run.seen:
        kind = seen.snapshot.verdict.kind
        right_from = (right_from or seen) if kind in truth.right else None
        if kind in truth.never and (truth.leak_until is None or step_of(seen) > truth.leak_until):
            false.setdefault(kind, round(step_of(seen)))
        if not story or story[-1][1] != kind:
            story.append((round(step_of(seen)), kind))
    missed = truth.between.isdisjoint(kind for _, kind in story) and truth.between
    last = run.seen[-1].snapshot
    slope, since = last.slope, last.verdict.since_step
    return Row(
        case=case.name,
        device=run.device,
        seed=run.seed,
        expected="|".join(sorted(truth.right)),
        got=last.verdict.kind,
        confidence=last.verdict.confidence,
        onset=case.onset,
        since=None if since is None else since - run.offset,
        planted=truth.bytes_per_step,
        slope=None if slope is None else slope.bytes_per_step,
        within=truth.within,
        steps_to=None if right_from is None else max(0.0, step_of(right_from) - case.onset),
        revisions=len(story) - 1,
        false_alarms=tuple(false.items()),
        said=last.verdict.reason.render(),
        missed="|".join(sorted(missed or ())),
        story=tuple(story),
    )
