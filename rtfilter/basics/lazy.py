"""Names of a package that are imported at their first use, so that importing the package is fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def at_first_use(
    package: dict[str, Any], places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : dict
        The ``globals()`` of the package, with ``__all__`` by the time ``__dir__`` is called. The functions
        store each used name there.
    places : mapping of str to str
        For each name the module that has it, below the package.
    """
    own = package["__name__"]

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        found = package[name] = getattr(import_module(f"{own}.{places[name]}"), name)
        return found

    return get, lambda: sorted({*package, *package["__all__"]})
