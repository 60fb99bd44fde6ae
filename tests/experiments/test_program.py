"""The program `python -m experiments`: how it ends when something goes wrong."""

import pytest

from experiments import arguments, demo
from experiments.__main__ import EXPERIMENTS, main
from experiments.errors import ResultError


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "demo: interrupted\n"),
        (
            OSError(28, "No space left on device", "x.json"),
            1,
            "demo: [Errno 28] No space left on device: 'x.json'\n",
        ),
        (ResultError("x.json is no result"), 1, "demo: x.json is no result\n"),
        (
            ModuleNotFoundError("no", name="duckdb.sub"),
            1,
            "demo needs duckdb: pip install 'rtree-filter[peers]'\n",
        ),
    ],
)
def test_an_expected_failure_has_no_traceback(monkeypatch, capsys, error, code, said):
    def failing(_):
        raise error

    monkeypatch.setattr(demo, "main", failing)
    assert main(["demo"]) == code
    assert capsys.readouterr().err == said


def test_an_error_of_the_experiment_itself_is_not_hidden(monkeypatch):
    def failing(_):
        raise ModuleNotFoundError("no", name="experiments.gone")

    monkeypatch.setattr(demo, "main", failing)
    with pytest.raises(ModuleNotFoundError):
        main(["demo"])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_wrong_arguments_end_with_a_usage_message(capsys, name):
    with pytest.raises(SystemExit) as caught:
        main([name, "--no-such-option", "x"])
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("given", [[], ["nothing"]])
def test_without_a_name_it_shows_the_usage(capsys, given):
    with pytest.raises(SystemExit) as caught:
        main(given)
    assert caught.value.code == 2
    assert "usage: python -m experiments" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        ["demo", "--out", "file"],
        ["demo", "--out", "file/below"],
        ["bursts", "--out", "file/x.json"],
        ["bursts", "--figure", "folder"],
        ["peers", "--out", "file/x.json"],
        ["mixed", "--out", "folder"],
        ["overheads", "--out", "file/x.json"],
        ["capacity", "--out", "folder"],
        ["scale", "--out", "file/x.json"],
        ["bench", "--figure", "file/x.png"],
        ["mixed", "--seconds", "nan"],
        ["mixed", "--seconds=-1"],
        ["mixed", "--load", "0"],
        ["bench", "--build-seconds", "inf"],
        ["peers", "--ask-seconds", "soon"],
    ],
)
def test_what_cannot_be_is_said_at_the_beginning(capsys, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SystemExit) as caught:
        main(given)
    assert caught.value.code == 2
    assert "error: argument --" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_folders_of_results_are_made(tmp_path):
    assert arguments.new_file(str(tmp_path / "a" / "b.json")).parent.is_dir()
    assert arguments.new_folder(str(tmp_path / "c" / "d")).is_dir()
