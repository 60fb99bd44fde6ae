"""A tenth of each proof, and that its long form was run."""

import json
from pathlib import Path

import pytest

from proofs import PROOFS


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, proof in PROOFS.items() if proof.tenth])
def test_a_tenth_of_the_cases(name):
    run = PROOFS[name].short or PROOFS[name].run
    tried = [run(seed) for seed in range(0, PROOFS[name].cases, 10)]
    assert len(tried) == PROOFS[name].cases // 10


@pytest.mark.parametrize("name", PROOFS)
def test_the_long_form_is_kept(name):
    kept = json.loads((Path(__file__).parent / "results" / f"{name}.json").read_text())
    assert kept["claim"] == PROOFS[name].claim
    assert kept["cases"] == PROOFS[name].cases
