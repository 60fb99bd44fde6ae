"""`KeyOrder`, against the definition: of one key, it yields the longest prefix of rows that are done."""

from hypothesis import given
from hypothesis import strategies as st

from rtfilter.service.log_matcher import KeyOrder


@given(
    st.lists(st.sampled_from(["a", "b", None]), max_size=12).flatmap(
        lambda keys: st.tuples(st.just(keys), st.permutations(range(len(keys))))
    )
)
def test_rows_of_a_key_come_in_order_and_as_soon_as_they_can(given):
    keys, order = given
    turns, known, told = KeyOrder(keys), set(), []
    for row in order:
        known.add(row)
        for other, found in turns.done(row, [row]):
            assert list(found) == [other]
            told.append(other)
        for key in set(keys):
            rows = [at for at, one in enumerate(keys) if one == key]
            first = next((i for i, at in enumerate(rows) if at not in known), len(rows))
            if key is None:
                assert {at for at in told if keys[at] is None} == known & set(rows)
            else:
                assert [at for at in told if keys[at] == key] == rows[:first]
