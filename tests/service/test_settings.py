"""What the server is told, by flags and by the environment."""

import argparse

import pytest

from rtfilter.cli import main, serve
from rtfilter.service.settings import Settings, SettingsError, settings


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"RTFILTER_{name.upper()}", raising=False)


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
        ({"port": 70_000}, "--port, or RTFILTER_PORT: "),
        ({"host": ""}, "--host, or RTFILTER_HOST: "),
        ({"body": 0}, "--body, or RTFILTER_BODY: "),
        ({"rate": "nan"}, "--rate, or RTFILTER_RATE: "),
        ({"durability": "none"}, "'process' or 'power'"),
        ({"backlog_policy": "x"}, "'drop-oldest', 'drop-newest' or 'refuse'"),
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
    assert set(vars(parser.parse_args([]))) == set(Settings.model_fields) | {"schema"}


def test_the_command_says_what_is_missing(capsys):
    assert main(["serve"]) == 2
    assert "a folder for the data is needed: --data DIR" in capsys.readouterr().err
