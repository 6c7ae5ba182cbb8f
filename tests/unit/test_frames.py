"""Signal frames byte by byte: a wrong offset here is a wrong register in somebody's training."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from ascend_tui.inject import frames_aarch64 as arm
from ascend_tui.inject import frames_x86_64 as x86
from ascend_tui.inject.errors import InjectError, RetryError
from ascend_tui.inject.frames import Registers, Stop

U64 = 2**64 - 1


def x86_registers(**more: int) -> Registers:
    values = {name: 0x1000 + i for i, name in enumerate(x86.NAMES)}
    values.update(cs=0x33, ss=0x2B, orig_rax=U64, eflags=0x246)
    values.update(more)
    return values


def arm_registers(**more: int) -> Registers:
    values = {name: 0x1000 + i for i, name in enumerate(arm.NAMES)}
    values.update(pstate=0x80000000, sp=0x7FFF0000)
    values.update(more)
    return values


def stop(registers: Registers, wchan: str = "", code: bytes = b"") -> Stop:
    return Stop(registers, 0, code, wchan)


def notes(**known: bytes) -> Callable[[int], bytes | None]:
    by_number = {int(name[1:]): value for name, value in known.items()}
    return by_number.get


def xstate(size: int = 832, features: int = 7, in_use: int = 7) -> bytes:
    raw = bytearray(size)
    struct.pack_into("<Q", raw, 464, features)
    struct.pack_into("<Q", raw, 512, in_use)
    raw[576:] = b"\xaa" * (size - 576)
    return bytes(raw)


class TestX86:
    arch = x86.X86_64()

    def test_registers_survive_packing(self) -> None:
        registers = x86_registers()
        assert self.arch.unpack(self.arch.pack(registers)) == registers

    def test_32_bit_code_is_refused(self) -> None:
        with pytest.raises(InjectError) as caught:
            self.arch.unpack(self.arch.pack(x86_registers(cs=0x23)))
        assert caught.value.code == "not_64bit"

    def test_the_frame_holds_everything_at_its_offset(self) -> None:
        registers = x86_registers()
        frame = self.arch.frame(0xAAAA, registers, 0x5555, b"", 0xF000)
        assert len(frame) == 448
        assert struct.unpack_from("<QQ", frame) == (0xAAAA, 7)  # return address, uc_flags
        assert struct.unpack_from("<I", frame, 8 + 24) == (3,)  # ss_flags: invalid on purpose
        context = 8 + 40  # struct ucontext: flags, link, stack, then sigcontext
        for i, name in enumerate(x86.SIGCONTEXT):
            assert struct.unpack_from("<Q", frame, context + 8 * i) == (registers[name],), name
        assert struct.unpack_from("<HHHH", frame, context + 144) == (0x33, 0, 0, 0x2B)
        assert struct.unpack_from("<Q", frame, context + 184) == (0xF000,)  # fpstate
        assert struct.unpack_from("<Q", frame, context + 256) == (0x5555,)  # uc_sigmask

    def test_the_vector_image_has_the_markers_of_a_signal_frame(self) -> None:
        image = self.arch.vector_state(notes(n514=xstate()))
        assert len(image) == 832 + 4
        assert struct.unpack_from("<IIQI", image, 464) == (0x46505853, 836, 7, 832)
        assert struct.unpack_from("<I", image, 832) == (0x46505845,)
        assert image[576:832] == b"\xaa" * 256

    def test_amx_machines_report_more_than_a_task_may_restore(self) -> None:
        image = self.arch.vector_state(notes(n514=xstate(11008, 7 | 3 << 17)))
        assert len(image) == 2696 + 4
        assert struct.unpack_from("<IIQI", image, 464) == (0x46505853, 2700, 7, 2696)
        with pytest.raises(RetryError):
            self.arch.vector_state(notes(n514=xstate(11008, 7 | 3 << 17, 1 << 18)))

    @pytest.mark.parametrize("raw", [None, b"", bytes(512)])
    def test_without_xsave_nothing_is_done(self, raw: bytes | None) -> None:
        with pytest.raises(InjectError) as caught:
            self.arch.vector_state(lambda kind: raw)
        assert caught.value.code == "no_vector_state"

    @pytest.mark.parametrize("top", range(0x7000_0000, 0x7000_0040, 7))
    def test_places_are_aligned_ascending_and_apart(self, top: int) -> None:
        places = self.arch.places(top, 2, bytes(2700))
        first, second = places.frames
        assert first + 448 <= second
        assert second + 448 <= places.vector
        assert places.vector + 2700 <= top
        assert places.vector % 64 == 0
        assert {first % 16, second % 16} == {8}
        assert places.lowest == first

    @pytest.mark.parametrize(
        ("orig_rax", "rax", "rsi", "rdx", "wchan", "number"),
        [
            (202, -512, 0x80, 0, "", 202),  # restarts by itself
            (0, -512, 0, 0, "", 0),
            (230, -514, 1, 0, "", 230),  # clock_nanosleep, absolute
            (202, -516, 0x189, 0, "", 202),  # futex with an absolute timeout
            (219, -516, 0x189, 0, "futex_wait_queue", 202),  # restarted once before
            (7, -516, 0, 0xFFFFFFFF, "", 7),  # poll without timeout
        ],
    )
    def test_a_wait_is_repeated(
        self, orig_rax: int, rax: int, rsi: int, rdx: int, wchan: str, number: int
    ) -> None:
        registers = x86_registers(orig_rax=orig_rax, rax=rax & U64, rsi=rsi, rdx=rdx, rip=0x5002)
        settled, repeats = self.arch.settled(stop(registers, wchan))
        assert repeats
        assert (settled["rip"], settled["rax"]) == (0x5000, number)

    @pytest.mark.parametrize(
        ("orig_rax", "rsi", "rdx", "wchan"),
        [
            (35, 0, 0, "hrtimer_nanosleep"),  # relative
            (7, 0, 500, "do_sys_poll"),  # poll with a timeout
            (202, 0x80, 0, ""),  # FUTEX_WAIT: its timeout is relative
            (219, 0x189, 0, "hrtimer_nanosleep"),  # looks like a futex, is not one
            (219, 0x189, 0, "0"),
        ],
    )
    def test_a_wait_that_cannot_be_repeated_exactly_is_refused(
        self, orig_rax: int, rsi: int, rdx: int, wchan: str
    ) -> None:
        registers = x86_registers(orig_rax=orig_rax, rax=-516 & U64, rsi=rsi, rdx=rdx)
        with pytest.raises(RetryError):
            self.arch.settled(stop(registers, wchan))

    def test_a_running_thread_comes_back_as_it_was(self) -> None:
        registers = x86_registers(rax=-512 & U64)
        assert self.arch.settled(stop(registers)) == (registers, False)

    def test_redirection_leaves_the_system_call_and_clears_the_direction_flag(self) -> None:
        registers = x86_registers(orig_rax=202, eflags=0x646)
        call = self.arch.function_call(registers, 0x111, 0x222, 0x7008, (1, 2, 3, 4))
        assert [call[n] for n in ("rip", "rsp", "rdi", "rsi", "rdx", "rcx")] == [0x111, 0x7008, 1, 2, 3, 4]
        assert (call["orig_rax"], call["eflags"]) == (U64, 0x246)
        assert registers["orig_rax"] == 202
        mapping = self.arch.mmap_call(registers, 0x333, 0x222, 0x7008, (0xA000, 0x1000, 5))
        wanted = {"rip": 0x333, "rax": 9, "rdi": 0xA000, "rsi": 0x1000, "rdx": 5, "r10": 0x100022, "r8": U64}
        assert {name: mapping[name] for name in wanted} == wanted
        assert self.arch.abandon(registers, 0x222, 0x7008)["rsp"] == 0x7010


class TestAarch64:
    arch = arm.Aarch64()
    plain = bytes(range(256)) * 2 + b"SRCRPADDPADD" + b"\0" * 4  # vregs, fpsr, fpcr, reserved

    def sve(self, length: int, flags: int = 1) -> bytes:
        body = 32 * length + 17 * (length // 8)
        return struct.pack("<IIHHHH", 16 + body, 16 + body, length, length, flags, 0) + b"\x5a" * body

    def records(self, **more: bytes) -> bytes:
        return self.arch.vector_state(notes(n2=self.plain, **more))

    def test_registers_survive_packing(self) -> None:
        registers = arm_registers()
        assert self.arch.unpack(self.arch.pack(registers)) == registers
        with pytest.raises(InjectError):
            self.arch.unpack(self.arch.pack(arm_registers(pstate=0x10)))

    def test_the_frame_holds_everything_at_its_offset(self) -> None:
        registers = arm_registers()
        records = self.records()
        frame = self.arch.frame(0, registers, 0x5555, records, 0)
        assert len(frame) == 128 + 176 + 288 + 4096
        assert struct.unpack_from("<I", frame, 128 + 24) == (3,)
        assert struct.unpack_from("<Q", frame, 128 + 40) == (0x5555,)
        for i, name in enumerate(arm.NAMES):  # after fault_address
            assert struct.unpack_from("<Q", frame, 304 + 8 + 8 * i) == (registers[name],), name
        assert frame[592 : 592 + len(records)] == records

    def test_the_fpsimd_record_is_always_there(self) -> None:
        records = self.records()
        assert struct.unpack_from("<II", records) == (0x46508001, 528)
        assert records[8:16] == b"SRCRPADD"
        assert records[16:528] == self.plain[:512]
        assert records[528:] == bytes(16)

    @pytest.mark.parametrize("length", [16, 32, 64])
    def test_live_sve_state_adds_a_record(self, length: int) -> None:
        records = self.records(n1029=self.sve(length))
        magic, size, vl = struct.unpack_from("<IIH", records, 528)
        body = 32 * length + 17 * length // 8
        assert (magic, vl) == (0x53564501, length)
        assert size % 16 == 0
        assert size >= 16 + body
        assert records[544 : 544 + body] == b"\x5a" * body
        assert records[528 + size :] == bytes(16)

    def test_idle_sve_state_adds_none(self) -> None:
        assert self.records(n1029=self.sve(32, flags=0)) == self.records()

    def test_vectors_too_long_for_a_frame_are_refused(self) -> None:
        with pytest.raises(InjectError) as caught:
            self.records(n1029=self.sve(256))
        assert caught.value.code == "vector_state_too_large"

    def test_active_sme_and_gcs_are_refused(self) -> None:
        off = struct.pack("<IIHHHH", 16, 16, 32, 32, 0, 0)
        assert self.records(n1035=off, n1036=off, n1040=bytes(24)) == self.records()
        with pytest.raises(RetryError):
            self.records(n1035=self.sve(32))
        with pytest.raises(RetryError):
            self.records(n1036=struct.pack("<IIHHHH", 1040, 1040, 32, 32, 0, 0) + bytes(1024))
        with pytest.raises(InjectError) as caught:
            self.records(n1040=struct.pack("<QQQ", 1, 0, 0))
        assert caught.value.code == "shadow_stack"

    def test_places_are_aligned_ascending_and_apart(self) -> None:
        first, second = self.arch.places(0x7000_0037, 2, b"").frames
        assert (first % 16, second % 16) == (0, 0)
        assert first + arm.FRAME_SIZE <= second
        assert second + arm.FRAME_SIZE <= 0x7000_0037

    @pytest.mark.parametrize(
        ("x8", "x1", "wchan", "number"),
        [
            (98, 0x189, "", 98),
            (128, 0x189, "futex_wait", 98),
            (115, 1, "", 115),
            (73, 0, "", 73),
            (63, 0, "", 63),
        ],
    )
    def test_a_wait_is_repeated(self, x8: int, x1: int, wchan: str, number: int) -> None:
        settled, repeats = self.arch.settled(stop(arm_registers(x8=x8, x1=x1), wchan, arm.SVC))
        assert repeats
        assert settled["x8"] == number
        assert settled["pc"] == arm_registers()["pc"]

    @pytest.mark.parametrize(("x8", "x1"), [(98, 0x80), (101, 0), (115, 0), (128, 0x189), (128, 0)])
    def test_a_wait_that_cannot_be_repeated_exactly_is_refused(self, x8: int, x1: int) -> None:
        with pytest.raises(RetryError):
            self.arch.settled(stop(arm_registers(x8=x8, x1=x1), "hrtimer_nanosleep", arm.SVC))

    def test_a_running_thread_comes_back_as_it_was(self) -> None:
        registers = arm_registers(x8=101)
        assert self.arch.settled(stop(registers, "", b"\x1f\x20\x03\xd5")) == (registers, False)

    def test_calls_return_into_the_restorer_by_x30(self) -> None:
        registers = arm_registers(pstate=0x80000000 | 3 << 10 | 1 << 21)
        call = self.arch.function_call(registers, 0x111, 0x222, 0x7000, (1, 2))
        wanted = {"pc": 0x111, "x30": 0x222, "sp": 0x7000, "x0": 1, "x1": 2, "pstate": 0x80000000}
        assert {name: call[name] for name in wanted} == wanted
        mapping = self.arch.mmap_call(registers, 0x333, 0x222, 0x7000, (0xA000, 0x1000, 5))
        wanted = {"pc": 0x333, "x30": 0x222, "x8": 222, "x0": 0xA000, "x1": 0x1000, "x2": 5, "x3": 0x100022}
        assert {name: mapping[name] for name in wanted} == wanted

    def test_a_thread_that_waits_in_the_gadget_is_not_sent_there(self) -> None:
        # The kernel would take it for its own restart of that wait.
        with pytest.raises(RetryError):
            self.arch.mmap_call(arm_registers(pc=0x333), 0x333, 0x222, 0x7000, (0xA000, 0x1000, 5))

    def test_what_is_repeated_is_the_instruction_of_a_system_call(self) -> None:
        capstone = pytest.importorskip("capstone")
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
        # From Debian's glibc 2.36, the wait of a timed lock.
        wait = bytes.fromhex("e57f40b2 480c80d2 010000d4 f30300aa")
        lines = [f"{one.mnemonic} {one.op_str}" for one in engine.disasm(wait, 0x5000)]
        assert lines == ["mov x5, #0xffffffff", "mov x8, #0x62", "svc #0", "mov x19, x0"]
        for at, line in enumerate(lines):
            waiting = arm_registers(pc=0x5000 + 4 * at, x8=0x62, x1=0x189)
            settled, repeats = self.arch.settled(stop(waiting, "", wait[4 * at : 4 * at + 4]))
            assert repeats == (line == "svc #0")
            assert settled == waiting

    def test_the_stop_shows_the_rewound_pc(self) -> None:
        registers = arm_registers(pc=0x5000)
        assert self.arch.is_at(registers, registers["sp"], 0x5004)
        assert not self.arch.is_at(registers, registers["sp"], 0x5008)
        assert not self.arch.is_at(registers, registers["sp"] + 16, 0x5004)
