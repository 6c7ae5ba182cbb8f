"""Plugins of another distribution than ours, as somebody else would ship them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

NAMES = ("broken", "clumsy", "sulky", "test")

_FILES = {
    "__init__.py": """
        from ascend_tui.plugin import Command, Lease, Plugin

        HERE = __name__

        def plugin(name, collector, probe, *commands):
            return Plugin(
                name=name,
                title=name,
                collector=f"{HERE}.collectors:{collector}",
                pane=f"{HERE}.none:Pane",
                probe=f"{HERE}:{probe}",
                commands=commands,
            )

        TEST = plugin(
            "test",
            "Counting",
            "probe.py",
            Command("watch", "watch the modules", "a call per module", Lease(100000, 60.0)),
            Command("ops", "watch the operators", "a call per operator", Lease(100000, 60.0)),
        )
        CLUMSY = plugin("clumsy", "Counting", "clumsy_probe.py")
        SULKY = plugin("sulky", "Sulky", "sulky_probe.py")
    """,
    "broken.py": """
        raise RuntimeError("no luck at import")
    """,
    "collectors.py": """
        from dataclasses import dataclass

        from ascend_tui.plugin import Collector

        @dataclass(frozen=True)
        class Counts:
            records: int
            modules: int
            ops: int
            gone: bool

        class Counting(Collector):
            def __init__(self, publish):
                super().__init__(publish)
                self.counts = {}
                self.gone = set()

            def on_record(self, target, record):
                records = self.counts.get(target, (0, 0, 0))[0] + 1
                self.counts[target] = (records, record.data["modules"], record.data["ops"])

            def on_gone(self, target):
                self.gone.add(target)

            def snapshot(self, target):
                return Counts(*self.counts.get(target, (0, 0, 0)), target in self.gone)

        class Sulky(Collector):
            def on_record(self, target, record):
                raise KeyError("what it counted on")

            def snapshot(self, target):
                return None
    """,
    "probe.py": """
        def setup(api):
            counts = {"modules": 0, "ops": 0}

            def module(module, inputs, output):
                counts["modules"] += 1

            def op(func, args, kwargs, result):
                counts["ops"] += 1

            watch, ops = api.on_module(module), api.on_op(op)

            def start(hook):
                def start(arguments, steps, seconds):
                    if "refuse" in arguments:
                        api.refuse("it was asked to")
                    hook.arm(steps, seconds)
                    return dict(arguments)
                return start

            api.sample(10, lambda: dict(counts), kind="counts", key="modules")
            api.command("watch", start(watch), hooks=(watch,))
            api.command("ops", start(ops), hooks=(ops,))
    """,
    "clumsy_probe.py": """
        def setup(api):
            def fall(step):
                raise ZeroDivisionError("a probe falls in the training")
            api.on_step(fall, every=True)
    """,
    "sulky_probe.py": """
        def setup(api):
            api.sample(10, lambda: {"a": 1})
    """,
}
_METADATA = """
    Metadata-Version: 2.1
    Name: third-party-plugins
    Version: 1.0
"""
_ENTRY_POINTS = """
    [ascend_tui.plugins]
    test = third_party_plugins:TEST
    clumsy = third_party_plugins:CLUMSY
    sulky = third_party_plugins:SULKY
    broken = third_party_plugins.broken:PLUGIN
"""


def install(folder: Path) -> Path:
    """Write the distribution below `folder` as pip would; to be found, the folder belongs on the path."""
    package, info = folder / "third_party_plugins", folder / "third_party_plugins-1.0.dist-info"
    for path in (package, info):
        path.mkdir(parents=True)
    for name, text in _FILES.items():
        (package / name).write_text(dedent(text))
    (info / "METADATA").write_text(dedent(_METADATA).lstrip())
    (info / "entry_points.txt").write_text(dedent(_ENTRY_POINTS).lstrip())
    return folder
