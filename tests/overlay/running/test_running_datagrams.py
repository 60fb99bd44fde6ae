"""Datagrams: who may write them, and that each counts once."""

import pytest

from rtfilter.overlay.running.broker_frames import Codec, LinkError
from rtfilter.overlay.running.broker_keys import Key
from rtfilter.overlay.running.client_messages import Goodbye
from rtfilter.overlay.running.datagrams import SENDERS, WINDOW, Datagrams, MulticastGroup

KEY = Key.new()
CODEC = Codec(Goodbye)


def of(broker, incarnation=1, key=KEY, cluster="A"):
    return Datagrams(key, cluster, broker, incarnation, CODEC)


def test_all_others_read_it_once():
    written = of("a1").write(Goodbye("x"))
    other = of("a2")
    assert other.read(written) == ("a1", Goodbye("x"))
    assert other.read(written) is None


def test_nobody_reads_their_own():
    one = of("a1")
    assert one.read(one.write(Goodbye("x"))) is None


@pytest.mark.parametrize("other", [of("a2", key=Key.new()), of("a2", cluster="B")], ids=["key", "cluster"])
def test_without_the_key_of_the_cluster_it_is_refused(other):
    with pytest.raises(LinkError, match="does not have the key"):
        other.read(of("a1").write(Goodbye("x")))


def test_every_changed_byte_is_noticed():
    written = of("a1").write(Goodbye("x"))
    for at in range(len(written)):
        changed = bytearray(written)
        changed[at] ^= 1
        with pytest.raises(LinkError):
            of("a2").read(bytes(changed))
    with pytest.raises(LinkError):
        of("a2").read(b"")


def test_late_ones_count_once_within_the_window():
    one, other = of("a1"), of("a2")
    written = [one.write(Goodbye(str(number))) for number in range(WINDOW + 2)]
    assert other.read(written[-1]) is not None
    read = [other.read(datagram) is not None for datagram in written]
    assert read == [False, False] + [True] * (WINDOW - 1) + [False]
    assert not any(other.read(datagram) for datagram in written)


def test_a_former_incarnation_is_not_heard_any_more():
    former, now, other = of("a1", 1), of("a1", 2), of("a2")
    old = former.write(Goodbye("old"))
    assert other.read(now.write(Goodbye("new"))) == ("a1", Goodbye("new"))
    assert other.read(old) is None


def test_what_is_wrong_with_a_message_is_told_in_a_line_and_counted(caplog):
    def hear(sender, message):
        raise ValueError("no broker says it")

    group = MulticastGroup(of("a2"), hear, "239.17.4.71", 17473)
    for datagram in (of("a1").write(Goodbye("x")), b"x" * 50, b""):
        group.datagram_received(datagram, ("127.0.0.1", 1))
    assert group.refused == 3
    dropped, refused = [record.getMessage() for record in caplog.records]  # the latter once of many
    assert dropped == "a datagram of a1 is dropped: no broker says it"
    assert refused.startswith("datagrams are refused, from 127.0.0.1 among others: the sender does not ")


def test_so_many_senders_are_known_and_no_more():
    other, first = of("a2"), of("a1")
    for number in range(SENDERS + 50):
        assert other.read(of(f"b{number}").write(Goodbye("x"))) is not None
        again = first.write(Goodbye("x"))
        assert other.read(again) is not None
        assert other.read(again) is None  # who speaks is not forgotten
    assert len(other._seen) <= SENDERS


def test_an_incarnation_ahead_of_the_clock_is_refused_and_shuts_nobody_out(caplog):
    """Or one datagram would have all others of its sender taken for former ones."""
    heard = []
    group = MulticastGroup(of("a2"), lambda *given: heard.append(given), "239.17.4.71", 17473)
    group.datagram_received(of("a1", incarnation=10**6).write(Goodbye("lie")), ("127.0.0.1", 1))
    group.datagram_received(of("a1").write(Goodbye("x")), ("127.0.0.1", 1))
    assert heard == [("a1", Goodbye("x"))]
    assert "the incarnation 1000000 of a1 is refused: it is a day ahead of the clock" in caplog.text
