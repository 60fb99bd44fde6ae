"""What the server is told, by flags and by the environment."""

import argparse
import tomllib

import pytest

from rtfilter.cli import main, serve
from rtfilter.service.settings import Settings, SettingsError, settings, show


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    for name in Settings.__struct_fields__:
        monkeypatch.delenv(f"RTFILTER_{name.upper()}", raising=False)
    monkeypatch.delenv("RTFILTER_SETTINGS", raising=False)


def test_a_folder_is_all_that_is_needed(tmp_path):
    found = settings(data=tmp_path)
    assert (found.host, found.port, found.tcp_port, found.loopback) == ("127.0.0.1", 8080, None, True)
    assert found.url == f"sqlite:///{tmp_path / 'log.sqlite'}"


def test_flags_count_more_than_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("RTFILTER_DATA", str(tmp_path))
    monkeypatch.setenv("RTFILTER_PORT", "1234")
    monkeypatch.setenv("RTFILTER_BACKLOG_COUNT", "7")
    monkeypatch.setenv("RTFILTER_BACKLOG_POLICY", "refuse")
    monkeypatch.setenv("RTFILTER_CERTIFICATE", "")
    found = settings(port=99, host=None)
    assert (found.data, found.port, found.host) == (tmp_path, 99, "127.0.0.1")
    assert found.bounds._replace(bytes=1, age=1) == (7, 1, 1, "refuse")
    assert found.certificate is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": None}, "a folder for the data is needed: --data DIR"),
        ({"data": ""}, "--data, or RTFILTER_DATA: an empty text is no path; write . for this folder"),
        ({"port": 70_000}, "--port, or RTFILTER_PORT: "),
        ({"host": ""}, "--host, or RTFILTER_HOST: "),
        ({"body": 0}, "--body, or RTFILTER_BODY: "),
        ({"frame": 100}, "--frame, or RTFILTER_FRAME: "),
        ({"rate": "nan"}, "--rate, or RTFILTER_RATE: "),
        (
            {"trusted_proxies": "127.0.0.1, proxy"},
            "--trusted-proxies, or RTFILTER_TRUSTED_PROXIES: 'proxy' is no address and no network; "
            "write it as",
        ),
        ({"durability": "none"}, "process, power"),
        ({"backlog_policy": "x"}, "drop-oldest, drop-newest, refuse"),
        (
            {"certificate": "x"},
            "--certificate-key, or RTFILTER_CERTIFICATE_KEY: is needed with --certificate",
        ),
        (
            {"certificate_key": "x"},
            "--certificate, or RTFILTER_CERTIFICATE: is needed with --certificate-key",
        ),
    ],
)
def test_what_does_not_do_is_named(tmp_path, given, said):
    with pytest.raises(SettingsError) as refused:
        settings(**({"data": tmp_path} | given))
    assert said in str(refused.value)


def test_the_password_of_a_database_is_not_shown(tmp_path):
    found = settings(data=tmp_path, database="postgresql+psycopg://ann:secret@host/name")
    assert "secret" not in repr(found) + str(found)
    assert "secret" in found.url


def test_each_setting_is_a_flag():
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    assert set(vars(parser.parse_args([]))) == set(Settings.__struct_fields__) | {
        "schema",
        "strict",
        "settings",
        "show_settings",
    }


def test_the_command_says_what_is_missing(capsys):
    assert main(["serve"]) == 2
    assert "a folder for the data is needed: --data DIR" in capsys.readouterr().err


@pytest.fixture
def file(tmp_path):
    """A file of settings, without a folder."""
    made = tmp_path / "rtfilter.toml"
    made.write_text('host = "::1"\nport = 1\nbacklog_count = 5\n')
    return made


def test_the_environment_counts_more_than_a_file_and_a_flag_more_than_both(tmp_path, monkeypatch, file):
    monkeypatch.setenv("RTFILTER_PORT", "2")
    monkeypatch.setenv("RTFILTER_BACKLOG_COUNT", "3")
    found = settings(file, data=tmp_path, backlog_count=4)
    assert (found.host, found.port, found.backlog_count) == ("::1", 2, 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "FILE: there is no setting 'prot'; did you mean 'port'?"),
        ("backlog-count = 1", "FILE: there is no setting 'backlog-count'; did you mean 'backlog_count'?"),
        ("zzzz = 1", "FILE: there is no setting 'zzzz'"),
        ("port = 70000", "FILE: port: Expected `int` <= 65535"),
        ("port =", "FILE is not TOML: "),
        ("[server]\nport = 1", "FILE: there is no setting 'server'"),
    ],
)
def test_what_a_file_has_wrong_is_named(tmp_path, file, text, said):
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        settings(file, data=tmp_path)
    assert str(refused.value).startswith(said.replace("FILE", str(file)))


def test_what_is_shown_says_where_it_comes_from_and_no_secrets(tmp_path, monkeypatch, file):
    monkeypatch.setenv("RTFILTER_DATABASE", "postgresql://ann:secret@host/name")
    shown = show(file, data=tmp_path).splitlines()
    assert f'data = "{tmp_path}"  # flag' in shown
    assert "# database is secret, and not shown  # environment" in shown
    assert 'host = "::1"  # file' in shown
    assert "# rate is not set" in shown
    assert "retention = 604800.0  # default" in shown
    assert len(shown) == len(Settings.__struct_fields__)


def test_what_is_shown_can_be_a_file_of_settings(tmp_path):
    data = tmp_path / 'a "quoted" \\ fold\x7fer\té'
    file = tmp_path / "shown.toml"
    file.write_text(show(data=data, port=7, backlog_policy="refuse"), encoding="utf-8")
    assert settings(file) == settings(data=data, port=7, backlog_policy="refuse")
    assert tomllib.loads(file.read_text(encoding="utf-8"))["data"] == str(data)


def test_the_command_shows_settings_and_touches_no_folder(tmp_path, monkeypatch, file, capsys):
    monkeypatch.setenv("RTFILTER_SETTINGS", str(file))
    assert main(["serve", "--show-settings"]) == 0
    shown = capsys.readouterr().out
    assert "# data is needed" in shown
    assert "port = 1  # file" in shown
    assert main(["serve", "--show-settings", "--data", str(tmp_path / "data")]) == 0
    assert [*tmp_path.iterdir()] == [file]


def test_a_file_of_settings_that_is_not_there_is_told(tmp_path, capsys):
    assert main(["serve", "--data", str(tmp_path), "--settings", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file" in capsys.readouterr().err
