"""What the stages measure: every event once, and nothing that grows with users."""

import asyncio
import time

import numpy as np
import pytest
from served import ADMIN, ANN, CARL, SCHEMA, events, publish, served, subscribe

from rtfilter.adaptive import FixedPlan
from rtfilter.definition import Definition
from rtfilter.matching.stream import Stream
from rtfilter.service.doors.frames import FrameError
from rtfilter.service.measures import FOLD_AT, FOLD_EVENTS, STAGES, Measures, Times
from rtfilter.service.service_errors import KINDS, ServiceError


def count(histogram):
    return int(histogram.counts.sum())


def test_the_response_of_every_event_counts_once(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 2")
        await publish(pipeline, 1, 2, 3, 4)
        await publish(pipeline, 5)
        return pipeline.measures.response, pipeline.measures.published

    ((response, published),) = served(tmp_path, script)
    assert {name: count(found) for name, found in response.items()} == {"default": 5}
    assert published == 5


@pytest.mark.parametrize("order", [None, "key"])
def test_an_event_of_a_batch_that_is_tried_again_counts_once(tmp_path, monkeypatch, order):
    original = Stream.groups

    def fails(stream):
        for place, found in enumerate(original(stream)):
            if place == 2:
                raise RuntimeError("in the middle")
            yield found

    async def script(pipeline):
        pipeline.filters._indexes["default"].filter.controller = FixedPlan(0, 1)
        await subscribe(pipeline, "price > 2", order=order)
        monkeypatch.setattr(Stream, "groups", fails)
        await publish(pipeline, 1, 2, 3, 4, 5)
        return pipeline.measures

    (measures,) = served(tmp_path, script)
    assert count(measures.response["default"]) == 5
    assert count(measures.stages["match"]) == 5


def test_what_arrived_before_a_restart_has_no_response(tmp_path):
    async def first(pipeline):
        await publish(pipeline, 1, 2, 3)
        pipeline._log.commit = lambda *given: 1 / 0  # so that the next start finds them unsettled
        return count(pipeline.measures.response["default"])

    async def second(pipeline):
        await pipeline.settled(3)
        return count(pipeline.measures.response["default"])

    assert served(tmp_path, first, second) == [3, 0]


def test_the_stages_of_events_add_up_to_their_response(tmp_path):
    async def script(pipeline):
        for price in range(20):
            begun = time.perf_counter()
            found = events(pipeline, *range(price + 1))
            pipeline.measures.parse.add(time.perf_counter() - begun, price + 1)
            await pipeline.publishing.publish(CARL, "default", found, arrived=begun)
        await pipeline.settled(pipeline.status.counts["head"])
        return pipeline.measures

    (measures,) = served(tmp_path, script)
    stages, response = measures.stages, measures.response["default"]
    assert list(stages) == list(STAGES)
    parts = ("parse", "store", "queue", "match")
    assert {stage: count(stages[stage]) for stage in parts} == dict.fromkeys(parts, 210)
    total = sum(stages[stage].total for stage in parts)
    assert total <= response.total
    assert total == pytest.approx(response.total, rel=0.5)


def test_only_what_is_delivered_counts_as_that(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 2")
        await publish(pipeline, 1, 2, 3, 4)
        await asyncio.sleep(0)
        return pipeline.measures

    (measures,) = served(tmp_path, script)
    assert count(measures.stages["deliver"]) == 2


def test_transactions_and_batches_are_measured(tmp_path):
    async def script(pipeline):
        await publish(pipeline, 1, 2, 3)
        await asyncio.gather(*(publish(pipeline, 1) for _ in range(4)))
        return pipeline.measures

    (measures,) = served(tmp_path, script)
    assert measures.commit_sizes.histogram().total == 7
    assert measures.batch_sizes.histogram().total == 7
    assert count(measures.commits.histogram()) >= count(measures.commit_sizes.histogram()) >= 2


def test_a_removed_filter_has_no_response_any_more(tmp_path):
    async def script(pipeline):
        await pipeline.filters.add(ADMIN, "other", Definition(SCHEMA))
        await publish(pipeline, 1)
        before = set(pipeline.measures.response)
        await pipeline.filters.remove(ADMIN, "default")
        pipeline.measures.matched("default", 0.0, [0.0], [1.0])  # what comes late
        return before, set(pipeline.measures.response)

    assert served(tmp_path, script) == [({"default", "other"}, {"other"})]


def test_every_error_has_a_kind_of_the_table():
    assert {error.kind for error in (*ServiceError.__subclasses__(), FrameError)} <= KINDS.keys()


def test_no_other_kind_becomes_a_label():
    measures = Measures()
    before = set(measures.refused)
    measures.refuse("http", "what a user wrote")
    assert set(measures.refused) == before
    assert measures.refused["http", "other"] == 1


def test_times_are_those_that_were_added_however_many():
    times, rng = Times(), np.random.default_rng(3)
    values, weights = rng.exponential(0.01, 3 * FOLD_AT), rng.integers(1, 9, 3 * FOLD_AT)
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        times.add(value, weight)
    found = times.histogram()
    assert count(found) == weights.sum()
    assert found.total == pytest.approx(values @ weights)


def test_what_waits_for_a_reader_is_bounded():
    measures = Measures()
    measures.begin("f")
    for _ in range(3 * FOLD_EVENTS // 100):
        measures.matched("f", 0.0, [0.0] * 100, [1.0] * 100)
        assert sum(len(known) for *_, known in measures._known) < FOLD_EVENTS + 100
    assert count(measures.response["f"]) == 3 * FOLD_EVENTS // 100 * 100


def test_what_is_read_does_not_change_afterwards():
    times = Times()
    times.add(1.0)
    before = times.histogram()
    times.add(2.0)
    times.histogram()
    assert (count(before), before.total) == (1, 1.0)


def test_who_subscribes_measures_nothing_but_the_log(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 2", ANN)
        await pipeline.settled(1)
        return pipeline.measures

    (measures,) = served(tmp_path, script)
    stages = {stage: count(found) for stage, found in measures.stages.items()}
    assert stages == {**dict.fromkeys(STAGES, 0), "store": 1, "queue": 1}
