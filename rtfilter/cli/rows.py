"""Unusable rows of a file of subscriptions: each is an error, or is reported and left out."""

from __future__ import annotations

from rtfilter.cli.terminal import CommandError, say
from rtfilter.reading import files


class FileRows:
    """The rows of a file, by line or, for Parquet, by number.

    Attributes
    ----------
    refused : int
        Number of rows that were left out.
    """

    def __init__(self, path: str, skip: bool = False) -> None:
        self._path, self._skip = path, skip
        self.refused = 0

    def place(self, at: int) -> str:
        """Return the name of a row in messages."""
        parquet = self._path.endswith(".parquet")
        return files.row_place(self._path, at) if parquet else files.place(self._path, at)

    def refuse(self, at: int, reason: object) -> None:
        """Report an unusable row and leave it out. Raises `CommandError` unless such rows are skipped."""
        self.tell(f"{self.place(at)}: {reason}")

    def tell(self, message: str) -> None:
        """Do the same as `refuse`, with a message that already has the place."""
        if not self._skip:
            raise CommandError(message)
        self.refused += 1
        say(f"left out: {message}")
