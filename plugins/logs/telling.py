"""What the story and the files say of an incident in the same words: when, where, how sure, and its facts."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.text import count, msgid, tr

from .knowledge import codes
from .snapshot import Fact, Incident
from .views.figures import category_word, moment, number, plain, ranks_words

FACTS = {
    "chip": msgid("chip"),
    "die": msgid("die"),
    "core": msgid("core"),
    "block": msgid("block"),
    "kernel": msgid("kernel"),
    "device": msgid("device"),
    "stream": msgid("stream"),
    "task": msgid("task"),
    "operator": msgid("operator"),
    "host_at": msgid("noticed at"),
    "error_code": msgid("error code"),
    "group": msgid("group"),
    "sequence": msgid("sequence"),
    "timeout_ms": msgid("timeout, ms"),
    "code": msgid("code"),
}
"""The words of the facts that rules name; another one is shown as it is named."""
SURENESS = {
    "exact": msgid("exact: the line itself says so"),
    "likely": msgid("likely: concluded from several lines, not proven"),
    "async": msgid(
        "async: the device reports late, so a Python line that is named is only where the host noticed, "
        "and an earlier call may be to blame"
    ),
}
_MOST_FACTS = 24


def when_words(incident: Incident, world_size: int | None = None) -> list[str]:
    """Return of which sort it is, when it was, how often and where, each in a few words."""
    words = [category_word(incident.category)]
    first, last = incident.step, incident.last_step
    if first is not None and last is not None and last != first:
        words.append(tr("steps {first} to {last}", first=count(first), last=count(last)))
    elif first is not None or last is not None:
        words.append(tr("step {step}", step=count(first if first is not None else last or 0)))
    begun, ended = moment(incident.first_wall_s), moment(incident.last_wall_s)
    if ended and incident.is_clock_known:
        words.append(f"{begun} – {ended}" if begun and begun != ended else ended)
    elif ended:
        words.append(tr("read at {time}, the lines have no time of their own", time=ended))
    if incident.count > 1:
        words.append(tr("seen {n} times", n=count(incident.count)))
    if incident.ranks:
        words.append(ranks_words(incident.ranks, world_size))
    if incident.devices:
        devices = ", ".join(str(one) for one in incident.devices[:16])
        one_only = len(incident.devices) == 1
        words.append(
            tr("device {devices}", devices=devices) if one_only else tr("devices {devices}", devices=devices)
        )
    return words


def code_words(code: str) -> str:
    """Return a code with what it means in the words of a source, and which source that is."""
    shown = plain(code, 60)
    known = codes.acl(shown) or codes.cann(shown) or codes.torch_npu(shown)
    return f"{shown}: {known.says} ({known.source})" if known is not None else shown


def fact_words(facts: Sequence[Fact]) -> list[tuple[str, str]]:
    """Return names and values of an incident's facts, the names in the present language."""
    found = []
    for fact in facts[:_MOST_FACTS]:
        value = number(fact.value) if isinstance(fact.value, float) else plain(str(fact.value))
        found.append((tr(FACTS[fact.name]) if fact.name in FACTS else plain(fact.name, 24), value))
    return found
