"""How plugins are found: by entry points, at three grains, and a broken one costs only itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ascend_tui import plugin
from ascend_tui.plugin import Message

PROBE = 'raise RuntimeError("a probe was run in the monitor")\n'

LIST = """
import json, sys
from ascend_tui import plugin
loaded = plugin.load_all()
print(json.dumps([[one.name, one.failed, one.plugin.order if one.plugin else None] for one in loaded]))
"""


class Site:
    """A folder that looks like site-packages and holds one foreign distribution."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[str] = []

    def add(self, name: str, source: str, entry: str = "") -> None:
        """Add a package `name` with an entry point that names its PLUGIN."""
        package = self.folder / name
        package.mkdir()
        (package / "__init__.py").write_text(source)
        (package / "probe.py").write_text(PROBE)
        self.entries.append(f"{entry or name} = {name}:PLUGIN")
        info = self.folder / "foreign-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{plugin.GROUP}]\n" + "\n".join(self.entries) + "\n")

    def run(self, code: str) -> str:
        """Return what `code` prints in an interpreter that has this folder on its path."""
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def good(name: str, more: str = "") -> str:
    return (
        "from ascend_tui.plugin import Plugin\n"
        f"PLUGIN = Plugin(name={name!r}, title='T', collector='{name}.c:C', pane='{name}.p:P', {more})\n"
    )


def listed(site: Site) -> dict[str, tuple[str | None, int | None]]:
    return {name: (failed, order) for name, failed, order in json.loads(site.run(LIST))}


def test_a_plugin_of_another_distribution_is_found_beside_ours(site: Site) -> None:
    site.add("thermometer", good("thermometer", "order=5"))
    found = listed(site)
    assert found["thermometer"] == (None, 5)
    assert found["memory"][0] is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise OSError('no such library')", "OSError: no such library"),
        ("import a_module_that_is_not_there", "ModuleNotFoundError"),
        ("def", "SyntaxError"),
        ("PLUGIN = 7", "not an ascend_tui.plugin.Plugin"),
        ("x = 7", "AttributeError"),
        (good("thermometer", "api_version=99"), "written for plugin API 99, this is API 1"),
        (good("barometer"), "the entry point is named 'thermometer', its plugin 'barometer'"),
    ],
)
def test_a_broken_one_is_kept_as_failed_and_the_others_live(site: Site, source: str, reason: str) -> None:
    site.add("thermometer", source)
    found = listed(site)
    failed, order = found["thermometer"]
    assert failed is not None
    assert reason in failed
    assert order is None
    assert found["memory"][0] is None


def test_panes_come_in_their_order_and_broken_ones_last(site: Site) -> None:
    site.add("zulu", good("zulu", "order=1"))
    site.add("alpha", "raise OSError()")
    site.add("kilo", good("kilo", "order=999"))
    names = [name for name, _, _ in json.loads(site.run(LIST))]
    assert names[0] == "zulu"
    assert names[-2:] == ["kilo", "alpha"]


def test_names_imports_nothing(site: Site) -> None:
    site.add("thermometer", "raise OSError('imported')")
    printed = site.run(
        "import sys; from ascend_tui import plugin; print(plugin.names());"
        "print([m for m in sys.modules if m.startswith(('ascend_tui_plugins', 'thermometer'))])"
    )
    names, imported = printed.splitlines()
    assert "thermometer" in names
    assert "memory" in names
    assert imported == "[]"


def test_one_by_name_leaves_the_others_alone(site: Site) -> None:
    site.add("broken", "raise OSError('imported')")
    site.add("thermometer", good("thermometer"))
    assert site.run("from ascend_tui import plugin; print(plugin.load('thermometer').title)") == "T\n"


def test_the_probe_is_read_and_never_run(site: Site) -> None:
    site.add("thermometer", good("thermometer", "probe='thermometer:probe.py'"))
    printed = site.run(
        "import sys; from ascend_tui import plugin;"
        "print(plugin.probe_text(plugin.load('thermometer')), end='');"
        "print('thermometer.probe' in sys.modules)"
    )
    assert printed == PROBE + "False\n"


def test_a_name_that_is_not_installed_says_what_is() -> None:
    with pytest.raises(LookupError, match=r"no plugin named 'sonar'; installed: .*memory"):
        plugin.load("sonar")


def test_every_plugin_of_the_tree_loads_with_its_probe() -> None:
    for loaded in plugin.load_all():
        assert loaded.failed is None
        assert loaded.plugin is not None
        assert issubclass(plugin.resolve(loaded.plugin.collector), plugin.Collector)
        if loaded.plugin.probe is not None:
            assert "def setup(api)" in (plugin.probe_text(loaded.plugin) or "")


def test_hotkeys_and_orders_do_not_collide() -> None:
    loaded = [one for one in plugin.load_all() if one.plugin]
    hotkeys = [command.hotkey for _, command in plugin.commands(loaded) if command.hotkey]
    assert len(hotkeys) == len(set(hotkeys))
    orders = [one.plugin.order for one in loaded if one.plugin]
    assert len(orders) == len(set(orders))


def test_a_message_renders_english_and_through_a_catalogue() -> None:
    message = Message.of("{count} steps of {name}", count=3, name="mlp")
    assert message.render() == "3 steps of mlp"
    assert message.render(lambda text: {"{count} steps of {name}": "{name}: {count} 步"}[text]) == "mlp: 3 步"
    assert Message.of("a", x=1) == Message.of("a", x=1)


# The example in CONTRIBUTING.md, word for word.

DRIVE = """
import json, sys
from ascend_tui import plugin
from ascend_tui.frame import TargetStatus, as_json
from ascend_tui.plugin import Loaded, Record
from ascend_tui.target import TargetId

described = plugin.load("threads")
here = TargetId(1, 2)
events = []
collector = plugin.resolve(described.collector)(events.append)
before = as_json(collector.snapshot(here))

sampled = []
class Api:
    def sample(self, hz, call, kind="sample", key=None):
        sampled.append((kind, key, call()))

space = {}
exec(plugin.probe_text(described), space)
space["setup"](Api())
for seq, count in enumerate([10, "many", 50, 111, 112]):
    collector.on_record(here, Record(seq, "threads", "count", 7, 1.0, 1.0, {"threads": count}))
snapshot = collector.snapshot(here)
pane = plugin.resolve(described.pane)(1, Loaded("threads", described))
print(json.dumps({
    "before": before,
    "sampled": sampled,
    "after": as_json(snapshot),
    "alerts": [as_json(event) for event in events],
    "summary": pane.summary(snapshot),
}))
"""


def test_the_example_in_the_documents_works_as_it_stands(site: Site, root: Path) -> None:
    text = (root / "CONTRIBUTING.md").read_text("utf-8")
    found = re.findall(r"<!-- example: (\S+) -->\n```python\n(.*?)```", text, re.S)
    examples = dict(found)
    assert set(examples) == {"__init__.py", "probe.py", "collector.py", "pane.py"}
    site.add("ascend_tui_threads", examples["__init__.py"], entry="threads")
    for name, source in examples.items():
        (site.folder / "ascend_tui_threads" / name).write_text(source)
    out = json.loads(site.run(DRIVE))
    assert out["before"]["state"] == "waiting"
    assert out["sampled"] == [["count", "threads", {"threads": 1}]]
    assert out["after"] == {"state": "live", "threads": 112, "first": 10}
    assert [alert["headline"] for alert in out["alerts"]] == ["111 threads, 10 at first"]
    assert out["summary"] == "112 threads, 10 at first"
