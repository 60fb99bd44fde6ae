"""Which deliveries wait, are given, and are acknowledged: against a server that keeps what it must."""

from hypothesis import given
from hypothesis import strategies as st

from rtfilter.client import ledger as module
from rtfilter.client.ledger import Ledger
from rtfilter.client.protocol import Digest, DigestEvent, Ended, EventDelivery


def event(number, position, *subscriptions, redelivered=0):
    return EventDelivery(number, position, subscriptions or (1,), {}, redelivered=redelivered)


def filled(*positions, window=9):
    ledger = Ledger(window)
    ledger.begin()
    for number, position in enumerate(positions, 1):
        ledger.arrive(event(number, position))
    return ledger


def test_acknowledgements_are_cumulative():
    ledger = filled(5, 6, 7)
    first, second, third = (ledger.take() for _ in range(3))
    ledger.due()
    ledger.acknowledge(third)
    ledger.acknowledge(second)
    assert ledger.due() == (0, 0)
    ledger.acknowledge(first)
    assert ledger.due() == (3, 0)
    assert ledger.apart() == []
    assert not ledger.untold


def test_what_is_acknowledged_beyond_one_that_is_not_is_told_by_its_number():
    ledger = filled(5, 6, 7)
    _, second, third = (ledger.take() for _ in range(3))
    ledger.due()
    ledger.acknowledge(third)
    assert ledger.untold
    assert (ledger.apart(2), ledger.apart()) == ([], [3])
    ledger.acknowledge(second)
    assert (ledger.due(), ledger.apart()) == ((0, 0), [2])
    ledger.arrive(event(4, 7, redelivered=1))  # it was on its way
    assert ledger.take() is None
    ledger.confirmed(0, {2, 4})
    ledger.arrive(event(5, 6))
    assert ledger.take().arrival.number == 5  # the server had confirmed it, and may not send it again


def test_a_delivery_in_several_messages_is_told_when_all_of_them_are_acknowledged():
    ledger = filled(5)
    ledger.arrive(event(2, 6, 1))
    ledger.arrive(event(3, 6, 2))
    _, part, last = (ledger.take() for _ in range(3))
    ledger.acknowledge(last)
    assert ledger.apart() == []
    ledger.acknowledge(part)
    assert sorted(ledger.apart()) == [2, 3]


def test_credit_comes_back_when_the_program_takes():
    ledger = filled(5, 6, 7)
    assert ledger.due() == (0, 0)
    ledger.take()
    ledger.take()
    assert ledger.due(3) == (0, 0)
    assert ledger.due(2) == (0, 2)


def test_what_comes_again_on_another_connection_is_marked_if_the_program_had_it():
    ledger = filled(5, 6)
    old = ledger.take()
    assert not old.again
    ledger.begin()
    ledger.arrive(event(1, 5))
    ledger.arrive(event(2, 6))
    assert [ledger.take().again for _ in range(2)] == [True, False]


def test_what_was_acknowledged_is_not_handed_out_again():
    ledger = filled(5, 6)
    old = ledger.take()
    ledger.begin()
    ledger.acknowledge(old)  # after the loss of its connection
    ledger.arrive(event(1, 5))
    assert ledger.due() == (1, 1)
    ledger.arrive(event(2, 6))
    six = ledger.take()
    assert six.arrival.position == 6
    ledger.acknowledge(six)
    assert ledger.due() == (2, 1)


def test_what_is_acknowledged_while_it_waits_again_leaves_the_queue():
    ledger = filled(5, 6)
    five = ledger.take()
    ledger.arrive(event(3, 5, redelivered=1))
    assert len(ledger) == 2
    ledger.acknowledge(five)
    assert len(ledger) == 1
    ledger.acknowledge(ledger.take())
    assert ledger.due() == (3, 3)


def test_what_waits_already_is_not_kept_twice():
    ledger = filled(5, 6)
    ledger.arrive(event(3, 5))
    assert len(ledger) == 2
    ledger.acknowledge(ledger.take())
    ledger.acknowledge(ledger.take())
    assert ledger.due() == (3, 3)


def test_who_acknowledges_the_second_one_has_acknowledged_the_first():
    ledger = filled(5, 6)
    ledger.take()  # and forgets it
    ledger.acknowledge(ledger.take())
    ledger.arrive(event(3, 5))
    again = ledger.take()
    assert again.again
    ledger.acknowledge(again)
    assert ledger.upto == 3


def test_who_acknowledges_the_first_one_has_acknowledged_the_second():
    ledger = filled(5, 6)
    old = ledger.take()
    ledger.begin()
    ledger.arrive(event(1, 5))
    ledger.take()
    ledger.acknowledge(old)
    assert ledger.upto == 1
    ledger.begin()
    ledger.arrive(event(1, 5))
    assert len(ledger) == 0


def test_a_digest_is_acknowledged_when_all_its_events_are():
    ledger = Ledger(4)
    ledger.begin()
    ledger.arrive(Digest(1, (1,), (DigestEvent(5, {}), DigestEvent(6, {}))))
    ledger.arrive(event(2, 5))  # it waits already, with the digest
    digest = ledger.take()
    assert len(ledger) == 0
    ledger.arrive(event(3, 5, redelivered=1))
    ledger.acknowledge(ledger.take())
    assert ledger.upto == 0
    ledger.arrive(event(4, 6, redelivered=1))
    ledger.acknowledge(ledger.take())
    assert ledger.upto == 4
    ledger.acknowledge(digest)
    assert ledger.upto == 4


def test_digests_and_ends_are_acknowledged_too():
    ledger = Ledger(4)
    ledger.begin()
    ledger.arrive(Digest(1, (1, 2), (DigestEvent(5, {}, 0.0, (1,)), DigestEvent(6, {}, 0.0, (1, 2)))))
    ledger.arrive(Ended(2, 9, 1, "expired"))
    ledger.arrive(Digest(3, (1,), ()))
    digest, ended = ledger.take(), ledger.take()
    assert digest.pairs == {(5, 1), (6, 1), (6, 2)}
    ledger.acknowledge(ended)
    ledger.acknowledge(digest)
    assert ledger.due() == (3, 3)


def test_what_is_confirmed_is_forgotten():
    ledger = filled(5, 6)
    ledger.acknowledge(ledger.take())
    ledger.confirmed(ledger.due()[0])
    assert not ledger._done
    ledger.acknowledge(ledger.take())
    ledger.begin()
    assert len(ledger._done) == 1


def test_a_confirmation_says_nothing_of_earlier_connections():
    ledger = filled(5)
    ledger.acknowledge(ledger.take())
    ledger.begin()
    ledger.arrive(event(1, 6))
    ledger.acknowledge(ledger.take())
    ledger.confirmed(ledger.due()[0])
    ledger.arrive(event(2, 5, redelivered=1))
    assert ledger.take() is None


def test_only_so_many_acknowledgements_are_kept_without_confirmation(monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    ledger = filled(*range(1, 10))
    while item := ledger.take():
        ledger.acknowledge(item)
    ledger.begin()
    assert {position for position, _ in ledger._done} == {7, 8, 9}


def test_what_was_acknowledged_is_not_handed_out_however_late_it_comes_again():
    ledger = filled(5, 6)
    ledger.acknowledge(ledger.take())
    ledger.begin()  # the server was killed, and has not computed yet what was not acknowledged
    ledger.arrive(event(1, 7))
    ledger.begin()
    ledger.arrive(event(1, 5))
    assert len(ledger) == 0


class Peer:
    """What a server does, as far as deliveries go."""

    def __init__(self):
        self.backlog, self.numbers, self.last, self.credit = [], {}, 0, 0


@given(
    st.lists(
        st.sampled_from(["publish", "send", "resend", "take", "done", "tell", "lost", "confirm"]), max_size=60
    ),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_nothing_is_lost_and_nothing_acknowledged_comes_again(steps, window, random):
    ledger, peer, held, published, acknowledged, given_out = Ledger(window), Peer(), [], 0, set(), set()
    asked = []

    def lost():
        peer.numbers, peer.last, peer.credit = {}, 0, ledger.begin()
        asked.clear()

    def send(position):
        if peer.credit:
            peer.credit -= 1
            peer.last += 1
            peer.numbers[peer.last] = position
            ledger.arrive(event(peer.last, position))

    def tell():
        upto, credit = ledger.due()
        peer.credit += credit
        apart = ledger.apart()
        for number in [number for number in peer.numbers if number <= upto or number in apart]:
            position = peer.numbers.pop(number)
            if position in peer.backlog:
                peer.backlog.remove(position)
        if upto or apart:
            asked.append((upto, apart))

    def take():
        if (item := ledger.take()) is not None:
            position = item.arrival.position
            assert position not in acknowledged
            assert item.again == (position in given_out)
            given_out.add(position)
            held.append(item)

    def done():
        if held:
            item = held.pop(random.randrange(len(held)))
            ledger.acknowledge(item)
            acknowledged.add(item.arrival.position)
            given_out.discard(item.arrival.position)

    lost()
    for step in steps:
        match step:
            case "publish":
                published += 1
                peer.backlog.append(published)
            case "send":
                unsent = [one for one in peer.backlog if one not in peer.numbers.values()]
                for position in unsent[:1]:
                    send(position)
            case "resend" if peer.backlog:
                send(random.choice(peer.backlog))
            case "take":
                take()
            case "done":
                done()
            case "tell":
                tell()
            case "confirm" if asked:
                ledger.confirmed(*asked.pop(0))
            case "lost":
                lost()
        assert len(ledger) <= window
        assert len(ledger) + peer.credit <= window
    for _ in range(3 * published + 3):  # until all is done
        while held:
            done()
        tell()
        for position in [one for one in peer.backlog if one not in peer.numbers.values()]:
            send(position)
        take()
    while held:
        done()
    tell()
    assert acknowledged == set(range(1, published + 1))
    assert not peer.backlog
    assert not ledger._given
