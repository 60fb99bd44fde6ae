"""Great-circle distances: the formula, the boxes around a point, and what covers what."""

import json
from math import cos, pi, radians

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from kinds import EACH
from predicate_cases import haversine, inside
from rtfilter import EventFilter, Predicate, PredicateError, Schema
from rtfilter.predicates.boxes.compiling import compile_predicate
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.operands.expressions import RADIUS, SLACK, Distance, distance

SCHEMA = Schema({"lat": float, "lon": float, "x": float})
FLEET = Schema({"cars.lat": float, "cars.lon": float})


def p(source, schema=SCHEMA):
    return Predicate.parse(source, schema)


def near(north, east, rest):
    return p(f"DISTANCE_KM(lat, lon, {north!r}, {east!r}) {rest}")


@cases(
    ("one", "two", "kilometres"),
    [
        ((48.8566, 2.3522), (51.5074, -0.1278), 343.56),  # Paris, London
        ((52.52, 13.405), (40.7128, -74.006), 6385.2),  # Berlin, New York
        ((-36.8485, 174.7633), (-13.8333, -171.7667), 2887.68),  # Auckland, Apia: across 180 degrees
        ((90, 0), (-90, 0), pi * RADIUS),
        ((0, 0), (0, 180), pi * RADIUS),
        ((0, 0), (90, 77), pi / 2 * RADIUS),
        ((0, 180), (0, -180), 0),
    ],
)
def test_known_distances(one, two, kilometres):
    assert distance(*one, *two) == pytest.approx(kilometres, abs=0.5 if kilometres > 1 else 1e-9)
    assert distance(*one, *two) == pytest.approx(distance(*two, *one))


DEGREES = st.floats(-90, 90) | st.sampled_from([-90, 90, 0, 89.9999, -89.9])
LONGITUDES = st.floats(-180, 180) | st.sampled_from([-180, 180, 0, 179.9999, -179.9])
RADII = st.floats(0, 100) | st.floats(0, 20_100) | st.sampled_from([0, 1e-3, RADIUS * pi, 10_007.5, 1e9])


@settings(max_examples=300)
@given(DEGREES, LONGITUDES, RADII, st.data())
def test_boxes_hold_all_that_is_near(north, east, radius, data):
    """Points about as far as the radius, or anywhere, in all directions."""
    boxes = compile_predicate(near(north, east, f"<= {radius!r}"), SCHEMA)
    assert len(boxes.low) <= 2
    assert not boxes.exact.any()
    angle = min(radius / RADIUS, pi)
    for _ in range(6):
        share = data.draw(st.floats(-1.001, 1.001))
        latitude = min(max(north + share * angle * 180 / pi, -90), 90)
        wide = min(angle / max(cos(radians(north)), 1e-9), pi) * 180 / pi
        longitude = east + data.draw(st.floats(-1.2, 1.2)) * wide
        longitude = (longitude + 180) % 360 - 180
        for turned in {longitude, 180.0 if longitude == -180 else longitude}:
            if distance(latitude, turned, north, east) <= radius:
                point = SCHEMA.encode([{"lat": latitude, "lon": turned}])[0]
                assert any(inside(point, *sides) for sides in zip(boxes.low, boxes.high, strict=True))


@settings(max_examples=100)
@given(DEGREES, LONGITUDES, st.lists(st.tuples(DEGREES, LONGITUDES), min_size=1, max_size=8))
def test_all_formulas_agree(north, east, points):
    far, none = Distance("lat", "lon", north, east).columns(*np.array(points, np.float64).T)
    assert not none.any()
    for found, point in zip(far.tolist(), points, strict=True):
        assert abs(found - haversine(*point, north, east)) < SLACK
        assert Distance("lat", "lon", north, east).of({"lat": point[0], "lon": point[1]}) == haversine(
            *point, north, east
        )


@pytest.mark.parametrize("matcher", EACH)
def test_every_way_to_match_finds_who_is_near(matcher):
    rng = np.random.default_rng(0)
    points = [
        *zip(rng.uniform(-90, 90, 60), rng.uniform(-180, 180, 60), strict=True),
        (90, 0),
        (0, 180),
        (0, -180),
    ]
    events = [{"lat": float(north), "lon": float(east)} for north, east in points]
    centres = [
        (*map(float, point), float(km))
        for point, km in zip(points[::3], rng.uniform(1, 5000, 21), strict=True)
    ]
    filter = EventFilter(SCHEMA, matcher=matcher)
    filter.subscribe_many([near(north, east, f"< {km!r}") for north, east, km in centres])
    wanted = [
        [
            id
            for id, (*centre, km) in enumerate(centres)
            if haversine(event["lat"], event["lon"], *centre) < km
        ]
        for event in events
    ]
    assert [sorted(ids.tolist()) for ids in filter.match_batch(events)] == wanted
    assert [sorted(filter.match(event).tolist()) for event in events] == wanted
    assert [sorted(ids.tolist()) for ids in filter.match_batch(events * 20)] == wanted * 20


@cases(
    "event",
    [
        {"lat": 90.001, "lon": 0},
        {"lat": 0, "lon": 180.001},
        {"lat": 0},
        {"lat": "0", "lon": 0},
        {"lat": None, "lon": 0},
    ],
)
def test_elsewhere_there_is_no_distance(event):
    filter = EventFilter(SCHEMA, max_unbounded=None)
    filter.subscribe_many([near(0, 0, "< 30000"), near(0, 0, ">= 0"), near(0, 0, "<> 7")])
    assert filter.match(event).tolist() == []
    assert filter.match({"lat": 0, "lon": 0}).tolist() == [0, 1, 2]


def test_both_coordinates_are_of_one_object():
    predicate = p("DISTANCE_KM(cars.lat, cars.lon, 10, 20) < 1", FLEET)
    assert predicate.matches({"cars": [{"lat": 5, "lon": 5}, {"lat": 10, "lon": 20}]})
    assert not predicate.matches({"cars": [{"lat": 10, "lon": 5}, {"lat": 5, "lon": 20}]})


@cases(
    ("condition", "text"),
    [
        ("10 >= distance_km(lat, lon, 48, -2)", "DISTANCE_KM(lat, lon, 48.0, -2.0) <= 10"),
        ("NOT DISTANCE_KM(lat, lon, 0, 180) < 100.5", "DISTANCE_KM(lat, lon, 0.0, 180.0) >= 100.5"),
        (
            "DISTANCE_KM(lat, lon, 0, 0) BETWEEN 5 AND 9",
            "DISTANCE_KM(lat, lon, 0.0, 0.0) >= 5 AND DISTANCE_KM(lat, lon, 0.0, 0.0) <= 9",
        ),
        ("DISTANCE_KM(lat, lon, 1, 2) = 0 AND x > 1", "DISTANCE_KM(lat, lon, 1.0, 2.0) = 0 AND x > 1"),
    ],
)
def test_distances_are_written_and_read_again(condition, text):
    predicate = p(condition)
    assert predicate.to_sql() == text
    assert p(text) == predicate
    assert p(json.loads(json.dumps(predicate.to_pattern()))) == predicate
    assert p(Predicate.from_json(json.loads(json.dumps(predicate.to_json())))) == predicate


def test_distances_are_numbers():
    predicate = p("DISTANCE_KM(lat, lon, 0, 0) / x <= 2")
    assert predicate.matches({"lat": 0, "lon": 1, "x": 60})
    assert not predicate.matches({"lat": 0, "lon": 1, "x": 50})
    assert p(predicate.to_sql()) == predicate


def test_a_pattern_in_an_object_names_its_attributes():
    inner = {"latitude": "lat", "longitude": "lon", "from": [10, 20], "km": [">=", 1, "<", 2]}
    assert p({"cars": {"$distance": inner}}, FLEET) == p(
        "DISTANCE_KM(cars.lat, cars.lon, 10, 20) >= 1 AND DISTANCE_KM(cars.lat, cars.lon, 10, 20) < 2", FLEET
    )


GOOD = {"latitude": "lat", "longitude": "lon", "from": [10, 20], "km": ["<", 1]}


@cases(
    ("source", "message"),
    [
        ("DISTANCE_KM(lat, lon, 48.8584) < 1", "write DISTANCE_KM"),
        ("DISTANCE_KM(lat, 5, 48.8584, 2) < 1", "write DISTANCE_KM"),
        ("DISTANCE_KM(lat, lon, x, 2) < 1", "write DISTANCE_KM"),
        ("DISTANCE_KM(lat, lon, 91, 2) < 1", "a latitude is a number from -90 to 90; got 91"),
        ("DISTANCE_KM(lat, lon, 1, -181) < 1", "a longitude is a number from -180 to 180; got -181"),
        ("DISTANCE_KM(lat, lot, 1, 2) < 1", "unknown attribute 'lot'"),
        ("DISTANCE_KM(lat, lon, 1, 2) < 'a'", "needs numbers"),
        ({"$distance": {}}, "has latitude, longitude, from and km"),
        ({"$distance": {**GOOD, "from": [1]}}, "expected a point"),
        ({"$distance": {**GOOD, "from": [1, 999]}}, "a longitude is a number"),
        ({"$distance": {**GOOD, "km": [1]}}, "km needs a list of operators"),
        ({"$distance": {**GOOD, "km": ["!", 1]}}, "expected one of <, <="),
        ({"$distance": {**GOOD, "km": ["<", "1"]}}, "expected a number of kilometres"),
        ({"$distance": {**GOOD, "latitude": "lot"}}, "unknown attribute 'lot'"),
        ({"$distance": {**GOOD, "latitude": 5}}, "are attributes"),
    ],
)
def test_what_is_no_distance_is_refused(source, message):
    with pytest.raises(PredicateError, match=message):
        p(source)


def test_a_distance_is_a_number():
    for family in ("timestamp", "str"):
        with pytest.raises(PredicateError):
            Comparison(Distance("lat", "lon", 0, 0), "<", 5, family)


@cases(
    ("outer", "inner", "covers", "intersects"),
    [
        ("48, 2) < 10", "48, 2) < 5", True, True),
        ("48, 2) < 10", "48.01, 2) < 5", True, True),
        ("48, 2) < 10", "48.1, 2) < 5", False, True),
        ("48, 2) < 10", "49, 2) < 5", False, False),
        ("48, 2) > 10", "49, 2) < 5", True, True),
        ("48, 2) > 10", "48, 2) <= 10", False, False),
        ("0, 179.5) < 500", "0, -179.5) < 100", True, True),
        ("90, 0) < 500", "88, 100) < 100", True, True),
    ],
)
def test_covering(outer, inner, covers, intersects):
    one, two = (p(f"DISTANCE_KM(lat, lon, {text}") for text in (outer, inner))
    assert one.covers(two) is covers
    assert one.intersects(two) is intersects


@settings(max_examples=60)
@given(st.data())
def test_what_covers_does_so(data):
    centres = st.tuples(
        st.integers(-90, 90), st.integers(-180, 180), st.sampled_from("<>"), st.integers(0, 9000)
    )
    one, two = (
        near(north, east, f"{sign} {km}")
        for north, east, sign, km in (data.draw(centres), data.draw(centres))
    )
    covers, intersects = one.covers(two), one.intersects(two)
    for _ in range(8):
        event = {"lat": data.draw(DEGREES), "lon": data.draw(LONGITUDES)}
        if two.matches(event):
            assert one.matches(event) or not covers
            assert not one.matches(event) or intersects is not False


def test_a_filter_finds_who_covers_a_circle():
    filter = EventFilter(SCHEMA, matcher="rtree")
    filter.subscribe_many(
        [near(48, 2, "< 10"), near(48, 2, "< 5"), near(48.1, 2, "< 9"), near(-48, 2, "< 5")]
    )
    assert filter.related(near(48, 2, "< 5")).covers.ids.tolist() == [0, 1]
    assert filter.related(near(48, 2, "< 10")).covered.ids.tolist() == [0, 1]


def test_explanations_tell_how_far():
    filter = EventFilter(SCHEMA)
    filter.subscribe_many([near(0, 0, "<= 100"), near(0, 7, ">= 100")])
    near_one, far_one = (filter.explain({"lat": 0, "lon": 1}, 0), filter.explain({"lat": 0, "lon": 7}, 1))
    (told,) = near_one.filters[0].constraints
    assert (told.distance, told.unit) == (pytest.approx(11.195, abs=1e-3), "km")
    assert told.shortfall.endswith("km")
    assert filter.match(told.remedy).tolist() == [0, 1]
    (told,) = far_one.filters[0].constraints
    assert told.shortfall == "too low by 100 km"
    assert 1 in filter.match(told.remedy).tolist()
    (told,) = filter.explain({"lat": 99, "lon": 1}, 0).filters[0].constraints
    assert "latitudes reach from -90 to 90" in told.reason
    (row,) = filter.explain([{"lat": 0, "lon": 1}], ids=0)
    assert (row.attribute, row.unit, row.wanted) == ("DISTANCE_KM(lat, lon, 0.0, 0.0)", "km", 100)
