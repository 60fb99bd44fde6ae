"""Pages, docstrings and public names keep to the rules of style: short, and with nouns as subjects."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if "reference" not in path.parts
}
BUDGETS = {"README.md": 500, "docs/guide.md": 1800, "docs/service.md": 1800}
"""Words of prose on a page; any other page has `BUDGET`, and all pages together have `TOTAL`."""
BUDGET, TOTAL = 1000, 16_000
LONGEST = 30
"""Words of a sentence."""
PRONOUN = re.compile(r"(What|Who|Whom|Whose|Whoever|Where|Which|Those|One|Whether|How|That|When|Why)\b")
"""Words that open a sentence whose subject is no noun."""
CLAUSE = re.compile(r"(When|Where|Whether) .*, |(One|That|Those) [a-z]+\b")
"""Of these, openings that are right: a clause before the subject, and a word that belongs to a noun."""
NO_VERB = re.compile(r"(The|An?|All|Some|As|Of|For|In|On|At|It|This|There|So|None|Another|Each|\w*[^s\W]s)\b")
"""Words that open no summary of a function: articles, prepositions, plural nouns, ``Returns``."""
GENERATED = re.compile(r"^---\n.*?^---\n|<!-- (?!end)[a-z-]+ -->.*?<!-- end -->|<!--.*?-->", re.S | re.M)
CODE = re.compile(r"^ *(```|~~~).*?^ *\1 *$|^ *\|.*?$|^#.*?$", re.S | re.M)
"""Blocks of code, rows of tables, and headings."""
NO_NAMES = {"rule", "deadline", "beyond", "aside", "told", "seldom", "minding", "patience", "suspense"}
"""Words that no public class or function has in its name: the style has a better word for each."""


def prose(page: str) -> str:
    """The text of a page without tables, code, generated parts and the targets of links."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", CODE.sub("", GENERATED.sub("", PAGES[page])))
    return re.sub(r"</?[a-zA-Z][^<>\n]*>", "", text)


def words(text: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def sentences(page: str) -> list[str]:
    """Sentences, and parts of them between colons and semicolons; code is one word."""
    text = re.sub(r"`[^`]*`", "CODE", prose(page))
    parts = (re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text))
    return [one for part in parts for one in re.split(r"(?<=[.!?:;])\s+", part) if one]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])  # which grows
def test_a_page_is_within_its_budget(page):
    assert words(prose(page)) <= BUDGETS.get(page, BUDGET)


def test_all_pages_are_within_theirs():
    assert sum(words(prose(page)) for page in PAGES) <= TOTAL


@pytest.mark.parametrize("page", PAGES)
def test_a_sentence_is_read_once(page):
    found = sentences(page)
    assert [one for one in found if words(one) > LONGEST] == []
    opened = [one for one in found if PRONOUN.match(one) and not one.endswith("?")]
    assert [one for one in opened if not CLAUSE.match(one)] == []


class Defined(NamedTuple):
    """A class, a function, or a text that stands alone, of the package or the experiments."""

    place: str
    kind: type
    name: str
    """Empty for a text, and for a property."""
    text: str
    """The docstring, or the text."""


@cache
def defined() -> list[Defined]:
    found = []
    for path in [*ROOT.glob("rtfilter/**/*.py"), *ROOT.glob("experiments/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            place = f"{path.relative_to(ROOT).as_posix()}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                named = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
                found.append(
                    Defined(place, type(node), "" if named else node.name, ast.get_docstring(node) or "")
                )
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                found.append(Defined(place, type(node), "", str(node.value.value).strip()))
    return found


def test_a_docstring_opens_with_a_verb_or_a_noun():
    assert [one for one in defined() if PRONOUN.match(one.text)] == []


def test_the_docstring_of_a_function_opens_with_a_verb():
    functions = [one for one in defined() if one.kind is not ast.ClassDef and one.name]
    assert [one for one in functions if NO_VERB.match(one.text)] == []


def test_public_names_have_words_of_the_field():
    public = [one for one in defined() if not one.name.startswith("_")]
    parts = [{*re.sub(r"(?<=[a-z])(?=[A-Z])", "_", one.name).lower().split("_")} for one in public]
    assert [one for one, own in zip(public, parts, strict=True) if NO_NAMES & own] == []
