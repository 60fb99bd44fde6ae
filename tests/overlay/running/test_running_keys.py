"""Keys: files, roles, and what is derived."""

import os

import pytest

from rtfilter.overlay.running.broker_keys import Key, KeyFileError, KeyRole


def test_a_key_comes_back_from_its_file(tmp_path):
    key = Key.new()
    key.write(tmp_path / "key")
    assert Key.read(tmp_path / "key") == key
    assert os.stat(tmp_path / "key").st_mode & 0o077 == 0


def test_a_key_is_not_overwritten(tmp_path):
    Key.new().write(tmp_path / "key")
    with pytest.raises(FileExistsError):
        Key.new().write(tmp_path / "key")


@pytest.mark.parametrize(
    "text", ["", "broker", "broker 00ff", "king " + "00" * 32, "broker " + "00" * 32 + " x"]
)
def test_a_file_without_a_key_is_named(tmp_path, text):
    (tmp_path / "key").write_text(text)
    with pytest.raises(KeyFileError, match="rtfilter broker key"):
        Key.read(tmp_path / "key")


def test_the_key_of_clients_follows_from_that_of_brokers_and_not_the_other_way():
    key = Key.new()
    lesser = key.of(KeyRole.CLIENT)
    assert lesser.of(KeyRole.CLIENT) == lesser
    assert lesser.secret != key.secret
    assert lesser.of(KeyRole.BROKER) is None


def test_parts_of_a_derivation_are_told_apart():
    key = Key.new()
    assert key.derived("a", "bc") != key.derived("ab", "c")
