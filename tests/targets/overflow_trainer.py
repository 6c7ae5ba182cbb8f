"""What the trainings in overflow.py have in common: how they are paced, and a decoder that is trained."""

import os
import time

import torch
from overflow_nets import LENGTH, WORDS, Net
from torch.nn import functional

BATCH = 4


class Steps:
    """Count and pace the steps; iterate over it.  Ranks `agree` on the first one."""

    def __init__(self, asked, agree=bool):
        self.steps, self.begin, self.period_s = asked.steps, asked.begin, asked.period_ms / 1e3
        self.agree = agree

    def __iter__(self):
        print("ready", flush=True)
        due, number, begun, parent = time.monotonic(), 0, False, os.getppid()
        # A watcher that was killed cannot end it.
        while number < self.steps and os.getppid() == parent:
            begun = begun or self.agree(not self.begin or os.path.exists(self.begin))
            number += begun
            yield number
            if number > 0:
                print("at", number, time.monotonic(), flush=True)
            # What was slow is not made up for.
            due = max(due + self.period_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        print("end", number, flush=True)
        # Everything stays as it is until the watcher has seen it.
        while self.begin and os.path.exists(self.begin) and os.getppid() == parent:
            time.sleep(0.05)


class Trainer:
    """A small decoder in mixed precision, whose scaler leaves out the steps that would spoil the weights.

    Without `half` all is float32.  `guard` is what a bad gradient does: the scaler skips the step, it is
    made 0 ("clean"), or it goes into the weights ("none").
    """

    def __init__(self, asked, half=True, guard="scaler", net=None, scale=1024.0):
        self.device, self.half, self.guard = asked.device, half, guard
        self.net = (net or Net()).to(asked.device)
        trained = [one for one in self.net.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-3)
        self.scaler = torch.amp.GradScaler(asked.device.type, init_scale=scale, enabled=guard == "scaler")
        self.mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1).to(asked.device)

    def rows(self):
        """Return a batch of random rows."""
        return torch.randint(WORDS, (BATCH, LENGTH + 1)).to(self.device)

    def logits(self, rows):
        """Return what the net says of rows, in float32."""
        with torch.autocast(self.device.type, dtype=torch.float16, enabled=self.half):
            return self.net(rows[:, :-1], self.mask).float()

    def step(self, loss_of=None):
        """Make one step; `loss_of` makes the loss of logits and labels."""
        rows = self.rows()
        self.optimizer.zero_grad()
        loss = (loss_of or likelihood)(self.logits(rows), rows[:, 1:])
        self.scaler.scale(loss).backward()
        self.finish()

    def finish(self):
        """Step the optimizer with the gradients as they are."""
        if self.guard == "clean":
            for one in self.net.parameters():
                one.grad = None if one.grad is None else torch.nan_to_num(one.grad, 0.0, 0.0, 0.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def likelihood(logits, labels):
    """Return the usual loss of a decoder."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
