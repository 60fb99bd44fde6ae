"""What importing rtfilter imports, and what it does not."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import rtfilter
import uncompiled

ROOT = Path(__file__).parents[2]
HEAVY = {
    "pydantic",
    "matplotlib",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "scipy",
    "sqlalchemy",
    "starlette",
    "tqdm",
    "uvicorn",
}


def in_a_fresh_process(*arguments, cwd):
    """Standard output of Python outside the checkout, whose folders are all importable."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


IMPORTS = """
import importlib, json, sys
before = {*sys.modules}
for module in sys.argv[1:]:
    importlib.import_module(module)
    print(json.dumps([module, sorted({*sys.modules} - before)]))
"""


@pytest.mark.slow
def test_importing_is_light(tmp_path):
    modules = ["rtfilter", "rtfilter.client", "rtfilter.adaptive", "rtfilter.scheduler", "rtfilter.watch"]
    script = "import numba\n" + IMPORTS  # numba itself loads a little of scipy
    for line in in_a_fresh_process("-c", script, *modules, cwd=tmp_path).splitlines():
        module, imported = json.loads(line)
        assert module == modules.pop(0) in imported
        assert not {name.partition(".")[0] for name in imported} & HEAVY, module
        assert "rtfilter.asynchronous" not in imported, module  # asyncio takes time, too
        assert not [name for name in imported if name.startswith(("rtfilter.service", "rtfilter.store"))]
    assert not modules


@pytest.mark.slow
def test_who_needs_no_compiler_loads_none(tmp_path):
    modules = ["rtfilter", "rtfilter.client", "rtfilter.basics.errors"]
    for line in in_a_fresh_process("-c", IMPORTS, *modules, cwd=tmp_path).splitlines():
        module, imported = json.loads(line)
        assert module == modules.pop(0) in imported
        assert not {"numba", "numpy", "llvmlite"} & {*imported}, module
    assert not modules


SMALL = """
from rtfilter import EventFilter, Schema, Tracker
from rtfilter.watch.metrics import Metrics
clock = [0.0]
alerts = EventFilter(Schema({"price": float, "symbol": str}), metrics=Metrics(), clock=lambda: clock[0])
alerts.subscribe("symbol = 'ACME' AND price < 10")
ids = alerts.subscribe_many(["symbol LIKE 'a long text%' OR price > 5"] * 99, ttl=[5.0] * 99)
event = {"symbol": "ACME", "price": 9.5}
assert len(alerts.match(event)) == 100
assert len(alerts.match_batch([event, {"symbol": "a long text"}]).pairs()[0]) == 199
assert len(list(alerts.stream([event] * 50))) == 50
assert not alerts.explain({"symbol": "ACME", "price": 11}, 0).matched
alerts.explain([event])
assert len(alerts.related("price BETWEEN 6 AND 7").covers.ids) == 99
assert len(alerts.related("price < 12").covered.ids) == 1
Tracker(alerts, "symbol").match_batch([event])
alerts.update(0, "price < 9")
alerts.unsubscribe(1)
clock[0] = 6.0
assert len(alerts.match(event)) == 0
assert alerts.match_batch([event]).any.tolist() == [False]
alerts.stats()
alerts.save("saved")
assert len(EventFilter.load("saved", clock=lambda: clock[0])) == 1
"""
HELP = """
import contextlib, io, re
from rtfilter.cli import COMMANDS, main
def told(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*words, "--help"]) == 0
    return out.getvalue()
told()
for command in COMMANDS:
    text = told(command)
    if found := re.search("ACTION ...", text):
        for action in re.findall(r"^    ([a-z]+) ", text, re.MULTILINE):
            told(command, action)
"""
COMMANDS = """
import json
from pathlib import Path
from rtfilter.cli import main
Path("rules.jsonl").write_text('"price < 10"\\n"symbol = \\'A\\'"\\n')
Path("events.jsonl").write_text('{"price": 5.5, "symbol": "B"}\\n')
Path("schema.json").write_text('{"price": "float", "symbol": "str"}')
assert main("index build rules.jsonl --schema schema.json --out saved".split()) == 0
for words in ("index check saved", "index info saved", "match saved events.jsonl",
    "match rules.jsonl events.jsonl --schema schema.json", "explain saved events.jsonl"):
    assert main(words.split()) == 0, words
"""


@pytest.mark.slow
def test_small_uses_need_no_compiler(tmp_path):
    env = uncompiled.environment(tmp_path)
    programs = {"filter": SMALL, "help": HELP, "commands": COMMANDS}
    each = f"for name, program in {programs!r}.items(): exec(compile(program, name, 'exec'), {{}})"
    done = subprocess.run([sys.executable, "-c", each], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_public_name_is_found_where_types_say():
    (typed,) = [
        node
        for node in ast.parse((ROOT / "rtfilter" / "__init__.py").read_text()).body
        if isinstance(node, ast.If)
    ]
    places = {alias.name: node.module for node in typed.body for alias in node.names}
    assert {name: f"rtfilter.{place}" for name, place in rtfilter._PLACES.items()} == places
    for name in rtfilter.__all__:
        assert getattr(rtfilter, name).__module__ == places.get(name, "rtfilter.basics.errors")
    assert {*rtfilter.__all__} <= {*dir(rtfilter)}
    with pytest.raises(AttributeError, match="'rtfilter' has no attribute 'nothing'"):
        rtfilter.nothing  # noqa: B018


def test_scipy_and_the_top_level_names_are_never_imported():
    # SciPy takes half as much room as all else together, and only tests and experiments declare it.
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("rtfilter", include_external_packages=True, cache_dir=None)
    assert "numba" in graph.modules
    assert "scipy" not in graph.modules
    assert not {"adaptive", "scheduler", "experiments"} & graph.modules  # an installation has no such names


@pytest.mark.slow
@pytest.mark.long  # the modules that an installation with the extra `replay` can import are always imported
def test_no_module_imports_the_top_level_names(tmp_path):
    script = Path(__file__).with_name("import_everything.py")
    found = json.loads(in_a_fresh_process(script, cwd=tmp_path))
    assert Path(found["file"]).parent == ROOT / "rtfilter"
    assert {"rtfilter.adaptive.sizes", "rtfilter.scheduler.schedules", "rtfilter.filter"} <= set(
        found["done"]
    )
    assert all(
        name.startswith(
            (
                "rtfilter.spark",
                "rtfilter.replay",
                "rtfilter.service",
                "rtfilter.client",
                "rtfilter.store",
                "rtfilter.nats",
            )
        )
        for name in found["missing"]
    )
    assert found["others"] == []


def test_nothing_imports_in_circles():
    # The contracts compare modules beside each other. Here a package counts by what its __init__ imports.
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("rtfilter", "experiments", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert "rtfilter.adaptive.plans" in imports["rtfilter.adaptive"]
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


@pytest.mark.slow
def test_every_extra_that_is_named_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {}
    for folder in ("adaptive", "docs", "experiments", "grafana", "rtfilter", "scheduler", "."):
        pattern = "*" if folder == "." else "**/*"
        for file in (ROOT / folder).glob(pattern):
            if file.suffix in (".py", ".md", ".toml", ".yml", ".yaml") or file.name == "Makefile":
                text = file.read_text()
                assert not re.search(r"\brtfilter\[[a-z]", text), f"{file}: the distribution is rtree-filter"
                for found in re.findall(r"(?:rtree-filter|['\" ]\.)\[([a-z,]+)\]", text):
                    named.update(dict.fromkeys(found.split(","), file))
                if file.suffix == ".md":
                    named.update(dict.fromkeys(re.findall(r"\bextra\s+`([a-z]+)`", text), file))
    assert {"arrow", "replay", "spark"} <= set(named)
    assert set(named) <= set(extras), {name: file for name, file in named.items() if name not in extras}
