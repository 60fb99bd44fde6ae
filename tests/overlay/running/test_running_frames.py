"""Frames and their codes, against everything that changes them on the way."""

import asyncio

import pytest

from rtfilter.overlay.running.broker_frames import LENGTH, LinkError, LostError, Seal, plain, read

SECRET = b"s" * 32


def frames(*messages):
    """The frames of a sender, without their lengths."""
    seal = Seal(SECRET)
    return [seal.closed(message)[LENGTH:] for message in messages]


def hear(*given):
    seal = Seal(SECRET)
    return [seal.opened(frame) for frame in given]


def test_messages_come_as_they_were_sent():
    assert hear(*frames(b"one", b"", b"three")) == [b"one", b"", b"three"]


@pytest.mark.parametrize(
    "change",
    [
        lambda a, b: [a[:-1] + b"x", b],
        lambda a, b: [bytes([a[0] ^ 1]) + a[1:], b],
        lambda a, b: [b],
        lambda a, b: [b, a],
        lambda a, b: [a, a],
        lambda a, b: [a[:5], b],
        lambda a, b: [b""],
    ],
    ids=["changed", "code changed", "left out", "turned round", "repeated", "cut", "empty"],
)
def test_what_was_tampered_with_is_refused(change):
    with pytest.raises(LinkError, match="does not have the key"):
        hear(*change(*frames(b"one", b"two")))


def test_the_code_is_of_one_connection():
    with pytest.raises(LinkError):
        Seal(b"t" * 32).opened(frames(b"one")[0])


def reading(data, most=100, least=0):
    async def script():
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await read(reader, most, least)

    return asyncio.run(script())


def test_a_frame_is_read_to_its_limit_and_no_further():
    assert reading(plain(b"x" * 100)) == b"x" * 100
    with pytest.raises(LinkError, match="101 bytes"):
        reading(plain(b"x" * 101))
    with pytest.raises(LinkError, match="4294967295 bytes"):
        reading(b"\xff" * 8)
    with pytest.raises(LinkError, match="3 bytes"):
        reading(plain(b"abc"), least=4)


@pytest.mark.parametrize("data", [b"", b"\0\0", plain(b"abc")[:-1]])
def test_an_end_within_a_frame_is_a_lost_connection(data):
    with pytest.raises(LostError):
        reading(data)
