"""Lines of metrics: which lines they are, what each number means, and that a template is read at once."""

from __future__ import annotations

import math
import random
import time

import pytest
from ascend_tui_plugins.logs.lines import parse
from ascend_tui_plugins.logs.metrics.following import is_scale_line
from ascend_tui_plugins.logs.metrics.metric_lines import Layout, is_metric, layout_of, span_of
from ascend_tui_plugins.logs.metrics.metric_names import kind_of
from ascend_tui_plugins.logs.metrics.metric_scan import pairs_of
from ascend_tui_plugins.logs.metrics.scale_lines import read_scale_line

NAN = math.nan


def layout(raw: str | bytes) -> Layout | None:
    raw = raw if isinstance(raw, bytes) else raw.encode()
    line = parse(raw)
    return layout_of(line, raw) if is_metric(line.text) else None


def values(raw: str | bytes) -> dict[str, float | None]:
    """Return what is read of a line, by the names of the field."""
    found = layout(raw)
    if found is None:
        return {}
    columns = found.read([raw if isinstance(raw, bytes) else raw.encode()])
    return dict(zip(found.names, (column[0] for column in columns)))


MEGATRON = (
    " iteration     2210/    4000 | consumed samples:       141440 | elapsed time per iteration (ms): 911.4 |"
    " learning rate: 3.100E-05 | global batch size:    64 | lm loss: {loss} | loss scale: 65536.0 |"
    " grad norm: {norm} | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
FORMS = (
    (
        MEGATRON.format(loss="2.113400E+00", norm="0.481"),
        {
            "step": 2210,
            "loss": 2.1134,
            "loss_scale": 65536,
            "grad_norm": 0.481,
            "skipped": 0,
            "step_time": 911.4,
        },
    ),
    (
        "{'loss': 0.42, 'grad_norm': nan, 'learning_rate': 3e-05, 'epoch': 1.25}",
        {"loss": 0.42, "grad_norm": NAN, "learning_rate": 3e-05, "epoch": 1.25},
    ),
    (
        "{'loss': '0.42', 'grad_norm': '1.5', 'epoch': '1.25'}",
        {"loss": 0.42, "grad_norm": 1.5, "epoch": 1.25},
    ),
    ('{"step": 12, "loss": 1.5, "lr": 1e-4}', {"step": 12, "loss": 1.5, "learning_rate": 1e-4}),
    (
        "Epoch: [3]  [ 120/1000]  eta: 0:01:06  lr: 0.000200  loss: 0.5120 (nan)"
        "  loss_scale: 4096.0000 (4001.2)  grad_norm: 0.2100 (inf)  time: 0.3023  max mem: 7001",
        {"step": 120, "epoch": 3, "loss": 0.512, "loss_scale": 4096, "grad_norm": 0.21, "memory": 7001},
    ),
    (
        "2024-02-01 04:11:55,001 - mmdet - INFO - Iter [150/9000]\tlr: 1.0e-04, eta: 3:20:10, memory: 9001, "
        + ", ".join(f"loss_cls_{n}: 0.5{n}" for n in range(90))
        + ", loss: 46.1000, grad_norm: nan",
        {"step": 150, "loss": 46.1, "grad_norm": NAN, "loss_cls_0": 0.50},
    ),
    (
        "[02/05 11:00:01 d2.utils.events]:  eta: 1:00:00  iter: 39  total_loss: 2.5  loss_cls: 1.2  time: 0.3"
        "  lr: 0.0002  max_mem: 2000M",
        {"step": 39, "loss": 2.5, "loss_cls": 1.2, "learning_rate": 0.0002},
    ),
    (
        "epoch 002:     14 / 1500 loss=5.2, nll_loss=4.1, ppl=17.15, wps=930.5, num_updates=1514, lr=1e-05,"
        " gnorm=1.2, clip=0, loss_scale=64",
        {"step": 1514, "loss": 5.2, "nll_loss": 4.1, "perplexity": 17.15, "grad_norm": 1.2, "loss_scale": 64},
    ),
    (
        "[2021-03-01 20:22:24] Ep. 2 : Up. 700 : Sen. 91,001 : Cost 3.21 : Time 19.37s : 3100.78 words/s"
        " : gNorm 1.5",
        {"step": 700, "epoch": 2, "loss": 3.21, "grad_norm": 1.5},
    ),
    (
        "Training: 2024-03-14 09:08:43,293-Speed 1978.40 samples/sec   Loss nan   LearningRate 0.002000"
        "   Epoch: 0   Global Step: 40   Fp16 Grad Scale:  0   Required: 94 hours",
        {"step": 40, "loss": NAN, "learning_rate": 0.002, "loss_scale": 0, "throughput": 1978.4},
    ),
    (
        "2024-01-25 00:21:09.074 | INFO     | trainers.base:train:25 - [R0] | E5 iter[ 14/ 15] "
        "| [Loss] 512.44 | [exp] ./exp/0125 | [step]    91 | [best] 0 -100.000x1e-2 ",
        {"step": 91, "loss": 512.44, "rank": 0},
    ),
    (
        "[2024-05-28 08:32:40,564 INFO] Step 4000/9000; acc: 61.4; ppl:   9.7; xent: 2.3; lr: 0.00027;"
        " 5745 sec;",
        {"step": 4000, "perplexity": 9.7, "cross_entropy": 2.3, "accuracy": 61.4},
    ),
    ("3120 nan", {"step": 3120, "value": NAN}),
    ("loss=nan step=77", {"loss": NAN, "step": 77}),
    (
        "Epoch 3:  45%|████▌     | 118/262 [00:10<00:12, 11.30it/s, loss=nan, v_num=0]",
        {"epoch": 3, "step": 118, "loss": NAN},
    ),
    (
        "[2024-01-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=30, skipped=4, lr=[0.001],"
        " mom=[(0.9, 0.95)]",
        {"step": 30, "skipped": 4, "learning_rate": 0.001, "rank": 0},
    ),
    ("epoch: 1 step: 10, loss is nan", {"epoch": 1, "step": 10, "loss": NAN}),
    (
        "2025-03-01 02:11:09 [INFO] 第 36 步 损失: 2.5 学习率: 1.0e-4",
        {"step": 36, "loss": 2.5, "learning_rate": 1e-4},
    ),
    ("16/40 - 2s - loss: 0.5 - val_loss: nan - accuracy: 0.25", {"step": 16, "loss": 0.5, "val_loss": NAN}),
    (
        "step:12 - critic/vf_loss:0.5 - actor/grad_norm:nan - actor/pg_loss:0.12",
        {"step": 12, "critic_vf_loss": 0.5, "actor_grad_norm": NAN, "actor_pg_loss": 0.12},
    ),
    (
        "step: 10  loss: 7.2  memory: 25GiB(31%)  tps: 1,234  mfu: 3.4%",
        {"step": 10, "loss": 7.2, "memory": 25, "throughput": 1234, "utilisation": 3.4},
    ),
    ("\x1b[31mstep: 8\x1b[0m  \x1b[1mloss: nan\x1b[0m", {"step": 8, "loss": NAN}),
    ("\r 10%| 1/9 [00:01<00:09, loss=3.1]\r 20%| 2/9 [00:02<00:08, loss=2.9]", {"step": 2, "loss": 2.9}),
    (
        "2025-03-01 10:00:00,123 - mindformers[callback.py:318] - INFO - { Epoch:[  1/  2],"
        " step:[   20/ 6500], loss:[10.611/10.618], time:51802.317 ms, lr:[1e-05], overflow cond: True,"
        " loss_scale: 65536.0",
        {"epoch": 1, "step": 20, "loss": 10.611, "learning_rate": 1e-5, "loss_scale": 65536},
    ),
    ("Epoch 0:   5%| | 10/200 [00:01<00:10, v_num=1, train_loss=nan.0]", {"step": 10, "loss": NAN}),
    ("step 4 loss: tensor([nan], device='npu:0')", {"step": 4, "loss": NAN}),
    ("step:4 - actor/grad_norm:np.float64(nan)", {"step": 4, "actor_grad_norm": NAN}),
    ('{"loss": "nan", "num_updates": "40"}', {"loss": NAN, "step": 40}),
    ("|    policy_loss      | nan         |", {"policy_loss": NAN}),
    ("第 4 步 损失为 nan，停止训练", {"step": 4, "loss": NAN}),
    ("step 4 loss: -nan(ind)", {"step": 4, "loss": NAN}),
    ("loss: tensor(nan, device='npu:0', grad_fn=<MulBackward0>)", {"loss": NAN}),
    ("***WARNING*** Bad grad_norm detected (grad_norm=nan)", {"grad_norm": NAN}),
)


@pytest.mark.parametrize(("raw", "expected"), FORMS, ids=[form[0].strip()[:28] for form in FORMS])
def test_each_form_is_read_with_the_field_s_names(raw: str, expected: dict[str, float]) -> None:
    found = values(raw)
    assert {name: found.get(name, "absent") for name in expected} == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("raw", [form[0] for form in FORMS], ids=[form[0].strip()[:28] for form in FORMS])
def test_each_form_is_read_in_columns_and_not_line_by_line(raw: str) -> None:
    found = layout(raw)
    assert found is not None
    columns = found.watch([raw.encode()] * 2)
    assert columns is not None
    spans = [span_of(column) for column in columns]
    expected = values(raw)
    for at, (low, high) in zip(found.watched, spans):
        assert (low, high) == pytest.approx((expected[found.names[at]],) * 2, nan_ok=True)


@pytest.mark.parametrize("codec", ["utf-8", "gb18030"])
def test_chinese_is_read_in_both_of_its_encodings(codec: str) -> None:
    assert values("第 9 步 损失: 2.5 学习率: 0.5".encode(codec)) == {
        "step": 9,
        "loss": 2.5,
        "learning_rate": 0.5,
    }


NOT_METRICS = (
    "max_grad_norm=inf clip disabled (math.inf)   early_stopping best=-inf   temperature: inf",
    "attention_mask filled with -inf for padded tokens, score min=-inf max=8.21",
    "Namespace(loss=nan, grad_norm=inf, lr=0.1)",
    "TrainingArguments(loss_scale=nan, learning_rate=0.1)",
    "saved runs/epoch=12-step=345-val_loss=nan.ckpt",
    "wrote grad_norm=nan/plot.png",
    "if loss == nan: raise ValueError",
    "If loss is nan, reduce the learning rate",
    "check whether the loss is nan before the step",
    "loss weights: 0.5",
    "mean squared error: 0.0312, root mean square error (RMSE)=0.1767",
    "handle_nan=True ; nan_policy=omit ; loss_fn=CrossEntropy",
    "grad: " + "0.5, nan, " * 40,
    "0 NaN",
    "Downloading 12/40 files",
    "loss_scale_window=1000",
    "step 3 loss: tensor([nan, 0.5, 0.5], device='npu:0')",
    "如果损失为 nan，请降低学习率",
)


@pytest.mark.parametrize("raw", NOT_METRICS)
def test_settings_code_names_of_files_and_prose_are_no_metrics(raw: str) -> None:
    found = layout(raw)
    assert found is None or not any(
        value != value or value in (math.inf, -math.inf) for value in values(raw).values()
    )


def test_settings_are_no_metric_at_all() -> None:
    assert kind_of("max_grad_norm")[0] == kind_of("loss_weight")[0] == kind_of("best_loss")[0] == "setting"
    assert kind_of("loss_scale") == ("scale", "loss_scale")
    assert kind_of("lm loss")[0] == "loss"
    assert kind_of("eval/loss")[0] == "eval"


@pytest.mark.parametrize(
    "raw", ['  "loss_scale": 0,', '{"fp16": {"enabled": true, "loss_scale": 0}, "lr": 0.1}']
)
def test_a_configuration_of_the_loss_scale_is_no_loss_scale(raw: str) -> None:
    assert "loss_scale" not in values(raw)


def test_an_average_is_history_where_the_number_stands_beside_it() -> None:
    assert "avg_loss" not in values("step 3 | loss: 0.5 | avg_loss: nan")
    assert math.isnan(values("step 3 | avg_loss: nan")["avg_loss"] or 0.0)


def test_one_total_loss_and_its_parts_are_told_apart() -> None:
    found = layout("iter: 5 loss: 3.0 train_loss: 2.0 loss_a: 1.0")
    assert found is not None
    assert dict(zip(found.names, found.kinds))["loss"] == "loss"
    assert [kind for kind in found.kinds if kind == "loss"] == ["loss"]


def test_all_lines_of_a_template_are_read_at_once_and_one_that_does_not_fit_is_left_out() -> None:
    found = layout(MEGATRON.format(loss="2.1E+00", norm="0.5"))
    assert found is not None
    raws = [MEGATRON.format(loss=f"{n}.5E-01", norm=f"0.{n}").encode() for n in range(1, 9)]
    columns = dict(zip(found.names, found.read(raws)))
    assert columns["loss"] == pytest.approx([n / 10 + 0.05 for n in range(1, 9)])
    assert columns["grad_norm"] == pytest.approx([n / 10 for n in range(1, 9)])
    columns = dict(zip(found.names, found.read([raws[0], b"another line", raws[1]])))
    assert columns["grad_norm"] == [0.1, None, 0.2]


def test_the_extremes_of_the_watched_columns_are_those_of_all_lines() -> None:
    found = layout(MEGATRON.format(loss="2.1E+00", norm="0.5"))
    assert found is not None
    raws = [MEGATRON.format(loss=f"{n}.0E+00", norm=f"0.{n}").encode() for n in (4, 1, 7)]
    columns = found.watch(raws)
    assert columns is not None
    spans = [span_of(column) for column in columns]
    assert dict(zip((found.names[at] for at in found.watched), spans)) == {
        "loss": (1.0, 7.0),
        "loss_scale": (65536.0, 65536.0),
        "grad_norm": (0.1, 0.7),
        "skipped": (0.0, 0.0),
    }
    columns = found.watch([raws[0], MEGATRON.format(loss="nan", norm="0.5").encode()])
    assert columns is not None
    spans = [span_of(column) for column in columns]
    assert math.isnan(spans[0][0])


def test_lines_of_several_ranks_bring_the_rank_as_a_column() -> None:
    found = layout("[rank1]: step 5, loss: 2.0")
    assert found is not None
    columns = found.read([f"[rank{n}]: step 5, loss: 2.{n}".encode() for n in (3, 12)])
    assert dict(zip(found.names, columns)) == {"rank": [3, 12], "step": [5, 5], "loss": [2.3, 2.12]}


@pytest.mark.parametrize(
    ("text", "skips", "scales", "lowered", "still"),
    [
        ("Gradient overflow. Skipping step", 1, (), False, False),
        ("Gradient overflow. Skipping stepGradient overflow. Skipping step", 2, (), False, False),
        (
            "Loss scaler reducing loss scale to 64.0Loss scaler reducing loss scale to 32.",
            0,
            (64.0, 32.0),
            True,
            False,
        ),
        (
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1e-323",
            1,
            (1e-323,),
            True,
            False,
        ),
        (
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1024, reducing to 512",
            1,
            (512.0,),
            True,
            False,
        ),
        (
            "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0",
            1,
            (64.0,),
            False,
            False,
        ),
        ("[WARNING] overflow, still update, loss scale adjust to 2048.0", 0, (2048.0,), False, True),
        ("检测到梯度溢出，跳过该步，损失缩放调整为 256.0", 1, (256.0,), False, False),
    ],
)
def test_words_about_the_loss_scale_are_understood(
    text: str, skips: int, scales: tuple[float, ...], lowered: bool, still: bool
) -> None:
    found = read_scale_line(text, 1, 0)
    assert found is not None
    assert (found.skips, found.scales, found.is_lowered, found.is_still) == (skips, scales, lowered, still)


@pytest.mark.parametrize(
    "text",
    [
        "ub overflow, requires 1835776 bits while 1572864 bits available",
        "OverflowError: math range error",
        "overflow_check=True, loss_scale=1024",
        "buffer overflow detected: terminated",
        "step: 10  loss: 7.2  loss scale: 1024",
    ],
)
def test_other_overflows_are_none_of_the_loss_scale(text: str) -> None:
    assert not is_scale_line(text)


def test_no_line_costs_more_than_its_length() -> None:
    pieces = (
        "loss=",
        "1,",
        "1.5e",
        "(",
        "x(",
        "[",
        "overflow ",
        "第 1",
        "1 / 2 ",
        "Tensor(value= 1 ",
        "9",
        "loss: nan ",
    )
    began = time.process_time()
    for piece in pieces:
        text = ("loss " + piece * 65536)[:65536]
        raw = text.encode()
        found = layout_of(parse(raw), raw)
        is_scale_line(text)
        if found is not None:
            found.read([raw])
    assert time.process_time() - began < 6.0
    began = time.process_time()
    assert not is_metric("loss=1.0 " * 200_000)
    assert time.process_time() - began < 0.5


def test_whatever_a_line_holds_nothing_raises() -> None:
    rng = random.Random(7)
    pieces = [
        "loss",
        "=",
        ": ",
        "nan",
        "inf",
        " ",
        "1.5",
        "(",
        ")",
        "[",
        "]",
        "'",
        "step",
        "grad_norm",
        "|",
        "第",
        "步",
    ]
    pieces += [
        "\x1b[31m",
        "\r",
        "\0",
        "e+5",
        ",",
        "/",
        " is ",
        "tensor(",
        "overflow",
        "scale to 5",
        "损失",
        "\ufffd",
    ]
    for _ in range(4000):
        raw = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 25))).encode()
        if rng.random() < 0.2:
            raw = bytes(rng.randrange(256) for _ in range(20)).replace(b"\n", b"") + raw
        line = parse(raw)
        read_scale_line(line.text, 0, 0)
        found = layout_of(line, raw)
        if found is not None:
            assert [len(column) for column in found.read([raw, b"x", raw])] == [3] * len(found.names)
            assert len(found.fields(raw)) == len(pairs_of(line.text))
