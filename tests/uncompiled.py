"""Processes in which nothing can import a compiler: they show that a start needs none."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment(folder):
    """Return an environment of processes where importing numba or llvmlite is an error."""
    for name in ("numba", "llvmlite"):
        package = folder / "uncompiled" / name
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(f"raise AssertionError('{name} is imported')\n")
    paths = (folder / "uncompiled", ROOT, ROOT / "tests")
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
