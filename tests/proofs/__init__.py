"""Long forms of tests: hundreds of kills, thousands of damages, long random runs.

`make prove` runs all cases of all proofs and keeps what it found in `results`, to be committed. `make test`
runs a few cases, or a short form; with `--long` it is every tenth. A case is a seed, the same in every run.
"""

from proofs.proof import PROOFS, Proof

__all__ = ["PROOFS", "Proof"]
