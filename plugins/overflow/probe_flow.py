"""What the operators of a step did to each other: who was bad first, and what led to it."""

import math

MOST_CHAIN = 24


def setup(api):
    """Offer both to the other parts."""
    api.first_bad, api.chain = first_bad, chain


def first_bad(entries, values):
    """Return the place of the first output that is bad and others are bad by, and the places that are meant.

    An infinity is meant where the training wrote it on purpose, and what is made of such a one with the same
    sign.  A bad output of which only good ones were made is harmless: it is the first only where there is no
    other.
    """
    bad: list[int] = []
    spoilt: set[int] = set()
    meant: set[int] = set()
    infects: set[int] = set()
    used: set[int] = set()
    for place, entry in enumerate(entries):
        low, high = values[2 * place], values[2 * place + 1]
        if math.isfinite(low) and math.isfinite(high):
            # Of a loss a backward takes nothing over but its shape, for the one that it begins with.
            if entry.op == "aten::ones_like":
                infects.update(one for one in entry.sources if one in spoilt)
            used.update(entry.sources)
            continue
        if is_meant(entry, low, high, values, meant):
            meant.add(place)
            continue
        infects.update(one for one in entry.sources if one in spoilt)
        bad.append(place)
        spoilt.add(place)
    if not bad:
        return None, meant
    lead = [one for one in bad if one in infects or one not in used]
    return (lead or bad)[0], meant


def is_meant(entry, low, high, values, meant):
    """Tell whether an infinity is one that the training wrote on purpose, or was made of such a one."""
    if low != low or high != high:
        return False
    from_bad = [
        one
        for one in entry.sources
        if not (math.isfinite(values[2 * one]) and math.isfinite(values[2 * one + 1]))
    ]
    if entry.means and not from_bad:
        return True
    if not from_bad or not all(one in meant for one in from_bad):
        return False
    # The same sign as before: -Inf of a mask that became +Inf is news.
    return (low != -math.inf or any(values[2 * one] == -math.inf for one in from_bad)) and (
        high != math.inf or any(values[2 * one + 1] == math.inf for one in from_bad)
    )


def chain(entries, place):
    """Return what led to an output, by the outputs that its inputs came from, nearest first, and itself."""
    found, wave = [place], [place]
    while wave and len(found) < MOST_CHAIN:
        following = []
        for one in wave:
            for source in entries[one].sources:
                if source not in found and len(found) < MOST_CHAIN:
                    found.append(source)
                    following.append(source)
        wave = following
    return found
