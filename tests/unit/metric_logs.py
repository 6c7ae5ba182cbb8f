"""Lines of metrics as trainings print them, and the digest's way of following them."""

from __future__ import annotations

from collections.abc import Iterable

from ascend_tui_plugins.logs.lines import parse
from ascend_tui_plugins.logs.metrics.following import Following, Group, is_scale_line
from ascend_tui_plugins.logs.metrics.metric_lines import Layout, is_metric, layout_of
from ascend_tui_plugins.logs.snapshot import Incident, Metric

DIGITS = b"0123456789"


def follow(lines: Iterable[str | bytes], block: int = 5000, following: Following | None = None) -> Following:
    """Give lines as the digest does: by template, block by block, words about the scale first."""
    following = following or Following()
    layouts: dict[bytes, Layout | str | None] = {}
    raws = [line if isinstance(line, bytes) else line.encode() for line in lines]
    for start in range(0, len(raws), block):
        groups: dict[bytes, tuple[list[int], list[bytes]]] = {}
        for number, raw in enumerate(raws[start : start + block], start + 1):
            key = raw.translate(None, DIGITS)
            if key not in layouts:
                line = parse(raw, number)
                is_words = is_scale_line(line.text)
                layouts[key] = "words" if is_words else layout_of(line, raw) if is_metric(line.text) else None
            layout = layouts[key]
            if isinstance(layout, str):
                following.take_scale_line(parse(raw, number))
            elif layout is not None:
                numbers, found = groups.setdefault(key, ([], []))
                numbers.append(number)
                found.append(raw)
        following.take(
            [
                Group(layout, *groups[key])
                for key, layout in layouts.items()
                if key in groups and isinstance(layout, Layout)
            ]
        )
    return following


def said(lines: Iterable[str | bytes], block: int = 5000) -> list[Incident]:
    return list(follow(lines, block).incidents())


def head(incident: Incident) -> str:
    return incident.headline.render()


def evidence(incident: Incident) -> str:
    return " · ".join(one.render() for one in (*incident.evidence, *filter(None, (incident.reason,))))


def metric(following: Following, name: str) -> Metric:
    return next(one for one in following.metrics() if one.name == name)


def hf(at: int, loss: object = 2.1, norm: object = 1.5) -> str:
    return f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 1e-05, 'epoch': {at / 100}}}"


def megatron(step: int, loss: str | None = "2.1E+00", norm: str = "0.7", scale: str = "1.0") -> str:
    part = "" if loss is None else f" lm loss: {loss} |"
    return (
        f" iteration {step:8d}/    9000 | consumed samples: {step * 64:12d} | learning rate: 1.0E-04"
        f" | global batch size:    64 |{part} loss scale: {scale} | grad norm: {norm}"
        " | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def step_line(step: int, loss: object, **more: object) -> str:
    return " ".join([f"step: {step} loss: {loss}", *(f"{name}: {value}" for name, value in more.items())])
