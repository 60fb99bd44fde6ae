"""What all tests of experiments have in common."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_collection():
    """Collect no garbage before a batch is timed: among all that tests load it takes 0.3 s each time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gc, "collect", lambda generation=2: 0)
        yield
