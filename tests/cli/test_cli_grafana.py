"""The files that ``rtfilter grafana`` writes."""

import shlex
from pathlib import Path

import pytest

import panels
from rtfilter.cli import main

SOURCE = Path(panels.__file__).parent
FILES = {
    "compose.yaml",
    "dashboards/rtfilter.json",
    "prometheus.yml",
    "provisioning/dashboards/rtfilter.yml",
    "provisioning/datasources/prometheus.yml",
    "rules.yml",
}


def below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_written_and_named(tmp_path, capsys):
    out = tmp_path / "to see"
    assert main(["grafana", "--out", str(out)]) == 0
    assert below(out) == FILES
    for name in FILES:
        assert (out / name).read_bytes() == (SOURCE / name).read_bytes()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert {f"rtfilter: wrote {out / name}" for name in FILES} <= set(printed.err.splitlines())
    commands = [shlex.split(line) for line in printed.err.splitlines() if line.startswith("  ")]
    assert [command[:2] for command in commands] == [["docker", "compose"], ["rtfilter", "replay"]]
    assert commands[0][3] == str(out / "compose.yaml")


def test_the_replay_that_is_shown_exists(tmp_path, capsys):
    from rtfilter.cli import _parser

    main(["grafana", "--out", str(tmp_path)])
    (replay,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("  rtfilter"))
    given = _parser().parse_args(shlex.split(replay)[1:])
    assert f'"127.0.0.1:{given.metrics_port}"' in (tmp_path / "prometheus.yml").read_text()


def test_whatever_grafana_and_prometheus_load_is_written():
    # Only in the checkout: the generators, which need the extra `grafana`, and the test of the rules.
    kept = {path for path in below(SOURCE) if not path.endswith((".py", ".pyc")) and path != "rules_test.yml"}
    assert kept == FILES


def test_equal_files_are_kept_and_missing_ones_written(tmp_path, capsys):
    main(["grafana", "--out", str(tmp_path)])
    (tmp_path / "rules.yml").unlink()
    before = (tmp_path / "compose.yaml").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["grafana", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert f"wrote {tmp_path / 'rules.yml'}" in said
    assert f"kept {tmp_path / 'compose.yaml'}" in said
    assert (tmp_path / "compose.yaml").stat().st_mtime_ns == before
    assert below(tmp_path) == FILES


def test_another_file_is_not_overwritten_and_nothing_is_written(tmp_path, capsys):
    own = tmp_path / "rules.yml"
    own.write_text("groups: []\n")
    assert main(["grafana", "--out", str(tmp_path)]) == 2
    expected = f"rtfilter: error: {own}: exists with other content; move it, or choose another --out\n"
    assert capsys.readouterr().err == expected
    assert below(tmp_path) == {"rules.yml"}
    assert own.read_text() == "groups: []\n"


@pytest.mark.parametrize("name", ["compose.yaml", "dashboards/rtfilter.json"])
def test_a_directory_in_the_way_is_told(tmp_path, capsys, name):
    (tmp_path / name).mkdir(parents=True)
    assert main(["grafana", "--out", str(tmp_path)]) == 2
    assert f"{tmp_path / name}: exists with other content;" in capsys.readouterr().err


def test_a_file_instead_of_the_directory_is_told(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert main(["grafana", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"rtfilter: error: {tmp_path / 'out'}: is a file; --out is")


def test_an_empty_name_is_not_this_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["grafana", "--out", ""]) == 2
    assert "an empty text is no path; write . for this folder" in capsys.readouterr().err
    assert not below(tmp_path)
