"""Trainings whose time goes to a known place, and some in which nothing is wrong.

    python tests/targets/hotspots.py CASE [--device npu:0] [--seed N] [--folder DIR] [--steps N]

It prints `ready` after some steps and `end STEPS HASH`, and nothing else but what a case is about.  It ends
after --steps, or where DIR/stop exists; an onset is where DIR/onset exists.  At its end it
writes DIR/truth.json: what it measured of itself.  Lines that a case is about end in `# here`.
"""

import argparse
import gc
import io
import os
import random
import time

import haste
import torch
from device import device_of
from hotspots_nets import Judge, Lanes, Perceptron, Resnet, TwoStage
from hotspots_steps import Steps
from nets import Gpt
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

WORDS, LENGTH, BATCH, WIDTH = 64, 64, 8, 64
EPOCH = 7
"""Steps that one range is open for."""


class Trainer:
    """A small GPT that is trained on random rows."""

    def __init__(self, asked):
        self.device = asked.device
        self.net = Gpt(WORDS, WIDTH, LENGTH).to(self.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)

    def rows(self, length=LENGTH):
        """Return a batch of random rows."""
        return torch.randint(WORDS, (BATCH, length + 1)).to(self.device)

    def loss(self, rows):
        """Return the loss of a batch."""
        said = self.net(rows[:, :-1])
        return functional.cross_entropy(said.flatten(0, 1), rows[:, 1:].flatten())

    def step(self, rows=None):
        """Make one step; return its loss."""
        self.optimizer.zero_grad()
        loss = self.loss(self.rows() if rows is None else rows)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def train(net, optimizer, loss):
    """Make one step of any net."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def gpt(asked, steps):
    """Nothing is wrong."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    for _ in steps:
        trainer.step()


def conv(asked, steps):
    """Nothing is wrong with a convolutional net either."""
    net = Resnet(16, 10).to(asked.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    steps.watch(net)
    images, labels = torch.randn(16, 3, 24, 24).to(asked.device), torch.randint(10, (16,)).to(asked.device)
    for _ in steps:
        train(net, optimizer, functional.cross_entropy(net(images), labels))


def perceptron(asked, steps):
    """A perceptron of large layers, whose loss is read in every hundredth step."""
    net = Perceptron(256, 512, 8).to(asked.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    steps.watch(net)
    for step in steps:
        loss = net(torch.randn(64, 256).to(asked.device)).square().mean()
        train(net, optimizer, loss)
        if step % 100 == 0:
            loss.item()


def item(asked, steps):
    """The loss is read in each step."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    for _ in steps:
        loss = trainer.step()
        loss.item()  # here


def nonzero(asked, steps):
    """The places of a mask are looked for in each step, twice."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    for _ in steps:
        rows = trainer.rows()
        for part in rows.chunk(2):
            (part > 3).nonzero()  # here
        trainer.step(rows)


def mask(asked, steps):
    """A tensor of booleans is an index in each step: how many are true has to be known."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    for _ in steps:
        rows = trainer.rows()
        rows[rows > 3]  # here
        trainer.step(rows)


def branch(asked, steps):
    """A tensor is a condition in each step."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    large = 0
    for _ in steps:
        loss = trainer.step()
        if loss > 3.0:  # here
            large += 1


def floats(asked, steps):
    """The loss becomes a float of Python in each step."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    total = 0.0
    for _ in steps:
        total += float(trainer.step())  # here


def prints(asked, steps):
    """The loss is printed in each step."""
    trainer, out = Trainer(asked), io.StringIO()
    steps.watch(trainer.net)
    for _ in steps:
        out.seek(0)
        loss = trainer.step()
        print(loss, file=out)  # here


class Slow(Dataset):
    """Rows of which each takes `seconds`."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.randint(WORDS, (LENGTH + 1,), generator=torch.Generator().manual_seed(index))


def loader(asked, steps, workers=0, row_s=0.002):
    """Reading a row takes some milliseconds, and a batch has eight of them."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    batches = iter(DataLoader(Slow(row_s), batch_size=BATCH, num_workers=workers))
    for _ in steps:
        with steps.waits():
            rows = next(batches)
        trainer.step(rows.to(asked.device))


def workers(asked, steps):
    """The same in two processes, which are too slow for the training."""
    loader(asked, steps, workers=2, row_s=0.008)


def casts(asked, steps):
    """Each of 240 weights is cast to bfloat16 in each step, one by one."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    weights = [torch.randn(128, 128).to(asked.device) for _ in range(240)]
    for _ in steps:
        halves = [one.to(torch.bfloat16) for one in weights]  # here
        trainer.step()
        del halves


def transposes(asked, steps):
    """400 small matrices are transposed and copied in each step."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    small = [torch.randn(16, 24).to(asked.device) for _ in range(400)]
    for _ in steps:
        copies = [one.t().contiguous() for one in small]  # here
        trainer.step()
        del copies


def dynamic(asked, steps):
    """Each batch has a length of its own."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    for step in steps:
        trainer.step(trainer.rows(16 + step * 5 % 48))


def grows(asked, steps):
    """From the onset on a matrix that is multiplied by itself is three times as wide."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    square = torch.randn(4, 96, 96).to(asked.device)
    wide = torch.randn(4, 288, 288).to(asked.device)
    for _ in steps:
        one = wide if steps.onset else square
        torch.bmm(one, one)
        trainer.step()


def host_bound(asked, steps):
    """Thousands of small operators: the device waits for the host."""
    net = Lanes(300, 8).to(asked.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    steps.watch(net)
    for _ in steps:
        train(net, optimizer, net(torch.randn(4, 8).to(asked.device)).square().mean())


def device_bound(asked, steps):
    """The kernels take milliseconds (a cost of the simulated device): the host waits for the device."""
    net = Perceptron(64, 64, 8).to(asked.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    steps.watch(net)
    for _ in steps:
        loss = net(torch.randn(32, 64).to(asked.device)).square().mean()
        train(net, optimizer, loss)
        loss.item()  # here


def checkpoints(asked, steps):
    """Every 50th step writes a checkpoint, which takes as long as ten steps."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    for step in steps:
        trainer.step()
        if step % 50 == 0:
            steps.planted(step)
            # Alone, as a twin, it has no folder.
            file = steps.folder / "checkpoint.pt" if steps.folder else os.devnull
            torch.save(trainer.net.state_dict(), file)
            time.sleep(max(0.1, 10 * steps.median_s()))


def garbage(asked, steps):
    """Every 60th step looks for garbage among very many objects."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    kept = [[number] for number in range(1_200_000)]
    gc.collect()
    for step in steps:
        trainer.step()
        if step % 60 == 0:
            steps.planted(step)
            gc.collect()
    kept.clear()


def two_optimizers(asked, steps):
    """A GAN: two models, two optimizers, one step."""
    first, second = Perceptron(32, 128, 32).to(asked.device), Judge(32, 128).to(asked.device)
    of_first = torch.optim.Adam(first.parameters(), lr=1e-3)
    of_second = torch.optim.Adam(second.parameters(), lr=1e-3)
    steps.watch(first)
    for _ in steps:
        fake = first(torch.randn(32, 32).to(asked.device))
        train(second, of_second, second(fake.detach()).square().mean())
        train(first, of_first, second(fake).square().mean())


def accumulation(asked, steps):
    """Four batches make a step."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    for _ in steps:
        trainer.optimizer.zero_grad()
        for _ in range(4):
            (trainer.loss(trainer.rows()) / 4).backward()
        trainer.optimizer.step()


def compiled(asked, steps):
    """The net is compiled."""
    from torch._dynamo.utils import counters

    net = TwoStage(32, 128).to(asked.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    fast = torch.compile(net)
    steps.watch(net)
    for step in steps:
        train(net, optimizer, fast(torch.randn(32, 32).to(asked.device)).square().mean())
        steps.truth["graphs"] = counters["stats"]["unique_graphs"]
        if step == 5:
            steps.truth["graphs_at_first"] = counters["stats"]["unique_graphs"]


def profiler(asked, steps):
    """The training profiles itself, two steps of six; what each trace has in it is counted."""
    trainer, traces = Trainer(asked), steps.truth.setdefault("traces", [])
    steps.watch(trainer.net)

    def ready(one):
        events = one.events()
        marks = sum(event.name.startswith("ProfilerStep") for event in events)
        shim = [event.name for event in events if "ascend" in event.name]
        if len(traces) < 4000:
            traces.append([len(events), marks, len(shim)])

    plan = schedule(wait=2, warmup=2, active=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready) as running:
        for _ in steps:
            trainer.step()
            running.step()


def profiler_inside(asked, steps):
    """The forward of every fifth step is profiled, within the step."""
    trainer, traces = Trainer(asked), steps.truth.setdefault("traces", [])
    steps.watch(trainer.net)
    for step in steps:
        rows = trainer.rows()
        trainer.optimizer.zero_grad()
        if step % 5 == 0:
            with profile(activities=[ProfilerActivity.CPU]) as one:
                loss = trainer.loss(rows)
            if len(traces) < 4000:
                traces.append([len(one.events()), 0, 0])
        else:
            loss = trainer.loss(rows)
        loss.backward()
        trainer.optimizer.step()


def forks(asked, steps):
    """Each step makes a data loader, which forks a worker."""
    trainer = Trainer(asked)
    steps.watch(trainer.net)
    rows = [torch.randint(WORDS, (LENGTH + 1,)) for _ in range(BATCH)]
    for _ in steps:
        with steps.waits():
            (batch,) = DataLoader(rows, batch_size=BATCH, num_workers=1, multiprocessing_context="fork")
        trainer.step(batch.to(asked.device))


def ranges(asked, steps):
    """A range of record_function is open for seven steps, and another one begins and ends within each."""
    trainer, epoch = Trainer(asked), None
    steps.watch(trainer.net)
    for step in steps:
        if step % EPOCH == 1:
            epoch = record_function("my epoch")
            epoch.__enter__()
        with record_function("my step"):
            trainer.step()
        if step % EPOCH == 0 and epoch is not None:
            epoch.__exit__(None, None, None)
            epoch = None


CASES = (
    *(gpt, conv, perceptron, item, nonzero, mask, branch, floats, prints, loader, workers, casts, transposes),
    *(dynamic, grows, host_bound, device_bound, checkpoints, garbage, two_optimizers, accumulation, compiled),
    *(profiler, profiler_inside, forks, ranges),
)


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=[one.__name__ for one in CASES])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--folder", default="")
    parser.add_argument("--sleep", type=float, default=0.0)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    asked.device = device_of(asked.device)
    torch.manual_seed(asked.seed)
    random.seed(asked.seed)
    haste.over()
    steps = Steps(asked)
    next(one for one in CASES if one.__name__ == asked.case)(asked, steps)
    steps.over()


if __name__ == "__main__":
    main()
