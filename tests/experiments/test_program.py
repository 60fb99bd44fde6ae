"""The program `python -m experiments`: how it ends when something goes wrong."""

import signal
import subprocess
import sys
import time

import pytest

from experiments import ResultError, arguments, demo
from experiments.__main__ import EXPERIMENTS, main
from experiments.paper import fig4a
from rtfilter.basics.extras import install


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "demo: interrupted; python -m experiments demo begins again\n"),
        (
            OSError(28, "No space left on device", "x.json"),
            1,
            "demo: [Errno 28] No space left on device: 'x.json'\n",
        ),
        (ResultError("x.json is no result"), 1, "demo: x.json is no result\n"),
        (
            ModuleNotFoundError("no", name="duckdb.sub"),
            1,
            f"demo needs duckdb: {install('peers')}\n",
        ),
    ],
)
def test_an_expected_failure_has_no_traceback(monkeypatch, capsys, error, code, said):
    def failing(_):
        raise error

    monkeypatch.setattr(demo, "main", failing)
    assert main(["demo"]) == code
    assert capsys.readouterr().err == said


def test_an_interrupted_run_says_how_to_go_on(monkeypatch, capsys):
    def failing(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fig4a, "main", failing)
    assert main(["fig4a", "--profile", "full", "--out", "my results"]) == 130
    again = "python -m experiments fig4a --profile full --out 'my results'"
    assert capsys.readouterr().err == f"fig4a: interrupted; {again} goes on from here\n"


@pytest.mark.slow
@pytest.mark.long
def test_ctrl_c_ends_a_real_run_with_one_line(tmp_path):
    # Children of a background shell ignore SIGINT; this one must not.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from experiments.__main__ import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["times", "--profile", "medium", "--out", str(tmp_path)]
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", code, *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.readline()  # the machine: it has begun
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=300)
    assert child.returncode == 130
    assert said == f"times: interrupted; python -m experiments {' '.join(arguments)} goes on from here\n"


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
