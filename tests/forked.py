"""A command that takes the place of Python: `forked.py SOCKET ARGUMENTS`; see `forks.executable`.

It has a process forked that has its own streams, arguments, folder and environment. Signals are passed on,
and that one dies with this one. This imports little, since it is a new Python itself.
"""

import json
import os
import signal
import socket
import sys

PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
place, *command = sys.argv[1:]
if command[0].startswith("-") and command[0] != "-m":  # such as -c
    os.execv(sys.executable, [sys.executable, *command])
told = []


def pass_on(number, _):
    """Signals that come before the fork is there are passed on then."""
    told.append(number)
    if pid is not None:
        os.kill(pid, told.pop())


pid = None
for one in PASSED:
    signal.signal(one, pass_on)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(place)
    ended, write = os.pipe()
    asked = {"command": command, "env": dict(os.environ), "cwd": os.getcwd()}
    socket.send_fds(server, [json.dumps(asked).encode()], [write, 0, 1, 2])
    os.close(write)
    pid = int(server.recv(100))
    while told:
        os.kill(pid, told.pop())
    for stream in (0, 1, 2):
        os.close(stream)
    code = int(os.read(ended, 100))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
