"""A fresh environment, and programs that are started in it with nothing compiled."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from threading import Timer
from time import perf_counter
from typing import Any

from experiments import ResultError

CHECKOUT = Path(__file__).parents[2]
PATIENCE = 3600.0
"""Seconds after which a program is killed."""


@dataclass
class Cost:
    """The cost of a program's run.

    Attributes
    ----------
    wall : float
        Seconds from its start until it ended, or until it said that it was ready.
    cpu : float
        CPU seconds of the process and of those that it waited for, until it ended.
    memory : float or None
        Peak memory in MB; None where it was below that of this process, which Linux would report instead.
    said : list of str
        Lines of its standard output.
    """

    wall: float
    cpu: float
    memory: float | None = None
    said: list[str] = field(default_factory=list)

    @property
    def facts(self) -> dict[str, Any]:
        """The last line as JSON."""
        found: dict[str, Any] = json.loads(self.said[-1])
        return found


class Place:
    """An environment in a folder of its own, with rtfilter installed from the checkout.

    Parameters
    ----------
    folder : Path
    python : str
        Python that makes the environment; by default the one that runs.
    """

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder, self._python = folder, python
        self.bin = folder / "venv" / "bin"

    def install(self, extras: str) -> Cost:
        """Make the environment; pip compiles the bytecode of all packages."""
        made = self.run([self._python, "-m", "venv", str(self.folder / "venv")])
        pip = [
            self.python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-cache-dir",
            "--disable-pip-version-check",
        ]
        pip += ["-c", str(CHECKOUT / "constraints.txt"), f"{self._source()}[{extras}]"]
        installed = self.run(pip)
        return Cost(made.wall + installed.wall, made.cpu + installed.cpu, installed.memory)

    @property
    def python(self) -> str:
        """The interpreter of the environment."""
        return str(self.bin / "python")

    @property
    def command(self) -> str:
        """The command `rtfilter` of the environment."""
        return str(self.bin / "rtfilter")

    def fresh(self) -> Path:
        """Return a new empty folder."""
        return Path(mkdtemp(dir=self.folder))

    def run(
        self,
        command: Sequence[str],
        *,
        ready: str | None = None,
        cwd: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Cost:
        """Run a program to its end, or until a line of its output shows that it is ready.

        Parameters
        ----------
        command : sequence of str
        ready : str, optional
            Text of the line that shows it. The program is then asked to end.
        cwd : Path, optional
            Folder to run in; by default a new one.
        more : mapping, optional
            More variables of its environment.

        Raises
        ------
        ResultError
            The program failed, or ended before it was ready.
        """
        here = self.fresh() if cwd is None else cwd
        begun = perf_counter()
        child = self.start(command, here, more)
        limit = Timer(PATIENCE, end, [child, signal.SIGKILL])
        limit.start()
        said, wall = [], None
        assert child.stdout is not None
        try:
            for line in child.stdout:
                said.append(line.rstrip("\n"))
                if wall is None and ready is not None and ready in line:
                    wall = perf_counter() - begun
                    end(child, signal.SIGTERM)
        except BaseException:  # an interrupt: nothing may go on without this process
            end(child, signal.SIGKILL)
            raise
        finally:
            limit.cancel()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _, status, used = os.wait4(child.pid, 0)
        ended = perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stdout.close()
        end(child, signal.SIGKILL)  # compilers that it left behind
        if (wall is None and ready is not None) or (ready is None and child.returncode):
            raise ResultError(
                f"{' '.join(command)[:200]} failed (exit code {child.returncode}):\n"
                + "\n".join([*said, (here / "stderr").read_text()])[-2000:]
            )
        peak = used.ru_maxrss / 1024 if used.ru_maxrss > own else None
        return Cost(ended if wall is None else wall, used.ru_utime + used.ru_stime, peak, said)

    def start(
        self,
        command: Sequence[str],
        here: Path,
        more: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program in a session of its own; its standard error goes to ``stderr`` in its folder."""
        left_out = ("PYTHON", "NUMBA_", "RTFILTER_", "XDG_", "MAKE", "VIRTUAL_ENV")
        variables = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        variables |= {
            "HOME": str(here),
            "NUMBA_CACHE_DIR": str(self.fresh()),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **(more or {}),
        }
        with (here / "stderr").open("w") as errors:
            return subprocess.Popen(
                list(command),
                cwd=here,
                env={name: value for name, value in variables.items() if value},
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )

    def clone(self) -> Path:
        """Return a fresh clone of the checkout, with its last commit."""
        target = self.fresh() / "clone"
        subprocess.run(["git", "clone", "--quiet", str(CHECKOUT), str(target)], check=True)
        return target

    def _source(self) -> Path:
        """Return a copy of the checkout without compiled files, so that the build leaves none in it."""
        target = self.folder / "source"
        unwanted = shutil.ignore_patterns(
            ".git", ".venv", "__pycache__", "*.egg-info", "build", "out", ".*_cache", "docs", "tests"
        )
        shutil.copytree(CHECKOUT, target, ignore=unwanted, symlinks=True)
        return target


def end(child: subprocess.Popen[str], how: signal.Signals) -> None:
    """Send a signal to a process and to those that it started, where there still are any."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, how)
