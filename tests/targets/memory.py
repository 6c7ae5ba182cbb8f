"""Trainings whose use of memory is known: what leaks, how much in a step and since when, and what does not.

    python tests/targets/memory.py CASE [--device npu:0] [--seed N] [--steps N] [--onset N] [--begin FILE]

Steps are counted from the moment at which the file of --begin exists, or from the first one; the ones before
are like those before the onset, at which a case begins with what it is about.  It prints `ready`, `at STEP
SECONDS` (of the monotonic clock) for its first steps, and `end STEP`, and ends when the file is gone.
"""

import argparse
import itertools
import os
import random
import tempfile
import time

import haste
import torch
from device import device_of
from nets import Conv, Gpt, Mlp
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

TOLD = 60
"""How many of the first steps are told with their time."""
INPUTS, WIDTH, OUTPUTS, BATCH = 16, 96, 288, 1024
ROWS_A_STEP, ROW_FLOATS = 16, 16384


class Steps:
    """Count and pace the steps; iterate over it."""

    def __init__(self, asked):
        self.steps, self.begin, self.period_s = asked.steps, asked.begin, asked.period_ms / 1e3
        self.begun = False

    def __iter__(self):
        haste.over()
        print("ready", flush=True)
        due = time.monotonic()
        number = 0
        while number < self.steps:
            self.begun = self.begun or not self.begin or os.path.exists(self.begin)
            number += self.begun
            yield number
            if 0 < number <= TOLD:
                print("at", number, time.monotonic(), flush=True)
            # What was slow is not made up for.
            due = max(due + self.period_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        print("end", number, flush=True)
        # Everything stays as it is until the watcher has seen it.
        while self.begin and os.path.exists(self.begin):
            time.sleep(0.05)


class Trainer:
    """A perceptron and its optimizer.  What a step predicted and lost lives until the next one, as usual."""

    def __init__(self, asked, batch=BATCH, width=WIDTH, outputs=OUTPUTS):
        self.device, self.batch, self.outputs = asked.device, batch, outputs
        self.net = Mlp(INPUTS, width, outputs).to(asked.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.prediction = self.loss = None

    def inputs(self):
        """Return a batch of random rows."""
        return torch.randn(self.batch, INPUTS).to(self.device)

    def step(self, rows=None):
        """Make one step."""
        self.prediction = self.net(self.inputs() if rows is None else rows)
        self.loss = self.prediction.square().mean()
        self.optimizer.zero_grad()
        self.loss.backward()
        self.optimizer.step()


def losses(asked, steps):
    """Keep, for a plot, a second loss with its graph: backward goes through the first one only."""
    trainer, kept = Trainer(asked, batch=640), []
    for step in steps:
        if step > asked.onset:
            kept.append(trainer.net(trainer.inputs()).abs().mean())
        trainer.step()


def activations(asked, steps):
    """Keep the output of each hidden layer, in a forward hook that nobody removed."""
    trainer, kept = Trainer(asked), []
    for step in steps:
        if step == asked.onset + 1:
            for layer in trainer.net.hidden:
                layer.register_forward_hook(lambda module, inputs, output: kept.append(output.detach()))
        trainer.step()


def predictions(asked, steps):
    """Keep the predictions of all steps, in a callback that wants them at the end of the epoch."""
    trainer, kept = Trainer(asked), []
    for step in steps:
        trainer.step()
        if step > asked.onset:
            kept.append(trainer.prediction)


class KeepsRows(Dataset):
    """A dataset that keeps what it has read: in each process that reads, a row is new at every step.

    `step` is shared with the workers, which read a few steps ahead.
    """

    def __init__(self, onset, step):
        self.onset, self.step, self.kept = onset, step, {}

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        row = torch.randn(ROW_FLOATS)
        if self.step[0] > self.onset:
            self.kept[index] = row
        return row[:INPUTS].clone()


def dataset(asked, steps, workers=0):
    """Read from a dataset that keeps a megabyte in each step."""
    trainer, shared = Trainer(asked, batch=ROWS_A_STEP), torch.zeros(1).share_memory_()
    how = {"multiprocessing_context": "fork"} if workers else {}
    reader = KeepsRows(asked.onset, shared)
    rows = iter(DataLoader(reader, ROWS_A_STEP, sampler=itertools.count(), num_workers=workers, **how))
    for step in steps:
        shared[0] = step
        trainer.step(next(rows).to(asked.device))


def workers(asked, steps):
    """Read from it in two worker processes."""
    dataset(asked, steps, workers=2)


def slow(asked, steps):
    """Keep 7 KiB in each step."""
    trainer, kept = Trainer(asked, batch=32, width=64, outputs=8), []
    for step in steps:
        trainer.step()
        if step > asked.onset:
            kept.append(torch.ones(7 * 256, device=asked.device))


def stops(asked, steps):
    """Keep a megabyte in each step after the onset, and from --lasts steps later on no more."""
    trainer, kept = Trainer(asked, batch=64, outputs=8), []
    for step in steps:
        trainer.step()
        if asked.onset < step <= asked.onset + asked.lasts:
            kept.append(torch.ones(1 << 18, device=asked.device))


def sequence(asked, steps):
    """Train on longer and longer rows: after the onset two tokens more every ten steps, for 320 steps."""
    words, shortest, longest, batch = 256, 32, 96, 4
    net = Gpt(words, 64, longest).to(asked.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in steps:
        length = min(longest, shortest + max(0, step - asked.onset) // 10 * 2)
        rows = torch.randint(words, (batch, length + 1)).to(asked.device)
        logits = net(rows[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def workspace(asked, steps):
    """Allocate 64 MiB once, after the onset, and keep them."""
    trainer, space = Trainer(asked, batch=64, outputs=8), None
    for step in steps:
        if step > asked.onset and space is None:
            space = torch.ones(1 << 24, device=asked.device)
        trainer.step()


def staircase(asked, steps):
    """Use two buffers as long as the batch, which now and then is longer than all before: no cached one fits.

    The longest is reached 480 steps after the onset.
    """
    trainer = Trainer(asked, batch=64, outputs=8)
    longest = 0
    for step in steps:
        if step % 20 == 1:
            longest = min(24, max(0, step - asked.onset) // 20)
        length = random.randint(0, longest) if step % 20 else longest
        floats = (11 << 18) + (length << 18)
        first = torch.ones(floats, device=asked.device)
        second = torch.ones(floats, device=asked.device)
        first.add_(second)
        del first, second
        trainer.step()


def pinned(asked, steps):
    """Renew a long-lived tensor every ten steps, 40 times, while a large one comes and goes in each step.

    The new one is a little larger than the hole of the old one, so that it settles in the segment of the
    large one, which has to be made anew then: what is allocated stays, for a small one goes too; what is
    reserved grows by 10 MiB each time, and none of it can be given back.
    """

    def mib(size):
        # The allocator adds 32 bytes, and makes segments of 10 MiB and more to measure.
        return torch.empty(int(size * (1 << 18)) - 8, device=asked.device)

    trainer, turn = Trainer(asked, batch=64, outputs=8), 0
    whole = [mib(48) for _ in range(10)]
    del whole
    lasting, small = [mib(6) for _ in range(80)], [mib(0.5) for _ in range(40)]
    for step in steps:
        large = mib(10)
        trainer.step()
        del large
        if step > asked.onset and step % 10 == 0 and turn < 40:
            # Every second one: two holes side by side would be large enough.
            lasting[2 * turn], small[turn] = mib(6.5), None
            turn += 1


def calm(asked, steps):
    """Do nothing but train."""
    trainer = Trainer(asked, batch=64, outputs=8)
    for _ in steps:
        trainer.step()


def neighbour(asked, steps):
    """Be another process on the card: hold 256 MiB, and with an onset take 8 MiB more every eighth step."""
    held = [torch.empty(1 << 26, device=asked.device)]
    for step in steps:
        if 0 <= asked.onset < step and step % 8 == 0:
            held.append(torch.empty(1 << 21, device=asked.device))


def full(asked, steps):
    """Need 97 % of the card, and no more."""
    trainer = Trainer(asked, batch=64, outputs=8)
    trainer.step()
    free, total = torch.npu.mem_get_info()
    held = torch.empty(int(0.97 * total) - (total - free), dtype=torch.uint8, device=asked.device)
    for _ in steps:
        trainer.step()
    del held


def evaluation(asked, steps):
    """Evaluate every 100 steps, on larger batches and with all predictions kept until it is done."""
    trainer = Trainer(asked, batch=64, outputs=64)
    for step in steps:
        trainer.step()
        if step % 100 == 0:
            trainer.net.eval()
            with torch.no_grad():
                found = [trainer.net(torch.randn(BATCH, INPUTS).to(asked.device)) for _ in range(24)]
                torch.cat(found).square().mean().item()
            del found
            trainer.net.train()


def checkpoint(asked, steps):
    """Save model and optimizer to a file every 50 steps."""
    trainer = Trainer(asked, batch=64, width=512, outputs=512)
    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            trainer.step()
            if step % 50 == 0:
                state = {"net": trainer.net.state_dict(), "optimizer": trainer.optimizer.state_dict()}
                torch.save(state, os.path.join(folder, "checkpoint.pt"))


def gpt(asked, steps):
    """Train a small GPT on rows of many lengths."""
    words, longest = 64, 48
    net = Gpt(words, 32, longest).to(asked.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in steps:
        rows = torch.randint(words, (4, random.randint(8, longest) + 1)).to(asked.device)
        loss = functional.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def conv(asked, steps):
    """Train a convolutional net with momentum, and take its loss to the host each time."""
    net = Conv(10).to(asked.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    history = []
    for _ in steps:
        images, labels = torch.randn(4, 3, 16, 16).to(asked.device), torch.randint(10, (4,)).to(asked.device)
        loss = functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())


def scaler(asked, steps):
    """Train a perceptron in mixed precision with a GradScaler; every 97th step is skipped."""
    trainer = Trainer(asked, batch=64, width=64, outputs=8)
    scaler = torch.amp.GradScaler(asked.device.type, init_scale=1024.0)
    half = torch.bfloat16 if asked.device.type == "cpu" else torch.float16
    for step in steps:
        trainer.optimizer.zero_grad()
        with torch.autocast(asked.device.type, dtype=half):
            loss = trainer.net(trainer.inputs()).float().square().mean()
        if step % 97 == 96:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(trainer.optimizer)
        scaler.update()


CASES = (
    *(
        losses,
        activations,
        predictions,
        dataset,
        workers,
        slow,
        stops,
        sequence,
        workspace,
        staircase,
        pinned,
    ),
    *(calm, neighbour, full, evaluation, checkpoint, gpt, conv, scaler),
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=[one.__name__ for one in CASES])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--onset", type=int, default=100)
    parser.add_argument("--lasts", type=int, default=128)
    parser.add_argument("--begin", default="")
    parser.add_argument("--period-ms", type=float, default=15.0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.device = device_of(asked.device)
    torch.manual_seed(asked.seed)
    random.seed(asked.seed)
    run = next(one for one in CASES if one.__name__ == asked.case)
    run(asked, Steps(asked))


if __name__ == "__main__":
    main()
