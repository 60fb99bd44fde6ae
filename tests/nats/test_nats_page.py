"""The page on NATS: its program prints its output, and its commands answer as they show."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forks
from experiments import nats_cluster

PAGE = (Path(__file__).parents[2] / "docs" / "nats.md").read_text()
URL = "nats://127.0.0.1:4222"


def block(kind):
    """The first fenced block of one kind."""
    return re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.needs("nats")
def test_the_program_prints_its_output(tmp_path):
    command = re.search(r"\$ rtfilter (nats .*?)\nrtfilter: (.*)\n", block("console"), re.DOTALL)
    words = re.findall(r"'[^']*'|[^\s\\]+", command[1])
    with nats_cluster.cluster(1) as cluster:
        told = [word.strip("'") for word in words]
        told += ["--url", cluster.urls[0], "--metrics-port", "0"]
        worker = forks.python("-m", "rtfilter", *told, stderr=subprocess.PIPE)
        try:
            assert any(command[2] in line for line in worker.stderr)
            program = block("python").replace(URL, cluster.urls[0])
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
            assert done.stdout == block("text")
            check = ["nats", "check", "--filter", "trades", "--url", cluster.urls[0]]
            checked = forks.python("-m", "rtfilter", *check, stdout=subprocess.PIPE)
            out, _ = checked.communicate(timeout=60)
            assert checked.returncode == 0
            shown = re.search(r"^\{.*pending.*$", PAGE, re.MULTILINE)[0]
            assert json.loads(out).keys() == json.loads(shown).keys()
            worker.terminate()
            assert worker.wait() == 0
        finally:
            worker.kill()
            worker.stderr.close()


@pytest.mark.needs("nats")
@pytest.mark.parametrize(
    ("told", "why"),
    [
        (["--filter", "a b"], "--filter has letters"),
        (["--out", "x.*"], "--out: "),
        (["--ack-wait", "0"], "--ack-wait is 1 to"),
        (["--shard", "3/2"], "--shard: "),
        ([], "there is no bucket prices"),
        (["--create", "3"], "see --create"),
        (["--create", "1"], "has no schema yet"),
        (["--url", "nats://127.0.0.1:1"], "cannot connect to nats://127.0.0.1:1"),
    ],
)
def test_errors_say_what_to_do(single, told, why):
    common = ["--url", single.urls[0], "--filter", "prices", "--events", "prices.>", "--out", "out.{user}"]
    ran = forks.python("-m", "rtfilter", "nats", *common, *told, stderr=subprocess.PIPE)
    _, said = ran.communicate(timeout=120)
    assert ran.returncode == 2
    assert why in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def single():
    """One server, which allows no copies."""
    with nats_cluster.cluster(1) as made:
        yield made
