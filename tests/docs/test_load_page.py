"""The page on load: its tables are those of the kept numbers."""

import re

from experiments.output import content
from experiments.service import tables
from experiments.service.run import KEPT, PAGE


def test_tables_are_those_of_the_kept_numbers():
    page = PAGE.read_text(encoding="utf-8")
    assert tables.filled(page, content(KEPT)) == page


def test_all_tables_are_on_the_page():
    names = re.findall(r"<!-- ([a-z-]+) -->", PAGE.read_text(encoding="utf-8"))
    assert sorted(set(names) - {"end"}) == sorted([*tables.TABLES, "machine"])
