"""Columns serve attributes as Spark resolves names, and in every spelling of Unicode."""

import logging
from unicodedata import normalize

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from rtfilter import EventFilter, Schema
from rtfilter.cli import main
from rtfilter.spark import ChangeStage, MatchStage, build_sharded, match_frame, track_stream
from rtfilter.spark.column_names import renamed

ACCENT = normalize("NFC", "é")
TWO_SIGNS = normalize("NFD", "é")


def struct(names):
    """A type whose fields have these names; one with fields of its own is a pair of its name and theirs."""
    below = dict(name for name in names if isinstance(name, tuple))
    kinds = {name: struct(below[name]) if name in below else LongType() for name in map(first, names)}
    assert len(kinds) == len(names)
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def first(name):
    return name[0] if isinstance(name, tuple) else name


def found(given, wanted, sensitive=False):
    """The names that fields get."""
    return StructType(renamed(struct(given).fields, frozenset(wanted), sensitive))


@pytest.mark.parametrize(
    ("given", "wanted", "names"),
    [
        (["Price", "other"], ["price"], ["price", "other"]),
        (["other", "Other", "price"], ["price"], ["other", "Other", "price"]),
        ([("At", ["Depth", "Rest"])], ["at.depth"], [("at", ["depth", "Rest"])]),
        ([("A", [("B", ["C"])])], ["a.b.c"], [("a", [("b", ["c"])])]),
        (["AT.Depth"], ["at.depth"], ["at.depth"]),
        ([TWO_SIGNS, "Id"], [ACCENT, "id"], [ACCENT, "id"]),
        ([("a", [TWO_SIGNS])], [f"a.{ACCENT}"], [("a", [ACCENT])]),
        ([TWO_SIGNS.upper()], [ACCENT], [ACCENT]),
    ],
)
def test_names_are_found_in_every_spelling(given, wanted, names):
    assert found(given, wanted) == struct(names)


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        (["PRICE", "price"], ["price"], "'PRICE' and 'price' are both 'price' to Spark: rename"),
        (["x", "X"], ["x", "X"], "'x' and 'X' are both 'X' to Spark"),
        ([("at", ["BB", "Bb"])], ["at.bb"], r"'at\.BB' and 'at\.Bb' are both 'at\.bb' to Spark"),
        ([("at", ["b"]), ("At", ["b"])], ["at.b"], "'at' and 'At' are both 'at' to Spark"),
    ],
)
def test_a_name_that_is_ambiguous_to_spark_is_refused(given, wanted, message):
    with pytest.raises(ValueError, match=message):
        found(given, wanted)
    assert found(given, wanted, sensitive=True) == struct(given)


def test_a_column_that_occurs_twice_is_refused_where_it_is_wanted():
    fields = [StructField(name, LongType()) for name in ("x", "other", "x", "other")]
    for sensitive in (True, False):
        with pytest.raises(ValueError, match="'x' and 'x' are both 'x' to Spark"):
            renamed(fields, frozenset("x"), sensitive)
        assert renamed(fields, frozenset("y"), sensitive) == fields


def test_fields_in_arrays_have_names_in_every_spelling():
    def staff(name):
        return StructField("staff", ArrayType(ArrayType(struct([name])), False))

    assert renamed([staff("Pay")], frozenset(["staff.pay"]), False) == [staff("pay")]
    assert renamed([staff("Pay")], frozenset(["staff.pay"]), True) == [staff("Pay")]


def test_where_case_counts_the_log_tells_once_of_a_column_that_would_serve(caplog):
    given = ["Cost", ("at", ["Deep"])]
    with caplog.at_level(logging.WARNING, "rtfilter"):
        for _ in range(2):
            assert found(given, ["cost", "at.deep"], sensitive=True) == struct(given)
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(",")[0] for text in told] == [
        "'Cost' does not serve 'cost'",
        "'at.Deep' does not serve 'at.deep'",
    ]


@pytest.fixture
def filter():
    made = EventFilter(Schema({"price": float, "at.depth": int}))
    made.subscribe_many(["price > 1", "at.depth > 1"])
    return made


KINDS = "Key string, ID int, Price double, At struct<Depth: int>"
ROW = ("a", 7, 2.0, (3,))


def test_frames_resolve_names_as_spark_does(spark, filter, tmp_path):
    events = spark.createDataFrame([ROW], KINDS)
    result = match_frame(events, filter)
    assert result.columns == ["id", "subscription"]
    assert sorted(result.collect()) == [(7, 0), (7, 1)]
    filter.save(tmp_path / "index")
    seen = []
    MatchStage(tmp_path / "index", lambda matches, number: seen.extend(matches.collect()))(events, 0)
    assert sorted(seen) == [(7, 0), (7, 1)]


@pytest.mark.long
def test_streams_and_shards_resolve_names_as_spark_does(spark, filter, tmp_path):
    events = spark.createDataFrame([ROW], KINDS)
    filter.save(tmp_path / "index")
    events.write.json(str(tmp_path / "events"))
    source = spark.readStream.schema(KINDS).json(str(tmp_path / "events"))
    changes = track_stream(source, tmp_path / "index", "key", order="id")
    query = changes.writeStream.format("memory").queryName("spelled").trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(spark.table("spelled").collect()) == [("a", 7, 0, "entered"), ("a", 7, 1, "entered")]
    rules = spark.createDataFrame([(1, "price > 1", True)], "Id int, WHERE string, other boolean")
    index = build_sharded(rules, tmp_path / "shards", filter.schema)
    changed = spark.createDataFrame(
        [(1, "price > 5", True), (2, "price > 0", None)], "ID int, Where string, Removed boolean"
    )
    ChangeStage(tmp_path / "shards")(changed, 0)
    assert match_frame(events, index.open(index.place)).collect() == [(7, 2)]


def test_exact_names_count_where_case_does(spark, filter):
    events = spark.createDataFrame([(7, 2.0, 0.0)], "id int, Price double, price double")
    with pytest.raises(ValueError, match="'Price' and 'price' are both 'price' to Spark"):
        match_frame(events, filter)
    with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
        events.select("price").collect()
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert match_frame(events, filter).collect() == []
        assert match_frame(events.drop("price").withColumnRenamed("Price", "price"), filter).collect() == [
            (7, 0)
        ]
        with pytest.raises(ValueError, match="events have no column 'id'"):
            match_frame(events.withColumnRenamed("id", "ID"), filter)
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")


def test_the_command_resolves_names_as_spark_does(spark, filter, tmp_path, capsys):
    filter.save(tmp_path / "index")
    (tmp_path / "events.jsonl").write_text('{"ID": 7, "Price": 2.0, "At": {"depth": 3}}\n')
    paths = [str(tmp_path / name) for name in ("index", "events.jsonl", "out")]
    assert main(["spark-match", *paths[:2], "--out", paths[2]]) == 0
    said = capsys.readouterr().err
    assert "missing" not in said
    assert "2 matches" in said
