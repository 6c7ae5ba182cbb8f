"""What the fault `logs` writes into the log of the demo's training, and what it plants for that.

The numbers are those of the training.  What goes wrong is planted, and then real: the loss of some steps is
made infinite, one gradient NaN, a checkpoint goes into a folder that is not there.  Only the data loader's
warnings and the device's log are words alone; a real fault of a device would end the training.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TELL_EVERY = 10
EPOCH_STEPS = 500
# By step: the loss is infinite for so many steps, again and again, with time to recover in between.
OVERFLOW_AT, OVERFLOW_STEPS, OVERFLOW_EVERY = 31, 9, 400
NAN_AT = 90
SAVE_EVERY, SAVE_TRIES, SAVE_RETRY_STEPS = 75, 3, 5
WARN_AT, WARN_STEPS, WARN_EVERY, WARNINGS_A_STEP = 50, 15, 300, 4
DEVICE_AT = (65, 265)
PLOG = (
    (
        "stars_engine.cc:1587",
        "ProcLogicCqReport:Task run failed, device_id=0, stream_id={stream}, task_id={task}, "
        "sqe_type=0(ffts), errType=0x1(task exception), sqSwStatus=0",
    ),
    (
        "device_error_core_proc.cc:1204",
        "PrintCoreInfo:An error occurs on the device(chipId:0, dieId:0), the serial number is {serial}, "
        "the error is aicore error, core id is {core}, error code = 0, dump info: pc start: 0x124080000000, "
        "current: 0x124080000640, vec error info: 0x1900000042, mte error info: 0x3060{core:02x}, "
        "ifu error info: 0x22c0{core:02x}, ccu error info: 0x4b{core:02x}",
    ),
    (
        "device_error_core_proc.cc:1219",
        "PrintCoreInfo:The extend info: errcode:(0, 0x800000, 0) errorStr: The DDR address of the MTE "
        "instruction is out of range. fixp_error0 info: 0x{task:x}, fixp_error1 info: 0x8a, fsmId:1, "
        "tslot:2, thread:0, ctxid:0, blk:{core}, sublk:0, subErrType:4.",
    ),
    (
        "davinci_kernel_task.cc:1011",
        "PreCheckTaskErr:An error occurred in the kernel task, retCode=0x26, [aicore exception].",
    ),
    (
        "davinci_kernel_task.cc:948",
        "PrintErrorInfoForDavinciTask:[DFX_INFO]AI Core kernel execution failed, device_id=0, "
        "stream_id={stream}, report_stream_id={stream}, task_id={task}, flip_num=0, fault "
        "kernel_name=LayerNormGrad_demo_planted, fault kernel info ext=none, program id=3, "
        "hash=8177420{task}.",
    ),
    (
        "api_c_stream.cc:161",
        "rtStreamSynchronize:ErrCode=507015, desc=[aicore exception], InnerCode=0x7150026",
    ),
)
"""File and text of each line, as CANN's runtime writes them of an exception in an AI core."""


class PlantedLogs:
    """The log of one training; called at four places of its loop."""

    def __init__(self, folder: Path, device: str, parameters: list[Any], clip: Callable[..., Any]) -> None:
        self.folder, self.device = folder, device
        self.parameters, self.clip = parameters, clip
        self.step, self.scale, self.norm = 0, math.inf, 0.0
        self.saving: list[int] = []
        self.saved = 0
        self.is_bad_gradient = False
        handler = logging.FileHandler(folder / "train.log")
        handler.setFormatter(logging.Formatter("%(asctime)s - %(levelname)s - %(name)s - %(message)s"))
        self.log = logging.getLogger("trainer")
        self.log.setLevel(logging.INFO)
        self.log.addHandler(handler)
        warnings.simplefilter("always", UserWarning)
        parameters[-1].register_hook(self.spoil_gradient)
        self.log.info("***** Running training *****")
        self.log.info("  Number of parameters = %d", sum(one.numel() for one in parameters))

    def spoil_gradient(self, gradient: Any) -> Any:
        """Make one gradient NaN, in one step."""
        return gradient * math.nan if self.is_bad_gradient else gradient

    def spoil_loss(self, loss: Any) -> Any:
        """Begin a step; return its loss, infinite where that is planted."""
        self.step += 1
        self.is_bad_gradient = self.step == NAN_AT
        since = (self.step - OVERFLOW_AT) % OVERFLOW_EVERY
        return loss * math.inf if self.step >= OVERFLOW_AT and since < OVERFLOW_STEPS else loss

    def clip_gradients(self) -> None:
        """Clip the gradients, and keep their norm."""
        self.norm = self.clip(self.parameters, 1.0)

    def end_step(self, loss: Any, rate: float, scale: float) -> None:
        """Write what a training writes at the end of a step."""
        if scale < self.scale < math.inf:
            words = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to %s"
            self.log.warning(words, scale)
        self.scale = scale
        if self.step % TELL_EVERY == 0:
            told = {
                "loss": round(float(loss.detach()), 4),
                "grad_norm": round(float(self.norm), 4),
                "learning_rate": rate,
                "loss_scale": scale,
                "step": self.step,
                "epoch": round(self.step / EPOCH_STEPS, 2),
            }
            self.log.info("%s", told)
            # Nobody reads this pipe: it is what a tee is for.
            sys.stdout.write(f"epoch {self.step // EPOCH_STEPS}, {self.step} steps done\n")
            sys.stdout.flush()
        self.save()
        self.warn()
        if self.step in DEVICE_AT and self.device.startswith("npu"):
            self.write_plog()

    def save(self) -> None:
        """Save now and then; its folder is made only when it has failed twice."""
        if self.step % SAVE_EVERY == 0:
            self.saving = [self.step + number * SAVE_RETRY_STEPS for number in range(SAVE_TRIES)]
            self.saved = self.step
        if self.step not in self.saving:
            return
        attempt = self.saving.index(self.step) + 1
        path = self.folder / f"checkpoint-{self.saved}" / "trainer_state.json"
        if attempt == SAVE_TRIES:
            path.parent.mkdir()
        try:
            write_state(path, self.step)
        except OSError:
            # The exception is real: the folder is not there.
            self.log.exception(
                "saving checkpoint-%d failed (attempt %d of %d), trying again",
                self.saved,
                attempt,
                SAVE_TRIES,
            )
        else:
            self.log.info("saved checkpoint-%d", self.saved)

    def warn(self) -> None:
        """Warn as an image library does of damaged files, often for a while."""
        since = (self.step - WARN_AT) % WARN_EVERY
        if self.step < WARN_AT or since >= WARN_STEPS:
            return
        for number in range(WARNINGS_A_STEP):
            wanted, got = 4 + 8 * number, (7 * self.step + number) % 4
            words = f"Corrupt EXIF data.  Expecting to read {wanted} bytes but only got {got}."
            warnings.warn(words, UserWarning, stacklevel=2)

    def write_plog(self) -> None:
        """Write a fault of the device where CANN would have written it.

        The simulated CANN has a log too, but writes into it only what really fails, which ends a training.
        """
        root = os.environ.get("ASCEND_PROCESS_LOG_PATH")
        if not root:
            return
        folder = Path(root) / "debug" / "plog"
        folder.mkdir(parents=True, exist_ok=True)
        number, at_s, pid = DEVICE_AT.index(self.step), time.time(), os.getpid()
        values = {
            "stream": 2 + 9 * number,
            "task": 31 + self.step,
            "serial": 1 + number,
            "core": 5 + 12 * number,
        }
        with log_of_device(folder, pid, at_s).open("a") as file:
            for place, text in PLOG:
                head = f"[ERROR] RUNTIME({pid},python):{stamp(at_s)} [{place}]{pid + 1}"
                file.write(f"{head} {text.format(**values)}\n")


def write_state(path: Path, step: int) -> None:
    """Write the state of the trainer.  Raises OSError where that cannot be."""
    with path.open("w") as file:
        file.write(f'{{"global_step": {step}}}\n')


def stamp(at_s: float) -> str:
    """Return a time as CANN writes it."""
    micros = int(at_s * 1e6) % 1_000_000
    day = time.strftime("%Y-%m-%d-%H:%M:%S", time.localtime(at_s))
    return f"{day}.{micros // 1000:03d}.{micros % 1000:03d}"


def log_of_device(folder: Path, pid: int, at_s: float) -> Path:
    """Return the process's log: the one that is there, else one with the time in its name."""
    there = sorted(folder.glob(f"plog-{pid}_*.log"))
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(at_s)) + f"{int(at_s * 1e3) % 1000:03d}"
    return there[-1] if there else folder / f"plog-{pid}_{name}.log"
