"""The injection itself: map memory, borrow a thread for one call, be sure that it went back.

  stop 1   frames go on the thread's own stack below the red zone: two mmap calls, chained by signal frames
  between  stubs and payload are written into the new mappings; nobody is stopped
  stop 2   pthread_create or Py_AddPendingCall is called on our own stack
  after    the result word is polled; a call that hangs is abandoned, and the thread restores itself

The order of the words in this file is the promise: this process may be killed between any two instructions.
"""

from __future__ import annotations

import os
import time

from ascend_tui.inject import area as areas
from ascend_tui.inject import choose, guards, memory, stubs
from ascend_tui.inject.entry import Shutdown, check_shadow_stack, lock
from ascend_tui.inject.errors import InjectError, RetryError
from ascend_tui.inject.frames import RED_ZONE, this_arch
from ascend_tui.inject.ptrace import StoppedThread, wait_until
from ascend_tui.inject.request import Outlook, Report, Request

PROT_RW, PROT_RX = 3, 5
GUARD_S = 2.0
MAP_TIMEOUT_S = 2.0
ABANDON_TIMEOUT_S, RESCUE_TIMEOUT_S = 2.0, 0.01
LOOKS = 20  # so often a dry run looks for an idle thread
STACK_MARGIN = 8192
AUTO_TURNS = 12  # after so many threads that could not be borrowed, `auto` stops looking for an idle one
PATIENT_LOOKS = 20  # so often `thread` waits for another thread to be idle before it borrows a waiting main
CALLS = {"thread": "pthread_create", "pending": "Py_AddPendingCall"}
AREA_TOKEN = b"@AREA@"
AREA_LITERAL_SIZE = 96


class Injector:
    """One injection into one process; `run` does it, `close` releases what was opened.

    Raises InjectError with the code of a refusal. Whatever it raises, the target runs on as it was.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._pid = request.pid
        self._arch = this_arch()
        check_shadow_stack(request.pid)
        self._lock = lock(request.pid)
        self._memory = memory.Memory(request.pid)
        self._maps = memory.read_maps(request.pid)
        self._functions = memory.find_functions(self._memory, self._maps)
        self._shutdown = Shutdown(self._memory, self._maps, request.python)
        self._restorer = self._code(self._arch.restorer_code, self._arch.restorer_in_vdso)
        self._gadget = self._code(self._arch.syscall_code, False)
        tokens = request.payload.count(AREA_TOKEN)
        self._payload_size = len(request.payload) + AREA_LITERAL_SIZE * tokens
        self._stops_ms: list[float] = []

    def close(self) -> None:
        """Release the lock and the memory descriptor."""
        self._memory.close()
        os.close(self._lock)

    def run(self) -> Report:
        """Inject the payload; returns when the borrowed thread has its call behind it."""
        rescued = self.rescue()
        end = time.monotonic() + self._request.timeout_s
        area: areas.Area | None = self._reusable()
        last: InjectError | None = None
        turn = looks = 0
        while time.monotonic() < end:
            choice = self._choose(turn, looks)
            looks += 1
            if not choice.candidates:
                last = RetryError("no thread is idle")
                continue
            candidate = choice.candidates[turn % len(choice.candidates)]
            turn += 1
            try:
                if choice.method == "pending":
                    self._shutdown.check()
                if area is None:
                    area = self._make_area(candidate)
                self._fill(area, choice.method)
                self._back_in_its_wait(candidate)
                self._borrow(area, candidate, choice.method)
            except RetryError as error:
                last = error
                time.sleep(0.002)
                self._maps = memory.read_maps(self._pid)
                continue
            stops = tuple(round(stop, 3) for stop in self._stops_ms)
            tid, is_main, _ = candidate
            return Report(choice.method, choice.reason, tid, is_main, stops, area, rescued)
        raise last or InjectError("no_usable_thread", "no time left")

    def look(self) -> Outlook:
        """Say what `run` would do now; nothing is stopped and nothing written.

        Raises InjectError with what would stop it.
        """
        self._check_identity()
        for _ in range(LOOKS):
            idle = self._idle()
            # A main thread in a wait is spared for a while, and then taken, as `run` does it.
            choice = self._choice(self._request.method, idle, not _only_main(idle))
            if choice.candidates:
                break
        else:
            raise InjectError("no_usable_thread", "no thread is idle")
        if choice.method == "pending":
            self._shutdown.check()
        # Which of the two is right for `auto` is said also when the other one was asked for.
        thread = choice if choice.method == "thread" else self._choice("auto", idle)
        area = areas.plan(0, self._payload_size)
        memory.free_range(self._maps, area.rx + area.rx_size)
        first = choice.candidates[0]
        return Outlook(
            method=choice.method,
            reason=choice.reason,
            can_thread=thread.method == "thread",
            thread=thread.reason,
            pending="the main thread waits in a native call: it would run when that returns"
            if choose.main_waits(self._pid)
            else "the main thread runs it between two lines of Python",
            tid=first.tid,
            waits_in=first.parked.call if first.parked is not None else "",
            sizes=(area.rw_size, area.rx_size),
        )

    def rescue(self) -> int:
        """Give back threads that hang in a borrowed call of an injector that died; returns how many.

        The lock on the process guarantees that this injector is not merely slow.
        """
        count = 0
        for area, header in areas.leftovers(self._memory, self._maps):
            if header.state != areas.BORROWED or header.done:
                continue
            outcome = self._abandon(area, header.tid, header.frame, RESCUE_TIMEOUT_S)
            count += outcome == "abandoned"
            if outcome == "elsewhere":
                # That injector died before the call began. Do not stop the thread again for it.
                areas.write_header(self._memory, area.rw, areas.ABANDONED, header.frame, header.tid)
        return count

    def _code(self, pattern: bytes, vdso: bool) -> int:
        address = memory.find_code(self._memory, self._maps, pattern, self._arch.code_align, vdso)
        if address is None:
            raise InjectError("no_gadget", pattern.hex())
        return address

    def _choose(self, turn: int, looks: int) -> choose.Choice:
        idle, method = self._idle(), self._request.method
        if method == "auto" and turn >= AUTO_TURNS:
            choice = self._choice("pending", idle)
            return choice._replace(reason="no idle thread could be given back exactly")
        return self._choice(method, idle, looks < PATIENT_LOOKS)

    def _idle(self) -> list[choose.Parked]:
        before = choose.snapshot(self._pid)
        time.sleep(choose.SETTLE_S)
        return choose.idle(before, choose.snapshot(self._pid))

    def _choice(self, method: str, idle: list[choose.Parked], spare_main: bool = False) -> choose.Choice:
        count = len(os.listdir(f"/proc/{self._pid}/task"))
        can_thread = "pthread_create" in self._functions
        return choose.choose(method, self._pid, self._request.python, count, idle, can_thread, spare_main)

    def _reusable(self) -> areas.Area | None:
        """Return a dead injector's area that was prepared but never used, if the payload fits.

        A used one stays: its payload may still run there, and the shim frees it when it likes.
        """
        needed = areas.plan(0, self._payload_size).rw_size
        for area, header in areas.leftovers(self._memory, self._maps):
            if header.state == areas.PREPARED and area.rw_size >= needed:
                return area
        for area in areas.shapes(self._maps):
            # One that died before it could write a header: the very size, and no byte was ever written.
            if area.rw_size == needed and areas.is_blank(self._memory, area):
                areas.write_header(self._memory, area.rw, areas.PREPARED)
                return area
        return None

    def _make_area(self, candidate: choose.Candidate) -> areas.Area:
        """Stop 1: let the thread map two ranges, at our addresses because nobody can read mmap's result."""
        size = areas.plan(0, self._payload_size)
        address = memory.free_range(self._maps, size.rx + size.rx_size)
        area = areas.plan(address, self._payload_size)
        self._check_identity()
        stopped = StoppedThread(self._memory, candidate.tid, self._arch)
        try:
            self._check_place(stopped, candidate)
            back = stopped.come_back()
            vector = stopped.vector_state()
            places = self._arch.places(stopped.registers[self._arch.sp] - RED_ZONE, 2, vector)
            self._check_stack(stopped, places.lowest)
            restorer, registers, mask = self._restorer, stopped.registers, stopped.stop.mask
            first, second = places.frames
            code_map = (area.rx, area.rx_size, PROT_RX)
            then = self._arch.mmap_call(registers, self._gadget, restorer, second, code_map)
            chain = self._arch.frame(restorer, then, mask, vector, 0)
            chain = chain.ljust(second - first, b"\0")
            chain += self._arch.frame(restorer, back, mask, vector, places.vector)
            if places.vector:
                chain = chain.ljust(places.vector - first, b"\0") + vector
            self._memory.write(first, chain, "frames")
            data_map = (area.rw, area.rw_size, PROT_RW)
            stopped.go(self._arch.mmap_call(registers, self._gadget, restorer, first, data_map))
        finally:
            self._let_go(stopped)
        both = (area.rw, area.rx)
        mapped = wait_until(lambda: all(map(self._memory.is_mapped, both)), MAP_TIMEOUT_S, "mapped")
        self._maps = memory.read_maps(self._pid)
        if not mapped or not areas.is_ours(area, self._maps):
            raise InjectError("no_memory")
        areas.write_header(self._memory, area.rw, areas.PREPARED)
        return area

    def _fill(self, area: areas.Area, method: str) -> None:
        """Write stubs and payload; nobody is stopped, nobody runs there yet."""
        function, guarded = self._functions[CALLS[method]], area.rx + guards.ENTRY_GUARD_AT
        done, ran = area.rw, area.rw + areas.RAN_AT
        kinds = stubs.X86Stubs() if self._arch.name == "x86_64" else stubs.Arm64Stubs()
        page = stubs.code_page(kinds, stubs.Addresses(guarded, done, ran, self._functions), kinds.trap)
        alive = self._functions["Py_IsInitialized"]
        page = guards.with_guards(page, alive, function, area.rx + stubs.THREAD_AT, kinds.trap)
        self._memory.write(area.rx, page, "stubs")
        literal = repr(tuple(area)).encode()
        payload = self._request.payload.replace(AREA_TOKEN, literal)
        self._memory.write(area.text, payload + b"\0", "payload")

    def _borrow(self, area: areas.Area, candidate: choose.Candidate, method: str) -> None:
        """Stop 2: let the thread call the function on our own stack, and see it return."""
        inner_tid = choose.inner_tid(self._pid, candidate.tid)
        self._check_identity()
        stopped = StoppedThread(self._memory, candidate.tid, self._arch)
        try:
            self._check_place(stopped, candidate)
            if method == "pending" and candidate.is_main:
                self._shutdown.check(stopped.registers[self._arch.sp])
            back = stopped.come_back()
            vector = stopped.vector_state()
            places = self._arch.places(area.stack_top - 64, 1, vector)
            frame = places.frames[0]
            image = self._arch.frame(self._restorer, back, stopped.stop.mask, vector, places.vector)
            if places.vector:
                image = image.ljust(places.vector - frame, b"\0") + vector
            self._memory.write(frame, image, "frame")
            areas.write_header(self._memory, area.rw, areas.BORROWED, frame, candidate.tid, inner_tid)
            args = self._arguments(area, method)
            entry = area.rx + stubs.ENTRY_AT
            call = self._arch.function_call(stopped.registers, entry, self._restorer, frame, args)
            stopped.go(call)
        finally:
            self._let_go(stopped)
        if not self._wait_done(area):
            outcome = self._abandon(area, candidate.tid, frame, ABANDON_TIMEOUT_S)
            if outcome == "abandoned":
                raise InjectError("call_stuck")
            if outcome != "returned":
                raise InjectError("call_stuck_for_good", f"thread {candidate.tid} {outcome}")
        result = areas.read_header(self._memory, area.rw).result
        if result == guards.ENDING:
            raise InjectError("ending")
        if result:
            # Not to be tried again in this area: the thread may still be on its way back through its frame.
            raise InjectError("call_failed", f"{CALLS[method]} returned {result}")

    def _arguments(self, area: areas.Area, method: str) -> tuple[int, ...]:
        if method == "thread":
            return (area.rw + areas.THREAD_SLOT_AT, 0, area.rx + guards.THREAD_GUARD_AT, area.text)
        return (area.rx + stubs.PENDING_AT, area.text)

    def _wait_done(self, area: areas.Area) -> bool:
        return wait_until(lambda: bool(areas.read_header(self._memory, area.rw).done), GUARD_S, "done")

    def _abandon(self, area: areas.Area, tid: int, frame: int, timeout_s: float) -> str:
        """Send a thread that hangs in a borrowed call back through its frame; the watchdog.

        Returns "abandoned", "returned" (after all), "elsewhere" (never seen in the call for `timeout_s`) or
        "unreachable". Never raises RetryError: trying again would write over a frame that is still needed.
        """
        outcome = "unreachable"
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self._has_thread(tid):
            if areas.read_header(self._memory, area.rw).done:
                return "returned"
            try:
                stopped = StoppedThread(self._memory, tid, self._arch)
            except RetryError:
                time.sleep(0.002)
                continue
            try:
                outcome = "elsewhere"
                if self._inside(stopped, area):
                    if areas.read_header(self._memory, area.rw).done:
                        return "returned"
                    stopped.go(self._arch.abandon(stopped.registers, self._restorer, frame))
                    areas.write_header(self._memory, area.rw, areas.ABANDONED, frame, tid)
                    return "abandoned"
            finally:
                self._let_go(stopped)
            time.sleep(0.002)
        return outcome

    def _inside(self, stopped: StoppedThread, area: areas.Area) -> bool:
        return area.rw <= stopped.registers[self._arch.sp] < area.stack_top

    def _has_thread(self, tid: int) -> bool:
        return os.path.exists(f"/proc/{self._pid}/task/{tid}")

    def _back_in_its_wait(self, candidate: choose.Candidate) -> None:
        """Wait until the thread has gone back into its wait after the first stop."""
        parked = candidate.parked
        if parked is not None:
            wait_until(lambda: _same(parked, choose.where(self._pid, parked.tid)), 0.2, "parked")

    def _check_place(self, stopped: StoppedThread, candidate: choose.Candidate) -> None:
        parked = candidate.parked
        if parked is not None and not self._arch.is_at(stopped.registers, parked.sp, parked.pc):
            raise RetryError("the thread moved")

    def _check_stack(self, stopped: StoppedThread, lowest: int) -> None:
        sp = stopped.registers[self._arch.sp]
        stack = next((m for m in self._maps if m.start <= sp < m.end and m.perms.startswith("rw")), None)
        grows = stack is not None and stack.path == "[stack]"
        if stack is None or (lowest - STACK_MARGIN < stack.start and not grows):
            raise RetryError("no room on the thread's stack")

    def _check_identity(self) -> None:
        with open(f"/proc/{self._pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        if int(fields[19]) != self._request.start_ticks:
            raise InjectError("gone")

    def _let_go(self, stopped: StoppedThread) -> None:
        stopped.drop()
        self._stops_ms.append(stopped.stopped_ms)


def _only_main(idle: list[choose.Parked]) -> bool:
    return bool(idle) and all(parked.is_main for parked in idle)


def _same(parked: choose.Parked, now: choose.Parked | None) -> bool:
    return now is not None and (now.sp, now.pc) == (parked.sp, parked.pc)
