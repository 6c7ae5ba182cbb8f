"""Which thread is borrowed and how: decided from lines of /proc/PID/task/TID/syscall."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ascend_tui.inject.choose import Choice, Parked, choose, idle, parse

PID = 100
TAIL = "0x0 0x0 0x0 0x7ffc00001000 0x7f0000002000"


def line(number: int, first: int = 1, operation: int = 0) -> str:
    return f"{number} {first:#x} {operation:#x} 0x0 {TAIL}"


def parked(tid: int, number: int = 7, operation: int = 0) -> Parked:
    found = parse(tid, tid == PID, line(number, operation=operation), "x86_64")
    assert found is not None
    return found


def decide(
    method: str, threads: Iterable[Parked], count: int = 4, python: str = "3.11", can_thread: bool = True
) -> Choice:
    by_tid = {thread.tid: thread for thread in threads}
    return choose(method, PID, python, count, idle(by_tid, by_tid), can_thread)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (line(202, operation=0x189), "futex"),  # FUTEX_WAIT_BITSET | PRIVATE | CLOCK_REALTIME
        (line(202, operation=0x80), None),  # FUTEX_WAIT: may be a waiter inside a libc lock
        (line(219, operation=0x89), "restart_syscall"),
        (line(219, operation=0x80), None),
        (line(7), "poll"),
        (line(0), "read"),
        (line(230), "clock_nanosleep"),
        (line(232), None),  # epoll_wait: any stop makes it return EINTR
        (line(281), None),  # epoll_pwait
        (line(65), None),  # semop
        (line(128), None),  # rt_sigtimedwait
        (line(9), None),  # mmap: may hold the allocator's lock
        ("running", None),
        ("-1 0x7ffc00001000 0x7f0000002000", None),
        ("", None),
    ],
)
def test_only_idle_calls_count(text: str, call: str | None) -> None:
    found = parse(5, False, text, "x86_64")
    assert (found.call if found else None) == call


def test_numbers_belong_to_a_machine() -> None:
    futex = parse(5, False, line(98, operation=0x89), "aarch64")
    assert futex is not None
    assert (futex.call, futex.sp, futex.pc) == ("futex", 0x7FFC00001000, 0x7F0000002000)
    assert parse(5, False, line(98, operation=0x89), "x86_64") is None
    assert parse(5, False, line(22), "aarch64") is None  # epoll_pwait


def test_a_thread_that_moved_is_not_idle() -> None:
    before = {1: parked(1), 2: parked(2)}
    after = {1: parked(1), 2: parked(2)._replace(sp=4), 3: parked(3)}
    assert [thread.tid for thread in idle(before, after)] == [1]


def test_futex_first_and_main_last() -> None:
    threads = [parked(PID, 202, 0x89), parked(103, 7), parked(102, 202, 0x89), parked(101, 0)]
    by_tid = {thread.tid: thread for thread in threads}
    assert [thread.tid for thread in idle(by_tid, by_tid)] == [102, 103, 101, PID]


def test_auto_takes_an_idle_thread_but_not_main() -> None:
    choice = decide("auto", [parked(PID), parked(101)])
    assert choice.method == "thread"
    assert [candidate.tid for candidate in choice.candidates] == [101]


@pytest.mark.parametrize(
    ("threads", "count", "can_thread", "why"),
    [
        ([], 4, True, "no thread other than the main one is idle"),
        ([parked(PID)], 4, True, "no thread other than the main one is idle"),
        ([parked(PID)], 1, True, "the process has one thread"),
        ([parked(101)], 4, False, "pthread_create was not found"),
    ],
)
def test_auto_falls_back_and_says_why(threads: list[Parked], count: int, can_thread: bool, why: str) -> None:
    choice = decide("auto", threads, count, can_thread=can_thread)
    assert choice.method == "pending"
    assert why in choice.reason
    assert choice.candidates


def test_a_main_thread_is_borrowed_for_a_thread_only_when_asked_and_alone() -> None:
    choice = decide("thread", [parked(PID)])
    assert [candidate.tid for candidate in choice.candidates] == [PID]
    assert "only the main thread is idle" in choice.reason
    assert decide("thread", []).candidates == ()
    assert choose("thread", PID, "3.11", 4, [parked(PID)], True, spare_main=True).candidates == ()
    assert decide("thread", [parked(101)], can_thread=False).candidates == ()


def test_pending_takes_a_running_main_wherever_it_is() -> None:
    first = decide("pending", [parked(101)]).candidates[0]
    assert (first.tid, first.parked) == (PID, None)


def test_pending_spares_a_waiting_main() -> None:
    candidates = decide("pending", [parked(PID), parked(101)]).candidates
    assert [candidate.tid for candidate in candidates] == [101, PID]


def test_pending_in_3_8_takes_only_main_because_only_of_it_its_end_is_known() -> None:
    for threads in ([parked(101)], [parked(PID), parked(101)]):
        assert [candidate.tid for candidate in decide("pending", threads, python="3.8").candidates] == [PID]


@pytest.mark.parametrize("python", ["3.9", "3.10"])
def test_pending_needs_main_where_other_threads_do_not_wake_it(python: str) -> None:
    assert decide("pending", [parked(PID), parked(101)], python=python).candidates[0].tid == PID
