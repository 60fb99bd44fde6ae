"""The tree as brokers tell it: who is where, who does not answer, as text and as a picture."""

import pytest

from lengths import each_once
from rtfilter.overlay.membership import Contact
from rtfilter.overlay.running.client_messages import Description
from rtfilter.overlay.running.map import Survey, as_text, draw


def known(name):
    return Contact(name, name.rstrip("0123456789"), f"at {name}")


def described(name, members, parent="", links=(), root=False, entries=0, strategy="hybrid"):
    router = {"entries": entries, "strategy": strategy}
    stats = {"router": router, "clients": {"subscriptions": 1}, "sent": {"Event": entries}}
    members = tuple(map(known, members))
    designated = members[-1].name
    return Description(known(name), designated, members, parent, tuple(map(known, links)), root, stats)


def survey(*described, silent=()):
    return Survey({one.itself.name: one for one in described}, {name: known(name) for name in silent})


WHOLE = survey(
    described("a1", ["a1", "a2"], root=True),
    described("a2", ["a1", "a2"], links=["b", "c"], root=True, entries=9),
    described("b", ["b"], "a", ["a2", "d"], entries=4),
    described("c", ["c"], "a", ["a2"]),
    described("d", ["d"], "b", ["b"], entries=2),
)


def test_the_tree_is_told_from_the_root_down():
    assert WHOLE.tree() == {"": ["a"], "a": ["b", "c"], "b": ["d"]}
    lines = as_text(WHOLE).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "a",
        "  - a1 at a1",
        "  * a2 at a2",
        "  b",
        "    * b at b",
        "    d",
        "      * d at d",
        "  c",
        "    * c at c",
        "strategy",
    ]
    assert lines[2].endswith(": entries: 9, own: 1, sent: 9")


def test_who_does_not_answer_and_who_is_cut_off_is_told():
    found = survey(described("a", ["a"], root=True), described("c", ["c"]), silent=["b1", "b2"])
    text = as_text(found)
    assert "b1 at b1: does not answer" in text
    assert "c  (cut off)" in text
    assert "a  (cut off)" not in text


def test_the_strategy_is_told_and_while_it_is_changed_who_routes_by_which():
    assert as_text(WHOLE).splitlines()[-1] == "strategy: hybrid"
    new = described("c", ["c"], "a", strategy="rendezvous")
    found = survey(described("a", ["a"], root=True), new, described("b", ["b"], "a"), silent=["d"])
    assert as_text(found).splitlines()[-1] == "strategy: hybrid at a, b; rendezvous at c"
    assert "strategy" not in as_text(survey(silent=["b1"]))


@pytest.mark.slow
def test_the_picture_names_the_strategy(tmp_path):
    draw(WHOLE, tmp_path / "tree.svg")
    assert "strategy: hybrid" in (tmp_path / "tree.svg").read_text()


CHANGING = survey(
    described("a", ["a"], "b"),
    described("b", ["b"], "c"),
    described("c", ["c"], "a"),
    described("d", ["d"], "c"),
)


def test_those_that_are_below_each_other_while_the_tree_changes_are_all_there():
    text = as_text(CHANGING)
    assert [text.count(f"at {name}:") for name in "abcd"] == [1, 1, 1, 1]


FOUND = {"whole": WHOLE, "changing": CHANGING, "silent": survey(silent=["b1"])}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), each_once(list(FOUND), ["png", "svg"]))
def test_it_is_drawn(name, kind, tmp_path):
    draw(FOUND[name], tmp_path / f"tree.{kind}", "now")
    assert (tmp_path / f"tree.{kind}").stat().st_size > 4000
