"""A griffe extension: docstrings are for readers of the source first, this makes them Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: References of Sphinx, such as ``:class:`Plan` ``.
ROLE = re.compile(r":(?:class|meth|func|data|mod|attr):`~?([^`]+)`")
#: Examples with prompts, up to an empty line.
PROMPTS = re.compile(r"^>>> .*\n(?:(?!\s*\n).*(?:\n|\Z))*", re.MULTILINE)
#: Notes to doctest.
NOTE = re.compile(r"[ ]*# doctest: \+\w+")


class Markdown(griffe.Extension):
    """Quotes references, and fences examples."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object that was found."""
        if obj.docstring is not None:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = PROMPTS.sub(fenced, text)


def fenced(found: re.Match[str]) -> str:
    """An example as a block of Python."""
    return f"```pycon\n{NOTE.sub('', found[0]).rstrip()}\n```\n"
