"""A replay compiles before it times: on a fresh machine no contender waits for kernels."""

import subprocess
import sys

import pytest

PROGRAM = """
from experiments.demo import contenders
from rtfilter import EventFilter
from rtfilter.index.kernels.jit import Kernel
from rtfilter.replay import ReplaySettings, replay, run
from rtfilter.replay.workloads import workload

def used():
    return {kernel.py_func.__qualname__: len(kernel.overloads) for kernel in Kernel.known}

def timed(*given):
    before = used()
    found = once(*given)
    late.update(name for name, count in used().items() if count != before[name])
    return found

once, late = run._run, set()
run._run = timed
own = workload("wide", 1)
settings = ReplaySettings(20_000, 12, (2, 300), insert=10, delete=10)  # of a tree with two levels
replay(own, settings, contenders(), EventFilter(own.schema, matcher="rtree"))
print(sorted(late))
"""


@pytest.mark.slow
def test_no_kernel_is_left_for_the_first_burst():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
