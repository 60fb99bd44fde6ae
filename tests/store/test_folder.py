"""Nobody else may read the folder of a process."""

from rtfilter.store.folder import make


def test_what_others_could_read_becomes_private_and_is_told(tmp_path, caplog):
    file = tmp_path / "log.sqlite"
    file.touch()
    file.chmod(0o644)
    tmp_path.chmod(0o755)
    make(tmp_path)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path, file)] == [0o700, 0o600]
    assert [one.getMessage() for one in caplog.records] == [
        f"others could read {path}; it is private now" for path in (tmp_path, file)
    ]


def test_a_folder_for_everybodys_files_is_left_alone(tmp_path, caplog):
    tmp_path.chmod(0o1777)
    make(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o777
    assert "use a folder of its own" in caplog.text
    tmp_path.chmod(0o700)
