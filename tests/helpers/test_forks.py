"""A fork is a process as a new one is, but that it has imported everything."""

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress

import pytest

import forks
from lengths import long_but

BOTH = pytest.mark.parametrize("start", long_but([forks.new, forks.python], [forks.python]))
TOLD = """
import json, os, signal, sys, threading
told = {
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "variables": sorted(name for name in os.environ if name.startswith("OWN")),
    "heard": sys.stdin.read(),
    "files": [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 2],
    "threads": threading.active_count(),
    "signals": [str(signal.getsignal(one)) for one in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)],
    "name": __name__,
}
print(json.dumps(told))
print("said", file=sys.stderr)
sys.exit(3)
"""
WAITS = """
import sys
try:
    print("there", flush=True)
    sys.stdin.read()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def program(tmp_path):
    """Write a program, and return its file."""

    def write(text):
        (tmp_path / "program.py").write_text(text)
        return tmp_path / "program.py"

    return write


def started(start, *command, **more):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return start(*command, **{**pipes, **more})


@pytest.mark.slow
def test_it_is_given_what_a_new_one_is_given(program, tmp_path):
    found = []
    for start in (forks.new, forks.python):
        env = {"PATH": os.environ["PATH"], "OWN": "1"}
        with started(start, program(TOLD), "a b", 7, env=env, cwd=tmp_path) as one:
            one.stdin.write("heard")
            one.stdin.close()
            told, said = one.stdout.read(), one.stderr.read()
            assert one.wait(120) == one.returncode == one.poll() == 3
        assert said == "said\n"
        found.append(json.loads(told) | {"files": len(json.loads(told)["files"])})
    assert found[0] == found[1]
    assert found[0]["arguments"] == ["a b", "7"]
    assert found[0]["heard"] == "heard"


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("number", long_but([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], [signal.SIGINT]))
def test_it_takes_signals(start, number, program):
    if number == signal.SIGINT and signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("whoever runs this ignores interrupts")
    with started(start, program(WAITS)) as one:
        assert one.stdout.readline() == "there\n"
        assert one.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(0.01)
        one.send_signal(number)
        assert one.wait(120) == (0 if number == signal.SIGINT else -number)
        assert one.stdout.read() == ("interrupted\n" if number == signal.SIGINT else "")
        one.kill()  # is no error


@pytest.mark.slow
def test_forks_share_no_chance(program):
    text = """
import random
from numpy import random as other
print(random.random(), other.random(), other.default_rng().random())
"""
    said = [started(forks.python, program(text)).communicate(timeout=120)[0].split() for _ in range(2)]
    assert not set(said[0]) & set(said[1])
    assert len(said[0]) == 3


@pytest.mark.slow
def test_one_that_nobody_waits_for_ends_nothing(program):
    waits = started(forks.python, program(WAITS))
    assert waits.stdout.readline() == "there\n"
    pid = waits.pid
    for pipe in (waits.stdin, waits.stdout, waits.stderr):
        pipe.close()  # so that it ends
    del waits, pipe
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            time.sleep(0.01)
    assert started(forks.python, "-m", "rtfilter", "--version").communicate(timeout=120)[0]


@pytest.mark.slow
def test_an_error_is_told_as_by_a_new_one(program):
    one = started(forks.python, program("def f():\n    1 / 0\nf()"))
    out, said = one.communicate(timeout=120)
    assert (out, one.returncode) == ("", 1)
    assert re.search(r'program.py", line 2, in f\n.*\nZeroDivisionError: division by zero\n$', said, re.S)


@pytest.mark.slow
def test_it_has_imported_and_loaded_all(program):
    text = """
import sys
from rtfilter.index.kernels import counts
print(counts.loads > 0, "uvicorn" in sys.modules)
"""
    assert started(forks.python, program(text)).communicate(timeout=120)[0] == "True True\n"


@pytest.mark.slow
def test_a_module_is_run_as_by_a_new_one():
    said = [
        started(start, "-m", "rtfilter", "--version").communicate(timeout=120)
        for start in (forks.new, forks.python)
    ]
    assert said[0] == said[1]
    assert said[0][0].startswith("rtfilter ")


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param("3", 3, marks=pytest.mark.long),
        pytest.param("None", 0, marks=pytest.mark.long),
        ("'why'", 1),
    ],
)
def test_it_ends_as_a_new_one(start, end, code, program):
    """Threads are waited for, what is to be done at exit is done, and what was written is there."""
    text = f"""
import atexit, sys, threading, time
def work():
    time.sleep(0.1)
    print("thread")
threading.Thread(target=work).start()
atexit.register(print, "exit")
sys.exit({end})
"""
    one = started(start, program(text))
    assert one.communicate(timeout=120) == ("thread\nexit\n", "why\n" if code == 1 else "")
    assert one.returncode == code


@pytest.mark.slow
def test_a_program_that_starts_python_starts_forks(program, tmp_path):
    python = forks.executable(tmp_path)
    done = subprocess.run([python, program(TOLD), "a b"], input="heard", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "said\n")
    told = json.loads(done.stdout)
    assert (told["arguments"], told["heard"], len(told["files"])) == (["a b"], "heard", 1)
    assert subprocess.run([python, "-c", "print(1)"], capture_output=True).stdout == b"1\n"
    forks.executable(tmp_path, "rtfilter", "-m rtfilter")
    command = 'rtfilter --version | cat; exec rtfilter "--help"'
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=True)
    assert re.match(r"rtfilter .*\nusage: rtfilter ", done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", long_but([signal.SIGTERM, signal.SIGINT, signal.SIGKILL], [signal.SIGKILL])
)
def test_who_ends_such_a_program_ends_the_fork(number, program, tmp_path):
    text = WAITS.replace('"there"', '__import__("os").getpid()')
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([forks.executable(tmp_path), program(text)], **pipes) as one:
        pid = int(one.stdout.readline())
        one.send_signal(number)
        assert one.wait(120) == (0 if number == signal.SIGINT else -number)
        with suppress(ProcessLookupError):
            while True:
                os.kill(pid, 0)
                time.sleep(0.01)
