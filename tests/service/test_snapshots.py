"""Indexes beside the log are a cache: whatever lies there, matches follow from the log."""

import shutil

import pytest

from service.served import ANN, BOB, pairs, publish, served, subscribe


async def write(pipeline):
    await pipeline._upkeep.write_indexes()


def folder_of(path):
    (found,) = (path / "indexes").glob("*-*")
    return found


def test_an_index_of_a_log_that_lost_its_end_is_not_used(tmp_path):
    log, kept = tmp_path / "log.sqlite", tmp_path / "kept"

    async def before(pipeline):
        await publish(pipeline, 1)

    async def lost(pipeline):
        id = await subscribe(pipeline, "price > 100")
        await publish(pipeline, 1)
        await write(pipeline)
        return id

    async def again(pipeline):
        id = await subscribe(pipeline, "price < 100", BOB)
        await publish(pipeline, *[1000] * 10)
        return id

    async def last(pipeline):
        return await publish(pipeline, 1), pairs(pipeline, BOB), pairs(pipeline, ANN)

    served(tmp_path, before)
    shutil.copy(log, kept)
    (first,) = served(tmp_path, lost)
    shutil.copy(kept, log)
    id, ((position,), bobs, anns) = served(tmp_path, again, last)
    assert id == first  # the position came again
    assert (bobs, anns) == ({(position, id)}, set())


@pytest.mark.parametrize("name", ["new", "1-1"])
def test_a_file_in_the_place_of_an_index_is_in_nobodys_way(tmp_path, name):
    async def first(pipeline):
        await subscribe(pipeline, "price > 1")
        await publish(pipeline, 1)
        await write(pipeline)

    served(tmp_path, first)
    (folder_of(tmp_path) / name).write_text("rubbish")
    served(tmp_path, first)
    (left,) = folder_of(tmp_path).iterdir()
    assert left.is_dir()


def test_a_damaged_index_is_written_anew_at_the_same_position(tmp_path):
    async def first(pipeline):
        await subscribe(pipeline, "price > 1")
        await publish(pipeline, 1)
        await write(pipeline)

    async def later(pipeline):
        await write(pipeline)

    served(tmp_path, first)
    (index,) = folder_of(tmp_path).iterdir()
    (index / "manifest.json").write_text("{")
    served(tmp_path, later)
    assert (index / "manifest.json").read_text() != "{"


def test_an_index_that_may_hold_more_than_the_log_is_not_used(tmp_path):
    """As where the power is lost before the last changes are on the disk."""

    async def first(pipeline):
        await subscribe(pipeline, "price > 1")
        await publish(pipeline, 1)
        await write(pipeline)

    async def again(pipeline):
        (place,) = await publish(pipeline, 2)
        return place in {at for at, _ in pairs(pipeline, ANN)}

    served(tmp_path, first)
    (index,) = folder_of(tmp_path).iterdir()
    position, upto = map(int, index.name.split("-"))
    beyond = index.with_name(f"{position}-{upto + 100}")
    index.rename(beyond)
    assert served(tmp_path, again) == [True]
    assert not beyond.exists()


def test_indexes_of_a_log_that_was_removed_go(tmp_path):
    async def first(pipeline):
        await subscribe(pipeline, "price > 1")
        await publish(pipeline, 1)
        await write(pipeline)

    async def again(pipeline):
        await publish(pipeline, *range(10))
        return pairs(pipeline, ANN)

    served(tmp_path, first)
    for path in tmp_path.glob("log.sqlite*"):
        path.unlink()
    assert served(tmp_path, again, again) == [set(), set()]
    assert not [*(tmp_path / "indexes").glob("*-*")]


async def write_one_of_ann(pipeline):
    id = await subscribe(pipeline, "price > 100")
    await publish(pipeline, 1)
    await write(pipeline)
    return id


def test_indexes_of_a_log_that_was_replaced_by_another_go(tmp_path):
    async def one_of_bob(pipeline):
        id = await subscribe(pipeline, "price < 100", BOB)
        await publish(pipeline, *[1] * 10)
        return id

    async def last(pipeline):
        return await publish(pipeline, 1), pairs(pipeline, BOB)

    mine, other = tmp_path / "mine", tmp_path / "other"
    for path in (mine, other):
        path.mkdir()
    (first,), (id,) = served(mine, write_one_of_ann), served(other, one_of_bob)
    assert id == first  # and the filter is of the same position
    for path in mine.glob("log.sqlite*"):
        path.unlink()
    shutil.copy(other / "log.sqlite", mine)
    (((position,), bobs),) = served(mine, last)
    assert (position, id) in bobs


def test_indexes_go_where_the_log_was_used_from_another_folder_since(tmp_path):
    """As by two servers of one database, where each takes over when the other ends."""
    url = f"sqlite:///{tmp_path}/log.sqlite"

    async def removed(pipeline):
        await pipeline.subscriptions.unsubscribe(ANN, first)
        await publish(pipeline, 1)
        await pipeline._store.flush()
        await pipeline._upkeep._trim(9e12)  # also that it was removed

    async def back(pipeline):
        return len(pipeline.filters._indexes["default"].filter)

    (first,) = served(tmp_path / "a", write_one_of_ann, url=url)
    served(tmp_path / "b", removed, url=url)
    assert served(tmp_path / "a", back, url=url) == [0]


def test_an_index_is_used_at_each_start(tmp_path, monkeypatch):
    async def nothing(pipeline):
        return folder_of(tmp_path).stat().st_ino

    served(tmp_path, write_one_of_ann)
    monkeypatch.setattr("rtfilter.store.log.Log.at", None)  # else it would be built from the log
    first, second = served(tmp_path, nothing, nothing)
    assert first == second


@pytest.mark.parametrize("text", ["", "rubbish", None])
def test_indexes_go_where_it_is_not_known_whose_they_are(tmp_path, text):
    async def nothing(pipeline):
        return [*(tmp_path / "indexes").glob("*-*")]

    served(tmp_path, write_one_of_ann)
    file = tmp_path / "indexes" / "epoch"
    file.unlink()
    if text is None:
        file.mkdir()
    else:
        file.write_text(text)
    assert served(tmp_path, nothing, nothing) == [[], []]
