"""Trainings whose numbers go bad in a known place and in a known step, and some in which they do not.

    python tests/targets/overflow.py CASE [--device npu:0] [--seed N] [--steps N] [--onset N] [--begin FILE]

Steps are counted from the moment at which the file of --begin exists, or from the first one; the ones up to
the onset are healthy.  It prints `ready`, `at STEP SECONDS` (of the monotonic clock) at the end of each step,
and `end STEP`, and ends when the file is gone.  The ranks of the case `ranks` are told by RANK and the like.
"""

import argparse
import random

import torch
from device import device_of
from nets import Conv, Gpt, Mlp
from overflow_nets import LENGTH, WIDTH, WORDS, Net, Quantized, Regularized
from overflow_trainer import BATCH, Steps, Trainer, likelihood
from torch import distributed, nn
from torch.nn import functional

NAN, INF = float("nan"), float("inf")


def outlier(trainer, value):
    """Let one channel of the second block's first feed-forward layer be as large as `value`."""
    with torch.no_grad():
        trainer.net.blocks[1].mlp.up_proj.bias[7] = value


def ffn(asked, steps):
    """One channel of up_proj is 61,500, which is a number of float16; its activation is none."""
    trainer = Trainer(asked)
    for step in steps:
        if step == asked.onset + 1:
            outlier(trainer, 61500.0)
        trainer.step()


def climb(asked, steps):
    """The same channel climbs by a twentieth in a step: in the 61st step after the onset it is too large."""
    trainer = Trainer(asked)
    for step in steps:
        if step > asked.onset:
            outlier(trainer, 3100.0 * 1.05 ** min(step - asked.onset, 62))
        trainer.step()


def accumulation(asked, steps):
    """As `ffn`, in the third of four batches of a step, and with two optimizers."""
    trainer = Trainer(asked)
    first = [*trainer.net.tokens.parameters(), *trainer.net.places.parameters()]
    rest = [one for one in trainer.net.parameters() if all(one is not other for other in first)]
    optimizers = torch.optim.SGD(first, lr=1e-2), torch.optim.AdamW(rest, lr=1e-3)
    for step in steps:
        for part in range(4):
            outlier(trainer, 61500.0 if step > asked.onset and part == 2 else 0.0)
            rows = trainer.rows()
            trainer.scaler.scale(likelihood(trainer.logits(rows), rows[:, 1:]) / 4).backward()
        for one in optimizers:
            trainer.scaler.step(one)
        trainer.scaler.update()
        for one in optimizers:
            one.zero_grad()


def logits(asked, steps):
    """Queries and keys of the second block share a channel of 400: their product is no number of float16."""
    trainer = Trainer(asked)
    for step in steps:
        if step == asked.onset + 1:
            attention = trainer.net.blocks[1].attn
            with torch.no_grad():
                attention.q_proj.bias[5] = attention.k_proj.bias[5] = 400.0
        trainer.step()


def reduction(asked, steps):
    """The sum over 16 tokens is kept in float16, and one channel of each is 6,000."""
    trainer = Trainer(asked, net=Net(pools=True))
    for step in steps:
        if step == asked.onset + 1:
            with torch.no_grad():
                trainer.net.mix.bias[3] = 6000.0
        trainer.step(lambda said, labels: functional.cross_entropy(said, labels[:, -1]))


def dequantisation(asked, steps):
    """The scale of one int8 layer is 40 times too large; one block later the residual is too large."""
    # The trunk is the same for all seeds: how much of it fits into float16 is measured.
    torch.manual_seed(2)
    trainer, device = Trainer(asked, net=Quantized(WIDTH, WIDTH, 8)), asked.device
    torch.manual_seed(asked.seed)
    for step in steps:
        if step == asked.onset + 1:
            trainer.net.blocks[2].down_proj.scale.mul_(40.0)
        rows, labels = torch.randn(16, WIDTH).sign().to(device), torch.randint(8, (16,)).to(device)
        trainer.optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.float16):
            said = trainer.net(rows)
        trainer.scaler.scale(functional.cross_entropy(said.float(), labels)).backward()
        trainer.finish()


def log_zero(asked, steps):
    """The loss is a logarithm of probabilities, and those of some words become 0."""
    trainer = Trainer(asked, half=False, guard="clean")

    def loss_of(said, labels):
        chances = torch.softmax(said, -1).gather(-1, labels.unsqueeze(-1))
        return -torch.log(chances).mean()

    for step in steps:
        if step == asked.onset + 1:
            with torch.no_grad():
                trainer.net.head.bias[:16] = -200.0
        trainer.step(loss_of)


def loss_only(asked, steps):
    """All labels are padding, and the mean is over those that are not: 0 / 0, in the loss alone."""
    trainer = Trainer(asked, half=False, guard="clean")
    for step in steps:
        kept = torch.full((BATCH, LENGTH), float(step <= asked.onset)).to(asked.device)

        def loss_of(said, labels, kept=kept):
            each = functional.cross_entropy(said.flatten(0, 1), labels.flatten(), reduction="none")
            return (each.view(kept.shape) * kept).sum() / kept.sum()

        trainer.step(loss_of)


def root(asked, steps):
    """A distance is 0 where two rows are the same: the root of it is fine, its gradient is not."""
    net = Mlp(16, WIDTH, 8)
    trainer = Trainer(asked, half=False, net=net)
    for step in steps:
        left, right = torch.randn(2, BATCH, 16).to(asked.device)
        if step > asked.onset:
            right[1] = left[1]
        trainer.optimizer.zero_grad()
        apart = (net(left) - net(right)).pow(2).sum(-1).sqrt()
        trainer.scaler.scale((apart - 1.0).pow(2).mean()).backward()
        trainer.finish()


def bad_row(asked, steps):
    """A checkpoint is loaded in which the embedding of one token is NaN."""
    trainer = Trainer(asked)
    for step in steps:
        if step == asked.onset + 1:
            state = {name: one.clone() for name, one in trainer.net.state_dict().items()}
            state["tokens.weight"][13] = NAN
            trainer.net.load_state_dict(state)
        trainer.step()


def huge_row(asked, steps):
    """A checkpoint is loaded in which one row of a layer is 3e38."""
    trainer = Trainer(asked, half=False)
    for step in steps:
        if step == asked.onset + 1:
            state = {name: one.clone() for name, one in trainer.net.state_dict().items()}
            state["blocks.1.mlp.up_proj.weight"][5] = 3e38
            trainer.net.load_state_dict(state)
        trainer.step()


class Spoil:
    """Put a NaN, which was there before, into activations."""

    def __init__(self, device):
        self.place = [torch.tensor([index], device=device) for index in (1, 7, 3)]
        self.value = torch.tensor(NAN, device=device)

    def __call__(self, y):
        y.index_put_(self.place, self.value)


def inplace(asked, steps, guard="scaler"):
    """A user's code writes a NaN into the output of a layer."""
    trainer = Trainer(asked, half=False, guard=guard)
    for step in steps:
        if step == asked.onset + 1:
            trainer.net.blocks[1].mlp.spoil = Spoil(asked.device)
        trainer.step()


def sticky(asked, steps):
    """As `inplace`, and nothing keeps the NaN out of the weights: a step later they all have it."""
    inplace(asked, steps, guard="none")


def masked_row(asked, steps):
    """One row of a batch is all padding: nothing of it is left for the softmax."""
    trainer = Trainer(asked)
    causal = trainer.mask
    for step in steps:
        trainer.mask = causal.expand(BATCH, 1, LENGTH, LENGTH).clone()
        if step > asked.onset:
            trainer.mask[2] = True
        trainer.step()


def masked(asked, steps):
    """Infinities are put in on purpose, in three ways, and nothing is wrong."""
    trainer = Trainer(asked)
    barred = trainer.mask
    for step in steps:
        if step % 2:
            trainer.mask = torch.full((LENGTH, LENGTH), -INF, device=asked.device).triu(1)
        else:
            trainer.mask = barred

        def loss_of(said, labels):
            largest = torch.full(said.shape[:-1], -INF, device=said.device)
            largest = torch.maximum(largest, said.detach().amax(-1))
            # A word that may never be said.
            said = said - largest.unsqueeze(-1)
            said = torch.cat([said, torch.full_like(said[..., :1], -INF)], -1)
            return likelihood(said, labels)

        trainer.step(loss_of)


def search(asked, steps):
    """A new scaler begins at 65,536, which is some halvings too much."""
    trainer = Trainer(asked)
    for step in steps:
        if step == asked.onset + 1:
            trainer.scaler = torch.amp.GradScaler(asked.device.type, init_scale=65536.0)
        # Of the largest gradients in half precision: about 11 with a scale of 1.
        trainer.step(lambda said, labels: likelihood(said, labels) * 400.0)


def collapse(asked, steps):
    """A part of the loss is weighted by 1e9: no scale is small enough."""
    trainer = Trainer(asked)
    for step in steps:
        weight = 1e9 if step > asked.onset else 1.0
        trainer.step(lambda said, labels, weight=weight: likelihood(said, labels) * weight)


def divergence(asked, steps):
    """The learning rate of a linear regression is a tenth too high: the loss grows, and grows."""
    net = nn.Sequential(nn.Linear(16, 8, bias=False)).to(asked.device)
    rows, wanted = torch.randn(512, 16), torch.randn(512, 8)
    highest = torch.linalg.eigvalsh(rows.T @ rows * 2 / (512 * 8))[-1].item()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 / highest)
    for step in steps:
        if step == asked.onset + 1:
            optimizer.param_groups[0]["lr"] = 2.2 / highest
        few = torch.randperm(512)[:256]
        optimizer.zero_grad()
        loss = functional.mse_loss(net(rows[few].to(asked.device)), wanted[few].to(asked.device))
        loss.backward()
        optimizer.step()


def ranks(asked, steps):
    """The data of rank 2 have an infinity in them; the gradients of all ranks are averaged."""
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()

    def agree(begun):
        told = torch.tensor([float(begun)])
        distributed.all_reduce(told, distributed.ReduceOp.MIN)
        return bool(told.item())

    steps.agree = agree
    net = Mlp(16, WIDTH, 8).to(asked.device)
    for one in net.parameters():
        first = one.detach().cpu()
        distributed.broadcast(first, 0)
        one.data.copy_(first)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    torch.manual_seed(asked.seed * size + rank)
    for step in steps:
        rows = torch.randn(BATCH, 16)
        if rank == 2 and step > asked.onset:
            rows[1, 3] = INF
        optimizer.zero_grad()
        net(rows.to(asked.device)).square().mean().backward()
        flat = torch.cat([one.grad.flatten() for one in net.parameters()]).cpu()
        distributed.all_reduce(flat)
        parts = (flat / size).split([one.numel() for one in net.parameters()])
        for one, mean in zip(net.parameters(), parts):
            one.grad.copy_(mean.view_as(one))
        optimizer.step()


def gpt(asked, steps, dtype=torch.float16):
    """Train a small GPT with a causal mask in mixed precision."""
    net = Gpt(WORDS, WIDTH, 48).to(asked.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(asked.device.type, enabled=dtype == torch.float16)
    for _ in steps:
        rows = torch.randint(WORDS, (BATCH, random.randint(8, 48) + 1)).to(asked.device)
        optimizer.zero_grad()
        with torch.autocast(asked.device.type, dtype=dtype):
            said = net(rows[:, :-1])
        scaler.scale(likelihood(said.float(), rows[:, 1:])).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def gpt_bfloat16(asked, steps):
    """Train it in bfloat16."""
    gpt(asked, steps, torch.bfloat16)


def conv(asked, steps):
    """Train a convolutional net with momentum, and take its loss to the host each time."""
    net = Conv(10).to(asked.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    history = []
    for _ in steps:
        images, labels = torch.randn(4, 3, 16, 16).to(asked.device), torch.randint(10, (4,)).to(asked.device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        history.append(loss.item())


def perceptron(asked, steps):
    """Train a perceptron with dropout, and evaluate it every 100 steps."""
    net = Regularized(16, 96, 8).to(asked.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in steps:
        rows = torch.randn(64, 16).to(asked.device)
        optimizer.zero_grad()
        functional.mse_loss(net(rows), rows[:, :8] * 2).backward()
        optimizer.step()
        if step % 100 == 0:
            net.eval()
            with torch.no_grad():
                net(torch.randn(512, 16).to(asked.device)).square().mean().item()
            net.train()


CASES = (
    *(ffn, climb, accumulation, logits, reduction, dequantisation, log_zero, loss_only, root, bad_row),
    *(huge_row, inplace, sticky, masked_row, masked, search, collapse, divergence, ranks),
    *(gpt, gpt_bfloat16, conv, perceptron),
)


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=[one.__name__ for one in CASES])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument("--onset", type=int, default=60)
    parser.add_argument("--begin", default="")
    parser.add_argument("--period-ms", type=float, default=15.0)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    asked.device = device_of(asked.device)
    torch.manual_seed(asked.seed)
    random.seed(asked.seed)
    run = next(one for one in CASES if one.__name__ == asked.case)
    run(asked, Steps(asked))


if __name__ == "__main__":
    main()
