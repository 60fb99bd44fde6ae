"""The claims, the meaning of words such as "negligible", and the rules that turn numbers into verdicts.

Each claim has two verdicts: one in work units, one in time. Both are made by the same functions with the same
thresholds. Commit ebb646b1 fixed them on 2026-11-22, after the first numbers (d029a6f2); 2ba26b4b and
e2c3ce7a made some stricter on 2026-11-26. A verdict is about whole intervals: what is not certain does not
hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

HOLDS, PARTLY, FAILS = "holds", "partly", "fails"
DOES_NOT_APPLY, OBSERVED = "does not apply", "observed"
CANNOT = "cannot be judged"

NEGLIGIBLE = 0.05
"""A share, a gap or a difference is negligible up to this."""
SMALL = 0.10
"""It is small up to this; a claim that it is negligible then holds partly."""
CLEARLY = 0.10
"""A gain above this is a clear one."""
MUCH = 0.25
"""A gain above this makes something much better."""
NEARLY_HALF = (0.40, 0.50)
"""A gain of nearly 50 % is between these."""
RISES = 0.9
"""Numbers rise with batch size if their rank correlation is above this."""
SLOWLY = 0.25
"""Something changes slowly if it moves in at most this share of the steps, and by one at most."""
SAME = 0.01
"""Two plans count as equal if they surely differ by less than this."""
FALLS = 0.9
"""A share falls if it ends below this part of what it was at first."""
RAGGED, RAGGED_AT = 0.05, (4, 16)
"""Curves are ragged if more than this share of them is no valley; the paper's are at these numbers N."""
MOST = 0.5
"""A claim about several cases holds partly if it holds in at least this share of them."""
FOUR_ORDERS = 10**3.5
"""Something is faster by about four orders of magnitude if it is at least so many times as fast."""


class Finding(NamedTuple):
    """The result for a claim in a unit, and the verdict on it."""

    ours: str
    verdict: str
    """``holds``, ``partly``, ``fails`` or ``does not apply``; ``observed`` if nothing was claimed, and
    ``cannot be judged`` if no numbers could have shown otherwise."""


class Claim(NamedTuple):
    """A claim of the paper, or of ours, with what was found in work units and in time.

    `paper` is what the paper says.
    """

    claim: str
    paper: str
    units: Finding
    time: Finding


PART = "a part of the claim above"
"""The paper's statement for a claim that is a part: the claim before it is judged as a whole."""
NOT_TIMED = Finding("not timed", DOES_NOT_APPLY)
"""The finding in time where no times were taken."""

Three = Sequence[float]
"""A value and the two ends of its interval, see `confidence.Interval`; from a file it is a list."""


WORDS = {
    "negligible": f"at most {NEGLIGIBLE:.0%}; partly: at most {SMALL:.0%}",
    "clearly": f"a gain above {CLEARLY:.0%}",
    "much better": f"a gain above {MUCH:.0%}; partly: above {CLEARLY:.0%}",
    "very near, merged": f"a difference that is negligible; partly: at most {SMALL:.0%}",
    "nearly 50 %": f"{NEARLY_HALF[0]:.0%} to {NEARLY_HALF[1]:.0%}",
    "the larger, the larger": f"rank correlation above {RISES:g}; partly: above {RISES / 2:g}",
    "slowly": f"at most {SLOWLY:.0%} of the steps move it, by one; partly: one of the two",
    "falls": f"ends below {FALLS:.0%} of its begin, and never rises; partly: only the first",
    "equal": f"worse by less than {SAME:.0%}",
    "ragged": f"above {RAGGED:.0%} of the curves are no valley at N = {RAGGED_AT[0]} and {RAGGED_AT[1]}",
    "about four orders": f"at least {FOUR_ORDERS:,.0f} times as fast",
    "in several cases": f"in all of them; partly: in at least {MOST:.0%} of them",
}
"""The meaning of the words of claims. A number is above a limit only if its whole interval is."""


def above(found: Iterable[Three], limit: float) -> str:
    """Return the verdict that values surely exceed a limit, see `in_cases`."""
    return in_cases([low > limit for _, low, _ in found])


def rather_above(found: Iterable[Three], limit: float, most: float) -> str:
    """Return "holds" if all values surely exceed `most`, "partly" if all of them exceed `limit`."""
    values = list(found)
    if above(values, most) == HOLDS:
        return HOLDS
    return PARTLY if above(values, limit) == HOLDS else FAILS


def negligible(found: Iterable[Three]) -> str:
    """Return "holds" if all values are surely negligible, "partly" if all are at least small."""
    values = list(found)
    if not values:
        return DOES_NOT_APPLY
    most = max(high for _, _, high in values)
    return HOLDS if most <= NEGLIGIBLE else PARTLY if most <= SMALL else FAILS


def nearly_half(found: Three) -> str:
    """Return "holds" if a gain is surely nearly 50 %, "partly" if it may be."""
    _, low, high = found
    least, most = NEARLY_HALF
    return HOLDS if least <= low and high <= most else PARTLY if low <= most and least <= high else FAILS


def by_order(gains: Iterable[tuple[Three, Three, Three]]) -> str:
    """Return the verdict that gains come from the order alone.

    Parameters
    ----------
    gains : iterable of tuple of Three
        The gains of plans shortest first, in arrival order, and longest first. Only clear gains are judged. A
        clear gain in the worst order is no gain by order, so the claim fails; it holds only if surely
        nothing clear is gained in arrival order.
    """
    clear = [(arrival, longest) for shortest, arrival, longest in gains if shortest[1] > CLEARLY]
    if not clear:
        return DOES_NOT_APPLY
    if any(longest[1] > CLEARLY for _, longest in clear):
        return FAILS
    return HOLDS if all(arrival[2] <= CLEARLY for arrival, _ in clear) else PARTLY


def rising(rank: float) -> str:
    """Return "holds" if a rank correlation means that numbers rise, "partly" if they rise on the whole."""
    return HOLDS if rank > RISES else PARTLY if rank > RISES / 2 else FAILS


def ragged(shares: Mapping[int, float]) -> str:
    """Return the verdict that curves are ragged at all N of the paper, or at some, and less at the largest.

    `shares` are those of curves that are no valley, by N in rising order.
    """
    named = [shares[count] > RAGGED for count in RAGGED_AT if count in shares]
    *_, last = shares.values()
    less = last < max(shares.values()) / 2
    if len(named) == len(RAGGED_AT) and all(named):
        return HOLDS if less else PARTLY
    return PARTLY if any(named) else FAILS


def falling(shares: Sequence[float]) -> str:
    """Return the verdict that shares fall at each step and in total; partly if in total only."""
    if shares[-1] >= FALLS * shares[0]:
        return FAILS
    return HOLDS if all(later < earlier for earlier, later in pairwise(shares)) else PARTLY


def slowly(moved: Sequence[int], unknown: int = 0) -> str:
    """Return the verdict that something changes slowly.

    Parameters
    ----------
    moved : sequence of int
        Its move in each step with a known one; 0 if it stayed.
    unknown : int
        Number of steps of which it is not known, because the intervals are wide. They count as moves when
        the claim would hold, so they can make it "partly".
    """
    if not moved and not unknown:
        return DOES_NOT_APPLY
    steps = len(moved) + unknown
    sure = sum(distance > 0 for distance in moved)
    near = max(moved, default=0) <= 1
    if near and sure + unknown <= SLOWLY * steps:
        return HOLDS
    return PARTLY if near or sure <= SLOWLY * steps else FAILS


def in_cases(held: Sequence[bool]) -> str:
    """Return the verdict on one claim in several cases: "holds" in all, "partly" in at least half of them.

    Cases differ by what the claim leaves open, such as the number of subscriptions. The parts of a claim are
    no cases: each part is a claim with its own verdict.
    """
    if not held:
        return DOES_NOT_APPLY
    return HOLDS if all(held) else PARTLY if sum(held) >= MOST * len(held) else FAILS


def of_cases(verdicts: Iterable[str]) -> str:
    """Return the verdict on one claim from its verdicts in several cases, see `in_cases`."""
    judged = [verdict for verdict in verdicts if verdict in (HOLDS, PARTLY, FAILS)]
    if set(judged) == {HOLDS}:
        return HOLDS
    at_least_partly = in_cases([verdict != FAILS for verdict in judged])
    return PARTLY if at_least_partly == HOLDS else at_least_partly
