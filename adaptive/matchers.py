"""The choice of the matcher of a filter, decided by trials beside the matcher in use.

Like a controller it only decides. It gets reports of batches and changes, asks for trials, gets their
results, and says when to move. It has no clock: it sums the times of batches.

**A round** tries each candidate beside the matcher in use, on the same recent batches, in alternation. The
first sample of the subscriptions is small, the next ones are larger, and the last trial has all. A candidate
that loses by too much is never built in full. Only a trial with all subscriptions can cause a move.

**A move** needs a gain: the candidate takes 5 % less time, and less by 2.3 standard errors, over the batches
as they come; streamed batches count with the mean response of their events. And the saved time is more than
the time to build it, if the future lasts as long as the past. After each move away from a matcher, it needs
twice the gain to return, so that the choice does not oscillate.

**Another round** begins when responses drift (:mod:`rtfilter.adaptive.drift`), when there are many more or
fewer subscriptions, when batches are of other sizes, and after a while, which gets longer each time.

**Costs.** Trials take at most a share of the time of batches, and a candidate at most a share of the memory
of the matcher in use.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rtfilter.adaptive.controllers import Recorder, not_negative, positive, replay_log
from rtfilter.adaptive.drift import LEAST_NOISE, Drift, Noise
from rtfilter.adaptive.plans import Entry, Sink
from rtfilter.adaptive.sizes import powers_of_two

SAMPLE, STEP = 1024, 8
"""Subscriptions of the first sample, and how many times as many the next one has."""
CATCH_UP = 3.0
"""Factor that a candidate may gain on the matcher in use, from one sample to the next."""
GAIN, MOST_GAIN = 0.05, 0.4
"""Share of the time that a candidate must save: at first, and at most after repeated moves away from it."""
SURE = 2.3
"""Standard errors: with three looks one in forty candidates that are as fast seems faster (Pocock 1977)."""
LONG = 0.02
"""Seconds that a change may take. A matcher that rebuilds for each change, and takes longer, is not used."""
FIRST_COST = 0.02
"""Seconds that the first trial is expected to take."""
TRIES = 3
"""Trials of all with one candidate, as long as it may be faster but is not certain to be."""
PASSES = 4
"""Least number of times that a trial matches its batches by both matchers."""
AGAIN = 4.0
"""Growth of the total matching time, after a round without a move, that starts the next round."""
GROWN = 1.5
"""Factor of growth or shrinkage of the subscriptions that starts a new round."""
MIXED = 0.25
"""Share of the time that must have moved to batches of other sizes to start a new round."""
SMALL = 1 << 26
"""Bytes that a candidate may use in any case."""
EQUAL = 0.02
"""Share of subscriptions with an equality from which a matcher that looks up equalities is worth a trial."""
WIDE = 1.25 * 1.48
"""Standard error of a median, times the root of their number, as a multiple of the median deviation."""
FEW = 2.7
"""Of n pairs, 1 + FEW / (n - 1) times as large: Student's distribution is wider than the normal one."""

_Class = tuple[int, bool]
"""A class of batches: the smallest of their sizes, and whether they are streamed."""


class Content(NamedTuple):
    """The properties of a filter's subscriptions that the choice depends on."""

    subscriptions: int
    dimensions: int = 1  # coordinates of a box
    constrained: float = 1.0  # share of the sides of boxes with a finite end
    equal: float = 0.0  # share of boxes with a side of a single value
    inexact: float = 0.0  # share of boxes whose candidates must be verified
    bytes: int = 0  # memory of the matcher in use


class Try(NamedTuple):
    """Build a matcher with a number of the subscriptions, and match recent batches with both matchers."""

    matcher: str
    of: int
    most_bytes: int | None  # memory above which the trial is cancelled; None for no limit


class Move(NamedTuple):
    """Use the matcher of the last trial, which had all subscriptions, from now on."""

    matcher: str


class Pair(NamedTuple):
    """Some batches of one class of sizes, streamed or not, matched once by each of two matchers.

    `own` and `other` are seconds of the matcher in use (in a sample, of the same kind of matcher over the
    sample), and of the candidate: the time of the batches, or the sum of their mean responses if they are
    streamed.
    """

    size_class: int  # the smallest size of their class, see `powers_of_two`
    events: int  # sum of the sizes of these batches
    own: float
    other: float
    streamed: bool = False


@dataclass(frozen=True)
class Trial:
    """The result of a trial."""

    matcher: str
    of: int  # number of subscriptions in the candidate
    whole: bool  # whether these are all
    seconds: float  # of the whole trial
    build: float  # seconds to build the candidate
    bytes: int  # memory of the candidate
    gradual: bool  # whether the candidate takes a change without rebuilding large parts
    pairs: Sequence[Pair]  # at least one

    def fields(self) -> Entry:
        """Return the trial as a line of the log."""
        return {**self.__dict__, "pairs": [list(pair) for pair in self.pairs]}

    @classmethod
    def of_fields(cls, entry: Entry) -> "Trial":
        """Return the trial of a line of the log."""
        own = {name: entry[name] for name in cls.__dataclass_fields__}
        return cls(**{**own, "pairs": [Pair(*pair) for pair in entry["pairs"]]})


class Ratio(NamedTuple):
    """Time of a candidate as a multiple of that of the matcher in use: logarithm, and its standard error."""

    log: float
    error: float

    @property
    def range(self) -> tuple[float, float, float]:
        """The ratio, its lower and its upper bound."""
        ends = (0.0, -SURE * self.error, SURE * self.error)
        ratio, low, high = (math.exp(min(self.log + off, 700.0)) for off in ends)
        return ratio, low, high


@dataclass
class _Round:
    """A round of trials, in which the candidates follow each other."""

    why: str
    left: list[str]
    of: int = 0  # number of subscriptions in the next trial
    bytes_each: float = 0.0
    cost: float = FIRST_COST
    tries: int = 0
    pairs: list[Pair] = field(default_factory=list)  # of trials of this candidate with all subscriptions
    ready: str | None = None  # the candidate for the next move


class MatcherChooser(Recorder):
    """Decides which matcher a filter uses; see the module.

    Parameters
    ----------
    candidates : sequence of str
        Names of matchers; the first one is in use at the start.
    share : float
        Most time for trials, as a share of the time of batches; above 0 and at most 1.
    memory : float or None
        Most memory of a candidate, as a multiple of that of the matcher in use; above 0. None: any. 64 MiB
        are always allowed.
    log : callable, optional
        Takes the reports and the decisions, as JSON-able dicts; see `replay_matchers`.
    """

    def __init__(
        self,
        candidates: Sequence[str] = ("rtree", "split", "hem"),
        *,
        share: float = 0.03,
        memory: float | None = 2.0,
        log: Sink | None = None,
    ) -> None:
        super().__init__(log)
        if isinstance(candidates, str) or not candidates or len(set(candidates)) < len(candidates):
            raise ValueError(
                f"candidates are names of different matchers, such as ('rtree', 'masks'); got {candidates!r}"
            )
        if not 0 < share <= 1:
            raise ValueError(f"share of the time for trials is above 0 and at most 1; got {share}")
        if memory is not None and not memory > 0:
            raise ValueError(f"memory of a candidate is a multiple above 0, or None for any; got {memory}")
        self.candidates, self.share, self.memory = tuple(candidates), float(share), memory
        self.matcher = self.candidates[0]
        self._events: dict[_Class, float] = {}  # later batches count more
        self._seconds: dict[_Class, float] = {}
        self._times: dict[_Class, _Times] = {}
        self._matched = self._tested = self._since = 0.0
        self._changes = 0  # since the last round
        self._round: _Round | None = None
        self._rounds = self._trials = self._moves = 0
        self._count = 0  # subscriptions at the last round
        self._mix: dict[_Class, float] = {}  # share of the time by class, at the last round
        self._alarm = False
        self._again = 0.0  # `_matched` at which the next round begins
        self._gradual, self._build = True, 0.0  # of the matcher in use
        self._barred: dict[str, int] = {}  # number of subscriptions at which a candidate failed
        self._left_at: dict[str, int] = {}  # number of moves away from a matcher
        self._verdicts: dict[str, Entry] = {}
        self._why = "the first candidate; nothing was tried yet"

    @property
    def options(self) -> dict[str, Any]:
        """Arguments that make another chooser like this one, JSON-able."""
        return {"candidates": list(self.candidates), "share": self.share, "memory": self.memory}

    # -- reports ---------------------------------------------------------------------------------------------

    def begin(self, matcher: str) -> None:
        """Start with another matcher than the first candidate, such as that of a snapshot."""
        self.matcher, self._why = matcher, "it was saved with that"
        self._record("begin", matcher=matcher)

    def observe(self, size: int, seconds: float, batches: int = 1, streamed: bool = False) -> bool:
        """Add the time of a batch, as `batches` of its kind; return True if `step` must be called.

        Streamed batches are a class of their own; `seconds` is the time of all their work.
        """
        size, batches = positive("size", size), positive("number of batches", batches)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"seconds are finite and not negative; got {seconds}")
        label = powers_of_two(size), bool(streamed)
        self._matched += seconds * batches
        self._events[label] = self._events.get(label, 0.0) + size * batches
        self._seconds[label] = self._seconds.get(label, 0.0) + seconds * batches
        times = self._times.get(label) or self._times.setdefault(label, _Times())
        if times.add(math.log(max(seconds, 1e-9) / size)):
            self._alarm = True
        due = self._due() is not None
        self._record("batch", size=size, seconds=seconds, batches=batches, streamed=label[1], due=due)
        return due

    def update(self, number: int) -> None:
        """Count changes of subscriptions."""
        number = not_negative(number)
        self._changes += number
        self._record("update", count=number)

    def tried(self, trial: Trial) -> None:
        """Add the result of a trial, and decide about its candidate."""
        self._tested += trial.seconds
        self._trials += 1
        if self._round is not None and self._round.left[:1] == [trial.matcher]:
            self._weigh(self._round, trial)
        self._record("trial", **trial.fields())

    def failed(self, matcher: str, why: str, seconds: float = 0.0) -> None:
        """Exclude a candidate that could not be built, or used, with the present number of subscriptions."""
        self._tested += seconds
        if self._round is not None and self._round.left[:1] == [matcher]:
            self._drop(self._round, why, bar=True)
        self._record("failed", matcher=matcher, why=why, seconds=seconds)

    def moved(self, matcher: str, seconds: float = 0.0) -> None:
        """Record that the filter now uses another matcher."""
        self._tested += seconds
        before = self.matcher
        verdict = self._verdicts.pop(matcher, {})
        self._left_at[before] = self._left_at.get(before, 0) + 1
        self.matcher, self._moves = matcher, self._moves + 1
        self._gradual, self._build = verdict.get("gradual", True), verdict.get("build", 0.0)
        self._why = f"{verdict.get('why', 'it was told so')}; {before} before"
        self._times.clear()
        self._since = self._matched
        if self._round is not None:
            self._next(self._round)
        self._record("moved", matcher=matcher, seconds=seconds)

    # -- decisions -------------------------------------------------------------------------------------------

    def step(self, content: Content) -> Try | Move | None:
        """Return the next action, or None. After it, report its result, then call `step` again."""
        answer = self._step(content)
        asked = {} if answer is None else answer._asdict()
        self._record("step", **content._asdict(), what=type(answer).__name__, asked=asked)
        return answer

    def _due(self) -> str | None:
        """Return the reason for an action, or None."""
        if self._round is not None and self._round.ready is not None:
            return self._round.why
        cost = FIRST_COST if self._round is None else self._round.cost
        if self._tested + cost > self.share * self._matched:
            return None
        if self._round is not None:
            return self._round.why
        if not self._rounds:
            return "nothing was tried yet"
        if self._too_slow_to_change:
            return f"changes have come, for which {self.matcher} is built anew"
        if self._alarm:
            return "times have drifted"
        mix = self._shares()
        moved = sum(abs(mix.get(label, 0.0) - self._mix.get(label, 0.0)) for label in mix.keys() | self._mix)
        if moved / 2 > MIXED:
            return "batches are of other sizes"
        if self._matched >= self._again:
            return "a while has passed"
        if self._changes >= (GROWN - 1) * max(self._count, 1):
            return "subscriptions have changed"
        return None

    @property
    def _too_slow_to_change(self) -> bool:
        return not self._gradual and self._build > LONG and self._changes >= 1

    def _shares(self) -> dict[_Class, float]:
        """Return the share of the time by class of batches."""
        total = sum(self._seconds.values())
        return {label: seconds / total for label, seconds in self._seconds.items()} if total > 0 else {}

    def _step(self, content: Content) -> Try | Move | None:
        why = self._due()
        if why is None:
            return None
        if self._round is None:
            self._open(why, content)
        while self._round is not None:
            now = self._round
            if now.ready is not None:
                return Move(now.ready)
            if not now.left:
                self._close(content)
                return None
            if self._tested + now.cost > self.share * self._matched:
                return None
            limit = None if self.memory is None else max(SMALL, int(self.memory * content.bytes))
            name, of = now.left[0], _size(now.of, content.subscriptions)
            if not content.subscriptions:
                self._drop(now, "there are no subscriptions")
            elif name == "split" and content.equal < EQUAL:
                self._drop(now, f"{content.equal:.1%} of the subscriptions have an equality")
            elif limit is not None and now.bytes_each * of > limit:
                self._drop(now, f"it would take {now.bytes_each * of:,.0f} of {limit:,} bytes", bar=True)
            else:
                return Try(name, of, limit)
        return None

    # -- a round -------------------------------------------------------------------------------------------

    def _open(self, why: str, content: Content) -> None:
        known = self._barred.items()
        barred = {name for name, at in known if at / GROWN < content.subscriptions < at * GROWN}
        left = [name for name in self.candidates if name != self.matcher and name not in barred]
        self._round = _Round(why, left)
        self._count = content.subscriptions
        self._note("round", why=why)

    def _close(self, content: Content) -> None:
        assert self._round is not None
        self._round = None
        self._rounds += 1
        self._mix, self._alarm = self._shares(), False
        for sums in (self._events, self._seconds):
            for label in sums:
                sums[label] /= 2
        self._changes = 0
        self._count = content.subscriptions
        self._again = AGAIN * self._matched

    def _next(self, now: _Round) -> None:
        """Begin the trials of the next candidate of a round."""
        del now.left[:1]
        now.of, now.bytes_each, now.ready, now.cost = 0, 0.0, None, FIRST_COST
        now.tries, now.pairs = 0, []

    def _drop(self, now: _Round, why: str, bar: bool = False) -> None:
        """Reject the candidate, and log why; with `bar`, exclude it at this number of subscriptions."""
        name = now.left[0]
        if bar:
            self._barred[name] = max(self._count, 1)
            self._verdicts.pop(name, None)
        self._verdicts[name] = {**self._verdicts.get(name, {}), "why": why}
        self._note("stay", candidate=name, why=why)
        self._next(now)

    def _weigh(self, now: _Round, trial: Trial) -> None:
        """Judge a trial: try the candidate again, reject it, or prepare a move to it."""
        ratio = self._ratio(trial.pairs)
        if trial.whole:
            now.tries, now.pairs = now.tries + 1, [*now.pairs, *trial.pairs]
            ratio = self._ratio(now.pairs)
        middle, low, high = ratio.range
        where = "with all" if trial.whole else f"in a sample of {trial.of:,}"
        why = f"{middle:.2f} times the time of {self.matcher} ({low:.2f} to {high:.2f}) {where}"
        self._verdicts[trial.matcher] = {
            "ratio": middle, "low": low, "high": high, "of": trial.of, "why": why,
            "build": trial.build, "bytes": trial.bytes, "gradual": trial.gradual,
        }  # fmt: skip
        now.bytes_each = trial.bytes / max(trial.of, 1)
        if trial.whole:
            refused = self._refused(trial, ratio)
            if refused and self._open_question(trial, ratio) and now.tries < TRIES:
                now.of, now.cost = trial.of, trial.seconds
                self._note("again", candidate=trial.matcher, why=f"{why}{refused}")
            elif refused:
                self._drop(now, f"{why}{refused}")
            else:
                now.ready = trial.matcher
                self._note("move", candidate=trial.matcher, why=why)
        elif ratio.log > self._hope(trial.of) and not (trial.gradual and self._too_slow_to_change):
            self._drop(now, why)
        else:
            now.of = _size(trial.of * STEP, self._count)
            now.cost = trial.seconds + max(now.of / trial.of - 1, 0) * _growing(trial)

    def _hope(self, of: int) -> float:
        """Return the largest logarithm of a ratio, in a sample of `of`, that allows further trials."""
        return math.log(CATCH_UP) * math.log(max(self._count / of, 1.0), STEP)

    def _refused(self, trial: Trial, ratio: Ratio) -> str:
        """Return the reason not to move to a candidate after a trial with all, or an empty text."""
        if not trial.gradual and trial.build > LONG and self._changes >= 1:
            return f", but changes come, for which it is built anew ({trial.build:.3f} s)"
        if self._too_slow_to_change:
            return ""
        gain = self._gain(trial)
        if ratio.log > math.log(1 - gain):
            return f", not {gain:.0%} less"
        if ratio.log + SURE * ratio.error > 0:
            return ", not certainly less"
        saved = (1 - math.exp(ratio.log)) * (self._matched - self._since)
        if saved < trial.build:
            return f", but what it saves is less than the {trial.build:.3f} s to build it"
        return ""

    def _gain(self, trial: Trial) -> float:
        """Return the share of the time that the candidate must save."""
        return float(min(GAIN * 2 ** self._left_at.get(trial.matcher, 0), MOST_GAIN))

    def _open_question(self, trial: Trial, ratio: Ratio) -> bool:
        """Return whether a candidate that was refused for its ratio may yet turn out good enough."""
        sure = ratio.log <= math.log(1 - self._gain(trial)) and ratio.log + SURE * ratio.error <= 0
        return not sure and ratio.log - SURE * ratio.error <= math.log(1 - self._gain(trial))

    def _ratio(self, pairs: Sequence[Pair]) -> Ratio:
        """Return the ratio over all classes, weighted by their share of the events."""
        classes: dict[_Class, list[Pair]] = {}
        for pair in pairs:
            classes.setdefault((pair.size_class, pair.streamed), []).append(pair)
        own = error = 0.0
        parts: list[tuple[float, float, float]] = []
        for label, some in classes.items():
            logs = [math.log(max(pair.other, 1e-9) / max(pair.own, 1e-9)) for pair in some]
            each = statistics.median(pair.own / pair.events for pair in some)
            middle = statistics.median(logs)
            # Standard error of the median, from the median deviation: interrupted passes do not move it.
            off = statistics.median(abs(log - middle) for log in logs) if len(logs) > 1 else 0.1
            part = each * max(self._events.get(label, 0.0), 1.0)
            own += part
            few = 1 + FEW / max(len(logs) - 1, 1)
            parts.append((part, middle, max((WIDE * off * few) ** 2, LEAST_NOISE) / len(logs)))
        other = sum(part * math.exp(min(middle, 500.0)) for part, middle, _ in parts)
        log = math.log(other / own)
        for part, middle, noise in parts:
            error += (part * math.exp(min(middle, 500.0)) / other) ** 2 * noise
        return Ratio(log, math.sqrt(error))

    def _note(self, what: str, **fields: Any) -> None:
        """Append a decision to the lines for the log."""
        self._decisions.append({"kind": "decision", "what": what, "matcher": self.matcher, **fields})

    def snapshot(self) -> dict[str, Any]:
        """Return the state, JSON-able.

        ``name`` is the matcher in use, and ``why`` says why. ``candidates`` has the last trial of each other
        matcher: ``ratio`` is its time as a multiple of that of the matcher in use (``low`` to ``high`` is 2.3
        standard errors), ``of`` the number of subscriptions in the trial.
        """
        return {
            "name": self.matcher,
            "why": self._why if self._moves or not self._rounds else "no other was faster",
            "trying": None if self._round is None or not self._round.left else self._round.left[0],
            "rounds": self._rounds,
            "trials": self._trials,
            "moves": self._moves,
            "trial_seconds": self._tested,
            "matched_seconds": self._matched,
            "share": self.share,
            "memory": self.memory,
            "candidates": {
                name: {key: one for key, one in verdict.items() if key not in ("gradual",)}
                for name, verdict in self._verdicts.items()
                if name != self.matcher
            },
        }


def _size(wanted: int, count: int) -> int:
    """Return the size of a trial: at least `SAMPLE`, or all subscriptions if at most twice as many."""
    wanted = max(wanted, SAMPLE)
    return count if count <= 2 * wanted else wanted


def _growing(trial: Trial) -> float:
    """Return the seconds of a trial that grow with its subscriptions: the build, and the fewest passes."""
    one_pass = {(pair.size_class, pair.streamed): pair.own + pair.other for pair in trial.pairs}
    return trial.build + PASSES * sum(one_pass.values())


class _Times:
    """The times of batches of one class of sizes, as logarithms of seconds an event."""

    def __init__(self) -> None:
        self._before: float | None = None
        self._noise, self._drift = Noise(0.1**2), Drift()

    def add(self, value: float) -> bool:
        """Add a time; return True if the times have drifted."""
        if self._before is not None:
            self._noise.add(value - self._before)
        self._before = value
        return self._drift.add(value, self._noise.variance)


def replay_matchers(entries: Iterable[Entry], chooser: MatcherChooser) -> None:
    """Replay the log of a `MatcherChooser`; its inputs are all lines except those of the kind "decision".

    See `rtfilter.adaptive.replay`.
    """
    replay_log(entries, chooser, _feed)


def _feed(entry: Entry, chooser: MatcherChooser) -> None:
    match entry["kind"]:
        case "begin":
            chooser.begin(entry["matcher"])
        case "batch":
            chooser.observe(entry["size"], entry["seconds"], entry["batches"], entry["streamed"])
        case "update":
            chooser.update(entry["count"])
        case "step":
            chooser.step(Content(*(entry[name] for name in Content._fields)))
        case "trial":
            chooser.tried(Trial.of_fields(entry))
        case "failed":
            chooser.failed(entry["matcher"], entry["why"], entry["seconds"])
        case "moved":
            chooser.moved(entry["matcher"], entry["seconds"])
