"""Nothing is said of a healthy training, whatever it prints; the corpus, where it is there, is told right."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ascend_tui_plugins.logs.snapshot import Incident
from metric_logs import evidence, head, hf, megatron, said, step_line

CORPUS = Path(__file__).parent.parent.parent.parent / "shared" / "corpus"


def decay(rng: random.Random, at: int) -> float:
    return 1.5 + 9 * math.exp(-at / 200) + rng.gauss(0, 0.15)


def _hf(rng: random.Random, at: int, n: int) -> list[str]:
    rows = [hf(at, round(abs(decay(rng, at)) * rng.lognormvariate(0, 0.3), 4), rng.lognormvariate(0, 1))]
    if at % 50 == 49:
        rows.append(str({"eval_loss": round(decay(rng, at), 4), "eval_runtime": 12.3, "epoch": at / 100}))
    if at == n - 1:
        rows.append(
            str({"train_runtime": 123.4, "train_samples_per_second": 1.2, "train_loss": 2.1, "epoch": 3.0})
        )
    return rows


def _megatron(rng: random.Random, at: int, n: int) -> list[str]:
    scale = "65536.0" if at % 2000 < 1000 else "131072.0"
    rows = [megatron(at + 1, f"{decay(rng, at):.6E}", f"{rng.lognormvariate(0, 0.5):.3f}", scale)]
    if at % 100 == 99:
        rows.append(
            f" validation loss at iteration {at + 1} | lm loss value: {decay(rng, at):.6E} | PPL: 8.1E+03"
        )
    return rows


def _small(rng: random.Random, at: int, n: int) -> list[str]:
    return [hf(at, round(10 ** rng.uniform(-4, -1) * (10 if at < 5 else 1), 4), 10 ** rng.uniform(-3, 2))]


def _restart(rng: random.Random, at: int, n: int) -> list[str]:
    step = at if at < n // 2 else at - n // 4
    return [step_line(step, f"{decay(rng, step):.4f}", lr=f"{1e-3 * (1 - step / n):.2e}")]


def _signs(rng: random.Random, at: int, n: int) -> list[str]:
    return [
        f"step {at}: loss={rng.gauss(0, 1):.4f} pg_loss={rng.gauss(0, 0.01):.5f}"
        f" reward={rng.gauss(-1, 5):.3f} kl={abs(rng.gauss(0, 0.1)):.4f} entropy={rng.uniform(0, 3):.3f}"
    ]


def _grpo(rng: random.Random, at: int, n: int) -> list[str]:
    loss = 0.0 if at < 5 else round(rng.gauss(0, 0.002), 4)
    return [
        str(
            {
                "loss": loss,
                "grad_norm": rng.lognormvariate(-1, 1),
                "reward": rng.uniform(0, 2),
                "kl": at / 1e6,
            }
        )
    ]


def _gan(rng: random.Random, at: int, n: int) -> list[str]:
    return [
        f"[{at // 100}/9][{at % 100}/100] Loss_D: {abs(rng.gauss(0.7, 0.4)):.4f}"
        f" Loss_G: {rng.lognormvariate(1, 0.6):.4f}"
    ]


def _epochs(rng: random.Random, at: int, n: int) -> list[str]:
    epoch, step = divmod(at * 10, 1250)
    return [
        f"Epoch: [{epoch}]  [{step:4d}/1250]  eta: 0:00:10  lr: {0.0004 * (1 - at / n):.6f}"
        f"  loss: {decay(rng, at):.4f} ({decay(rng, at):.4f})"
        f"  loss_scale: {2.0 ** (15 + min(6, at // 200)):.4f} (32768.0)"
        f"  grad_norm: {rng.lognormvariate(-2, 0.4):.4f} (inf)"
        f"  time: {4.1 if step < 10 else 0.3:.4f}  max mem: 8361"
    ]


def _apex(rng: random.Random, at: int, n: int) -> list[str]:
    rows = [step_line(at, f"{decay(rng, at):.4f}")] if at % 20 == 0 else []
    scale = 65536 / 2 ** min(6, at + 1)
    if at < 6 or at % 2003 == 0:
        rows.append(f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {scale}")
    return rows


def _words(rng: random.Random, at: int, n: int) -> list[str]:
    rows = ["another line of output"]
    if at < 6 or at % 50 == 0:
        rows += [
            "Gradient overflow. Skipping step",
            f"Loss scaler reducing loss scale to {65536 / 2 ** min(6, at + 1)}",
        ]
    return rows


def _warm(rng: random.Random, at: int, n: int) -> list[str]:
    early = rng.uniform(3, 8) if at < 20 and rng.random() < 0.3 else 1.0
    loss = decay(rng, at) * early * (rng.uniform(1.5, 2.5) if rng.random() < 0.01 else 1.0)
    return [json.dumps({"step": at, "loss": round(loss, 4), "grad_norm": rng.lognormvariate(0, 0.7)})]


def _perplexity(rng: random.Random, at: int, n: int) -> list[str]:
    loss = decay(rng, at)
    return [
        f"| epoch {at // 100:3d} | {at % 100:5d}/  100 batches | lr 5.00 | loss {loss:5.2f}"
        f" | ppl {math.exp(3 * loss):8.2f}"
    ]


Writes = Callable[[random.Random, int, int], Sequence[str]]
HEALTHY: tuple[Writes, ...] = (
    _hf, _megatron, _small, _restart, _signs, _grpo, _gan, _epochs, _apex, _words, _warm, _perplexity,
)  # fmt: skip


@pytest.mark.parametrize("write", HEALTHY, ids=[one.__name__.strip("_") for one in HEALTHY])
def test_nothing_is_said_of_a_healthy_training(write: Writes) -> None:
    for seed in range(9):
        rng, n = random.Random(seed), (90, 600, 2500)[seed % 3]
        lines = [line for at in range(n) for line in write(rng, at, n)]
        found = [one for one in said(lines, (7, 300, 5000)[seed // 3]) if one.severity != "info"]
        assert found == [], (seed, head(found[0]), found[0].text)


# The corpus.


def of_corpus(prefix: str) -> list[Incident]:
    path = next(CORPUS.glob(f"{prefix}_*"))
    return said([line for line in path.read_bytes().split(b"\n") if not line.startswith(b"#SRC")])


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}")
@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("L17", [("warning", "loss scale collapses", None, range(9, 11))]),
        ("L19", [("error", "gradient norm is NaN, the loss is still finite", None, (1,))]),
        (
            "L20",
            [
                ("error", "gradient norm is NaN, and the loss is missing", 3385, (1,)),
                ("warning", "loss missing", 3633, (1,)),
                ("warning", "loss missing", 9, (1,)),
            ],
        ),
        (
            "L22",
            [("error", "gradient overflow, and the opt", None, (4,)), ("error", "lcls explodes", 300, (2,))],
        ),
        (
            "L23",
            [
                ("error", "loss scale is 0", None, (6,)),
                ("error", "loss is NaN, and of its parts loss_c", 200, (1,)),
            ],
        ),
        ("L25", []),
        ("L27", [("error", "gradient norm is NaN, the loss is still finite", 17350, (1,))]),
        ("L35", []),
        ("N10", [("error", "loss is exactly 0.0", None, (1,))]),
    ],
)
def test_the_corpus_is_told_as_it_should_be(
    prefix: str, expected: list[tuple[str, str, int | None, Sequence[int]]]
) -> None:
    found = of_corpus(prefix)
    assert len(found) == len(expected)
    for incident, (severity, words, step, counts) in zip(found, expected):
        assert (incident.severity, incident.step) == (severity, step)
        assert head(incident).startswith(words)
        assert incident.count in counts


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}")
def test_each_form_of_the_sampler_is_told() -> None:
    found = of_corpus("L34")
    assert [one.step for one in found] == [300, 104, 20, 20, 76980, None, None]
    assert "5.16e+07" in evidence(found[1])
