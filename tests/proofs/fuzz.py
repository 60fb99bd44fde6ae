"""What bytes from strangers reach, fuzzed: guided by coverage, with atheris, or by chance.

As a script, with TARGET SEED FOLDER, it fuzzes one target in this process, which libFuzzer ends.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np

RUNS = {
    "frames": 150_000,
    "session": 6000,
    "events": 150_000,
    "sql": 30_000,
    "patterns": 60_000,
    "arrow": 60_000,
}
"""Of each target, which a case runs one after another."""
FEW = {"frames": 500, "session": 150, "events": 1500, "sql": 300, "patterns": 400, "arrow": 500}
"""The same without guidance, in `make test`."""
COVERED = ("rtfilter.service", "rtfilter.predicates", "rtfilter.events")
"""Packages whose coverage guides."""
MOST_SECONDS = 1200
"""Of the processor, after which the system ends a process: an input takes for ever. A clock would count the
time in which the machine has others to serve."""
MOST_MB = 2048
"""Of memory, after which it gives up."""
_DONE = re.compile(r"#(\d+)\s+DONE\s+cov: (\d+) ft: \d+ corp: (\d+)/")


def run(seed: int) -> Counter[str]:
    """One target, guided by coverage; the counts of coverage and corpus are sums over its cases."""
    if find_spec("atheris") is None:
        raise RuntimeError("the proof needs atheris: pip install atheris (Linux, Python up to 3.13)")
    name = list(RUNS)[seed % len(RUNS)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-P", __file__, name, str(seed), folder],
            capture_output=True,
            text=True,
            errors="replace",
        )
        found = _DONE.search(done.stderr)
    assert done.returncode == 0, f"{name}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert found is not None, f"{name}: {done.stderr[-3000:]}"
    runs, covered, kept = map(int, found.groups())
    return Counter(
        {f"{name} cases": 1, f"{name} runs": runs, f"{name} coverage": covered, f"{name} corpus": kept}
    )


def some(seed: int) -> Counter[str]:
    """All targets, by chance: a few changes in each valid input. Needs no atheris."""
    from proofs.targets import TARGETS, end

    rng, counts = np.random.default_rng(seed), Counter[str]()
    for name, (target, valid, words) in TARGETS.items():
        for at in range(FEW[name]):
            data = valid[at % len(valid)] if at < len(valid) else changed(rng, valid, words)
            try:
                counts[f"{name} {target(data)}"] += 1
            except Exception as error:
                raise AssertionError(f"{name}: {data!r}: {type(error).__name__}: {error}") from error
    end()
    return counts


def changed(rng: np.random.Generator, valid: list[bytes], words: list[bytes]) -> bytes:
    """A valid input with one to four changes."""
    data = bytearray(valid[rng.integers(len(valid))])
    for _ in range(rng.integers(1, 5)):
        start, stop = sorted(rng.integers(len(data) + 1, size=2).tolist())
        stop = min(stop, start + int(rng.integers(12)))
        way = rng.integers(4)
        if way == 0:
            data[start:stop] = words[rng.integers(len(words))]
        elif way == 1:
            data[start:start] = words[rng.integers(len(words))]
        elif way == 2:
            data[start:start] = data[start:stop] * int(rng.integers(1, 20))
        else:
            low, high = ((0, 256), (32, 127))[rng.integers(2)]  # bytes, or letters
            data[start:stop] = rng.integers(low, high, size=stop - start, dtype=np.uint8).tobytes()
    return bytes(data)


def _guided(name: str, seed: int, folder: Path) -> None:
    """Fuzz one target. Does not return."""
    import resource

    import atheris

    with atheris.instrument_imports(include=["rtfilter"], exclude=_others()):
        from proofs.targets import MOST, TARGETS

    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    tempfile.tempdir = str(folder)
    target, valid, words = TARGETS[name]
    corpus, dictionary = folder / "corpus", folder / "words"
    corpus.mkdir()
    for at, one in enumerate(valid):
        (corpus / str(at)).write_bytes(one)
    shown = ("".join(f"\\x{byte:02x}" for byte in word) for word in words)
    dictionary.write_text("".join(f'"{word}"\n' for word in shown))

    def once(data: bytes) -> None:
        try:
            target(data)
        except Exception:
            print(f"{name}: {data!r}", flush=True)
            raise

    options = {
        "runs": RUNS[name],
        "seed": seed + 1,  # 0 would be any
        "max_len": MOST,
        "timeout": 0,
        "rss_limit_mb": MOST_MB,
        "dict": dictionary,
        "artifact_prefix": f"{folder}/",
        "verbosity": 1,
    }
    given = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *given, str(corpus)], once)
    atheris.Fuzz()


def _others() -> list[str]:
    """Modules whose coverage is not looked at; the kernels could not even be compiled."""
    top = Path(find_spec("rtfilter").origin).parent.parent
    files = (file.relative_to(top).with_suffix("") for file in top.glob("rtfilter/**/*.py"))
    names = (".".join(file.parts).removesuffix(".__init__") for file in files)
    return [name for name in names if not name.startswith(COVERED)]


if __name__ == "__main__":
    _guided(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
