"""The wheel and the sdist: what is in them, and that they work outside the checkout.

Nothing is downloaded: fresh environments get links to the requirements that are installed here.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rtfilter

pytest.importorskip("build")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("distribution")]

ROOT = Path(__file__).parents[2]
STEM = f"rtree_filter-{rtfilter.__version__}"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
BUILD = (sys.executable, "-m", "build", "--no-isolation")
HOOKS = """
import os, sys, tarfile
from setuptools import build_meta
source, out = sys.argv[1:]
os.chdir(source)
sdist = build_meta.build_sdist(out)
with tarfile.open(os.path.join(out, sdist)) as archive:
    archive.extractall(os.path.join(out, "unpacked"), filter="data")
os.chdir(os.path.join(out, "unpacked", sdist.removesuffix(".tar.gz")))
build_meta.build_wheel(out)
"""
USE = """
from typing import assert_type
from rtfilter import EventFilter, Matches, Schema
from rtfilter.adaptive import LevelController, Plan, Shape

filter = EventFilter(Schema({"price": float}), controller=LevelController())
assert_type(filter.match_batch([{"price": 1.0}]), Matches)
assert_type(LevelController().plan(64, Shape(4)).plan, Plan)
"""
BESIDE = """
import adaptive, scheduler
from rtfilter import EventFilter, Schema
from rtfilter import adaptive as own_adaptive, scheduler as own_scheduler

assert adaptive.NAME == "adaptive" and scheduler.NAME == "scheduler"
assert own_adaptive.LevelController(rounds=2).plan(64, own_adaptive.Shape(4)).plan.group == 1
assert own_scheduler.schedule(own_scheduler.shortest_first, [5, 0, 2], group=1).order.tolist() == [1, 2, 0]
EventFilter(Schema({"price": float}))
"""


def run(*command, cwd):
    """Standard output of a command that must succeed, without the checkout on its path; keeps bytecode."""
    left = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in left}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def contents(wheel):
    """Files of a wheel by name; its list of files is the same if they are, but in another order."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with an sdist and the wheel built from it, and the sources in source/.

    They are made by what `build` calls, but in one process instead of five.
    """
    folder = tmp_path_factory.mktemp("built")

    def other(directory, names):
        hidden = {name for name in names if name.startswith(".") or name == "__pycache__"}
        made = {name for name in names if name in ("build", "dist", "out") or name.endswith(".egg-info")}
        return hidden | (made if Path(directory) == ROOT else set())

    source = folder / "source"
    shutil.copytree(ROOT, source, symlinks=True, ignore=other)
    run(sys.executable, "-c", HOOKS, source, folder, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    """The wheel."""
    return built / f"{STEM}-py3-none-any.whl"


def in_checkout():
    """Names of the files that belong to the package, through links."""
    names = set()
    for folder, _, files in os.walk(ROOT / "rtfilter", followlinks=True):
        names |= {os.path.relpath(os.path.join(folder, file), ROOT) for file in files}
    return {name for name in names if "__pycache__" not in name}


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    files = contents(wheel)
    assert {name.partition("/")[0] for name in files} == {"rtfilter", f"{STEM}.dist-info"}
    assert {name for name in files if name.startswith("rtfilter/")} == in_checkout()
    assert {
        "rtfilter/py.typed",
        "rtfilter/adaptive/plans.py",
        "rtfilter/scheduler/schedules.py",
        "rtfilter/service/page/page.js",
        "rtfilter/watch/grafana/dashboards/rtfilter.json",
        "rtfilter/watch/grafana/provisioning/datasources/prometheus.yml",
    } <= set(files)
    assert not [name for name in files if name.startswith("rtfilter/watch/grafana") and name.endswith(".py")]
    assert files["rtfilter/adaptive/sizes.py"] == (ROOT / "adaptive" / "sizes.py").read_bytes()


def test_the_metadata_tell_license_and_extras(wheel):
    files = contents(wheel)
    metadata = Parser().parsestr(files[f"{STEM}.dist-info/METADATA"].decode())
    assert (metadata["Name"], metadata["Version"]) == ("rtree-filter", rtfilter.__version__)
    assert metadata["License-Expression"] == "MIT"
    assert files[f"{STEM}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert metadata.get_all("Provides-Extra") == list(EXTRAS)
    assert files[f"{STEM}.dist-info/top_level.txt"] == b"rtfilter\n"


@pytest.mark.long
def test_the_sources_build_the_same_wheel(built, wheel):
    run(*BUILD, "--wheel", "--outdir", built / "direct", built / "source", cwd=built)
    assert contents(wheel) == contents(built / "direct" / wheel.name)


def test_the_sdist_holds_what_the_wheel_is_built_from(built):
    with tarfile.open(built / f"{STEM}.tar.gz") as sdist:
        links = [member.name for member in sdist.getmembers() if not (member.isfile() or member.isdir())]
        names = {member.name.removeprefix(f"{STEM}/") for member in sdist.getmembers() if member.isfile()}
    assert links == []
    assert in_checkout() | {"LICENSE", "README.md", "pyproject.toml"} <= names
    made = {"PKG-INFO", "rtree_filter.egg-info", "setup.cfg"}
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"LICENSE", "README.md", "pyproject.toml", "rtfilter"} | made


# Installed


def required(wheel, *extras):
    """Distributions that a wheel needs with some extras, directly and indirectly."""
    found = {}

    def add(requirements, extras):
        for text in requirements:
            requirement = Requirement(text)
            if requirement.marker and not any(
                requirement.marker.evaluate({"extra": extra}) for extra in (*extras, "")
            ):
                continue
            name = canonicalize_name(requirement.name)
            if name == "rtree-filter":
                add(own, requirement.extras)
            elif name not in found:
                try:
                    found[name] = distribution(name)
                except PackageNotFoundError:
                    pytest.skip(f"{requirement} is not installed")
                add(found[name].requires or [], requirement.extras)

    own = Parser().parsestr(contents(wheel)[f"{STEM}.dist-info/METADATA"].decode()).get_all("Requires-Dist")
    add(own, extras)
    return found


def environment(folder, distributions):
    """Python of a fresh environment in which only these distributions are installed."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for one in distributions:
        for top in {file.parts[0] for file in one.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(one.locate_file(top))
    return folder / "bin" / "python"


def pip(python, *arguments):
    """Let the pip of this environment act on another one."""
    quiet = ("--disable-pip-version-check", "--quiet")
    return run(sys.executable, "-m", "pip", "--python", python, *quiet, *arguments, cwd=python.parent)


def installed_files(python):
    """Content of the files of the package in an environment."""
    (site,) = (python.parents[1] / "lib").glob("python*/site-packages")
    paths = [path for path in (site / "rtfilter").rglob("*") if path.is_file()]
    return {str(p.relative_to(site)): p.read_bytes() for p in paths if "__pycache__" not in p.parts}


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Python of an environment with the wheel and the extra `replay`, without the extra `dev`."""
    requirements = required(wheel, "replay")
    assert {"numpy", "rtree"} <= set(requirements)
    assert not {"mypy", "pytest", "pyspark", "setuptools"} & set(requirements)
    python = environment(tmp_path_factory.mktemp("venv"), requirements.values())
    pip(python, "install", "--no-index", "--no-compile", f"{wheel}[replay]")
    (package,) = (python.parents[1] / "lib").glob("python*/site-packages/rtfilter")
    for compiled in (ROOT / "rtfilter").rglob("__pycache__/*.nb[ci]"):  # kernels, which take a minute
        place = package / compiled.relative_to(ROOT / "rtfilter")
        place.parent.mkdir(exist_ok=True)
        shutil.copy(compiled, place)
    return python


def test_the_installed_package_is_complete(installed, tmp_path):
    found = json.loads(run(installed, Path(__file__).with_name("import_everything.py"), cwd=tmp_path))
    assert Path(found["file"]).is_relative_to(installed.parents[1])
    assert found["others"] == []
    assert set(found["missing"]) == {
        "rtfilter.client",
        "rtfilter.nats",
        "rtfilter.service",
        "rtfilter.spark",
        "rtfilter.store",
    }
    version = run(installed.with_name("rtfilter"), "--version", cwd=tmp_path)
    assert version == f"rtfilter {rtfilter.__version__}\n"


def test_the_installed_commands_work(installed, tmp_path):
    rtfilter = installed.with_name("rtfilter")
    run(rtfilter, "grafana", "--out", tmp_path / "monitoring", cwd=tmp_path)
    assert (tmp_path / "monitoring" / "dashboards" / "rtfilter.json").is_file()
    replay = ("replay", "wide", "--subscriptions", "200", "--bursts", "2")
    run(rtfilter, *replay, "--json", "replay.json", "--figure", "replay.png", cwd=tmp_path)
    assert json.loads((tmp_path / "replay.json").read_text())["summary"]
    assert (tmp_path / "replay.png").stat().st_size > 10_000


@pytest.mark.long
def test_programs_that_use_the_wheel_are_type_checked(installed, tmp_path):
    (tmp_path / "use.py").write_text(USE)
    run(sys.executable, "-m", "mypy", "--strict", "--python-executable", installed, "use.py", cwd=tmp_path)


# Beside other distributions


def dummy(folder, name):
    """A wheel that installs a top-level package, as the project of that name on PyPI does."""
    wheel = folder / f"{name}-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"NAME = {name!r}\n")
        info = f"{name}-9.9.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in archive.namelist()))
    return wheel


@pytest.mark.long
@pytest.mark.parametrize("others_first", [False, True])
def test_distributions_that_own_the_names_adaptive_and_scheduler(wheel, tmp_path, others_first):
    python = environment(tmp_path / "venv", required(wheel).values())
    others = [dummy(tmp_path, "adaptive"), dummy(tmp_path, "scheduler")]
    for wheels in [others, [wheel]] if others_first else [[wheel], others]:
        pip(python, "install", "--no-index", *wheels)
    package = {name: data for name, data in contents(wheel).items() if name.startswith("rtfilter/")}
    assert installed_files(python) == package
    found = json.loads(run(python, Path(__file__).with_name("import_everything.py"), cwd=tmp_path))
    assert found["others"] == []
    run(python, "-c", BESIDE, cwd=tmp_path)

    if others_first:
        pip(python, "uninstall", "--yes", "rtree-filter")
        assert installed_files(python) == {}
        run(python, "-c", "import adaptive, scheduler; adaptive.NAME, scheduler.NAME", cwd=tmp_path)
    else:
        pip(python, "uninstall", "--yes", "adaptive", "scheduler")
        assert installed_files(python) == package
