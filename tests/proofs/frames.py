"""Frames of a session, damaged and cut anywhere, into the reader of TCP."""

from collections import Counter

import numpy as np

from rtfilter.service.doors.frames import (
    LENGTH,
    ClientDirective,
    Frame,
    FrameError,
    Reader,
    message_of,
    write,
)
from rtfilter.service.service_errors import DirectiveError

MOST = 300
BODIES = [b"", b"{}", b'{"where": "price > 1"}', b'{"directive": "READY"}', b"[", b"\xff\xfe", b"[" * 250]


def run(seed: int) -> Counter[str]:
    """One stream of frames, with some bytes changed or none, read in pieces and in one."""
    rng = np.random.default_rng(seed)
    frames = [
        Frame(ClientDirective(int(rng.integers(1, 11))), BODIES[rng.integers(len(BODIES))])
        for _ in range(rng.integers(1, 60))
    ]
    data = bytearray(b"".join(write(*frame) for frame in frames))
    changed = int(rng.integers(0, 4))
    for place in rng.integers(0, len(data), changed):
        data[place] = int(rng.integers(256))
    cuts = np.sort(rng.integers(0, len(data), rng.integers(0, 40))).tolist()
    parts = [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    found, errors = read(parts)
    assert (found, errors) == read([bytes(data)]), f"seed {seed}: cut otherwise, read otherwise"
    if not changed:
        assert found == frames, f"seed {seed}: other frames"
        assert not errors, f"seed {seed}: refused"
    counts = Counter(frames=len(found), reads=len(parts), refused=len(errors))
    for frame in found:
        try:
            message_of(frame)
        except DirectiveError:
            counts["bodies refused"] += 1
    return counts


def read(parts: list[bytes]) -> tuple[list[Frame], set[str]]:
    """Frames, and the error if there is one."""
    reader, found, errors = Reader(most=MOST), [], set()
    for part in parts:
        reader.feed(part)
        frames = iter(reader)
        try:
            while (frame := next(frames, None)) is not None:
                found.append(frame)
        except FrameError as error:
            errors.add(str(error))
        assert reader.held < LENGTH + MOST, "held more than a frame"
    assert len(errors) <= 1, f"several errors: {errors}"
    return found, errors
