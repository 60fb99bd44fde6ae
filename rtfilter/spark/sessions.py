"""A Spark session for callers that have none yet."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
"""Least version of Java that Spark 4 runs on."""
SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Without it, Spark's TCP between Java and Python costs each task 40 ms."""

TRACING = (
    "executor.Executor",
    "scheduler.TaskSetManager",
    "sql.execution.datasources.DataSource",
    "sql.execution.datasources.FileFormatWriter",
    "util.SparkErrorUtils",
    "util.Utils",
)
"""Loggers that show errors of tasks and jobs with their traces."""


def session(master: str | None = None, *, progress: bool = False) -> SparkSession:
    """Return the present session, or a new one whose workers run this interpreter.

    Parameters
    ----------
    master : str, optional
        URL of a cluster, ``sc://host`` of a server of Spark Connect, or ``local[n]``; by default that of
        ``SPARK_REMOTE`` or ``spark-submit``, or ``local[*]``.
    progress : bool
        True if Spark shows the progress of its stages on standard error.

    Raises
    ------
    RuntimeError
        There is no Java, or it is too old.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    present = SparkSession.getActiveSession()
    if present is not None:
        return present
    remote = master or os.environ.get("SPARK_REMOTE", "")
    if remote.startswith("sc://"):
        return SparkSession.builder.remote(remote).getOrCreate()
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("rtfilter")
    if master is not None or not SparkConf().contains("spark.master"):
        builder = builder.master(master or "local[*]")
    if not SparkConf().contains(SOCKETS):
        builder = builder.config(SOCKETS, "true")
    return builder.config("spark.ui.showConsoleProgress", str(progress).lower()).getOrCreate()


def connected(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, whose driver is another process."""
    return not hasattr(spark, "_jsparkSession")


def hide_traces(spark: SparkSession) -> None:
    """Stop a driver in this process from logging the traces of tasks, for a caller that shows the error."""
    if connected(spark):
        return
    java: Any = spark._jvm
    log4j = java.org.apache.logging.log4j
    for name in TRACING:
        log4j.core.config.Configurator.setLevel(f"org.apache.spark.{name}", log4j.Level.OFF)


def require_java() -> None:
    """Raise `RuntimeError` unless the Java that Spark would start is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = (
        f"install Java {JAVA} or newer (on Debian, apt-get install default-jre-headless), or set JAVA_HOME"
    )
    if java is None or not os.access(java, os.X_OK):
        raise RuntimeError(
            f"Spark needs Java, which is not {'at JAVA_HOME=' + home if home else 'here'}: {advice}"
        )
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None or int(found[1]) < JAVA:
        raise RuntimeError(
            f"Spark needs Java {JAVA} or newer, not {told.splitlines()[0] if told else java}: {advice}"
        )
