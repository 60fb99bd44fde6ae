"""A server compiles before it listens: the first user and the first event wait for nothing."""

import subprocess
import sys

import pytest

PROGRAM = """
from rtfilter import EventFilter, Schema
from rtfilter.index.kernels.jit import Kernel
from rtfilter.service.server import _warm

def used():
    return {kernel.py_func.__qualname__: len(kernel.overloads) for kernel in Kernel.known}

_warm()
before = used()
event = {"symbol": "ACME", "price": 9.5}
one = EventFilter(Schema({"symbol": str, "price": float}), max_unbounded=None)
one.subscribe("symbol = 'ACME' AND price < 10")
for burst in (1, 2, 64):
    list(one.stream([event] * burst))
one.match_batch([event])
one.subscribe_many(["price < 10", "symbol = 'ACME'"])
list(one.stream([event] * 3))
one.subscribe_many(["symbol LIKE 'a long symbol%'"] * 20)
one.match({"symbol": "a long symbol"})
one.unsubscribe(5)
one.update(0, "price < 9")
one.unsubscribe(0)
print(sorted(name for name, count in used().items() if count != before[name]))
"""


@pytest.mark.slow
def test_no_kernel_is_left_for_the_first_event():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
