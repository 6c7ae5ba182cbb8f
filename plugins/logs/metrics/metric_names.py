"""What logs call their numbers: printed names and the field's word for each, as data.

A name is compared in lower case with `_` for what parts its words, so that `Grad Norm`, `grad-norm` and
`grad_norm` are one.  What is not listed is known by the words that it is made of.
"""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal[
    "step",
    "epoch",
    "rank",
    "loss",
    "part",
    "eval",
    "norm",
    "watch",
    "scale",
    "skipped",
    "skipped_all",
    "rate",
    "shown",
    "setting",
    "other",
]
"""loss: the total; part: one of several; eval: of data that is not learned from; watch: a number that has to
be finite and nothing more; skipped: since the last line, skipped_all: since the start; shown: followed, not
judged; setting: chosen by a person; other: not known."""

JUDGED = frozenset({"loss", "part", "eval", "norm", "watch"})
SCALED = frozenset({"scale", "skipped", "skipped_all"})

_NAMES: dict[tuple[Kind, str], str] = {
    ("step", "step"): """
        global_step global_steps num_updates step steps train_step training_step cur_step current_step
        iteration iterations iter iters it update updates up cur_iter batch_idx 步 步数 迭代 全局步
    """,
    ("epoch", "epoch"): "epoch epochs ep 轮 轮次",
    ("rank", "rank"): "rank global_rank",
    ("loss", "loss"): """
        total_loss loss lm_loss train_loss training_loss cost loss_total train_total_loss overall_loss
        loss值 损失 损失值 总损失 训练损失
    """,
    ("norm", "grad_norm"): """
        grad_norm gnorm gradnorm gradient_norm global_grad_norm global_gradient_norm total_grad_norm
        grad_l2_norm train_grad_norm g_norm global_norm
        梯度范数
    """,
    ("scale", "loss_scale"): """
        loss_scale lossscale grad_scale fp16_grad_scale fp16_scale amp_scale loss_scaler scaling_sens
        scaler_scale loss_scale_value train_loss_scale 损失缩放 损失缩放系数
    """,
    ("skipped", "skipped"): "number_of_skipped_iterations skipped_iterations",
    ("skipped_all", "skipped"): "skipped skipped_steps",
    ("rate", "learning_rate"): "learning_rate lr cur_lr learningrate train_lr current_lr 学习率",
    ("watch", "perplexity"): "ppl perplexity lm_loss_ppl 困惑度",
    ("watch", "cross_entropy"): "xent",
    ("watch", "kl"): "kl approx_kl mean_kl ppo_kl objective_kl actor_ppo_kl",
    ("watch", "entropy"): "entropy policy_entropy actor_entropy",
    ("watch", "reward"): "reward mean_reward reward_mean",
    ("shown", "throughput"): """
        throughput tflops tps wps speed tokens_per_second samples_per_second tokens_s samples_s samples_sec
        tokens_per_gpu_per_second tgs tokens_per_sec samples_per_sec train_samples_per_second
        throughput_per_gpu throughput_per_gpu_tflop_s_gpu currsamplespersec avgsamplespersec 吞吐 吞吐量
    """,
    ("shown", "utilisation"): "mfu hfu",
    ("shown", "step_time"): """
        step_time iter_time batch_time elapsed_time_per_iteration time_per_step time_per_iteration
        per_step_time
    """,
    ("shown", "data_time"): "data data_time",
    ("shown", "memory"): "max_mem memory mem max_memory gpu_mem peak_memory",
    ("shown", "accuracy"): "acc accuracy acc1 top1 acc_1 mean_token_accuracy 准确率",
    ("shown", "weight_decay"): "weight_decay wd",
    ("setting", ""): "max_grad_norm clip_grad_norm clip_norm max_norm min_loss_scale initial_loss_scale",
}
NAMES: dict[str, tuple[Kind, str]] = {
    printed: (kind, name) for (kind, name), words in _NAMES.items() for printed in words.split()
}
ORDER: dict[str, int] = {printed: at for at, printed in enumerate(NAMES)}
"""Which of several steps or losses of one line is meant: the first."""
SPACED = frozenset(
    {"loss", "cost", "gnorm", "grad_norm", "learningrate", "speed", "ppl", "train_loss", "损失"}
)
"""Names behind which a space alone may stand before the number."""

_LOSSES = frozenset({"loss", "losses", "nll", "bce", "损失"})
_ENDS_IN_LOSS = re.compile(r"(?:loss|损失)\d*$")
_HELD_OUT = frozenset({"val", "valid", "validation", "eval", "test", "dev", "evaluation"})
_WORDS_OF_SETTINGS = """
max min best target init initial weight weights coef coeff factor alpha type ratio limit threshold clip
patience tolerance lambda start scale scaler margin smoothing fn func function name interval backoff growth
window std var count num n tokens time
"""
_SETTINGS = frozenset(_WORDS_OF_SETTINGS.split())
_GRADIENT = frozenset({"grad", "grads", "gradient", "gradients"})
_AVERAGES = frozenset({"avg", "average", "mean", "running", "smoothed", "smooth", "ema", "moving", "window"})
_CUT = re.compile(r"[^0-9a-z\u4e00-\u9fff]+")


def normal(printed: str) -> str:
    """Return a printed name as it is looked up: `Grad Norm` is `grad_norm`."""
    return _CUT.sub("_", printed.lower()).strip("_")


def kind_of(printed: str) -> tuple[Kind, str]:
    """Return what a printed name means and the field's word for it, its own where there is none."""
    name = normal(printed)
    known = NAMES.get(name)
    if known is not None:
        return known
    words = name.split("_")
    last = NAMES.get(normal(printed.rsplit("/", 1)[-1])) if "/" in printed else None
    if last is not None and last[0] not in ("loss", "step", "epoch"):
        return last[0], last[1] if last[0] in ("shown", "rate") else name
    is_loss = not _LOSSES.isdisjoint(words) or bool(_ENDS_IN_LOSS.search(name))
    if is_loss or (not _GRADIENT.isdisjoint(words) and "norm" in words):
        if not _SETTINGS.isdisjoint(words):
            return "setting", name
        if not is_loss:
            return "norm", name
        if not _HELD_OUT.isdisjoint(words):
            return "eval", name
        return ("loss", "loss") if name in ("train_train_loss", "train_loss_step") else ("part", name)
    return "other", name


def is_average(printed: str) -> bool:
    """Tell whether a name is that of an average over earlier steps, which a bad step spoils for good."""
    return not _AVERAGES.isdisjoint(normal(printed).split("_"))
