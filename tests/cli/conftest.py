"""The parser of all commands, made once: it takes as long as most of what tests of this folder try."""

import os

import pytest

from rtfilter import cli


@pytest.fixture(autouse=True, scope="session")
def _one_parser():
    """Keep a parser for each environment, which has defaults of options."""
    make, made = cli._parser, {}

    def parser():
        given = frozenset(one for one in os.environ.items() if one[0].startswith("RTFILTER_"))
        if given not in made:
            made[given] = make()
        return made[given]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_parser", parser)
        yield
