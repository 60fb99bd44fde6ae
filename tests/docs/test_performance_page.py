"""The pages with times of event patterns: their tables are those of the kept numbers."""

import pytest

from experiments.output import REPORT, content
from experiments.ruler import tables

ROOT = REPORT.parent.parent


@pytest.mark.parametrize("page", tables.PAGES, ids=str)
def test_tables_of_event_patterns_are_those_of_the_kept_numbers(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert tables.filled(text, content(tables.KEPT)) == text


def test_all_tables_are_on_a_page():
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in tables.PAGES)
    assert [name for name in tables.PARTS if f"<!-- {name} -->" not in text] == []
