"""Results of an earlier time beside those of now: what `inspect --baseline` compares."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from ascend_tui import plugin
from ascend_tui.inspect import Inspected, failed, nobody, results

MOST = 500
"""Results of a baseline that are kept."""
_SAME, _BUT_DIGITS = 3, 2


class Baseline:
    """The results of a file or folder, each put beside a new one of the same place, else of the same kind."""

    def __init__(self, path: Path) -> None:
        """Read the file, or all files of the folder; `trouble` says why there is no result."""
        self._found: dict[tuple[str, str], list[tuple[str, str, Any]]] = defaultdict(list)
        self._used: set[str] = set()
        self.compared = 0
        self.trouble = ""
        count = 0
        for one, place in results([path]):
            if one.trouble:
                # A folder may hold anything; of a file that is named by hand its trouble is the answer.
                self.trouble = one.trouble if one.file == str(path) else self.trouble
            elif count < MOST:
                count += 1
                self._found[one.plugin, one.kind].append((one.file, place, one.result))
        if not count:
            self.trouble = self.trouble or "holds nothing that an installed plugin reads"

    def beside(self, one: Inspected, place: str) -> Inspected:
        """Return a result with its changes; the result itself where nothing of the baseline is like it.

        Which results can be compared is for the plugin to say; of several the one at the most similar place
        is taken, and one that was not taken before.
        """
        found = self._found.get((one.plugin, one.kind), [])
        ranked = sorted(found, key=lambda old: (-_likeness(place, old[1]), old[0] in self._used))
        try:
            collector: Any = plugin.resolve(plugin.load(one.plugin).collector)(nobody)
            for file, _, before in ranked:
                changed = collector.compare(one.result, before)
                if changed is not None:
                    self._used.add(file)
                    self.compared += 1
                    return dataclasses.replace(one, result=changed, baseline=file)
        except Exception as error:  # noqa: BLE001 - a plugin's fault costs its comparison only
            return failed(one, error)
        return one


def _likeness(place: str, other: str) -> int:
    """Return how much of two places is the same, from their ends on; numbers in names are often times."""
    alike = 0
    for mine, theirs in zip(reversed(Path(place).parts), reversed(Path(other).parts)):
        if mine == theirs:
            alike += _SAME
        elif re.sub(r"\d+", "#", mine) == re.sub(r"\d+", "#", theirs):
            alike += _BUT_DIGITS
        else:
            break
    return alike
