"""What `rtree-filter` installs only on demand: the errors where it is missing say how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Let an import that fails name the extra that it is part of.

    Parameters
    ----------
    extra : str
        Name of the extra: ``arrow``, ``replay``, ``spark`` ...
    what : str
        What needs it, the beginning of the message.

    Raises
    ------
    ModuleNotFoundError
        In the place of one about a package of others; its ``name`` is the same.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "rtfilter") or "pip install" in str(error):
            raise
        raise ModuleNotFoundError(
            f"{what} needs {package}: pip install 'rtree-filter[{extra}]'", name=error.name
        ) from error
