"""What a live step tells beside its table: data, phases, idle time, waits for scalars, uneven steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ascend_tui.plugin import Message
from ascend_tui.text import count

from .advice_figures import MANY, Found, calls, known, name_of, percent, time
from .snapshot import DeviceUse, Finding, HotspotsSnapshot, Jitter, Phase, Sync

DATA_SHARE = 0.1
"""Chosen: loading beside the step costs next to nothing; a tenth is a loader that does not keep up."""
OPTIMIZER_SHARE = 0.3
"""Chosen: an optimizer touches each weight once, forward and backward each weight for each token."""
OTHER_SHARE = 0.2
"""Chosen: what is in no phase is logging, evaluation and checkpoints, which are not made at each step."""
OUTSIDE_SHARE = 0.3
"""Chosen: in small operators Python takes some 10 to 20 %; a third of the step is more than that."""
HOST_SHARE = 0.1
"""Chosen, for "device idle and host dense" of A5.3: here data and waits are already taken out of it."""
IDLE_SHARE = 0.2
"""Chosen: without its reason, idle time is worth a warning only where it is plenty."""
SHORT_WAITS, SHORT_IDLE = 10, 0.05
"""A5.3: many short waits; chosen: ten a step are no logging of the loss, and a twentieth idle is felt."""
SYNC_SHARE = 0.05
"""Chosen: a third of the 15 % that monitoring scalars cost in the case of A5.3."""
UNEVEN, LOST_SHARE = 1.5, 0.05
"""Chosen: steps under 1.5 times the median scatter by themselves; a twentieth of all time lost is felt."""
LEAST_STEPS = 20
"""Chosen: the first steps of a training are longer, and a p99 needs steps."""


def judge(snapshot: HotspotsSnapshot) -> Iterator[Found]:
    """Say what the step tells; of a device only where there is one."""
    data = _data_share(snapshot.phases)
    yield from judge_phases(snapshot.phases)
    if snapshot.device is not None:
        yield from judge_device(snapshot.device, data)
    elif snapshot.clock == "host" and snapshot.runs_on == "cpu":
        yield from _outside(snapshot, data)
    yield from _syncs(snapshot)
    if snapshot.jitter is not None:
        yield from _jitter(snapshot.jitter)


def judge_phases(phases: Sequence[Phase]) -> Iterator[Found]:
    """Say which part of a step takes more than such a part should."""
    shares = {one.name: one for one in phases}
    data, optimizer, other = (shares.get(name) for name in ("data", "optimizer", "other"))
    if data is not None and known(data.share) >= DATA_SHARE:
        finding = Finding(
            rule="data_wait",
            headline=Message.of("the step waits for data {share} of its time", share=percent(data.share)),
            severity="warning",
            evidence=(_of_phases(phases),),
            advice=(
                Message(
                    "more workers of the DataLoader (num_workers), kept alive, with a larger prefetch_factor"
                ),
                Message("pin_memory with non_blocking copies; decode and augment before the training"),
            ),
        )
        yield Found(data.share, finding)
    if optimizer is not None and known(optimizer.share) >= OPTIMIZER_SHARE:
        finding = Finding(
            rule="optimizer",
            headline=Message.of("the optimizer takes {share} of the step", share=percent(optimizer.share)),
            evidence=(_of_phases(phases),),
            advice=(
                Message(
                    "use its fused or foreach form (fused=True, an NpuFused optimizer): one call for all"
                ),
                Message("with small batches accumulate gradients over several, and step less often"),
            ),
        )
        yield Found(optimizer.share, finding)
    if other is not None and known(other.share) >= OTHER_SHARE:
        finding = Finding(
            rule="other_phase",
            headline=Message.of(
                "{share} of the step is in neither data, forward, backward nor optimizer",
                share=percent(other.share),
            ),
            evidence=(_of_phases(phases),),
            advice=(Message("look at what the loop does beside them: logging, metrics, checkpoints"),),
        )
        yield Found(other.share, finding)


def judge_device(device: DeviceUse, data_share: float = 0.0) -> Iterator[Found]:
    """Host-bound: idle time that neither data nor waiting explains; without that number nothing is said."""
    if device.host_bound_share is None:
        return
    # Data may be loaded while the device works: only what is idle beyond it can be the launches.
    share = min(known(device.host_bound_share), known(device.idle_share) - data_share)
    if share < HOST_SHARE:
        return
    whole_us = known(device.busy_us) + known(device.idle_us)
    evidence = [
        Message.of(
            "the device is busy {busy} and idle {idle}",
            busy=time(known(device.busy_us)),
            idle=time(known(device.idle_us)),
        )
    ]
    if device.kernels > 0 and known(device.busy_us):
        evidence.append(
            Message.of(
                "{kernels} kernels of {average}, one each {pace}",
                kernels=count(device.kernels),
                average=time(device.busy_us / device.kernels),
                pace=time(whole_us / device.kernels),
            )
        )
    finding = Finding(
        rule="host_bound",
        headline=Message.of(
            "host-bound: the device is idle {share} of the step while the host launches", share=percent(share)
        ),
        severity="warning",
        evidence=tuple(evidence),
        advice=(
            Message("launch less: larger batches, fused operators, a graph, torch.compile"),
            Message("launch sooner: less Python and no synchronising calls in the step, cores of its own"),
        ),
    )
    yield Found(share, finding)


def judge_idle(device: DeviceUse) -> Iterator[Found]:
    """Idle time of a table of tasks, which does not tell what the host did meanwhile.

    Its longest pause is left out: it is that between two steps, or before the profile was at speed.
    """
    whole_us = known(device.busy_us) + known(device.idle_us)
    idle_us = known(device.idle_us) - known(device.longest_idle_us)
    if device.host_bound_share is not None or device.kernels < MANY or not known(idle_us):
        return
    if idle_us < IDLE_SHARE * whole_us:
        return
    finding = Finding(
        rule="device_idle",
        headline=Message.of("the device is idle {share} of the time", share=percent(idle_us / whole_us)),
        severity="warning",
        evidence=(
            Message.of(
                "{idle} between {kernels} tasks of {busy}, the longest pause of {longest} left out",
                idle=time(idle_us),
                kernels=count(device.kernels),
                busy=time(known(device.busy_us)),
                longest=time(known(device.longest_idle_us)),
            ),
            Message("whether it waits for the host, for data or for other ranks is not in this table"),
        ),
        advice=(
            Message("a step trace and the timeline tell; where it is the host: launch less and earlier"),
        ),
    )
    yield Found(idle_us / whole_us, finding)


def _outside(snapshot: HotspotsSnapshot, data_share: float) -> Iterator[Found]:
    """Python between the operators, on a CPU: there nothing else could be at work meanwhile."""
    step_us = known(snapshot.step_time_us)
    outside_us = known(snapshot.outside_us) - known(snapshot.delay_us)
    share = outside_us / step_us - data_share if step_us else 0.0
    if share < OUTSIDE_SHARE:
        return
    finding = Finding(
        rule="python",
        headline=Message.of(
            "{share} of the step is in no operator: Python between them", share=percent(share)
        ),
        severity="warning",
        evidence=(
            Message.of(
                "{outside} of a step of {step}, waiting for data left out",
                outside=time(share * step_us),
                step=time(step_us),
            ),
        ),
        advice=(
            Message("larger batches: the same Python for more work"),
            Message("torch.compile, foreach operators, and nothing per element or per weight in Python"),
        ),
    )
    yield Found(share, finding)


def _syncs(snapshot: HotspotsSnapshot) -> Iterator[Found]:
    """Calls that make the host wait for the device.

    How long they wait is no loss by itself, because the device works meanwhile.  What is lost is the idle
    time behind them, until the host has launched something again.  On a CPU they wait for nothing, and are
    only named.
    """
    made = sorted(snapshot.syncs, key=lambda one: (-known(one.time_us), -known(one.calls), one.op))
    number, time_us = sum(known(one.calls) for one in made), sum(known(one.time_us) for one in made)
    device, step_us = snapshot.device, known(snapshot.step_time_us)
    short = device.short_waits if device is not None else 0
    is_many = device is not None and short >= SHORT_WAITS and known(device.idle_share) >= SHORT_IDLE
    if number < 1 and not is_many:
        return
    on_cpu = snapshot.runs_on in ("cpu", "") and device is None
    share = time_us / step_us if step_us else 0.0
    is_idle = device is not None and known(device.idle_share) >= HOST_SHARE
    costs = not on_cpu and (is_many or (share >= SYNC_SHARE and is_idle))
    if is_many:
        headline = Message.of(
            "{waits} short waits a step: each read of a scalar drains the device", waits=count(short)
        )
    elif on_cpu:
        headline = Message.of("{calls} reads of scalars a step", calls=calls(number))
    else:
        headline = Message.of("the host waits for the device in {calls} calls a step", calls=calls(number))
    evidence = [_of_sync(one) for one in made[:3]]
    if number and not on_cpu:
        evidence.append(
            Message.of(
                "{time} a step, {share}: how much of it the device works meanwhile is not told",
                time=time(time_us),
                share=percent(share),
            )
        )
    if device is not None and (is_many or costs):
        evidence.append(
            Message.of("the device is idle {share} of the step", share=percent(known(device.idle_share)))
        )
    advice = [
        Message("keep scalars on the device (item(), numpy(), print): read them together, every n-th step"),
    ]
    if on_cpu:
        advice = [Message("on a CPU they wait for nothing; on a device each would make the host wait")]
    elif not snapshot.syncs_known:
        advice.append(Message.of("press {key}: which lines make these calls", key="p"))
    finding = Finding(
        rule="syncs",
        headline=headline,
        severity="warning" if costs else "info",
        evidence=tuple(evidence),
        advice=tuple(advice),
        ops=tuple(dict.fromkeys(one.op for one in made))[:3],
        count=max(1, int(number or short)),
    )
    idle = known(device.idle_share) if device is not None else share
    yield Found(min(share or idle, idle) if costs else 0.0, finding)


def _of_sync(one: Sync) -> Message:
    numbers = {"op": name_of(one.op), "calls": calls(known(one.calls)), "time": time(known(one.time_us))}
    if one.site is None or not one.site.file:
        return Message.of("{op}: {calls} a step, {time}", **numbers)
    place = f"{name_of(one.site.file[-60:])}:{one.site.line}"
    return Message.of("{op} at {place}: {calls} a step, {time}", place=place, **numbers)


def _jitter(jitter: Jitter) -> Iterator[Found]:
    """Steps that took much longer, with what happened then."""
    p50_s = known(jitter.p50_s)
    slow = sorted(
        (one for one in jitter.outliers if known(one.ratio) >= UNEVEN and known(one.duration_s)),
        key=lambda one: -one.duration_s,
    )
    if jitter.steps < LEAST_STEPS or not p50_s or not slow:
        return
    lost = sum(one.duration_s - p50_s for one in slow) / (jitter.steps * p50_s)
    evidence = [
        Message.of(
            "median {p50}, p99 {p99} over {steps} steps",
            p50=time(p50_s * 1e6),
            p99=time(known(jitter.p99_s) * 1e6),
            steps=count(jitter.steps),
        )
    ]
    for one in slow[:3]:
        evidence.append(
            Message.of(
                "step {step}: {time}, {ratio} times the median",
                step=count(one.step),
                time=time(one.duration_s * 1e6),
                ratio=f"{one.ratio:.1f}",
            )
        )
        evidence.append(one.cause if one.cause is not None else Message("nothing was seen at that time"))
    finding = Finding(
        rule="jitter",
        headline=Message.of(
            "{n} steps took {ratio} times the median or more: {share} of the time lost",
            n=len(slow),
            ratio=f"{min(one.ratio for one in slow):.1f}",
            share=percent(lost),
        ),
        severity="warning" if lost >= LOST_SHARE else "info",
        evidence=tuple(evidence),
        advice=(
            Message(
                "look at what comes at those steps: checkpoints, evaluation, garbage collection, data on disk"
            ),
        ),
        step=slow[0].step,
        count=len(slow),
    )
    yield Found(lost, finding)


def _data_share(phases: Sequence[Phase]) -> float:
    return sum(known(one.share) for one in phases if one.name == "data")


_PHASES = Message("data {data}, forward {forward}, backward {backward}, optimizer {optimizer}, other {other}")


def _of_phases(phases: Sequence[Phase]) -> Message:
    shares: dict[str, str] = {one.name: percent(known(one.share)) for one in phases}
    names = ("data", "forward", "backward", "optimizer", "other")
    return Message(_PHASES.text, tuple((name, shares.get(name, "-")) for name in names))
