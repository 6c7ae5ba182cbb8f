"""When the memory will be full, in words: time and step, each with its range."""

from __future__ import annotations

import math

from ascend_tui.text import count, duration, msgid, tr, width

from .snapshot import Forecast

_FULL = {
    False: (msgid("full in {time}"), msgid("full at step {step}")),
    True: (msgid("host memory full in {time}"), msgid("host memory full at step {step}")),
}
_ON_THE_HOST = ("rss", "workers", "pinned")
_YEAR_S = 365 * 86_400


def forecast_words(forecast: Forecast | None, now: int | None, cells: int) -> str:
    """Return when the memory will be full, with its range, in at most `cells` cells; or nothing."""
    if forecast is None:
        return ""
    time, ranged, step, steps = _when(forecast, now)
    full_in, full_at = _FULL[forecast.quantity in _ON_THE_HOST]
    if not time:
        tries = [tr(full_at, step=steps), tr(full_at, step=step)]
    else:
        both = msgid("{when}, at step {step}")
        tries = [tr(both, when=tr(full_in, time=ranged), step=way) for way in (steps, step)]
        tries += [tr(full_in, time=ranged), tr(full_in, time=time)]
    return next((text for text in tries if width(text) <= cells), "")


def steps_words(forecast: Forecast, now: int | None) -> str:
    """Return the step at which the memory will be full, with its range where that is one."""
    step, low, high = _rounded(forecast, now)
    return step if low == high else f"{step} ({range_words(low, high)})"


def range_words(low: str, high: str | None) -> str:
    """Return a range whose high end may be unknown."""
    return tr("{low} or later", low=low) if high is None else tr("{low} to {high}", low=low, high=high)


def _when(forecast: Forecast, now: int | None) -> tuple[str, str, str, str]:
    """Return time, time with its range, step, and step with its range; times are empty if unknown."""
    step, steps = _rounded(forecast, now)[0], steps_words(forecast, now)
    if forecast.seconds is None or not math.isfinite(forecast.seconds):
        return "", "", step, steps
    time = _ahead(forecast.seconds)
    if forecast.seconds_low is None:
        return time, time, step, steps
    late = forecast.seconds_high
    latest = None if late is None or not math.isfinite(late) else _ahead(late)
    early = _ahead(forecast.seconds_low)
    ranged = time if early == latest else f"{time} ({range_words(early, latest)})"
    return time, ranged, step, steps


def _ahead(seconds: float) -> str:
    if seconds >= _YEAR_S:
        return tr("more than a year")
    return f"{seconds:.0f} s" if seconds < 60 else duration(seconds)


def _rounded(forecast: Forecast, now: int | None) -> tuple[str, str, str | None]:
    """Return step, low and high in no more digits than the range has, or two of the distance: no pretence."""
    low, high = forecast.step_low, forecast.step_high
    if high is None:
        size = 10 ** max(0, len(str(abs(forecast.step - (now or 0)))) - 2)
    else:
        size = 10 ** max(0, len(str(abs(high - low))) - 1)
    step, low_words = (count(round(one / size) * size) for one in (forecast.step, low))
    return step, low_words, None if high is None else count(round(high / size) * size)
