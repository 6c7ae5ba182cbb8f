"""Healthy trainings, by what they print: one writer for the metric lines of each framework."""

# ruff: noqa: E501 - the lines are as long as those that they are made like
from __future__ import annotations

import math
import random
from collections.abc import Callable


class Run:
    """One healthy training: its step, its loss and what else it prints, with noise."""

    def __init__(self, seed: int, every: int = 1) -> None:
        self.chooser = random.Random(seed)
        self.every = every
        self.step = 0
        self.first = self.chooser.uniform(1.5, 11)
        self.floor = self.first * self.chooser.uniform(0.1, 0.5)
        self.tau = self.chooser.uniform(500, 20000)
        self.noise = self.chooser.uniform(0.005, 0.05)
        self.scale = 65536.0
        self.total = self.chooser.choice((5000, 50_000, 400_000, 4_000_000))
        self.seconds = self.chooser.randrange(10**6)
        self._wobbles = [self.chooser.gauss(0, 1) for _ in range(4093)]

    def next(self) -> None:
        """Go on to the next step that is printed."""
        self.step += self.every
        self.seconds += 1

    def wobble(self, number: int) -> float:
        """Return noise, another one at each step and for each `number`."""
        return self._wobbles[(self.step * 31 + number * 977) % 4093]

    @property
    def loss(self) -> float:
        ideal = self.floor + (self.first - self.floor) * math.exp(-self.step / self.tau)
        return ideal * (1 + self.noise * self.wobble(1))

    @property
    def norm(self) -> float:
        return 0.6 * math.exp(0.35 * self.wobble(2)) + 4 * math.exp(-self.step / 300)

    @property
    def rate(self) -> float:
        warm = min(1.0, self.step / 2000)
        return 3e-4 * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, self.step / self.total)))

    @property
    def stamp(self) -> str:
        at = self.seconds % 86400
        day = 1 + self.seconds // 86400 % 28
        return f"2031-03-{day:02d} {at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}"


def megatron(run: Run) -> str:
    line = (
        f" iteration {run.step:8d}/ {run.total:7d} | consumed samples: {run.step * 64:12d} | elapsed time per iteration"
        f" (ms): {7600 + 90 * run.wobble(3):.1f} | learning rate: {run.rate:.6E} | global batch size:    64 | lm loss:"
        f" {run.loss:.6E} | loss scale: 1.0 | grad norm: {run.norm:.3f} | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |"
    )
    if run.step // run.every % 500 == 0:
        line += f"\n validation loss at iteration {run.step} | lm loss value: {run.loss:.6E} | lm loss PPL: {math.exp(run.loss):.6E} | "
    return line


def hf(run: Run) -> str:
    epoch = run.step / 2000
    line = f"{{'loss': {run.loss:.4f}, 'grad_norm': {run.norm:.15g}, 'learning_rate': {run.rate:.17g}, 'epoch': {epoch:.2f}}}"
    if run.step // run.every % 250 == 0:
        line += (
            f"\n{{'eval_loss': {run.loss:.15g}, 'eval_runtime': {30 + run.wobble(3):.4f},"
            f" 'eval_samples_per_second': {70 + run.wobble(4):.3f}, 'epoch': {epoch:.2f}}}"
        )
    share = min(100, 100 * run.step // run.total)
    bar = "█" * (share // 10) + " " * (10 - share // 10)
    return (
        line
        + f"\n\r{share:3d}%|{bar}| {run.step}/{run.total} [{run.seconds % 60:02d}:{run.step % 60:02d}<1:02:03,  1.{run.step % 100:02d}it/s]"
    )


def mae(run: Run) -> str:
    at, epoch, scale = run.step % 1251, run.step // 1251, 2097152.0
    waited = 3.7792 if at < run.every else 0.001 + abs(run.wobble(5)) / 1000
    return (
        f"Epoch: [{epoch}]  [{at:4d}/1251]  eta: 0:{at // 25 % 60:02d}:{at % 60:02d}  lr: {run.rate:.6f}  min_lr: {run.rate:.6f}"
        f"  loss: {run.loss:.4f} ({run.loss * 1.004:.4f})  loss_scale: {scale:.4f} ({scale * 0.98:.4f})  weight_decay: 0.0500"
        f" (0.0500)  grad_norm: {run.norm:.4f} ({run.norm * 0.97:.4f})  time: {0.3 + waited:.4f}  data: {waited:.4f}  max mem: 8361"
    )


def mmdet(run: Run) -> str:
    parts = ", ".join(
        f"loss_{kind}_{layer}: {run.loss * share * (1 + 0.03 * run.wobble(layer + 7)):.4f}"
        for layer in range(6)
        for kind, share in (
            ("cls3d", 0.1),
            ("box3d", 0.2),
            ("cns3d", 0.04),
            ("yns3d", 0.015),
            ("cls2d", 0.05),
        )
    )
    return (
        f"{run.stamp},{run.step % 1000:03d} - mmdet - INFO - Iter [{run.step}/87900]\tlr: {run.rate:.3e}, eta: 18:20:10, time: 0.9"
        f"{run.step % 100:02d}, data_time: 0.031, memory: 18408, {parts}, loss: {run.loss * 2.4:.4f}, grad_norm: {run.norm * 20:.4f}"
    )


def deepspeed(run: Run) -> str:
    head = f"[{run.stamp},{run.step % 1000:03d}] [INFO]"
    return (
        f"{head} [logging.py:96:log_dist] [Rank 0] step={run.step}, skipped=0, lr=[{run.rate:.17g}], mom=[(0.9, 0.95)]\n"
        f"{head} [timer.py:260:stop] epoch=0/micro_step={run.step * 4}/global_step={run.step}, RunningAvgSamplesPerSec="
        f"{20 + run.wobble(3):.6f}, CurrSamplesPerSec={20 + run.wobble(4):.6f}, MemAllocated=12.4GB, MaxMemAllocated=40.1GB"
    )


def titan(run: Run) -> str:
    return (
        f"[rank0]:[titan] {run.stamp},{run.step % 1000:03d} - root - INFO - step: {run.step:5d}  loss: {run.loss:7.4f}  memory:"
        f" 25.{run.step % 100:02d}GiB(39.21%)  tps: {5000 + int(90 * run.wobble(3)):,}  tflops: 120.31  mfu: 38.{run.step % 100:02d}%"
    )


def mindyolo(run: Run) -> str:
    box, cls = run.loss * 0.3, run.loss * 0.5
    return (
        f"{run.stamp},{run.step % 1000:03d} [INFO] Epoch {1 + run.step // 3995}/200, Step {1 + run.step % 3995}/3995, imgsize"
        f" (640, 640), loss: {run.loss:.4f}, lbox: {box:.4f}, lcls: {cls:.4f}, dfl: {run.loss - box - cls:.4f}, cur_lr: {run.rate}"
    )


def lightning(run: Run) -> str:
    at = run.step % 1000
    bar = "#" * (at // 100) + " " * (10 - at // 100)
    return (
        f"\rEpoch {run.step // 1000}: {at // 10:3d}%|{bar}| {at}/1000 [01:{at % 60:02d}<01:38,  5.{at % 100:02d}it/s, v_num=3,"
        f" train_loss={run.loss:.3f}, val_loss={run.floor + 0.1:.3f}]" + ("\n" if at % 50 == 0 else "")
    )


def verl(run: Run) -> str:
    return (
        f"step:{run.step} - global_seqlen/mean:{8000 + 50 * run.wobble(3):.3f} - actor/entropy_loss:{0.4 + 0.02 * run.wobble(4):.6f}"
        f" - actor/pg_loss:{0.002 * run.wobble(5):.6f} - actor/pg_clipfrac:0.00{run.step % 10} - actor/grad_norm:{run.norm:.6f} -"
        f" critic/score/mean:{0.5 + 0.05 * run.wobble(6):.4f} - critic/rewards/min:-1.000 - timing_s/step:{60 + run.wobble(7):.2f}"
    )


def fairseq(run: Run) -> str:
    return (
        f"{run.stamp} | INFO | train_inner | epoch {1 + run.step // 5000:03d}:{run.step % 5000:7d} / 5000 loss={run.loss:.3f},"
        f" ppl={2**run.loss:.2f}, wps={30000 + 200 * run.wobble(3):.1f}, ups=1.2, wpb=25000.1, bsz=810.4, num_updates={run.step},"
        f" lr={run.rate:.6g}, gnorm={run.norm:.3f}, loss_scale=128, train_wall=83, gb_free=20.1, wall={run.seconds}"
    )


def keras(run: Run) -> str:
    at = run.step % 500
    bar = "=" * (at // 20) + ">" + "." * (25 - at // 20)
    return f"{at:3d}/500 [{bar}] - ETA: 1:{at % 60:02d} - loss: {run.loss:.4f} - accuracy: {0.9 - run.loss / 30:.4f}"


def chinese(run: Run) -> str:
    return f"{run.stamp} [INFO] 第 {run.step} 步 损失: {run.loss:.4f} 学习率: {run.rate:.1e} 梯度范数: {run.norm:.3f}"


def json_lines(run: Run) -> str:
    return f'{{"step": {run.step}, "loss": {run.loss:.6f}, "lr": {run.rate:.6g}, "grad_norm": {run.norm:.5f}, "epoch": {run.step / 999:.3f}}}'


def detectron(run: Run) -> str:
    return (
        f"[{run.stamp[5:]} d2.utils.events]:  eta: 1 day, 2:03:04  iter: {run.step}  total_loss: {run.loss:.3f}  loss_cls:"
        f" {run.loss * 0.4:.4f}  loss_box_reg: {run.loss * 0.5:.4f}  loss_rpn_cls: {run.loss * 0.1:.4f}  time: 0.3{run.step % 1000:03d}"
        f"  data_time: 0.0041  lr: {run.rate:.5g}  max_mem: 9912M"
    )


def scaler(run: Run) -> str:
    """A float16 training whose scale is tried out: one skipped step each time that it was doubled."""
    if run.step // run.every % 2000 == 0:
        return "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 65536.0"
    return (
        f"Train Epoch: {run.step // 4000} [{run.step % 4000}/4000]\tLoss: {run.loss:.6f}\tlr: {run.rate:.3e}"
    )


WRITERS: tuple[Callable[[Run], str], ...] = (
    megatron, hf, mae, mmdet, deepspeed, titan, mindyolo, lightning, verl, fairseq, keras, chinese, json_lines,
    detectron, scaler,
)  # fmt: skip
