"""A server for the tests of this folder."""

import pytest

from service.running import running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("served"), body=100_000, nesting=5, frame=1_000_000) as found:
        yield found
