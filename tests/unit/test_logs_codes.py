"""The dictionary of error codes: every row can be read, and says what its source says."""

from __future__ import annotations

import re

import pytest
from ascend_tui_plugins.logs.knowledge import codes, codes_numbers, codes_words


def test_numbers_of_acl_and_the_runtime() -> None:
    core = codes.acl(507035)
    assert core is not None
    assert core.says == "The vector core execution is abnormal"
    assert core.source == "torch_npu NPUErrorCodes.h"
    assert (core.kind.category, core.kind.severity, core.kind.attribution) == ("device", "fatal", "async")
    newer = codes.acl("507054")
    assert newer is not None
    assert newer.source == "CANN acl/error_codes/rt_error_codes.h"
    assert newer.kind_name == "hardware"
    assert codes.acl(507999) is None


@pytest.mark.parametrize(
    ("number", "category", "attribution"),
    [
        ("507014", "device", "async"),
        ("507044", "memory_access", "async"),
        ("507046", "timeout", "async"),
        ("507033", "device", "exact"),
        ("207001", "oom", "exact"),
        ("107002", "usage", "exact"),
        ("161002", "usage", "exact"),
        ("561112", "configuration", "exact"),
        ("107031", "usage", "exact"),
        ("507899", "other", "likely"),
    ],
)
def test_a_number_is_of_a_kind(number: str, category: str, attribution: str) -> None:
    found = codes.acl(number)
    assert found is not None
    assert (found.kind.category, found.kind.attribution) == (category, attribution)


def test_codes_of_components() -> None:
    socket = codes.cann("EI0006")
    assert socket is not None
    assert (socket.kind.category, socket.source) == ("timeout", "CANN hcomm, list of HCCL errors")
    assert codes.CONNECT_TIMEOUT in socket.kind.advice
    shape = codes.cann("EZ1001")
    assert shape is not None
    assert (shape.kind.category, shape.kind.attribution) == ("usage", "exact")
    inner = codes.cann("E29999")
    assert inner is not None
    assert (inner.says, inner.kind.is_wrapper) == ("inner error of FE", True)
    assert codes.cann("EX9999") is None
    assert codes.cann("EI0099") is None


def test_results_of_hccl_and_of_tasks() -> None:
    timeout, retry = codes.hccl(9), codes.hccl("23")
    assert timeout is not None
    assert timeout.kind.category == "timeout"
    assert retry is not None
    assert retry.says == "retry constraint"
    assert codes.hccl(99) is None
    trap, late = codes.task("0x2A"), codes.task("0x30")
    assert trap is not None
    assert trap.says == "aicpu exception"
    assert late is not None
    assert late.kind_name == "stuck"
    assert codes.task("0x711000e") is None


def test_codes_of_torch_npu() -> None:
    found = codes.torch_npu("ERR02200")
    assert found is not None
    assert found.says == "DIST: call hccl api failed"
    assert codes.torch_npu("ERR07200") is None
    assert codes.torch_npu("ERR02299") is None


def test_words_without_a_number_are_known() -> None:
    found = codes.said("The aicore execution times out. ")
    assert found is not None
    assert found.code == "507014"
    by_task = codes.said("vector core exception")
    assert by_task is not None
    assert by_task.kind.category == "device"
    assert codes.said("all is well") is None


def test_every_row_can_be_read() -> None:
    tables = (codes.acl_codes(), codes.cann_codes(), codes._results(), codes._tasks())
    rows = [code for table in tables for code in table.values()]
    assert len(rows) > 380
    for code in rows:
        assert code.kind_name in codes.KINDS, code
        assert code.says, code
        assert "|" not in code.says, code
        assert code.source


def test_no_row_is_there_twice() -> None:
    for module in (codes_numbers, codes_words):
        for name, table in vars(module).items():
            if isinstance(table, str) and "|" in table and "\n" in table and not name.startswith("__"):
                keys = [row.split("|")[0] for row in table.strip().splitlines()]
                assert len(keys) == len(set(keys)), name
                assert all(
                    re.fullmatch(r"\d{1,6}|0x[0-9a-f]{2,4}|[EW][0-9A-PZ]\d{4}", key) for key in keys
                ), name


def test_no_advice_holds_a_format_of_per_cent() -> None:
    # Catalogues read "% f" as a place.
    for kind in codes.KINDS.values():
        assert all("% " not in advice.text for advice in kind.advice)
