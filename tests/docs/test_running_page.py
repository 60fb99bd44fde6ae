"""The page on running the server: what it shows is so."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from test_service_page import Shown, follow, reading

import forks

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "running.md").read_text(encoding="utf-8")


def commands(heading):
    """The commands below a heading, each with its lines."""
    text = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield from re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)


def said(command, folder):
    """What a command says, as on a machine with ``rtfilter``."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("RTFILTER_")}
    rtfilter = forks.executable(folder, "rtfilter", "-m rtfilter")
    own = bare | {"PATH": f"{rtfilter.parent}:{bare['PATH']}"}
    found = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=own, capture_output=True, text=True, timeout=600
    )
    return found.stdout + found.stderr


def test_settings_are_shown_as_on_the_page(tmp_path):
    (toml,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "rtfilter.toml").write_text(toml)
    for command, lines in commands("Settings"):
        assert said(command, tmp_path) == lines


@pytest.mark.slow
def test_a_server_is_backed_up_and_restored_as_on_the_page(tmp_path):
    with reading(tmp_path) as reader:
        follow(reader, [Shown(command, lines.splitlines()) for command, lines in commands("Backups")])
