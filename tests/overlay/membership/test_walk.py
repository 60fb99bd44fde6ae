"""The walk to a parent: it ends, asks nobody twice, and finds a parent exactly when there is one."""

from random import Random

import pytest

from lengths import long_but
from rtfilter.overlay.membership.joining import Look, WalkRequest, walk


def answered(root, children, distance, accepts, avoided=(), dead=()):
    """Walk over a tree that does not change; gives the parent, and all questions in order."""
    questions = []
    walking = walk(root, avoided)
    answer = None
    while True:
        try:
            question = next(walking) if answer is None else walking.send(answer)
        except StopIteration as found:
            return found.value, questions
        questions.append(question)
        name = question.cluster
        if isinstance(question, WalkRequest):
            answer = accepts(name)
        elif name in dead:
            answer = {}
        else:
            answer = {n: distance[n] for n in (name, *children.get(name, ())) if n not in dead}


def tree(chance, size):
    """Nodes 0 to `size` - 1 below node 0, with distances and ties among them."""
    children = {f"n{i:03}": [] for i in range(size)}
    for i in range(1, size):
        children[f"n{chance.randrange(i):03}"].append(f"n{i:03}")
    return children, {name: float(chance.randrange(6)) for name in children}


GOLDEN = {"REB": ["D2", "D3"], "D2": ["D1", "D5"], "D3": ["D4"]}
FAR = {"REB": 9.0, "D2": 5.0, "D3": 1.0, "D1": 2.0, "D5": 3.0, "D4": 0.0}


def test_the_papers_example():
    """The link between D3 and D4 fails; D1, the nearest, refuses, and D5 takes D4."""
    parent, questions = answered("REB", GOLDEN, FAR, lambda name: name != "D1", avoided=("D4", "D3"))
    assert parent == "D5"
    assert questions == [
        Look("REB"), Look("D2"), Look("D1"), WalkRequest("D1"),
        Look("D1"), Look("D2"), Look("D5"), WalkRequest("D5"),
    ]  # fmt: skip


def test_the_papers_order_of_the_stack_is_not_needed_to_back_up():
    """Only the root takes it, after all below have refused."""
    parent, questions = answered("REB", GOLDEN, FAR, lambda name: name == "REB", avoided=("D4",))
    assert parent == "REB"
    assert [q.cluster for q in questions if isinstance(q, WalkRequest)] == ["D3", "D1", "D5", "D2", "REB"]


def test_nobody_takes_it_and_the_walk_ends():
    """An empty stack is the end: the root was the last one asked."""
    parent, questions = answered("REB", GOLDEN, FAR, lambda name: False, avoided=("D4",))
    assert parent == ""
    assert sum(isinstance(q, WalkRequest) for q in questions) == 5


def test_ties_go_to_the_lower_name():
    near = dict.fromkeys(FAR, 1.0)
    parent, _ = answered("REB", GOLDEN, near, lambda name: True, avoided=("D4",))
    assert parent == "D1"


def test_a_root_that_does_not_answer_is_the_end():
    assert answered("REB", GOLDEN, FAR, lambda name: True, dead=("REB",)) == ("", [Look("REB")])


def check(children, distance, refusing, avoided, dead):
    """Against a search of the whole tree."""
    reached, todo = set(), ["n000"]
    while todo:
        name = todo.pop()
        if name not in dead and name not in avoided:
            reached.add(name)
            todo += children[name]
    acceptors = reached - refusing
    parent, questions = answered("n000", children, distance, lambda name: name not in refusing, avoided, dead)
    asked = [q.cluster for q in questions if isinstance(q, WalkRequest)]
    assert len(asked) == len(set(asked))
    assert set(asked) <= reached
    assert (parent in acceptors) if acceptors else parent == ""
    # each look beyond the first at a cluster follows a step back from below it, or its refusal
    assert len(questions) <= 4 * len(children) + 1


@pytest.mark.parametrize("trees", long_but([500, 5000], [500]))
def test_random_trees_half_of_which_refuse(trees):
    for seed in range(trees):
        chance = Random(seed)
        children, distance = tree(chance, chance.randrange(1, 40))
        refusing = {name for name in children if chance.random() < 0.5}
        check(children, distance, refusing, (), ())


@pytest.mark.parametrize("trees", long_but([500, 5000], [500]))
def test_random_trees_with_silent_and_avoided_clusters(trees):
    for seed in range(5000, 5000 + trees):
        chance = Random(seed)
        children, distance = tree(chance, chance.randrange(1, 20))
        names = list(children)
        refusing = {name for name in names if chance.random() < 0.7}
        avoided = {name for name in names if chance.random() < 0.1}
        dead = {name for name in names if chance.random() < 0.2}
        check(children, distance, refusing, avoided, dead)
