"""Compare what was said of a run's time with what is true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ascend_tui_plugins.hotspots import decode
from ascend_tui_plugins.hotspots.snapshot import Row as Operator

from tests.hotspots.cases import GRAVE, Truth
from tests.hotspots.running import SCRIPT, Run

POINTS = 0.10
"""By how much a share may differ from the planted one."""
SAME = 1e-3
LOST = 0.03
"""The share of lost time from which slow steps may be told."""
NEAR = (-1, 0, 1)
"""What comes behind the optimizer's step is in the next one as the shim counts them."""


@dataclass(frozen=True)
class Row:
    """A line of the table: what was expected, what was said, the numbers of both, and what is not right."""

    case: str
    device: str
    seed: int
    expected: str
    said: str
    numbers: tuple[str, ...]
    samples: int
    step_ms: float
    pause_ms: float
    wrong: tuple[str, ...]
    findings: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.wrong


def judge(run: Run) -> Row:
    """Return the row of a run."""
    truth, said = run.case.truths[run.device], run.snapshot
    numbers: list[str] = []
    wrong = [*sound(run), *findings(truth, run), *undisturbed(run)]
    if run.presses > run.case.profiles:
        numbers.append(f"p pressed {run.presses} times instead of {run.case.profiles}")
    for check in (syncs, calls, data, changes, outliers, idle, shapes, averages):
        wrong += check(truth, run, numbers)
    return Row(
        run.case.name,
        run.device,
        run.seed,
        _expected(truth),
        " ".join(f"{one.rule}{'' if one.severity in GRAVE else ' (info)'}" for one in said.findings)
        or "quiet",
        tuple(numbers),
        said.sampling.samples,
        said.step_time_us / 1e3,
        said.sampling.pause_us / 1e3,
        tuple(wrong),
        tuple(one.headline.render() for one in said.findings),
    )


def _expected(truth: Truth) -> str:
    asked = {
        "sync here": truth.syncs,
        "data share": truth.data,
        f"{truth.changed} slower": truth.changed,
        "outliers": truth.outliers,
        "idle share": truth.idle,
        "shapes": truth.shapes,
        "average times": truth.average_us,
    }
    named = [*sorted(truth.rules), *(name for name, wanted in asked.items() if wanted)]
    return ", ".join(named) or "quiet"


def sound(run: Run) -> Iterator[str]:
    """Tell what no snapshot may be, whatever the training does."""
    said = run.snapshot
    if said.state != "live":
        yield f"state {said.state}: {said.reason.render() if said.reason else ''}"
    for name, rows in (("rows", said.rows), ("host rows", said.host_rows)):
        yield from _sound_rows(name, rows)
    if not said.rows:
        yield "no rows"
    # That step as the training itself has timed it, or one beside it: both boundaries are not the same.
    near = range(-2, 3) if run.snapshot.step else ()
    true = [took(run, round((run.snapshot.step or 0) - run.offset) + more) for more in near]
    if min(true, default=0.0) and not 0.7 * min(true) < said.step_time_us / 1e6 < 1.3 * max(true):
        yield f"a step of {said.step_time_us / 1e3:.1f} ms, of which it has {max(true) * 1e3:.1f}"
    if said.phases and abs(sum(one.share for one in said.phases) - 1) > 0.02:
        yield "phases that are more or less than the step"
    if any(not 0.0 <= one.share <= 1.0 + SAME for one in said.phases):
        yield "a phase with an impossible share"
    if said.clock == "host":
        own = sum(one.self_time_us for one in said.rows)
        if own > 1.05 * said.step_time_us:
            yield f"operators of {own / 1e3:.1f} ms in a step of {said.step_time_us / 1e3:.1f}"
    missing = " ".join(one.render() for one in said.missing)
    if run.device == "npu" and (said.clock == "device") != run.case.mspti:
        yield f"times of the {said.clock}: {missing}"
    if run.device == "npu" and not run.case.mspti and "LD_PRELOAD" not in missing:
        yield f"it is not said how kernels could be timed: {missing}"


def _sound_rows(name: str, rows: tuple[Operator, ...]) -> Iterator[str]:
    times = [one.self_time_us for one in rows]
    if times != sorted(times, reverse=True):
        yield f"{name} are not in order"
    if any(one.self_time_us < 0 or one.calls < 0 for one in rows):
        yield f"{name} below 0"
    if rows and not rows[-1].cumulative_share <= 1.0 + SAME:
        yield f"{name} are {rows[-1].cumulative_share:.3f} of the whole"
    if len({(one.name, one.core, one.level) for one in rows}) != len(rows):
        yield f"{name} have a name twice"
    for one in rows:
        if one.total_time_us is not None and one.total_time_us < one.self_time_us * (1.0 - SAME) - 1.0:
            yield f"{one.name}: {one.self_time_us:.0f} us of its own in {one.total_time_us:.0f}"


def findings(truth: Truth, run: Run) -> Iterator[str]:
    """Tell what is missing among the findings, and what is too much."""
    said = run.snapshot
    found = {one.rule for one in said.findings}
    if truth.rules and not truth.rules & found:
        yield f"none of {', '.join(sorted(truth.rules))}"
    allowed = truth.rules | truth.may | ({"jitter"} if lost(run) > LOST else set())
    for one in said.findings:
        if one.severity in GRAVE and one.rule not in allowed:
            yield f"also {one.rule}: {one.headline.render()}"
        if not one.evidence and not any(char.isdigit() for char in one.headline.render()):
            yield f"{one.rule} without a number"


def took(run: Run, step: int) -> float:
    """Return the seconds of a step as the training has timed it, 0 where it has not."""
    ends, place = run.truth["ends"], step - run.truth["first"]
    return float(ends[place] - ends[place - 1]) if 0 < place < len(ends) else 0.0


def lost(run: Run) -> float:
    """Return the share of the training's time that its slow steps lost: a busy machine makes some, too."""
    ends = run.truth["ends"]
    times = [later - earlier for earlier, later in zip(ends, ends[1:])]
    usual = run.truth["step_s"]
    return float(sum(one - usual for one in times if one > 1.5 * usual) / sum(times))


OWN = {"cpu": ("ready", "end "), "npu": ("ready", "end ", "[W")}
"""How the lines of a training begin; torch_npu warns of what the simulator lacks."""


def undisturbed(run: Run) -> Iterator[str]:
    """Tell what our watching has changed in the training."""
    foreign = [line for line in run.lines if not line.startswith(OWN[run.device])]
    if foreign and not run.case.prints:
        yield f"in its output: {foreign[0][:60]}"
    if run.twin and run.twin != run.hash:
        yield "other parameters than without us"
    traces = {tuple(one) for one in run.truth.get("traces", ())}
    if len(traces) > 1:
        yield f"its own traces differ: {sorted(traces)[:3]}"
    if run.truth.get("graphs") != run.truth.get("graphs_at_first"):
        yield f"compiled again: {run.truth['graphs']} graphs"


def here(name: str) -> set[int]:
    """Return the lines of a case in the target's text that its truth is about."""
    lines = SCRIPT.read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(f"def {name}(asked, steps"))
    found = set()
    for number in range(first + 1, len(lines)):
        if lines[number].startswith(("def ", "class ", "CASES")):
            break
        if lines[number].endswith("# here"):
            found.add(number + 1)
    return found


def syncs(truth: Truth, run: Run, numbers: list[str]) -> Iterator[str]:
    """Compare synchronising calls."""
    if not truth.syncs:
        for one in run.snapshot.syncs:
            if one.calls >= 1.0 and one.site is not None and _is_target(one.site.file):
                yield f"sync {one.op} at line {one.site.line}"
        return
    lines = here(run.case.target or run.case.name)
    found = [
        one
        for one in run.snapshot.syncs
        if one.site is not None and _is_target(one.site.file) and one.site.line in lines
    ]
    named = [one for one in found if any(word in one.op for word in truth.syncs)]
    for one in found:
        assert one.site is not None
        numbers.append(f"{one.op} {one.site.line} {one.calls:g}/step {one.time_us:.0f} us")
    if not named and not truth.placed:
        told = [one for one in run.snapshot.syncs if one.site is None]
        named = [one for one in told if any(word in one.op for word in truth.syncs)]
        numbers += [f"{one.op} without a line {one.calls:g}/step" for one in named]
    if not named:
        places = [
            (one.op, one.site and (Path(one.site.file).name, one.site.line)) for one in run.snapshot.syncs
        ]
        yield f"no sync at {sorted(lines)}: {places[:4]}"
        return
    calls_told = sum(one.calls for one in named)
    if truth.sync_calls and abs(max(one.calls for one in named) - truth.sync_calls) > 0.05:
        yield f"{calls_told:g} calls a step"
    if not truth.sync_calls and calls_told < 1.0:
        yield f"{calls_told:g} calls a step"


def _is_target(file: str) -> bool:
    return Path(file).name == SCRIPT.name


def calls(truth: Truth, run: Run, numbers: list[str]) -> Iterator[str]:
    """Compare how often operators of the host were called in a step."""
    host = run.snapshot.host_rows if run.snapshot.clock == "device" else run.snapshot.rows
    found = {one.name: one.calls for one in host}
    for name, wanted in truth.calls.items():
        if name not in found and run.snapshot.rows_dropped:
            continue
        if found.get(name) != wanted:
            yield f"{name} {found.get(name, 'not there')} times instead of {wanted}"
        else:
            numbers.append(f"{name.partition('::')[2]} {wanted}")


def data(truth: Truth, run: Run, numbers: list[str]) -> Iterator[str]:
    """Compare the share of the wait for data, in the very steps that were looked at."""
    said, planted = [], []
    first, waited_s = run.truth["first"], run.truth["waited_s"]
    for record in run.records:
        if record.kind != "sample":
            continue
        sample = decode.sample(record.data, record.step)
        place = round(sample.step - run.offset) - first
        if 0 <= place < len(waited_s) and sample.window_us > 0:
            said.append(sum(one.share for one in sample.phases if one.name == "data"))
            planted.append(waited_s[place] * 1e6 / sample.window_us)
    if not said:
        yield "no step that was looked at is one of the training's"
        return
    share, true = fmean(said), fmean(planted)
    if truth.data:
        apart = max(abs(one - other) for one, other in zip(said, planted))
        numbers.append(f"data {share:.1%}, planted {true:.1%}, of one step {apart:.1%} apart at most")
    if abs(share - true) > POINTS and (truth.data or share > true):
        yield f"data {share:.2f} instead of {true:.2f}"


def changes(truth: Truth, run: Run, numbers: list[str]) -> Iterator[str]:
    """Compare what became slower, and since when."""
    slower = [one for one in run.snapshot.rows if one.change and _is_slower(one, truth)]
    if not truth.changed:
        return
    named = [one for one in slower if truth.changed in one.name]
    others = [one for one in slower if truth.changed not in one.name and one.share > 0.05]
    onset = run.truth["onset"] + run.offset
    for one in named:
        assert one.change is not None
        since = one.change.since_step
        numbers.append(f"{one.name} x{one.change.avg_ratio:.1f} since {since}, true {onset:.0f}")
        # Said of the step that it is compared with, which may not come after the onset.
        if since is not None and since > onset + 2 * run.case.every + 2:
            yield f"{one.name} slower since {since}, not {onset:.0f}"
    if not named:
        told = next((one.change for one in run.snapshot.rows if truth.changed in one.name), None)
        yield f"{truth.changed} is not said to be slower: {told}"
    for one in others:
        yield f"{one.name} is said to be slower"
    for one in run.before.findings if run.before else ():
        if one.rule in truth.rules:
            yield f"{one.rule} before the onset"


def _is_slower(row: Operator, truth: Truth) -> bool:
    assert row.change is not None
    return row.change.avg_ratio >= truth.slower


def outliers(truth: Truth, run: Run, numbers: list[str]) -> Iterator[str]:
    """Compare the steps that took much longer than others."""
    if not truth.outliers:
        return
    jitter = run.snapshot.jitter
    if jitter is None or not jitter.outliers:
        yield "no outliers"
        return
    told = {round(one.step - run.offset): one for one in jitter.outliers}
    # Only the newest are kept, and none of a step that was looked at itself.
    planted = [one for one in run.truth["planted"] if min(told) <= one + 1 <= max(told) + 1]
    hit = [one for one in planted if any(one + more in told for more in NEAR)]
    numbers.append(f"{len(hit)} of {len(planted)} planted, {len(told) - len(hit)} others")
    numbers.append(f"p50 {jitter.p50_s * 1e3:.1f} ms, true {run.truth['step_s'] * 1e3:.1f}")
    causes = {one.cause.render() for one in jitter.outliers if one.cause is not None}
    numbers += sorted(causes)[:2]
    if not planted or len(hit) < 0.6 * len(planted):
        yield f"outliers {sorted(told)} instead of {planted}"
    for step, one in told.items():
        true = max(took(run, step + more) for more in NEAR)
        if true and not 0.7 < one.duration_s / true < 1.3:
            yield f"step {step} of {one.duration_s * 1e3:.0f} ms, true {true * 1e3:.0f}"
    if truth.causes and not any(word in one for one in causes for word in truth.causes):
        yield f"causes {sorted(causes)[:3]}"


def idle(truth: Truth, run: Run, numbers: list[str]) -> Iterator[str]:
    """Compare how much of a step the device had nothing to do."""
    if truth.idle is None:
        return
    device = run.snapshot.device
    if device is None:
        yield "nothing is said of the device"
        return
    low, high = truth.idle
    host = "" if device.host_bound_share is None else f", host-bound {device.host_bound_share:.0%}"
    numbers.append(f"idle {device.idle_share:.0%}{host}")
    if not low <= device.idle_share <= high:
        yield f"idle {device.idle_share:.2f}, not {low} to {high}"


def shapes(truth: Truth, run: Run, numbers: list[str]) -> Iterator[str]:
    """Compare how many sets of shapes an operator had."""
    if not truth.shapes:
        return
    rows = (*run.snapshot.rows, *run.snapshot.host_rows)
    seen = max((one.shapes_seen or 0 for one in rows if one.name == truth.shapes), default=0)
    numbers.append(f"{truth.shapes} {seen} shapes")
    if seen < 2:
        yield f"{truth.shapes} with {seen} sets of shapes"


def averages(truth: Truth, run: Run, numbers: list[str]) -> Iterator[str]:
    """Compare average times with those of the simulated device."""
    for name, wanted in truth.average_us.items() if run.device == "npu" else ():
        rows = [one for one in run.snapshot.rows if name in one.name]
        if not rows:
            yield f"no row {name}"
        for one in rows:
            numbers.append(f"{one.name} {one.avg_us:.0f} us, planted {wanted:.0f}")
            if abs(one.avg_us / wanted - 1.0) > 0.1:
                yield f"{one.name} {one.avg_us:.0f} us instead of {wanted:.0f}"
