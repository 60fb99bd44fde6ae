"""The name of a public class, and that of a file, means one thing in the package."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(
    {path.resolve() for room in ("rtfilter", "adaptive", "scheduler") for path in (ROOT / room).rglob("*.py")}
)


def repeated(named):
    """Names with more than one place, of pairs of a name and a file."""
    places = defaultdict(list)
    for name, path in named:
        places[name].append(path.relative_to(ROOT).as_posix())
    return {name: files for name, files in places.items() if len(files) > 1}


def test_a_public_class_name_means_one_thing():
    classes = [
        (node.name, path)
        for path in FILES
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert ("EventFilter", ROOT / "rtfilter" / "filter.py") in classes
    assert repeated(classes) == {}


def test_a_file_name_is_in_one_room():
    assert repeated((path.stem, path) for path in FILES if not path.stem.startswith("__")) == {}
