"""`ascend-tui inspect`: every file gives an object or a sentence, and exit codes a script can trust."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ascend_tui import inspect, plugin
from ascend_tui.cli import main
from ascend_tui.commands import FINDINGS, OK, USAGE
from ascend_tui.inspect import Digest, Inspected, severity
from ascend_tui.plugin import Loaded, Plugin

CORPUS = Path(__file__).parent.parent / "corpus"
LEAK = CORPUS / "memory" / "leak_and_flat_runs.csv"
STEADY = CORPUS / "memory" / "memory_record_flat.csv"
FULL = CORPUS / "logs" / "npu_full.log"
CARDS = CORPUS / "npu_smi" / "two_dies_no_processes_of_one.txt"


class Done:
    """What a call of the command left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    def call(*words: object) -> Done:
        code = main(["inspect", *map(str, words)])
        out, err = capfdbinary.readouterr()
        return Done(code, out.decode(), err.decode())

    return call


def test_one_file_is_one_object_with_the_promised_keys(run: Any) -> None:
    done = run(LEAK, "--json")
    (one,) = done.objects
    assert (done.code, done.err) == (OK, "")
    assert list(one) == ["schema", "file", "kind", "plugin", "result"]
    assert (one["schema"], one["kind"], one["plugin"]) == ("ascend-tui/1", "memory_series", "memory")
    assert one["file"] == str(LEAK)
    assert set(one["result"]["verdict"]) >= {"kind", "confidence", "since_step", "reason"}


def test_an_incident_and_a_finding_have_the_promised_keys(run: Any) -> None:
    promised = {"severity", "category", "headline", "step", "ranks", "count", "attribution"}
    (log,) = run(FULL, "--json").objects
    assert log["kind"] == "log"
    assert promised <= set(log["result"]["incidents"][0])
    (smi,) = run(CARDS, "--json").objects
    assert smi["kind"] == "npu_smi"
    assert promised <= set(smi["result"]["findings"][0])
    device = smi["result"]["devices"][1]
    assert {"index", "name", "health", "hbm_used_mib", "hbm_total_mib", "power_w", "processes"} <= set(device)


def test_several_files_end_with_one_object_that_folds_them(run: Any) -> None:
    done = run(CORPUS / "memory", FULL, CARDS, "--json")
    digest = done.objects[-1]
    assert digest["kind"] == "digest"
    assert digest["files"] == len(done.objects) - 1
    assert digest["kinds"]["log"] == 1
    assert digest["verdicts"]["leak"] >= 4
    assert digest["severities"]["error"] >= 6
    assert {one["category"] for one in digest["incidents"]} == {"oom", "device", "usage"}


def test_text_is_for_people(run: Any) -> None:
    done = run(LEAK, FULL, CARDS)
    assert f"{LEAK}: memory series, leak (sure, " in done.out
    assert "a step, all the time" in done.out
    assert "error oom: device 2 out of memory: it is full" in done.out
    assert (
        "device 7 (NPU 3 chip 1): Ascend910 Alarm, 51,200 of 65,536 MiB, 51 °C, NA, 2 processes" in done.out
    )
    assert "in all: 3 files, 1 leak" in done.out


@pytest.mark.parametrize(
    ("file", "level", "code"),
    [
        (LEAK, "error", FINDINGS),
        (LEAK, "fatal", OK),
        (STEADY, "warning", OK),
        (STEADY, "info", FINDINGS),
        (FULL, "error", FINDINGS),
        (CARDS, "warning", FINDINGS),
        (CORPUS / "memory" / "workspace_once.txt", "warning", FINDINGS),
        (CORPUS / "memory" / "workspace_once.txt", "error", OK),
    ],
)
def test_fail_on_is_for_scripts(run: Any, file: Path, level: str, code: int) -> None:
    assert run(file, "--json", "--fail-on", level).code == code


# What cannot be read.


def test_a_file_that_is_not_there_is_a_sentence_and_loses_nothing(run: Any, tmp_path: Path) -> None:
    done = run(tmp_path / "gone.csv", LEAK, "--json")
    assert done.code == USAGE
    assert [one["kind"] for one in done.objects] == ["memory_series", "digest"]
    assert "gone.csv cannot be read: No such file or directory" in done.err


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.mkdir(), "holds no file"),
        (lambda path: path.symlink_to(path.parent / "nowhere"), "is a link that leads nowhere"),
        (lambda path: path.symlink_to(path), "is a link that leads nowhere"),
        (os.mkfifo, "is neither a file nor a folder"),
        (lambda path: path.write_bytes(bytes(range(256)) * 40), "is nothing that an installed plugin reads"),
        (lambda path: path.write_text("a text of no kind\n"), "is nothing that an installed plugin reads"),
    ],
)
def test_what_is_no_file_for_us_says_why(run: Any, tmp_path: Path, make: Any, words: str) -> None:
    path = tmp_path / "thing"
    make(path)
    done = run(path, "--json")
    assert (done.code, done.out) == (USAGE, "")
    assert words in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_says_so(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "secret.csv"
    path.write_bytes(LEAK.read_bytes())
    path.chmod(0)
    done = run(path, "--json")
    assert done.code == USAGE
    assert "cannot be read: Permission denied" in done.err


def test_a_folder_may_hold_anything(run: Any, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "series.csv").write_bytes(LEAK.read_bytes())
    (tmp_path / "a.bin").write_bytes(b"\x00\x01\x02")
    (tmp_path / "circle").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    done = run(tmp_path, "--json")
    assert done.code == OK
    assert [one.get("file") for one in done.objects[:-1]] == [str(tmp_path / "b" / "series.csv")]
    assert "a.bin is nothing" in done.err
    assert f"{tmp_path / 'a.bin'}: unknown" in run(tmp_path).out


def test_an_error_at_the_end_of_a_long_log_is_found(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(b"INFO nothing to see here\n" * 100_000 + FULL.read_bytes())
    (one,) = run(path, "--json").objects
    assert one["kind"] == "log"
    assert one["result"]["incidents"][0]["line"] == 100_002


def test_a_name_that_is_no_text_is_printed_all_the_same(run: Any, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\x1b[31m.csv"
    Path(os.fsdecode(path)).write_bytes(LEAK.read_bytes())
    assert json.loads(run(os.fsdecode(path), "--json").out)["kind"] == "memory_series"
    assert "\x1b" not in run(os.fsdecode(path)).out


def test_the_command_works_as_a_command() -> None:
    code = "import sys; from ascend_tui.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(LEAK), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == OK, done.stderr
    assert json.loads(done.stdout)["result"]["verdict"]["kind"] == "leak"


# Plugins of others.


def bad_sniff(head: bytes, name: str) -> str:
    raise RuntimeError("cannot smell")


def good_sniff(head: bytes, name: str) -> str:
    return "log"


class BadReader:
    """A collector whose reader fails."""

    def __init__(self, publish: Any) -> None:
        self.publish = publish

    def configure(self, settings: Any) -> None:
        """Need none."""

    def read(self, path: Path) -> Any:
        raise RuntimeError("cannot read")


def a_plugin(name: str, sniff: str, collector: str = "") -> Loaded:
    return Loaded(name, plugin=Plugin(name=name, title=name, collector=collector, pane="", sniff=sniff))


def test_a_plugin_that_fails_costs_only_its_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    broken = a_plugin("broken", f"{here}:bad_sniff")
    absent = a_plugin("absent", "no_such_module_at_all:sniff")
    real = plugin.load_all()
    monkeypatch.setattr(plugin, "load_all", lambda: [broken, absent, *real])
    (one,) = inspect.inspect([LEAK])
    assert one.kind == "memory_series"
    monkeypatch.setattr(plugin, "load_all", lambda: [broken])
    (one,) = inspect.inspect([LEAK])
    assert one.trouble == "the plugin broken failed: RuntimeError: cannot smell"
    monkeypatch.setattr(
        plugin, "load_all", lambda: [a_plugin("bad", f"{here}:good_sniff", f"{here}:BadReader")]
    )
    (one,) = inspect.inspect([LEAK])
    assert one.trouble == "the plugin bad failed: RuntimeError: cannot read"


def test_a_digest_folds_what_differs_by_numbers_only() -> None:
    digest = Digest()
    for rank in range(3):
        item = {
            "severity": "error",
            "category": "oom",
            "headline": f"device {rank} full",
            "ranks": [rank],
            "count": 2,
        }
        digest.add(Inspected(f"rank{rank}.log", "log", "memory", {"incidents": [item]}))
    digest.add(Inspected("x", trouble="is empty"))
    (folded,) = digest.as_json()["incidents"]
    assert (folded["count"], folded["ranks"], folded["files"]) == (6, [0, 1, 2], 3)
    assert digest.as_json()["unreadable"] == 1


@pytest.mark.parametrize(
    ("result", "worst"),
    [
        (None, None),
        ({}, None),
        ("text", None),
        ({"verdict": {"kind": "leak"}}, "error"),
        ({"verdict": {"kind": "cache"}}, "info"),
        ({"verdict": {"kind": "steady"}, "findings": [{"severity": "warning"}]}, "warning"),
        ({"incidents": [{"severity": "fatal"}, {"severity": "?"}, 5]}, "fatal"),
        ({"incidents": None, "verdict": "?"}, None),
    ],
)
def test_how_grave_a_result_is(result: Any, worst: str | None) -> None:
    assert severity(result) == worst
