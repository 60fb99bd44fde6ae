"""A row of `TEXT_OPERATORS` makes a new operator of strings."""

import subprocess
import sys

PROGRAM = """
from rtfilter.predicates.operands.text_comparison import Reason
from rtfilter.predicates.operands.text_operators import FUNCTIONS, MATCHERS, TEXT_OPERATORS
from rtfilter.predicates.operands.text_operators import Function, TextOperator

TEXT_OPERATORS["anagram"] = TextOperator(
    canonical=lambda text: ("anagram", "".join(sorted(text))),
    accepts=lambda value, letters: "".join(sorted(value)) == letters,
    starts=lambda letters, enough: sorted(set(letters)) or [""],
    example=lambda letters: letters,
    why_not=lambda found, letters: Reason("other letters"),
    excluded="an anagram of {}",
    written="ANAGRAM({}, {})",
    unwritten="NOT ANAGRAM({}, {})",
    function=Function("ANAGRAM", "a text", "stop"),
    matcher="anagram",
)
FUNCTIONS["ANAGRAM"] = MATCHERS["anagram"] = "anagram"  # as importing the module computes them

from rtfilter import EventFilter, Predicate, Schema
from rtfilter.matchers.check import check_matcher
from rtfilter.matchers.scan import ScanMatcher

schema = Schema({"word": str, "size": float})
texts = ["ANAGRAM(word, 'pots')", "NOT ANAGRAM(word, 'pots')", "ANAGRAM(word, 'pots') AND size > 3"]
words = ["stop", "tops", "step", "", None, 7]
events = [{"word": word, "size": size} for word in words for size in (2, 4)]
fits = [word is not None and sorted(str(word)) == sorted("pots") for word in words for _ in (2, 4)]
text = [isinstance(event["word"], str) for event in events]
expected = [
    fits,
    [one and not other for one, other in zip(text, fits)],
    [one and event["size"] > 3 for one, event in zip(fits, events)],
]
filter = EventFilter(schema)
for source in texts:
    predicate = Predicate.parse(source, schema)
    assert str(predicate) == source.replace("pots", "opst")
    assert Predicate.parse(predicate.to_sql(), schema) == predicate
    assert Predicate.parse(predicate.to_pattern(), schema) == predicate
    assert Predicate.from_json(predicate.to_json()) == predicate
    filter.subscribe(source)
found = [set(ids.tolist()) for ids in filter.match_batch(events)]
assert found == [{id for id in range(3) if expected[id][at]} for at in range(len(events))], found
one, other, small = (Predicate.parse(source, schema) for source in texts)
assert one.covers(small) and not one.covers(other) and small.covers(one) is False
assert one.intersects(small) and one.intersects(other) is False
assert one.cost.python == ("ANAGRAM(word, 'opst')",)
assert "other letters" in str(filter.explain({"word": "step", "size": 4}, 0))
assert "an anagram of" in str(filter.explain({"word": "stop", "size": 4}, 1))
for wrong, message in (
    ("ANAGRAM(word, size)", "ANAGRAM needs a text in single quotes, such as 'stop'"),
    ("ANAGRAM(word, 'a') = 1", "expected"),
    ("ANAGRAM('a', word)", "write ANAGRAM(attribute, 'stop')"),
):
    try:
        Predicate.parse(wrong, schema)
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(wrong)
check_matcher(ScanMatcher)
"""


def test_a_row_is_enough():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
