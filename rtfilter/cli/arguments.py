"""Arguments that are whole numbers, read and refused in one way by all commands."""

from __future__ import annotations

from argparse import ArgumentTypeError


def natural(text: str) -> int:
    """Read an integer from 0 on.

    Raises
    ------
    ArgumentTypeError
        Something else.
    """
    return _whole(text, 0)


def positive(text: str) -> int:
    """Read an integer from 1 on; raises as `natural`."""
    return _whole(text, 1)


def port(text: str) -> int:
    """Read the number of a port, 0 for any that is free; raises as `natural`."""
    number = natural(text)
    if number > 65_535:
        raise ArgumentTypeError(f"{text!r} is no port; they go up to 65535")
    return number


def _whole(text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)
