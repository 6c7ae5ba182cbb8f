"""`ascend-tui inspect FILE|DIR …`: what logs, series, profiles and npu-smi texts say, without a training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ascend_tui.baseline import Baseline
from ascend_tui.commands import FINDINGS, OK, USAGE, inspect_log
from ascend_tui.commands.inspect_profile import changes, device, links, phases, steps, table
from ascend_tui.commands.output import data, line, say
from ascend_tui.inspect import SEVERITIES, Digest, Inspected, inspect, items, severity, verdict
from ascend_tui.text import byte_size, duration

SHOWN = 10
"""Rows of a list that text mode shows; --json has all."""
_SURE, _LIKELY = 0.85, 0.5


def inspect_files(
    words: Sequence[str],
    as_data: bool,
    fail_on: str | None,
    baseline: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Print a result for each file, as JSON lines or as text, beside that of `baseline` where one is named.

    Returns FINDINGS when something at or above the severity `fail_on` was found, else USAGE when a file that
    was named could not be read, is of no kind that is known or compares with nothing, else OK.
    """
    digest, found, trouble = Digest(), False, False
    before = Baseline(Path(baseline)) if baseline is not None else None
    if before is not None and before.trouble:
        say(f"the baseline {baseline} {before.trouble}")
        return USAGE
    beside = before.beside if before is not None else None
    for one in inspect((Path(word) for word in words), beside, settings):
        digest.add(one)
        worst = severity(one.result)
        if fail_on and worst is not None and SEVERITIES.index(worst) >= SEVERITIES.index(fail_on):
            found = True
        if one.trouble:
            # A folder may hold anything; what is named by hand is meant.
            trouble = trouble or not one.unknown or one.file in words
        if as_data:
            _json(one)
        else:
            _text(one)
    if digest.files > 1:
        if as_data:
            data(digest.as_json())
        else:
            _summary(digest.as_json())
    if before is not None and not before.compared:
        trouble = True
        say(
            f"nothing was compared: {baseline} holds no profile of the same table as {', '.join(words)}"
            " (op_summary with op_summary, kernel_details with kernel_details)"
        )
    return FINDINGS if found else USAGE if trouble else OK


def _json(one: Inspected) -> None:
    if one.trouble:
        say(f"{one.file} {one.trouble}")
    else:
        data(one.as_json())


def _text(one: Inspected) -> None:
    if one.unknown:
        line(f"{one.file}: unknown")
    elif one.trouble:
        say(f"{one.file} {one.trouble}")
    else:
        judged = verdict(one.result)
        name = str(one.result.get("format", "")) if isinstance(one.result, Mapping) else ""
        what = f"{one.kind.replace('_', ' ')}{f' {name}' if name else ''}"
        told = (
            f", {_verdict(judged)}" if judged else f", compared with {one.baseline}" if one.baseline else ""
        )
        line(f"{one.file}: {what}{told}")
        for text in _lines(one.result, judged):
            line(f"  {text}")


def _verdict(judged: Mapping[str, Any]) -> str:
    kind, confidence = str(judged.get("kind")), judged.get("confidence")
    words = kind.replace("_", " ")
    if kind != "undecided" and isinstance(confidence, (int, float)):
        sure = "sure" if confidence >= _SURE else "likely" if confidence >= _LIKELY else "possible"
        words += f" ({sure}, {confidence * 100:.0f} %)"
    return words


def _lines(result: Any, judged: Mapping[str, Any] | None) -> Iterator[str]:
    if not isinstance(result, Mapping):
        return
    if judged is not None:
        yield str(judged.get("reason"))
        yield from _numbers(result)
    for part in (inspect_log.read, table, steps, phases, device, links, changes):
        yield from part(result)
    for key in ("advice", "notes", "assumed"):
        value = result.get(key)
        for text in [value] if isinstance(value, str) else value or ():
            yield f"unit assumed: {text}" if key == "assumed" else str(text)
    runs = result.get("runs") or ()
    yield from _some(
        [
            f"{run.get('name') or 'run'}: {_verdict(run['verdict'])}: {run['verdict']['reason']}"
            for run in runs
        ]
    )
    yield from _some([_process(one) for one in result.get("processes") or ()])
    yield from _some([_holder(one) for one in result.get("holders") or ()])
    yield from _some([_device(one) for one in result.get("devices") or ()], 64)
    for item in items(result):
        yield from _item(item)
    if "incidents" in result and not result["incidents"]:
        yield "no incident"


def _numbers(result: Mapping[str, Any]) -> Iterator[str]:
    told = []
    axis = str(result.get("axis") or ("row" if "axis" in result else "step"))
    for key, unit in (("slope_bytes_per_step", axis), ("slope_bytes_per_s", "s")):
        value = result.get(key)
        if isinstance(value, (int, float)) and abs(value) >= 1:
            told.append(f"slope {'+' if value > 0 else '-'}{byte_size(abs(value))}/{unit}")
    for key, word in (
        ("peak_bytes", "peak"),
        ("level_bytes", "level"),
        ("peak_used_bytes", "peak in use"),
        ("total_reserved_bytes", "reserved"),
        ("reserved_bytes", "reserved"),
    ):
        value = result.get(key)
        if isinstance(value, (int, float)):
            told.append(f"{word} {byte_size(value)}")
    if told:
        yield "   ".join(told)
    ahead = result.get("forecast")
    if isinstance(ahead, Mapping):
        yield f"full {_when(axis, ahead.get('step'), ahead.get('seconds'))}"
    for one in (result.get("forecast_if") or ())[:2]:
        seconds = one["left"] if result.get("slope_bytes_per_s") is not None else None
        yield f"if the card has {byte_size(one['total_bytes'])}: full {_when(axis, one['at'], seconds)}"


def _when(axis: str, at: Any, seconds: Any) -> str:
    return f"at about {axis} {at:,}" if seconds is None else f"in about {duration(seconds)}"


def _process(one: Mapping[str, Any]) -> str:
    return f"{byte_size(one['rss_bytes']):>9}  {one.get('name')}"


def _holder(one: Mapping[str, Any]) -> str:
    spread = ", allocated all along" if one.get("spread") else ""
    return (
        f"{byte_size(one['bytes']):>9}  in {one['count']:,} blocks of {one.get('name') or 'no name'}{spread}"
    )


def _device(one: Mapping[str, Any]) -> str:
    if "hbm_total_mib" not in one:
        return str(one.get("name", one))
    used, total = one.get("hbm_used_mib"), one.get("hbm_total_mib")
    if total is None:
        used, total = one.get("memory_used_mib"), one.get("memory_total_mib")
    memory = "memory unknown" if used is None or not total else f"{used:,} of {total:,} MiB"
    power = "NA" if one.get("power_w") is None else f"{one['power_w']:g} W"
    temp = "NA" if one.get("temp_c") is None else f"{one['temp_c']:g} °C"
    shown = one.get("processes")
    processes = "processes unknown" if shown is None else f"{len(shown)} processes"
    place = f"device {one.get('index')} (NPU {one.get('npu')} chip {one.get('chip')})"
    return f"{place}: {one.get('name')} {one.get('health')}, {memory}, {temp}, {power}, {processes}"


def _item(item: Mapping[str, Any]) -> Iterator[str]:
    count = item.get("count") or 1
    times = f" ({count:,} times)" if isinstance(count, int) and count > 1 else ""
    step = "" if item.get("step") is None else f", step {item['step']}"
    ranks = f", ranks {', '.join(map(str, item['ranks']))}" if item.get("ranks") else ""
    yield f"{item.get('severity')} {item.get('category')}: {item.get('headline')}{times}{step}{ranks}"
    for text in inspect_log.details(item):
        yield f"  {text}"
    for key in ("reason", "source_reason", "evidence", "advice"):
        value = item.get(key)
        for text in [value] if isinstance(value, str) else value or ():
            yield f"  {text}"


def _some(texts: Sequence[str], most: int = SHOWN) -> Iterator[str]:
    yield from texts[:most]
    if len(texts) > most:
        yield f"and {len(texts) - most} more (--json has all)"


def _summary(digest: Mapping[str, Any]) -> None:
    parts = [f"{digest['files']} files"]
    for key in ("verdicts", "severities"):
        parts += [f"{count} {word.replace('_', ' ')}" for word, count in digest[key].items()]
    parts += [f"{digest[key]} {key}" for key in ("unknown", "unreadable") if digest[key]]
    line("in all: " + ", ".join(parts))
