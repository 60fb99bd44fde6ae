"""Tables of cases that one test runs, as a test of its own costs more than most checks; and slow cases."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import Any

import pytest


def cases(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Any], Any]:
    """Let a test run with each row of a table, as `pytest.mark.parametrize`, but as one test.

    It fails where any row does, and names all rows that fail. Fixtures are shared by all rows. The test has
    its rows as `table`.

    Parameters
    ----------
    names : str or tuple of str
        The arguments of the test that a row gives; a str is a single one, and a row its value.
    rows : iterable
        Values, tuples of them, or `pytest.param` with an id, by which the row is named.
    """
    wanted, table = ([names] if isinstance(names, str) else list(names)), list(rows)

    def decorate(test: Callable[..., Any]) -> Any:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[tuple[Any, BaseException]] = []
            for row in table:
                values, name = ([row] if isinstance(names, str) else row), row
                if isinstance(row, type(pytest.param())):
                    values, name = row.values, row.id
                try:
                    test(**fixtures, **dict(zip(wanted, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    failed.append((name, error))
            if failed:
                told = "\n".join(f"{_shown(row)}: {error}" for row, error in failed)
                raise AssertionError(f"{len(failed)} of {len(table)} cases fail\n{told}") from failed[0][1]

        signature = inspect.signature(test)
        left = [own for name, own in signature.parameters.items() if name not in wanted]
        run.__dict__["__signature__"] = signature.replace(parameters=left)
        run.__dict__["table"] = table
        assert table, f"{test.__name__} has no cases"
        return run

    return decorate


def slow_but(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return parameters of a test, of which all but the `quick` ones are slow."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in values]


def _shown(row: Any) -> str:
    try:
        return f"{row!r:.300}"
    except (ValueError, RecursionError):  # an integer of too many digits, or too deep
        return "<case>"
