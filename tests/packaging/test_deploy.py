"""The files to run the server with: as linters want them, and with settings that there are."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rtfilter.service.settings import Settings

HOME = Path(__file__).parents[2]
DEPLOY = HOME / "deploy"
UNIT = DEPLOY / "rtfilter.service"
EXPOSURE = 20
"""Tenths of what `systemd-analyze security` may find, of 100."""


def tool(name):
    """A program that lies beside Python, or in the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}")
    return found


def run(*command):
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_containerfile_has_no_complaints():
    found = run(tool("hadolint"), str(DEPLOY / "Containerfile"))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.slow
def test_the_service_in_the_compose_file_has_no_complaints_but_of_its_network_and_that_it_is_built_here():
    command = [tool("compose-lint"), "check", "--no-env", "--format", "json", "grafana/compose.yaml"]
    found = json.loads(run(*command).stdout)["findings"]
    assert found
    assert {one["rule_id"] for one in found if one["service"] == "rtfilter"} == {"CL-0008", "CL-0019"}
    assert {one["rule_id"] for one in found if one["severity"] in ("high", "critical")} == {"CL-0008"}


@pytest.mark.slow
def test_systemd_takes_the_unit(tmp_path):
    made = tmp_path / UNIT.name
    made.write_text(UNIT.read_text().replace("/opt/rtfilter/bin/rtfilter", "/bin/true"))
    additions = tmp_path / f"{UNIT.name}.d"
    additions.mkdir()
    shutil.copy(DEPLOY / "tls.conf", additions)
    found = run(tool("systemd-analyze"), "verify", str(made))
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.slow
def test_the_unit_shuts_the_server_in():
    given = ["security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", str(UNIT)]
    found = run(tool("systemd-analyze"), *given)
    if "unrecognized option" in found.stderr or "Unknown" in found.stderr:
        pytest.skip("an older systemd")
    assert found.returncode == 0, found.stdout[-500:]


@pytest.mark.parametrize("name", ["Containerfile", "rtfilter.service", "tls.conf"])
def test_variables_are_settings(name):
    known = {f"RTFILTER_{one.upper()}" for one in Settings.__struct_fields__} | {"RTFILTER_SETTINGS"}
    found = set(re.findall(r"\bRTFILTER_[A-Z_]+", (DEPLOY / name).read_text()))
    assert found
    assert found <= known


def test_the_image_is_made_of_files_that_are_there():
    text = (DEPLOY / "Containerfile").read_text()
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)]
    names = [name for some in copied for name in some]
    assert names
    assert [name for name in names if not (HOME / name).exists()] == []
    shown = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in shown if line.startswith("!")} == set(names)
