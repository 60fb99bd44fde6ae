"""Matching on Spark, for batches and indexes that outgrow one machine.

>>> from rtfilter.spark import match_frame
>>> pairs = match_frame(events, "rules.index")  # DataFrame: id, subscription  # doctest: +SKIP
"""

from importlib.util import find_spec

from rtfilter.basics.extras import install, needed

if find_spec("fcntl") is None:
    raise ImportError(
        "rtfilter.spark needs Linux or macOS: its processes share indexes by locked files; on Windows use WSL"
    )

with needed("spark", "rtfilter.spark"):
    from pyspark import __version__ as _version

    for _package in ("py4j", "pyarrow", "pandas"):  # looked for only: it takes long to import them
        if find_spec(_package) is None:
            raise ModuleNotFoundError(name=_package)

if tuple(map(int, _version.split(".")[:2])) < (4, 1):
    raise ImportError(f"rtfilter.spark needs PySpark 4.1 or newer, not {_version}: {install('spark')}")

from rtfilter.spark.data_frames import match_frame
from rtfilter.spark.file_matching import FilesMatched, match_files
from rtfilter.spark.shards import ShardedIndex, build_sharded
from rtfilter.spark.streams import ChangeStage, MatchStage, Once
from rtfilter.spark.tracking import track_stream

__all__ = [
    "ChangeStage",
    "FilesMatched",
    "MatchStage",
    "Once",
    "ShardedIndex",
    "build_sharded",
    "match_files",
    "match_frame",
    "track_stream",
]
