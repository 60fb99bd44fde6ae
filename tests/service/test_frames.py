"""Frames without a socket."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.basics.session_states import Directive
from rtfilter.service.doors.frames import (
    LENGTH,
    ClientDirective,
    Frame,
    FrameError,
    Reader,
    ServerDirective,
    frame_of,
    message_of,
    write,
)
from rtfilter.service.service_errors import DirectiveError

MOST = 20
FRAMES = st.builds(Frame, st.sampled_from(ClientDirective), st.binary(max_size=MOST - 1))
CUTS = st.lists(st.integers(0, 200), max_size=12)


def pieces(data, cuts):
    """The data, cut at these places."""
    places = sorted(min(cut, len(data)) for cut in cuts)
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def read(reader, parts):
    """All frames of some reads; what is held never is more than a frame."""
    found = []
    for part in parts:
        reader.feed(part)
        try:
            found += reader
        finally:
            assert reader.held <= LENGTH + MOST
    return found


@given(st.lists(FRAMES), CUTS)
def test_frames_come_back_however_they_are_cut(frames, cuts):
    data = b"".join(write(*frame) for frame in frames)
    reader = Reader(most=MOST)
    assert read(reader, pieces(data, cuts)) == frames
    assert reader.held == 0


@given(st.lists(FRAMES, max_size=3), st.binary(max_size=100), CUTS)
def test_garbage_is_frames_or_one_error_however_it_is_cut(frames, garbage, cuts):
    data = b"".join(write(*frame) for frame in frames) + garbage

    def outcome(parts):
        reader, found, errors = Reader(most=MOST), [], set()
        for part in parts:
            reader.feed(part)
            frames = iter(reader)
            try:
                while (frame := next(frames, None)) is not None:
                    found.append(frame)
            except FrameError as why:
                errors.add(str(why))
            assert reader.held <= LENGTH + MOST
        return found, errors

    found, errors = outcome([data])
    assert (found, errors) == outcome(pieces(data, cuts))
    assert len(errors) <= 1
    assert found[: len(frames)] == frames


@given(st.binary())
def test_a_body_is_a_message_or_is_refused(body):
    try:
        assert isinstance(message_of(Frame(ClientDirective.READY, body)), bytes)
    except DirectiveError:
        assert b"directive" in body or not is_text(body)


def is_text(body):
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\0\0\0\0", "a frame of 0 bytes: 1 to 20 are allowed"),
        (b"\0\0\0\x15", "a frame of 21 bytes: 1 to 20 are allowed"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes: 1 to 20 are allowed"),
        (b"GET / HTTP/1.1", "a frame of 1195725856 bytes"),
        (b"\0\0\0\1\0", "0 is no directive; there are 1 CONNECT, 2 SUBSCRIBE, "),
        (b"\0\0\0\1\x42", "66 is no directive; there are 1 CONNECT, 2 SUBSCRIBE, "),
    ],
)
def test_what_is_no_frame_is_refused_before_its_rest_has_come(data, error):
    reader = Reader(most=MOST)
    reader.feed(write(ClientDirective.READY) + data)
    frames = iter(reader)
    assert next(frames) == (ClientDirective.READY, b"")
    with pytest.raises(FrameError, match=error):
        next(frames)
    reader.feed(write(ClientDirective.READY))
    with pytest.raises(FrameError, match=error):
        next(iter(reader))


def test_every_directive_has_one_number():
    assert {one.name for one in ClientDirective} == set(Directive)
    assert not set(ClientDirective) & set(ServerDirective)


def test_a_frame_byte_by_byte():
    assert write(ClientDirective.SUBSCRIBE, b'{"where":"price > 100"}').hex(" ") == (
        "00 00 00 18 02 7b 22 77 68 65 72 65 22 3a 22 70 72 69 63 65 20 3e 20 31 30 30 22 7d"
    )


def test_the_directive_is_in_the_frame_and_not_in_its_json():
    said = {"directive": "SUBSCRIBE", "where": {"price": [1, None]}, "tag": "é"}
    body = json.dumps({name: said[name] for name in ("where", "tag")}).encode()
    assert json.loads(message_of(Frame(ClientDirective.SUBSCRIBE, body))) == said
    assert json.loads(message_of(Frame(ClientDirective.READY, b""))) == {"directive": "READY"}
    with pytest.raises(DirectiveError, match='leave "directive" out'):
        message_of(Frame(ClientDirective.READY, b'{"directive": "READY"}'))
    assert frame_of(b'{"directive":"ACK"}') == write(ServerDirective.ACK)
    assert frame_of(b'{"directive":"ACK","pending":1}') == write(ServerDirective.ACK, b'{"pending":1}')


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000])
def test_what_is_no_object_is_left_to_the_conversation(body):
    assert message_of(Frame(ClientDirective.READY, body)) == body


@pytest.mark.parametrize("body", [b"\xff", b'{"a": \xff}', b'{"\x82": 1}', b'{"a": "\x82"}'])
def test_what_is_not_utf8_is_refused(body):
    with pytest.raises(DirectiveError, match="this is not JSON: 'utf-8' codec"):
        message_of(Frame(ClientDirective.READY, body))
