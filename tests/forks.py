"""Processes of Python, forked from one that has imported and loaded all that servers need.

A new Python takes seconds of a processor for its imports and for the compiled kernels, and tests start
hundreds of servers. A fork has all that at once. What a new process does by itself, such as to find its
kernels, needs a `new` one.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

PATH = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[1])))
"""Where the modules are, of the package and of tests."""
STANDARD = ("stdin", "stdout", "stderr")
_LONGEST = 2**20
_LOCK = threading.Lock()


def new(*command, prefix=(), **more):
    """A new Python, which has imported nothing; `prefix` is the command that starts it."""
    command = [*prefix, sys.executable, *command]
    return subprocess.Popen(list(map(str, command)), text=True, **more)


def python(*command, env=None, cwd=None, **streams):
    """Start Python with the arguments that it would be given.

    Parameters
    ----------
    command
        ``-m``, a module and its arguments, or a file and its arguments.
    env, cwd
        As of `subprocess.Popen`, but that PYTHON* do not count.
    stdin, stdout, stderr
        Likewise: `subprocess.PIPE`, `STDOUT` or `DEVNULL`, a file, or None for that of this process.

    Returns
    -------
    Forked, or `subprocess.Popen` where the system has no file descriptors of processes.
    """
    if not hasattr(os, "pidfd_open"):
        return new(*command, env=env, cwd=cwd, **streams)
    return Forked(
        list(map(str, command)), dict(os.environ if env is None else env), str(cwd or Path.cwd()), streams
    )


class Forked:
    """A process that was forked; as `subprocess.Popen`, as far as tests need it."""

    def __init__(self, command, env, cwd, streams):
        self.args, self.returncode = command, None
        self.stdin = self.stdout = self.stderr = None
        self._lock = threading.Lock()
        self._ended, ended = os.pipe()
        given = []
        try:
            for place, name in enumerate(STANDARD):
                given.append(self._stream(name, place, streams.get(name), given))
            request = json.dumps({"command": command, "env": env, "cwd": cwd}).encode()
            with _LOCK:
                control = _server()
                socket.send_fds(control, [request], [ended, *given])
                self.pid = int(control.recv(_LONGEST))
        finally:
            for one in (ended, *given):
                os.close(one)

    def _stream(self, name, place, wish, given):
        """What the process is given; the other end of a pipe is kept."""
        if wish == subprocess.PIPE:
            read, write = os.pipe()
            own, other = (write, read) if name == "stdin" else (read, write)
            setattr(self, name, os.fdopen(own, "w" if name == "stdin" else "r"))
            return other
        if wish == subprocess.DEVNULL:
            return os.open(os.devnull, os.O_RDWR)
        if wish == subprocess.STDOUT:
            return os.dup(given[1])
        return os.dup(place if wish is None else wish.fileno())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in filter(None, (self.stdout, self.stderr, self.stdin)):
            pipe.close()
        self.wait()

    def __del__(self):
        os.close(self._ended)  # not before: any thread may look at it

    def poll(self):
        """Its exit status; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout=None):
        """Its exit status, once it has ended; `subprocess.TimeoutExpired` where that takes longer."""
        if self.returncode is None and not select.select([self._ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout)
        with self._lock:
            if self.returncode is None:
                self.returncode = int(os.read(self._ended, _LONGEST))
        return self.returncode

    def communicate(self, *, timeout=None):
        """What it writes until it ends, which it must within `timeout`: standard output, and errors."""
        if self.stdin is not None:
            self.stdin.close()
        with ThreadPoolExecutor(2) as readers:
            read = [pipe and readers.submit(pipe.read) for pipe in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        with self:
            return tuple(one and one.result() for one in read)

    def send_signal(self, number):
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


def executable(folder, name="python", first=""):
    """Write a program into a folder that does as Python does, by a fork; `first` is put before its arguments.

    For programs and shells that start others. What it starts dies with it.
    """
    _server()
    file = Path(folder, name)
    client = Path(__file__).with_name("forked.py")
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {client} {_socket()} {first} "$@"\n')
    file.chmod(0o755)
    return file


def starting_forks(program, folder):
    """Write a program into a folder that is the one given, but has forks in place of `sys.executable`."""
    python = executable(folder)
    file = Path(folder, "starting.py")
    file.write_text(
        "import runpy, sys\n"
        f"sys.executable, sys.argv[0] = {str(python)!r}, {str(program)!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    return file


@cache
def _socket():
    """Where the process that forks listens."""
    folder = tempfile.mkdtemp(prefix="rtfilter-forks-")
    atexit.register(shutil.rmtree, folder)
    return f"{folder}/socket"


@cache
def _server():
    """The connection to the process that forks. It ends when this one does, and all forks with it."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = os.environ | {"PYTHONPATH": PATH, "OPENBLAS_NUM_THREADS": "1"}  # of whose threads forks have none
    with other:
        process = subprocess.Popen(
            [sys.executable, __file__, str(other.fileno()), _socket()],
            stdin=subprocess.DEVNULL,
            pass_fds=[other.fileno()],
            env=env,
        )

    def end():
        own.close()
        process.wait()

    atexit.register(end)
    if own.recv(_LONGEST) != b"ready":
        raise RuntimeError("the process that forks does not start")
    return own


# -- the process that forks ----------------------------------------------------------------------------------


def load():
    """Have all that a fork shares."""
    import gc

    from rtfilter import EventFilter, Schema
    from rtfilter.cli import COMMANDS, _module
    from rtfilter.index import ready
    from rtfilter.matching.verify import COMPILED
    from rtfilter.service import server  # noqa: F401

    for name in COMMANDS:
        _module(name)
    ready.load()
    filter = EventFilter(Schema({"s": str}), matcher="rtree")
    filter.subscribe_many(["s LIKE 'a long text%'"] * COMPILED)
    filter.match({"s": "a long text"})  # loads what checks many subscriptions at once
    gc.collect()
    gc.freeze()  # or each fork would copy what the collector looks at


def alone():
    """Wait until there are no threads, of which a fork would have what they hold, but not them."""
    end = time.monotonic() + 10
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > end:
            raise RuntimeError("there are threads in the process that forks")
        time.sleep(0.01)


class Running(NamedTuple):
    """A fork: its process, where its end is to be told, and the connection by which it was asked for."""

    pid: int
    told: int
    asked: socket.socket


def serve(control, listening):
    """Fork when asked, and tell how forks have ended; returns a request in the fork."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks for forks decides when this ends
    control.send(b"ready")
    connections, running = {control}, {}
    while True:
        for ready in select.select([*connections, listening, *running], [], [])[0]:
            if ready is listening:
                connections.add(listening.accept()[0])
            elif ready not in connections:
                ended(ready, running.pop(ready))
            elif (asked := heard(ready)) is None:
                connections.remove(ready)
                ready.close()
                for process, one in running.items():
                    if ready is control or one.asked is ready:
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                if ready is control:
                    sys.exit()
            else:
                request, (told, *streams) = asked
                pid = os.fork()
                if pid == 0:
                    for one in (*connections, listening):
                        one.close()
                    for one in (told, *running, *(each.told for each in running.values())):
                        os.close(one)
                    return json.loads(request), streams
                running[os.pidfd_open(pid)] = Running(pid, told, ready)
                for stream in streams:
                    os.close(stream)
                ready.send(str(pid).encode())


def heard(connection):
    """What is asked for, with file descriptors; None where nobody is there any more."""
    try:
        request, given, _, _ = socket.recv_fds(connection, _LONGEST, 4)
    except ConnectionError:
        return None
    return (request, given) if request else None


def ended(process, one):
    """Tell that a fork has ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(one.pid, 0)[1])
    with suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(one.told, str(code).encode())
    os.close(one.told)
    os.close(process)


def become(request, streams):
    """Be what is asked for, until its end."""
    import numpy as np

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    np.random.seed()  # noqa: NPY002  # the old one, of which a fork has a copy
    first, *rest = request["command"]
    sys.argv = rest if first == "-m" else [first, *rest]
    code = 0
    try:
        if first == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        code = end.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    # As Python ends, but that it would take all modules apart, a quarter of a second long.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    load()
    alone()
    fd, place = sys.argv[1:]
    with socket.socket(fileno=int(fd)) as own, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as others:
        others.bind(place)
        others.listen()
        asked = serve(own, others)
    become(*asked)
