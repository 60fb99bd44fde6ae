"""The pages with times of event patterns: their tables are those of the kept numbers."""

import pytest

from experiments.output import REPORT, content
from experiments.ruler import run

ROOT = REPORT.parent.parent


@pytest.mark.parametrize("page", run.PAGES, ids=str)
def test_tables_of_event_patterns_are_those_of_the_kept_numbers(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert run.filled(text, content(run.KEPT)) == text


def test_all_tables_are_on_a_page():
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in run.PAGES)
    assert [name for name in run.PARTS if f"<!-- {name} -->" not in text] == []
