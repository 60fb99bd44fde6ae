"""Some cases of each proof, and that its long form was run."""

import json
from functools import partial
from pathlib import Path

import pytest

from proofs import PROOFS, api, attacks, matchers

FEW = {
    "kills": 2,
    "damage": 15,
    "sequences": 2,
    "agreement": 2,
    "gates": 10,
    "interrupts": 1,
    "frames": 100,
    "matchers": 1,
    "api": 1,
    "arrow-bodies": 40,
    "fuzz": 1,
    "service-kills": 1,
}
"""Cases that are tried without `--long`."""
SHORT = {
    "api": partial(api.run, each=1, open_too=False),
    "matchers": partial(matchers.tried, ["counting"]),
}
"""What those try, if less than the others."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_a_few_cases(name):
    run = SHORT.get(name) or PROOFS[name].short or PROOFS[name].run
    for seed in range(0, 10 * FEW[name], 10):
        run(seed)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, proof in PROOFS.items() if proof.tenth])
def test_a_tenth_of_the_cases(name):
    run = PROOFS[name].short or PROOFS[name].run
    tried = [run(seed) for seed in range(0, PROOFS[name].cases, 10)]
    assert len(tried) == PROOFS[name].cases // 10


def test_each_proof_has_a_short_form():
    assert FEW.keys() == {name for name, proof in PROOFS.items() if proof.tenth}


@pytest.mark.parametrize("name", PROOFS)
def test_the_long_form_is_kept(name):
    kept = json.loads((Path(__file__).parent / "results" / f"{name}.json").read_text())
    assert kept["claim"] == PROOFS[name].claim
    assert kept["cases"] == PROOFS[name].cases


def test_each_attack_has_a_short_form():
    for attack, test in attacks.SHORT.items():
        file, name = test.split("::")
        assert f"def {name}(" in (Path(__file__).parents[1] / file).read_text(), attack.__name__
