"""Interrupts that come while a kernel hands its result over."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def unwrapped(function: Callable[P, R]) -> Callable[P, R]:
    """Let interrupts leave a function, which calls kernels that return arrays, as themselves.

    numba runs a little Python to hand over an array. What a signal handler raises there it turns into a
    `SystemError`, which ``except Exception`` would swallow; the interrupt is the cause of its causes.
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
