"""Test rtfilter with the lowest and the newest numba, uvicorn and pyspark that pyproject.toml allows.

rtfilter uses private parts of these packages, so a bound is only as good as a run of the tests at both ends:

    make versions
    make versions ONLY=pyspark

Each end is installed into a temporary folder, which precedes the environment that runs this program. Compiled
kernels go into that folder, too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = {
    "numba": (
        "tests/index/test_borrow.py",
        "tests/index/test_frontier.py",
        "tests/index/test_jit.py",
        "tests/index/test_ready.py",
        "tests/index/test_tree.py",
        "tests/index/test_vector.py",
        "tests/cli/test_cli_warm.py",
    ),
    "uvicorn": ("tests/service/doors", "tests/service/test_server.py"),
    "pyspark": ("tests/spark",),
}
"""Tests of what uses private parts of a package."""
BESIDE = {"pyspark": ["pyarrow<23"]}
"""Other packages for the lowest end: the stream state of PySpark 4.1 fails with pyarrow 26."""


def bounds(packages: list[str]) -> dict[str, str]:
    """Return the bounds of packages, as pip reads them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    named = [*project["dependencies"], *optional["service"], *optional["spark"]]
    found = [re.fullmatch(rf"({'|'.join(packages)})(?:\[\w+\])?([<>=].*)", text) for text in named]
    return {one[1]: one[2] for one in found if one is not None}


def wanted(end: str, packages: list[str]) -> list[str]:
    """Return what pip installs for an end, "lowest" or "newest"."""
    if end == "newest":
        return [package + bound for package, bound in bounds(packages).items()]
    lowest = {package: re.search(r">=([\d.]+)", bound) for package, bound in bounds(packages).items()}
    beside = [other for package in packages for other in BESIDE.get(package, [])]
    return [*(f"{package}=={bound[1]}" for package, bound in lowest.items() if bound is not None), *beside]


def run(end: str, folder: Path, packages: list[str], tests: list[str]) -> bool:
    """Install an end into a folder and run the tests with it. Return whether all passed."""
    if "pyspark" in packages and shutil.which("java") is None:
        print(f"{end}: NOT TESTED: pyspark needs Java 17 or newer", flush=True)
        return False
    named = wanted(end, packages)
    quiet = ["--quiet", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(folder), *named]
    if subprocess.run(install, check=False).returncode:
        print(f"{end}: NOT TESTED: pip cannot install {', '.join(named)}", flush=True)
        return False
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "cache")}
    script = "; ".join(f"import {name}; print('{name}', {name}.__version__)" for name in packages)
    said = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    ).stdout
    versions = " ".join(said.split())
    print(f"{end}: {versions}", flush=True)
    quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore:unclosed:ResourceWarning"]  # of PySpark 4.1
    pytest = [sys.executable, "-m", "pytest", *quiet, *tests]
    passed = subprocess.run(pytest, cwd=ROOT, env=environment, check=False).returncode == 0
    print(f"{end}: {versions}: {'passed' if passed else 'FAILED'}", flush=True)
    return passed


def main() -> int:
    """Run both ends; returns 0 if all tests passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--end", choices=("lowest", "newest"), help="this end only")
    parser.add_argument("--only", choices=TESTS, help="this package only")
    parser.add_argument("tests", nargs="*", help="tests in place of the usual ones")
    given = parser.parse_args()
    packages = [given.only] if given.only else list(TESTS)
    tests = given.tests or [test for package in packages for test in TESTS[package]]
    passed = []
    for end in [given.end] if given.end else ("lowest", "newest"):
        with tempfile.TemporaryDirectory(prefix="rtfilter-versions-") as folder:
            passed.append(run(end, Path(folder), packages, tests))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
