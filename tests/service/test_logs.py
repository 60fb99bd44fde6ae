"""What the server logs, for machines."""

import json
import logging

import pytest
import structlog

from rtfilter.service import logs


@pytest.fixture
def _restored():
    root = logging.getLogger()
    before = root.handlers[:], root.level, {name: logging.getLogger(name).level for name in logs.LEVELS}
    yield
    root.handlers[:], level, levels = before
    root.setLevel(level)
    for name, one in levels.items():
        logging.getLogger(name).setLevel(one)


@pytest.mark.usefixtures("_restored")
def test_each_line_is_json_and_shows_no_values_of_variables(capsys):
    logs.configure()
    password = "secret"
    try:
        raise ValueError(len(password))
    except ValueError:
        logging.getLogger("rtfilter.service.x").exception("it %s", "failed")
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert (found["event"], found["level"], found["logger"]) == ("it failed", "error", "rtfilter.service.x")
    assert "ValueError: 6" in found["exception"]
    assert "secret" not in found["exception"].replace('password = "secret"', "")
    assert found["timestamp"].endswith("Z")


@pytest.mark.usefixtures("_restored")
def test_a_line_has_the_id_of_the_request(capsys):
    logs.configure("warning")
    with structlog.contextvars.bound_contextvars(request="mine"):
        logging.getLogger("rtfilter.x").info("not told")
        logging.getLogger("rtfilter.x").warning("told")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["request"] == "mine"
