"""The public contract of a plugin, version 1, and how plugins are found.

A plugin is three rooms in one folder: a probe that runs inside the training, a collector that
turns its records into a diagnosis in the monitor, and a pane that draws one snapshot.  They are
named here as text ("module:Class") and loaded when needed, so that a list of plugins costs
nothing and a broken one breaks nothing but itself.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Union

from ascend_tui.frozen import frozen
from ascend_tui.target import TargetId

API_VERSION = 1
"""A plugin names the version it was written for; another one is a `failed` pane, not a crash."""
GROUP = "ascend_tui.plugins"

Severity = Literal["info", "warning", "error", "fatal"]
Category = Literal[
    "oom",
    "memory_access",
    "numeric",
    "timeout",
    "communication",
    "device",
    "compile",
    "configuration",
    "usage",
    "crash",
    "other",
]
Attribution = Literal["exact", "likely", "async"]
Scalar = Union[str, int, float]


@frozen
class Message:
    """A sentence as a message id with parameters: JSON renders English, the screen its language.

    `text` is the English source with `{name}` places and is the key into the catalogue.
    """

    text: str
    params: tuple[tuple[str, Scalar], ...] = ()

    @classmethod
    def of(cls, text: str, **params: Scalar) -> Message:
        """Build a message from keyword parameters."""
        return cls(text, tuple(params.items()))

    def render(self, translate: Callable[[str], str] = str) -> str:
        """Return the sentence in the language of `translate`."""
        return translate(self.text).format(**dict(self.params))


@frozen
class Alert:
    """Something is wrong with the training: shown in the stream, in JSON and in the recording."""

    target: TargetId
    plugin: str
    wall: float
    severity: Severity
    category: Category
    headline: Message
    step: int | None = None
    ranks: tuple[int, ...] = ()
    count: int = 1
    attribution: Attribution = "exact"


@frozen
class Mark:
    """A moment that every time axis can show.  `sign` is one character: c e r s ! m."""

    target: TargetId
    plugin: str
    wall: float
    sign: str
    label: Message
    step: int | None = None


@frozen
class Hint:
    """One plugin's evidence that another plugin's command would settle the question."""

    target: TargetId
    plugin: str
    wall: float
    command: str
    reason: Message


Event = Union[Alert, Mark, Hint]


@frozen
class Record:
    """One fact from a probe.  `seq` grows by one per record of a shim and never repeats.

    `wall_s` is Unix time and `mono_s` the monotonic clock, both of the target's machine.
    """

    seq: int
    plugin: str
    kind: str
    step: int
    wall_s: float
    mono_s: float
    data: Mapping[str, Any]


@frozen
class Lease:
    """When a costly command ends by itself: after `steps` or after `seconds`, whichever is first."""

    steps: int
    seconds: float


@frozen
class Command:
    """Something a key or `ascend-tui do` can start and stop.

    `cost` says what it does to the training, as measured; a command that slows it wants a second
    press of its key.  `words` start and stop it in `ascend-tui do`, beside those two.  One
    that is `auto` costs next to nothing: it runs while a monitor is attached, unless somebody stops it.
    """

    name: str
    title: str
    cost: str
    lease: Lease
    hotkey: str | None = None
    slows: bool = False
    words: tuple[str, str] = ("start", "stop")
    auto: bool = False


@frozen
class Plugin:
    """The description of a plugin; what an entry point of the group `ascend_tui.plugins` names.

    `collector`, `pane`, `sniff`, `outside` and `machine` are "module:name".  `probe` is "package:file.py", or
    several files set apart by spaces, each with its own `setup(api)`, that are sent as text and never
    imported by the monitor.  `sniff(head: bytes, name: str) -> str | None` says which kind of file it can
    read, for `inspect`.  `outside(pid) -> Mapping | None` reads once a second, in the monitor, what can be
    seen of a process that has no shim (`--passive`); it arrives as a record of the kind "outside".
    `machine() -> Mapping | None` is called every half minute in a thread of its own and arrives at each
    target as a record of the kind "machine".
    """

    name: str
    title: str
    collector: str
    pane: str
    api_version: int = API_VERSION
    probe: str | None = None
    commands: tuple[Command, ...] = ()
    sniff: str | None = None
    outside: str | None = None
    machine: str | None = None
    order: int = 100


class Collector(ABC):
    """Turn the records of one plugin into a diagnosis, for any number of targets.

    It never sees a widget and never reads a clock: `on_tick` is the only one, so that live use,
    replay and tests give the same answers.  It is called from one thread at a time.  Work that
    takes longer than a tick belongs in a thread of its own whose result the next tick picks up.
    """

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self.publish = publish

    @abstractmethod
    def on_record(self, target: TargetId, record: Record) -> None:
        """Take one record of this plugin's probe."""

    @abstractmethod
    def snapshot(self, target: TargetId) -> Any:
        """Return the present diagnosis as a frozen data class; also before the first record."""

    # The next ones are empty on purpose: a plugin overrides what it needs.
    def configure(self, settings: Mapping[str, Any]) -> None:  # noqa: B027
        """Take the user's settings by key (`ascend-tui config`), once, before all else."""

    def on_target(self, target: TargetId) -> None:  # noqa: B027
        """Learn of a target that is watched from now on, before its first record and also where none comes.

        For what is read in the monitor, in a thread of its own.
        """

    def on_event(self, event: Event) -> None:  # noqa: B027
        """Take an event of any plugin, its own included."""

    def on_tick(self, now: float) -> None:  # noqa: B027
        """Learn that it is `now` (Unix seconds)."""

    def on_step(self, target: TargetId, step: int, now: float) -> None:  # noqa: B027
        """Learn, once a tick, which step a target is at: for what is known by its time only."""

    def on_gone(self, target: TargetId) -> None:  # noqa: B027
        """Learn that the target ended; its last snapshot stays on screen."""

    def close(self) -> None:  # noqa: B027
        """Learn that the monitor ends: threads end."""

    def read(self, path: Path) -> Any:
        """Return the diagnosis of a file, by the same code as the live one."""
        raise NotImplementedError(f"{type(self).__name__} reads no files")

    def compare(self, result: Any, baseline: Any) -> Any | None:
        """Return `result` with what differs from `baseline`, both of `read`; None where that cannot be."""
        return None


@frozen
class Loaded:
    """A plugin as far as it could be loaded: `failed` holds the reason when it could not."""

    name: str
    plugin: Plugin | None = None
    failed: str | None = None


def names() -> list[str]:
    """Return the names of the installed plugins without importing any."""
    return sorted({entry.name for entry in _entries()})


def load(name: str) -> Plugin:
    """Import one plugin's description by name.

    Raises LookupError when there is none, and whatever the plugin's own import raises.
    """
    for entry in _entries():
        if entry.name == name:
            return _check(entry)
    raise LookupError(f"no plugin named {name!r}; installed: {', '.join(names()) or 'none'}")


def load_all() -> list[Loaded]:
    """Load every installed plugin, in the order of their panes; a broken one is kept as `failed`."""
    found: dict[str, Loaded] = {}
    for entry in _entries():
        if entry.name in found:
            continue
        try:
            found[entry.name] = Loaded(entry.name, plugin=_check(entry))
        except (Exception, SystemExit) as error:  # noqa: BLE001
            # Any fault of a third party's import ends here: it costs its own pane and no other.
            found[entry.name] = Loaded(entry.name, failed=f"{type(error).__name__}: {error}")
    return sorted(found.values(), key=lambda one: (one.plugin.order if one.plugin else 1000, one.name))


def _entries() -> list[EntryPoint]:
    if sys.version_info >= (3, 10):
        return list(entry_points(group=GROUP))
    return list(entry_points().get(GROUP, ()))


def _check(entry: EntryPoint) -> Plugin:
    plugin = entry.load()
    if not isinstance(plugin, Plugin):
        raise TypeError(f"{entry.value} is not an ascend_tui.plugin.Plugin")
    if plugin.name != entry.name:
        raise ValueError(f"the entry point is named {entry.name!r}, its plugin {plugin.name!r}")
    if plugin.api_version != API_VERSION:
        raise ValueError(f"written for plugin API {plugin.api_version}, this is API {API_VERSION}")
    return plugin


def resolve(reference: str) -> Any:
    """Return the object that "module:name" names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


_JOINED = """\
PARTS = {parts!r}

def setup(api):
    for file, text in PARTS:
        space = {{"__name__": __name__ + "." + file.partition(".")[0]}}
        exec(compile(text, file, "exec"), space)
        space["setup"](api)
"""


def probe_text(plugin: Plugin) -> str | None:
    """Return the source of the plugin's probe, read as files so that it is never run here."""
    if plugin.probe is None:
        return None
    package, _, names = plugin.probe.partition(":")
    parts = [(name, files(package).joinpath(name).read_text(encoding="utf-8")) for name in names.split()]
    return parts[0][1] if len(parts) == 1 else _JOINED.format(parts=parts)


def commands(plugins: Iterable[Loaded]) -> list[tuple[Plugin, Command]]:
    """Return every command of the loaded plugins with its plugin."""
    return [(one.plugin, command) for one in plugins if one.plugin for command in one.plugin.commands]
