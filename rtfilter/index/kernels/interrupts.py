"""Interrupts while a kernel returns its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def unwrapped(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function`, which calls kernels that return arrays, with interrupts raised unchanged.

    numba runs some Python code to return an array. It turns an exception of a signal handler in that code
    into a `SystemError`, which ``except Exception`` would catch; the interrupt is the cause of its causes.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except SystemError as error:
            cause: BaseException = error
            while isinstance(cause, SystemError) and cause.__cause__ is not None:
                cause = cause.__cause__
            if cause is error:
                raise
            raise cause from None

    return call
