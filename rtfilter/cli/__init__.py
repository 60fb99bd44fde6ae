"""The command line ``rtfilter``: each command is a module of this package.

A command module has ``add_arguments(parser)``, which also sets the parser's description and examples, and
``run(arguments) -> int``, which returns the exit code. Slow imports are inside `run`, so that ``--help`` is
fast.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Container, Sequence
from importlib import import_module
from typing import Any, NoReturn

from rtfilter import __version__
from rtfilter.basics.errors import FileError
from rtfilter.cli.terminal import CommandError, say

COMMANDS = {
    "match": "which subscriptions match each event of a file",
    "index": "build, describe and verify saved indexes",
    "explain": "why events do or do not match subscriptions, and by how much",
    "serve": "a server: subscribe, publish, deliver",
    "subscribe": "subscribe at a server",
    "subscriptions": "show and change your subscriptions on a server, and try events with them",
    "publish": "publish events of a file at a server",
    "listen": "write deliveries of a server as JSON lines",
    "map": "show the tree of the sites of a network",
    "users": "who may use a server: passwords, tokens, roles",
    "backup": "copy the data of a server, also while it runs",
    "restore": "make the folder of a server from a backup",
    "replay": "time bursts of a workload or of files, with an adaptive or a fixed plan",
    "grafana": "write a dashboard for Grafana, and what Prometheus needs for it",
    "warm": "compile all kernels now, for an image or a service without a home",
    "nats": "match the events of a stream of NATS JetStream with the subscriptions of a bucket",
    "spark-match": "which subscriptions match each event, on Spark",
}
"""Commands and their one-line help; the module of each has its name, with _ for -."""

FAILED = 2
INTERRUPTED = 130  # the status that a shell reports for SIGINT
PIPE_CLOSED = 141  # the status that a shell reports for SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0: done. 1: ``index check`` found damage. 2: an expected failure, written to standard error as
        ``rtfilter: error: ...``. 130: interrupted. 141: the reader of the output has closed it.
    """
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _flush_or_discard()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        _flush_or_discard()
        say("interrupted")
        return INTERRUPTED
    except (CommandError, FileError) as error:
        say(f"error: {error}")
    except OSError as error:
        reason = error.strerror or str(error)
        say(f"error: {error.filename}: {reason}" if error.filename is not None else f"error: {reason}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "rtfilter"):
            raise
        from rtfilter.basics.extras import install

        told = "pip install" in str(error)
        say(f"error: {error}" if told else f"error: the package {error.name} is missing: {install()}")
    except MemoryError:
        say("error: not enough memory for this index; match a part of the subscriptions at a time")
    _flush_or_discard()
    return FAILED


def _run(argv: Sequence[str] | None) -> int:
    try:
        given = sys.argv[1:] if argv is None else argv
        arguments = _parser([name for name in COMMANDS if name in given]).parse_args(given)
    except SystemExit as done:  # --help, --version, or a usage message
        return int(done.code or 0)
    return int(_module(arguments.command).run(arguments))


class _Parser(argparse.ArgumentParser):
    """A parser that reports a wrong value without the usage, which would not help."""

    def error(self, message: str) -> NoReturn:
        """Exit with a message."""
        if message.startswith("argument -"):
            self.exit(FAILED, f"{self.prog}: error: {message}; see {self.prog} --help\n")
        super().error(message)


def _parser(known: Container[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of all commands; only the commands in `known` are imported and have arguments."""
    parser = _Parser(
        prog="rtfilter",
        description="Match events against range subscriptions.",
        epilog="example:\n  rtfilter match subscriptions.jsonl events.jsonl > pairs.csv\n\n"
        "rtfilter COMMAND --help explains a command and its files.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    version = f"rtfilter {__version__}"
    parser.add_argument("--version", action="version", version=version, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        if name in known:
            _module(name).add_arguments(command)
    return parser


def _module(command: str) -> Any:
    return import_module(f"rtfilter.cli.{command.replace('-', '_')}")


def _flush_or_discard() -> None:
    """Empty the buffer of standard output, so that the interpreter does not fail to write it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):  # a captured standard output has no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
