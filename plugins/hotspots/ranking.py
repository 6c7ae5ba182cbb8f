"""From sums of time to a table: the order, the shares, and what is too small to be shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .snapshot import Row

MOST_ROWS = 500


def ranked(
    rows: Iterable[Row], total_us: float | None = None, most: int = MOST_ROWS
) -> tuple[tuple[Row, ...], int]:
    """Return the rows by self time with their shares, and how many were too small to be kept.

    Shares are of `total_us`, of the sum of all rows where that is not given.
    """
    found = sorted(rows, key=lambda one: (-one.self_time_us, one.name))
    whole = sum(one.self_time_us for one in found) if total_us is None else total_us
    kept: list[Row] = []
    sum_us = 0.0
    for one in found[:most]:
        sum_us += one.self_time_us
        kept.append(
            dataclasses.replace(
                one,
                share=one.self_time_us / whole if whole > 0 else 0.0,
                cumulative_share=sum_us / whole if whole > 0 else 0.0,
                avg_us=one.self_time_us / one.calls if one.calls else one.avg_us,
            )
        )
    return tuple(kept), len(found) - len(kept)
