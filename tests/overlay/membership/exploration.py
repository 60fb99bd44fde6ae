"""All interleavings of a small election: messages arrive or not, in any order, beside crashes and returns.

A state is what each member knows, who is dead, and what is under way. Times are left out: any member may
time out at any moment, and be wrong, as often as the bounds allow. From one member to another one message is
under way at a time: a newer one takes the place of one that has not arrived, which so is lost. The elections
are rtfilter's own; only their clocks are not asked. In each state that can be reached, what must always hold
is checked, and that calm would heal it.
"""

from random import Random
from typing import NamedTuple

from rtfilter.overlay.membership.contacts import TO_CLUSTER, Contact, MembershipSettings
from rtfilter.overlay.membership.election import ClusterView, Election, Member

CALM = 8  # rounds
NOTHING = 0  # under way


class Bounds(NamedTuple):
    """How often what may happen."""

    crashes: int = 0
    returns: int = 0
    time_outs: int = 0
    beats: int = 0
    """Of any broker, at a moment of its choice; answers are not bounded."""
    drops: int = 0
    """Of a member by the designated broker, rightly or not."""


class Life(NamedTuple):
    """A member: what it is, and what it knows; None: it is dead."""

    incarnation: int
    term: int  # the greatest known: kept over crashes
    view: ClusterView | None


class State(NamedTuple):
    """One state; lives and messages are numbers that `Explorer` has given them."""

    lives: tuple[int, ...]
    under_way: tuple[int, ...]  # from member i to member j at i * size + j
    left: Bounds


class Explorer:
    """Explores the elections of the members "1", "2" and so on.

    Parameters
    ----------
    size : int
        How many members.
    most : int, optional
        How many messages may be under way at once; where there would be more, it does not go on. By default
        as many as there are pairs.

    Attributes
    ----------
    states, transitions : int
        How many there were.
    most_rounds : int
        Of calm, to heal any of them.
    """

    def __init__(self, size, most=None):
        self.size = size
        self.most = size**2 if most is None else most
        self.states = self.transitions = self.most_rounds = 0
        self.contacts = [Contact(f"{i + 1}", "c") for i in range(size)]
        self._elections = [Election(contact, MembershipSettings(), Random(0)) for contact in self.contacts]
        self._numbers = {None: NOTHING}
        self._things = [None]
        self._steps = {}
        self._checked = set()
        self._rounds = {}  # to heal, by lives

    def settled(self, bounds):
        """The last member leads, under term 1, and all know it."""
        members = tuple(Member(contact, 1) for contact in self.contacts)
        life = self._number(Life(1, 1, ClusterView(1, self.contacts[-1].name, members)))
        return State((life,) * self.size, (NOTHING,) * self.size**2, bounds)

    def started(self, bounds):
        """All have just started, and what they register is under way."""
        unborn = self._number(Life(0, 0, None))
        state = State((unborn,) * self.size, (NOTHING,) * self.size**2, bounds)
        for i in range(self.size):
            state = self._step(state, i, "start", None, bounds)
        for i in range(self.size):  # again: the first ones found nobody alive
            state = self._step(state, i, "beat", None, bounds)
        return state

    def explore(self, first):
        """Visit each state that can be reached; `AssertionError` tells the way to one that is wrong."""
        before = {first: first}
        todo = [first]
        while todo:
            state = todo.pop()
            self.states += 1
            try:
                self._check(state)
                for after in self._after(state):
                    self.transitions += 1
                    if after not in before and self.size**2 - after.under_way.count(NOTHING) <= self.most:
                        before[after] = state
                        todo.append(after)
            except AssertionError as error:
                raise AssertionError(f"{error}, after:\n" + "\n".join(self._way(state, before))) from error
        return self.states

    # what may happen

    def _after(self, state):
        left = state.left
        fewer = {name: left._replace(**{name: count - 1}) for name, count in left._asdict().items() if count}
        for at, message in enumerate(state.under_way):
            if message:
                under_way = (*state.under_way[:at], NOTHING, *state.under_way[at + 1 :])
                rest = State(state.lives, under_way, left)
                yield self._step(rest, at % self.size, "receive", message, left)
        for i, number in enumerate(state.lives):
            view = self._things[number].view
            if view is None:
                if "returns" in fewer:
                    yield self._step(state, i, "start", None, fewer["returns"])
                continue
            leads = view.designated == self.contacts[i].name
            if "crashes" in fewer:
                crashed = self._step(state, i, "crash", None, fewer["crashes"])
                arriving = (NOTHING if at % self.size == i else m for at, m in enumerate(crashed.under_way))
                yield crashed._replace(under_way=tuple(arriving))
            if "time_outs" in fewer and not leads:
                yield self._step(state, i, "time_out", None, fewer["time_outs"])
            if "beats" in fewer:
                yield self._step(state, i, "beat", None, fewer["beats"])
            if "drops" in fewer and leads:
                for other in view.members:
                    if other.contact != self.contacts[i]:
                        yield self._step(state, i, "drop", other.contact.name, fewer["drops"])

    def _step(self, state, i, what, argument, left):
        """The state after one member has done something."""
        key = (i, state.lives[i], what, argument)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._do(*key)
        life, sends = step
        lives = (*state.lives[:i], life, *state.lives[i + 1 :])
        under_way = state.under_way
        if sends:
            slots = list(under_way)
            for to, message in sends:
                if self._things[lives[to]].view is not None:
                    slots[i * self.size + to] = message
            under_way = tuple(slots)
        return State(lives, under_way, left)

    def _do(self, i, life, what, argument):
        """What a member becomes, and what it sends to whom."""
        incarnation, term, before = self._things[life]
        if what == "crash":
            return self._number(Life(incarnation, term, None)), []
        election = self._elections[i]
        if what == "start":
            incarnation += 1
            before = ClusterView(term, "", (Member(self.contacts[i], incarnation),))
        election.view, election.incarnation = before, incarnation
        if what == "receive":
            sends = election.receive(self._things[argument], 0.0)
        elif what == "time_out":
            sends = election.time_out(0.0)
        else:
            if what == "drop":
                election.drop(argument)
            sends = election.beat(0.0)
        after = election.view
        if before.claim > after.claim:  # only who waits for somebody to claim follows nobody
            assert (after.term, after.designated) == (before.term, ""), "it follows a lesser claim"
            assert before.designated != self.contacts[i].name, "it gives up what it leads to nobody"
        if election.leads and before.claim != after.claim:
            assert after.term > term, "it claims a term again"
        numbered = []
        for to, message in sends:
            number = self._number(message)
            for j, contact in enumerate(self.contacts):
                if j != i and (to == TO_CLUSTER or to.name == contact.name):
                    numbered.append((j, number))
        return self._number(Life(incarnation, max(term, after.term), after)), numbered

    # what must hold

    def _check(self, state):
        for i, number in enumerate(state.lives):
            if (i, number) not in self._checked:
                self._checked.add((i, number))
                self._check_view(self.contacts[i].name, self._things[number].view)
        # what is under way may be lost; what if it arrives, the states after this one show
        if state.lives not in self._rounds:
            self._heals(state.lives)

    def _check_view(self, name, view):
        if view is None:
            return
        members = [member.contact.name for member in view.members]
        assert members == sorted(set(members)), "members out of order"
        assert name in members, "it is not its own member"
        assert view.designated in ("", *members), "it follows who is no member"
        assert name not in view.silent, "it takes itself for dead"

    def _heals(self, lives):
        """Calm makes one of the live members the designated one for all, in a few rounds."""
        passed = []
        while lives not in self._rounds:
            assert len(passed) <= CALM, "calm does not heal it"
            passed.append(lives)
            if self._is_well(lives):
                self._rounds[lives] = 0
            else:
                lives = self._round(lives)
        rounds = self._rounds[lives]
        for earlier in reversed(passed):
            if earlier not in self._rounds:
                rounds += 1
                self._rounds[earlier] = rounds
        self.most_rounds = max(self.most_rounds, rounds)

    def _round(self, lives):
        """A heartbeat's time in which all arrives: who hears nobody times out, the highest first."""
        state = State(lives, (NOTHING,) * self.size**2, Bounds())
        living = [i for i, life in enumerate(lives) if self._things[life].view]
        for i in reversed(living):
            designated = self._view(state, i).designated
            if not any(
                self.contacts[j].name == designated == self._view(state, j).designated for j in living
            ):
                state = self._arrive(self._step(state, i, "time_out", None, Bounds()))
        for i in living:
            state = self._arrive(self._step(state, i, "beat", None, Bounds()))
        alive = [self.contacts[i] for i in living]
        for i in living:
            if self._view(state, i).designated == self.contacts[i].name:
                for other in self._view(state, i).members:
                    if other.contact not in alive:
                        state = self._arrive(self._step(state, i, "drop", other.contact.name, Bounds()))
        return state.lives

    def _arrive(self, state):
        for _ in range(1000):
            at = next((at for at, message in enumerate(state.under_way) if message), None)
            if at is None:
                return state
            message = state.under_way[at]
            under_way = (*state.under_way[:at], NOTHING, *state.under_way[at + 1 :])
            state = self._step(
                state._replace(under_way=under_way), at % self.size, "receive", message, state.left
            )
        raise AssertionError("messages without an end")

    def _is_well(self, lives):
        living = {i: self._things[life] for i, life in enumerate(lives) if self._things[life].view}
        members = tuple(Member(self.contacts[i], life.incarnation) for i, life in living.items())
        claims = {life.view.claim for life in living.values()}
        return not living or (
            len(claims) == 1
            and claims.pop()[1] in [member.contact.name for member in members]
            and all(life.view.members == members for life in living.values())
        )

    def _view(self, state, i):
        return self._things[state.lives[i]].view

    def _number(self, thing):
        number = self._numbers.setdefault(thing, len(self._things))
        if number == len(self._things):
            self._things.append(thing)
        return number

    def _way(self, state, before):
        """The states on the way, and what is under way in each."""
        states = [state]
        while before[state] != state:
            state = before[state]
            states.append(state)
        for state in reversed(states):
            for i, life in enumerate(state.lives):
                yield f"{i + 1}: {self._things[life]}"
            for at, message in enumerate(state.under_way):
                if message:
                    yield f"  {at // self.size + 1} to {at % self.size + 1}: {self._things[message]}"
            yield ""
