"""The README's Python runs as it stands, block after block."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_example_gives_what_it_says():
    names: dict = {}
    *setup, last = BLOCKS[0].strip().splitlines()
    exec("\n".join(setup), names)
    code, _, comment = last.partition("  # ")
    assert repr(eval(code, names)) == comment
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) == 5


def test_the_blocks_run_in_their_order(capsys):
    names: dict = {}
    for block in BLOCKS[1:]:
        if "spark" in block:
            continue  # see test_spark
        exec(block.replace("serve(9464)", "serve(0)"), names)
        if "stop" in names:
            names.pop("stop")()
    assert "too low by 1" in capsys.readouterr().out


def test_the_picture_and_linked_files_exist():
    links = re.findall(r"\]\(([^)h][^)]*)\)", README.read_text(encoding="utf-8"))
    assert "experiments/report/demo.png" in links
    for link in links:
        assert (README.parent / link).exists(), link


@pytest.mark.parametrize("command", ["match", "explain", "index", "replay", "spark-match"])
def test_commands_named_in_it_exist(command, capsys):
    from rtfilter.cli import main

    assert main([command, "--help"]) == 0
    assert f"rtfilter {command}" in capsys.readouterr().out
