"""A fault, and the list of them."""

import tomllib
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).parents[3]


class FaultError(Exception):
    """A fault that cannot be planted."""


class Fault(NamedTuple):
    """A change that the tests must notice."""

    name: str
    kind: str
    """What goes wrong, such as "missing lock"."""
    file: str
    """Below the checkout."""
    old: str
    """Occurs once in the file."""
    new: str
    tests: tuple[str, ...]
    """Files or node ids that must notice."""

    @property
    def room(self) -> str:
        """The package of the file, or the folder beside `rtfilter`."""
        first, second = Path(self.file).parts[:2]
        return second.removesuffix(".py") if first == "rtfilter" else first

    @property
    def test_files(self) -> list[str]:
        """The files of the tests."""
        return [test.partition("::")[0] for test in self.tests]

    def plant(self, home: Path = HOME) -> str:
        """Return the text of the file with the fault. Raises `FaultError` where `old` does not occur once."""
        try:
            text = (home / self.file).read_text()
        except OSError as error:
            raise FaultError(f"{self.name}: {self.file} cannot be read: {error}") from None
        count = text.count(self.old)
        if count != 1:
            raise FaultError(f"{self.name}: its old text occurs {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def _read() -> list[Fault]:
    rows = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())["fault"]
    return [Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows]


FAULTS = _read()
