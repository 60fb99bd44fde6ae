"""What the pages say is so: their Python runs, their links lead somewhere, what they name exists."""

import ast
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

import spark_cases
from experiments.__main__ import EXPERIMENTS
from rtfilter import EventFilter, Schema
from rtfilter.cli import COMMANDS, main
from rtfilter.filter import inside
from rtfilter.watch.metrics import Metrics
from service.running import running

HOME = Path(__file__).parents[2]
README = HOME / "README.md"
PAGES = [README, HOME / "CONTRIBUTING.md", HOME / "CHANGELOG.md", *sorted((HOME / "docs").rglob("*.md"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
SERVED = (
    "spark.md",
    "protocol.md",
    "service.md",
    "nats.md",
)  # their Python needs more, and has tests of its own
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(HOME).as_posix())


def blocks(page, kind):
    """Fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXTS[page], re.DOTALL | re.MULTILINE)


def run(block, names, capsys):
    """Run a block; a comment that is a value is what its expression gives, comments below are the output."""
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        code = ast.unparse(statement)
        if not isinstance(statement, ast.Expr):
            exec(code, names)
            continue
        capsys.readouterr()
        value = eval(code, names)
        said = lines[statement.end_lineno - 1].encode()[statement.end_col_offset :].decode().strip(" #")
        if is_value(said):
            assert repr(value) == said, code
        below = []
        for line in lines[statement.end_lineno :]:
            if not line.startswith("# "):
                break
            below.append(line.removeprefix("# "))
        if code.startswith("print(") and below:
            assert capsys.readouterr().out.splitlines() == below


def is_value(text):
    """Whether a comment is the text of a constant, a list or an array."""
    try:
        found = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    if isinstance(found, ast.Call):
        return isinstance(found.func, ast.Name) and found.func.id == "array"
    return isinstance(found, ast.Constant | ast.List | ast.Tuple)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page.name not in SERVED],
    ids=lambda page: page.relative_to(HOME).as_posix(),
)
def test_python_runs_in_its_order(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks(page, "python"):
        run(re.sub(r"(serve\(.*?)1746\d\)", r"\g<1>0)", block), names, capsys)
    for name in ("stop", "stop_both", "stop_together", "end_sharing"):
        names.get(name, lambda: None)()


@pytest.mark.parametrize("page", [pytest.param(HOME / "docs" / "spark.md", marks=spark_cases.marks)])
def test_python_for_spark_runs_in_its_order(page, spark, capsys, tmp_path):
    names: dict = {}
    shown = 0
    for block in blocks(page, "python"):
        for name in ("rules", "matches", "incoming", "state", "ticks", "found"):  # not Spark's own
            block = block.replace(f'"{name}"', repr(str(tmp_path / name)))
        exec(block, names)
        shown += capsys.readouterr().out.count("|subscription|")
    names["query"].stop()
    assert shown == 3
    assert pq.read_table(tmp_path / "matches").to_pydict() == {"id": [8], "subscription": [2], "batch": [0]}


def test_the_readme_is_short_and_begins_with_five_lines_of_code():
    assert len(TEXTS[README].splitlines()) <= 150
    assert len([line for line in blocks(README, "python")[0].splitlines() if line.strip()]) == 5


def anchors(page):
    """Of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", TEXTS[page], flags=re.DOTALL | re.M), re.M
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@EVERY_PAGE
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@EVERY_PAGE
def test_files_that_are_named_exist(page):
    for name in re.findall(r"`((?:rtfilter|experiments|tests|grafana|examples|docs)/[\w./-]+)`", TEXTS[page]):
        assert (HOME / name).exists(), name


@EVERY_PAGE
def test_commands_that_are_named_exist(page):
    text = TEXTS[page]
    shown = "\n".join(blocks(page, "console")) + "\n" + "\n".join(re.findall(r"`([^`\n]+)`", text))
    targets = re.findall(r"^([a-z-]+):", (HOME / "Makefile").read_text(), re.MULTILINE)
    for found, known in (
        (re.findall(r"^(?:\$ )?rtfilter ([a-z][a-z-]*)", shown, re.MULTILINE), COMMANDS),
        (re.findall(r"^(?:\$ )?make ([a-z][a-z-]*)", shown, re.MULTILINE), targets),
        (re.findall(r"python -m experiments ([a-z]\w*)", shown), EXPERIMENTS),
    ):
        assert set(found) <= set(known)


def test_the_files_on_the_page_of_the_command_line_match_as_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shown = blocks(HOME / "docs" / "command-line.md", "console")[0]
    for command, output in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", shown, re.MULTILINE):
        program, *arguments = command.split()
        if program == "cat":
            Path(arguments[0]).write_text(output)
            continue
        assert program == "rtfilter"
        assert main(arguments) == 0
        assert capsys.readouterr().out == output


def exported(families):
    """The names of metrics, without what comes after them for parts of a histogram."""
    return {
        sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for family in families
        for sample in family.samples
        if sample.name.startswith("rtfilter_")
    }


@pytest.mark.slow
def test_the_page_on_watching_has_all_metrics_and_no_others(tmp_path):
    watched = EventFilter(Schema({"x": float}), metrics=Metrics())
    watched.subscribe("x > 1")
    watched.match({"x": 2.0})
    list(watched.stream([{"x": 2.0}] * 4))
    own = "http://127.0.0.1:9"
    with running(tmp_path, site="a", address=own, rendezvous=own) as server:
        served = server.ask("GET", "/metrics", user="admin").bytes.decode()
    exported_by_all = exported(inside(watched).metrics.registry.collect())
    exported_by_all |= exported(text_string_to_metric_families(served))
    assert set(re.findall(r"`(rtfilter_[a-z_]+)`", TEXTS[HOME / "docs" / "watching.md"])) == exported_by_all


def test_pictures_are_those_of_their_script():
    import runpy

    for name, draw in runpy.run_path(str(HOME / "docs" / "pictures" / "draw.py"))["PICTURES"].items():
        assert (HOME / "docs" / "pictures" / name).read_text(encoding="utf-8") == draw(), name
