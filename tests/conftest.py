"""Which tests run where and when, and fixtures of several modules."""

import gc
import os
import shutil
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import lengths
import postgresql
from experiments import nats_cluster
from experiments.ports import free_port
from rtfilter import EventFilter, Schema

NEEDED = {
    "java": (
        bool(shutil.which("java") or os.environ.get("JAVA_HOME")),
        "Spark needs Java 17 or newer: on Debian, apt-get install default-jre-headless",
    ),
    "prometheus": (
        bool(shutil.which("prometheus") and shutil.which("promtool")),
        "needs Prometheus: on Debian, apt-get install prometheus",
    ),
    "chromium": (bool(shutil.which("chromium")), "needs Chromium: on Debian, apt-get install chromium"),
    "postgresql": (postgresql.HERE, "needs PostgreSQL: on Debian, apt-get install postgresql"),
    "nats": (nats_cluster.PROGRAM is not None, "needs NATS: on Debian, apt-get install nats-server"),
}
"""Programs that tests need: whether each is here, and what is said of a test if not."""

# No test of Hypothesis fails because the machine is busy.
settings.register_profile("rtfilter", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rtfilter")

# Virtual machines of tests live for seconds: they should compile quickly, not verify the classes that they
# load, and need no threads to clean up.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions"
JAVA += " -XX:-BytecodeVerificationRemote"
os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="tests in full: all cases and examples; see lengths")
    parser.addoption("--cpu", type=int, metavar="N", help="show the N tests that take the most CPU seconds")


def pytest_configure(config):
    lengths.whole = config.getoption("long")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Group the tests with the Spark session, mark tests that need a program as slow, begin with the slow."""
    for item in items:
        if "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.needs("java"))
        if item.get_closest_marker("needs"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if not config.getoption("long"):
        left = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        lengths.shorten({id(test): test for item in items if (test := _function(item)) is not None}.values())


def _function(item):
    """Of all cases the same one."""
    test = getattr(item, "obj", None)
    return getattr(test, "__func__", test)


def pytest_collection_finish():
    """Let the garbage collector pass over modules and tests, at which it would look again and again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logstart(location):
    """The same for what a file of tests has imported, when another one follows: some tests collect often."""
    if location[0] != _file[0]:
        _file[0] = location[0]
        gc.collect()
        gc.freeze()


_file = [""]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Skip a test whose program is missing; where CI=true, let it fail."""
    for mark in item.iter_markers("needs"):
        here, reason = NEEDED[mark.args[0]]
        if not here:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    with _measured(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Write half characters of what a test logged as escapes: no other process could be sent them."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@contextmanager
def _measured(item):
    """Note the CPU seconds of a phase of a test, with those of the processes that it has waited for."""
    begun = _cpu_seconds()
    try:
        yield
    finally:
        item.user_properties.append(("cpu", _cpu_seconds() - begun))


def _cpu_seconds():
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with _measured(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    with _measured(item):
        return (yield)


def pytest_terminal_summary(terminalreporter, config):
    """Show the tests that take the most CPU seconds, and the seconds of each folder."""
    most = config.getoption("cpu")
    if most is None:
        return
    of_test, of_folder = Counter(), Counter()
    for report in terminalreporter.stats.get("", []):
        if report.when == "teardown":
            seconds = sum(seconds for name, seconds in report.user_properties if name == "cpu")
            of_test[report.nodeid] = seconds
            of_folder[str(Path(report.nodeid.partition("::")[0]).parent)] += seconds
    terminalreporter.section(f"{of_test.total():.0f} CPU seconds")
    for found in (of_folder.most_common(), of_test.most_common(most)):
        for name, seconds in found:
            terminalreporter.write_line(f"{seconds:8.2f} {name}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory, pytestconfig):
    """A session on two local cores, for all tests of Spark.

    Its workers are forked from `spark_daemon`. Spark plans a query once and interprets the plan: to plan it
    again and to compile it takes longer than a test uses it. With `--long` Spark does both, as for users.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    temporary = tmp_path_factory.mktemp("spark")  # which an interrupted run leaves to the next, to clean up
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.python.unix.domain.socket.enabled", True)
        .config("spark.python.daemon.module", "spark_daemon")
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.driver.host", "localhost")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={temporary}")
        .config("spark.local.dir", str(temporary))
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.connect.grpc.binding.address", "127.0.0.1")  # of the server that some tests start
        .config("spark.connect.grpc.binding.port", free_port())
    )
    if not pytestconfig.getoption("long"):
        builder = (
            builder.config("spark.sql.codegen.wholeStage", False)
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("spark.sql.adaptive.enabled", False)
        )
    with pytest.MonkeyPatch.context() as patch:
        found = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def alerts():
    """Conditions on numbers, strings and a dotted attribute."""
    filter = EventFilter(Schema({"price": float, "symbol": str, "at.depth": int}))
    rng = np.random.default_rng(3)
    for low in rng.integers(0, 90, 60):
        filter.subscribe(f"price BETWEEN {low} AND {low + 15} AND symbol IN ('A', 'B')")
    filter.subscribe_many(["symbol LIKE 'A%'", "price < 3 OR price > 97", "at.depth >= 4", "symbol IS NULL"])
    return filter


@pytest.fixture(scope="session")
def rows():
    """Events with missing attributes, and names that occur twice."""
    rng = np.random.default_rng(4)
    prices, symbols = rng.uniform(0, 100, 300), rng.choice(["A", "AB", "B", "C"], 300)
    rows = [
        {"id": f"e{i // 2}", "price": float(p), "symbol": str(s), "at": {"depth": i % 6}, "other": i}
        for i, (p, s) in enumerate(zip(prices, symbols, strict=True))
    ]
    rows[5]["price"] = rows[6]["symbol"] = rows[7]["at"] = rows[8]["at"]["depth"] = None
    return rows
