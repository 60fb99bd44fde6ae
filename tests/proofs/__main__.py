"""`python -m proofs [NAME ...]`: run all cases, and keep what was found in `results`."""

import argparse
from collections import Counter
from time import perf_counter
from typing import Any

from tqdm import tqdm

from proofs.keeping import keep
from proofs.proof import PROOFS, Proof
from rtfilter.replay.machine import one_line


def prove(name: str, proof: Proof) -> None:
    """Run all cases of a proof and write its JSON; `AssertionError`, with the seed, where one fails."""
    counts: Counter[str] = Counter()
    begun = perf_counter()
    for seed in tqdm(range(proof.cases), desc=name, unit="case"):
        try:
            counts += proof.run(seed)
        except AssertionError as error:
            raise AssertionError(f"{name}, seed {seed}: {error}") from error
    found: dict[str, Any] = {
        "claim": proof.claim,
        "cases": proof.cases,
        "seeds": [0, proof.cases - 1],
        "tried": dict(sorted(counts.items())),
        "seconds": round(perf_counter() - begun),
        "machine": one_line(),
    }
    if proof.rows is not None:
        found["rows"] = proof.rows()
    keep(name, found)
    print(f"{name}: {proof.claim}: {proof.cases} cases, {found['tried']}", flush=True)


def main() -> None:
    """Run the proofs named, or all."""
    parser = argparse.ArgumentParser(prog="python -m proofs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROOFS))
    names = parser.parse_args().names or list(PROOFS)
    for name in names:
        if name not in PROOFS:
            parser.error(f"unknown proof {name}; there are {', '.join(PROOFS)}")
    for name in names:
        prove(name, PROOFS[name])


if __name__ == "__main__":
    main()
