"""The text of `npu-smi info`, whatever the chip, the driver or the cut: cards, their memory, their processes.

The tables are read by their headers, because the columns differ: one or two chips per NPU, a `Phy-ID` or
`Device` beside the chip, no `HBM-Usage`, another process column.  Border lines are not needed.  `NA` and `-`
are no numbers, and a missing process table is not a list of no processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Category, Message, Severity
from ascend_tui.text import plain

HOT_C = 85.0
"""From here on chips lower their clock: a slow training on a hot card is no bug of the training."""
UNSEEN_SHARE = 0.15
"""Of a card's memory, what may be in use beside the visible processes: an idle card uses some, too."""

_BLANK = frozenset(("", "-", "--", "na", "n/a", "none"))
_NONE = re.compile(r"No running processes found in NPU\s+(\d+)", re.IGNORECASE)
_BUS = re.compile(r"^(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$", re.IGNORECASE)


@frozen
class CardProcess:
    """A process that npu-smi shows on a card; None where it prints no number."""

    pid: int | None
    name: str
    memory_mib: int | None
    container_pid: int | None = None


@frozen
class Card:
    """One chip.  None is "not told".

    `index` is the number that programs use (Phy-ID or Device, else the order); `hbm_*` is the column
    HBM-Usage, `memory_*` the column Memory-Usage, another pool.  `processes` is None where nothing is said of
    them; `unaccounted_mib` is what is used beside those that are shown.
    """

    index: int
    npu: int
    chip: int
    name: str
    health: str
    bus_id: str
    temp_c: float | None
    power_w: float | None
    aicore_percent: float | None
    hbm_used_mib: int | None
    hbm_total_mib: int | None
    memory_used_mib: int | None
    memory_total_mib: int | None
    processes: tuple[CardProcess, ...] | None
    unaccounted_mib: int | None

    @property
    def used_mib(self) -> int | None:
        """Return the use of the memory that trainings are in."""
        return self.hbm_used_mib if self.hbm_total_mib is not None else self.memory_used_mib

    @property
    def total_mib(self) -> int | None:
        """Return the size of the memory that trainings are in."""
        return self.hbm_total_mib if self.hbm_total_mib is not None else self.memory_total_mib


@frozen
class CardFinding:
    """Something about a card that a person should know before looking for a bug."""

    severity: Severity
    category: Category
    headline: Message
    device: int
    step: int | None = None
    ranks: tuple[int, ...] = ()
    count: int = 1
    attribution: str = "exact"


def is_npu_smi(text: str) -> bool:
    """Tell whether a text holds the table of `npu-smi info`."""
    return bool(re.search(r"^\s*\|\s*NPU\s+Name\s*\|\s*Health\s*\|", text, re.MULTILINE))


def cards(lines: Iterable[str]) -> list[Card]:
    """Return the cards of a text in their order; none where there is no table."""
    return _Reader().read(lines)


class _Reader:
    """Walk through the rows: two rows of a chip, told apart by the health or bus id in their second cell."""

    def __init__(self) -> None:
        self._first: Sequence[str] = ()
        self._second: Sequence[str] = ()
        self._upper: list[str] | None = None
        self._chips: list[dict[str, str]] = []
        self._process_names: Sequence[str] = ()
        self._processes: dict[tuple[int, int], list[CardProcess]] = {}
        self._told: set[int] = set()

    def read(self, lines: Iterable[str]) -> list[Card]:
        for line in lines:
            text = plain(line).strip()
            empty = _NONE.search(text)
            if empty:
                self._told.add(int(empty[1]))
            elif text.startswith("|"):
                self._row([cell.strip() for cell in text.strip("|").split("|")])
        return [self._card(order, chip) for order, chip in enumerate(self._chips)]

    def _row(self, row: list[str]) -> None:
        head = row[0].lower().split()
        lowered = [cell.lower() for cell in row]
        if head[:1] == ["npu"] and any("process id" in cell for cell in lowered):
            self._process_names = lowered
        elif head[:1] == ["npu"] and len(row) >= 3:
            self._first, self._second, self._upper, self._process_names = _names(row), (), None, ()
        elif head[:1] == ["chip"] and len(row) >= 3:
            self._second = _names(row)
        elif self._process_names:
            self._process(row)
        elif self._first and len(row) >= 3 and head and head[0].isdigit():
            self._half(row)

    def _half(self, row: list[str]) -> None:
        upper = self._upper
        if upper is None or (not _BUS.match(row[1]) and len(upper[0].split()) < 2):
            self._upper = row
            return
        names = row[0].split(None, 1)
        if not _BUS.match(row[1]) and len(names) == 2 and not names[1].replace("-", "").strip().isdigit():
            # The second row of the chip before was cut out: begin anew with this one.
            self._upper = row
            return
        chip = _named(self._first, upper)
        chip.update(_named(self._second, row))
        self._chips.append(chip)
        self._upper = None

    def _process(self, row: list[str]) -> None:
        numbers = row[0].split()
        if len(row) < 3 or not numbers or not numbers[0].isdigit():
            return
        found = dict(zip(self._process_names, row))
        npu = int(numbers[0])
        chip = int(numbers[1]) if len(numbers) > 1 and numbers[1].isdigit() else 0
        pid = _whole(found.get("process id", ""))
        inside = next((cell for name, cell in found.items() if "container" in name), "")
        memory = next((cell for name, cell in found.items() if "memory" in name), "")
        name = found.get("process name", "")
        self._told.add(npu)
        one = CardProcess(pid, name, _whole(memory), _whole(inside))
        self._processes.setdefault((npu, chip), []).append(one)

    def _card(self, order: int, chip: dict[str, str]) -> Card:
        npu, number = _whole(chip.get("npu", "")) or 0, _whole(chip.get("chip", "")) or 0
        index = next(
            (found for key in ("phy-id", "device") if (found := _whole(chip.get(key, ""))) is not None), order
        )
        processes = tuple(self._processes.get((npu, number), ())) if npu in self._told else None
        hbm_used, hbm_total = _pool(chip.get("hbm-usage", ""))
        used, total = _pool(chip.get("memory-usage", ""))
        shown = [one.memory_mib for one in processes or () if one.memory_mib is not None]
        in_use = hbm_used if hbm_total is not None else used
        unaccounted = None
        if processes is not None and in_use is not None:
            unaccounted = max(0, in_use - sum(shown))
        return Card(
            index=index,
            npu=npu,
            chip=number,
            name=chip.get("name", ""),
            health=chip.get("health", ""),
            bus_id=chip.get("bus-id", ""),
            temp_c=_number(chip.get("temp", "")),
            power_w=_number(chip.get("power", "")),
            aicore_percent=_number(chip.get("aicore", "")),
            hbm_used_mib=hbm_used,
            hbm_total_mib=hbm_total,
            memory_used_mib=used,
            memory_total_mib=total,
            processes=processes,
            unaccounted_mib=unaccounted,
        )


def _names(row: Sequence[str]) -> list[str]:
    """Return the names of a header's cells, without their units, the words of a cell joined by a space."""
    return [" ".join(re.sub(r"\([^)]*\)", " ", cell).lower().split()) for cell in row]


def _named(names: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """Return the values of a row by the words of its header.

    A pool is printed as `0    / 0`, which is one value.  A name of several words is the last one's.
    """
    found: dict[str, str] = {}
    for words, cell in zip(names, row):
        keys = words.split()
        values = re.sub(r"\s*/\s*", "/", cell).split(None, len(keys) - 1 if keys[-1:] == ["name"] else -1)
        found.update(zip(keys, values))
    return found


def _number(text: str) -> float | None:
    match = re.fullmatch(r"[-+]?\d+(?:\.\d+)?", text.strip())
    return float(match[0]) if match and text.strip().lower() not in _BLANK else None


def _whole(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _pool(text: str) -> tuple[int | None, int | None]:
    """Return use and size of a pool; one of no size is none."""
    used, _, total = text.partition("/")
    size = _whole(total)
    return (_whole(used), size) if size else (None, None)


def findings(found: Iterable[Card]) -> list[CardFinding]:
    """Return what is wrong with the cards, and memory whose holder is not to be seen."""
    told: list[CardFinding] = []
    all_cards = list(found)
    # Without a table of processes, nobody knows who is there.
    table = any(card.processes is not None for card in all_cards)
    for card in all_cards:
        health = card.health.lower()
        if health not in _BLANK and health not in ("ok", "unknown"):
            severity: Severity = "warning" if health.startswith("warn") else "error"
            words = Message.of("device {index}: health is {health}", index=card.index, health=card.health)
            told.append(CardFinding(severity, "device", words, card.index))
        if card.temp_c is not None and card.temp_c > HOT_C:
            words = Message.of(
                "device {index}: {temp} °C, over {limit} °C the chip may lower its clock",
                index=card.index,
                temp=f"{card.temp_c:g}",
                limit=f"{HOT_C:g}",
            )
            told.append(CardFinding("warning", "device", words, card.index))
        hidden = unseen(card) if table else None
        if hidden is not None:
            told.append(CardFinding("warning", "usage", hidden, card.index))
    return told


def unseen(card: Card) -> Message | None:
    """Return a sentence when much of a card is used by nobody who is shown."""
    used, total = card.used_mib, card.total_mib
    if used is None or not total or used < UNSEEN_SHARE * total:
        return None
    if card.processes:
        beside = card.unaccounted_mib or 0
        if beside < UNSEEN_SHARE * total:
            return None
        return Message.of(
            "device {index}: {beside} of {used} MiB in use belong to no visible process"
            " (the visible ones hold {shown} MiB): another container or namespace may hold them",
            index=card.index,
            beside=f"{beside:,}",
            used=f"{used:,}",
            shown=f"{used - beside:,}",
        )
    return Message.of(
        "device {index}: {used} MiB in use and no process is shown: another container or namespace may hold"
        " them",
        index=card.index,
        used=f"{used:,}",
    )
