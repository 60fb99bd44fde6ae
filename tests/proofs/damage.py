"""Snapshots with bytes changed, cut off or added."""

import shutil
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np

from proofs.kills import answers, saved
from rtfilter import EventFilter, SnapshotError


@cache
def _saved() -> Path:
    path = Path(tempfile.mkdtemp(prefix="rtfilter-damage-")) / "index"
    saved(40).filter.save(path)
    return path


def run(seed: int) -> Counter[str]:
    """Damage one file in one way and open the snapshot."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        shutil.copytree(_saved(), path)
        files = sorted(path.iterdir())
        file = files[rng.integers(len(files))]
        content = bytearray(file.read_bytes())
        ways = ["remove", "append"] if not content else ["remove", "append", "cut", "change", "zero"]
        way = ways[rng.integers(len(ways))]
        if way == "remove":
            file.unlink()
        else:
            if way == "cut":
                del content[rng.integers(len(content)) :]
            elif way == "append":
                content += bytes(rng.integers(0, 256, rng.integers(1, 9), np.uint8))
            else:
                start = int(rng.integers(len(content)))
                stop = min(start + int(rng.integers(1, 65)), len(content))
                new = (
                    np.zeros(stop - start, np.uint8) if way == "zero" else rng.integers(0, 256, stop - start)
                )
                content[start:stop] = bytes(new.astype(np.uint8))
            file.write_bytes(content)
        try:
            loaded = EventFilter.load(path)
        except SnapshotError:
            return Counter({way: 1, "refused": 1})
        assert answers(loaded) == saved(40).answers, f"{way} in {file.name} changed the answers"
        return Counter({way: 1, "harmless": 1})
