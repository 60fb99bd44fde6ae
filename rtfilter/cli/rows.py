"""Rows of a file of subscriptions that cannot be used: an error, or told and left out."""

from __future__ import annotations

from rtfilter.cli.terminal import CommandError, say
from rtfilter.reading import files


class Rows:
    """The rows of a file, by line or, of Parquet, by number.

    Attributes
    ----------
    refused : int
        Those that were left out.
    """

    def __init__(self, path: str, skip: bool = False) -> None:
        self._path, self._skip = path, skip
        self.refused = 0

    def place(self, at: int) -> str:
        """Return the name of a row in messages."""
        parquet = self._path.endswith(".parquet")
        return files.row_place(self._path, at) if parquet else files.place(self._path, at)

    def refuse(self, at: int, reason: object) -> None:
        """Leave out a row and tell why. Raises `CommandError` where none is left out."""
        self.tell(f"{self.place(at)}: {reason}")

    def tell(self, message: str) -> None:
        """As `refuse`, with a message that has the place."""
        if not self._skip:
            raise CommandError(message)
        self.refused += 1
        say(f"left out: {message}")
