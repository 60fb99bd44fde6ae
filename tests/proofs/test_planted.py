"""The list of planted faults fits the code, and was tried as it is."""

import ast

import pytest

from proofs.keeping import kept
from proofs.planted.fault import FAULTS, HOME, FaultError
from proofs.planted.planting import caught

LEAST = 60


def test_there_are_enough_of_them_and_each_has_a_name():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= LEAST


def test_every_room_has_one():
    rooms = {init.parent.name for init in (HOME / "rtfilter").glob("*/__init__.py")}
    assert rooms - {fault.room for fault in FAULTS} == set()


# No parameters, of which `make check` would choose some.
@pytest.mark.slow
def test_each_can_still_be_planted():
    wrong = []
    for fault in FAULTS:
        try:
            text = fault.plant()
            assert text != (HOME / fault.file).read_text(), f"{fault.name} changes nothing"
            if fault.file.endswith(".py"):
                ast.parse(text)  # any test notices a syntax error
        except (AssertionError, FaultError, SyntaxError) as error:
            wrong.append(f"{fault.name}: {error}")
    assert wrong == []


def test_the_tests_that_are_to_notice_are_there():
    assert all(fault.tests for fault in FAULTS)
    missing = []
    for test in sorted({test for fault in FAULTS for test in fault.tests}):
        name, _, function = test.partition("::")
        file = HOME / name
        there = file.is_file() and (not function or f"def {function}(" in file.read_text())
        missing += [] if there else [test]
    assert missing == []


def test_a_text_that_is_gone_or_there_twice_is_named():
    for old, times in (("no such text in this file", 0), ("import", "[0-9]+")):
        fault = FAULTS[0]._replace(old=old)
        with pytest.raises(FaultError, match=f"{fault.name}: its old text occurs {times} times"):
            fault.plant()


def test_what_is_kept_is_of_this_list():
    rows = kept("planted")["rows"]
    named = [(fault.name, fault.kind) for fault in FAULTS]
    assert [(row["fault"], row["kind"]) for row in rows] == named
    for row, fault in zip(rows, FAULTS, strict=True):  # files may have moved since
        if all("::" in test for test in fault.tests):
            assert _function(row["test"]) in set(map(_function, fault.tests))


def _function(test):
    return test.rpartition("::")[2].partition("[")[0]


@pytest.mark.long
@pytest.mark.slow
def test_a_fault_is_planted_in_a_copy_and_one_that_nobody_notices_is_told():
    fault = next(fault for fault in FAULTS if fault.room == "scheduler")
    before = (HOME / fault.file).read_text()
    assert caught(fault).test.startswith(fault.tests)
    with pytest.raises(AssertionError, match="no test notices"):
        caught(fault._replace(new=f"{fault.old}  # the same", tests=("tests/errors/test_text.py",)))
    assert (HOME / fault.file).read_text() == before
