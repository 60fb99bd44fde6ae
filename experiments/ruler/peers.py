"""event-ruler and quamina as programs: built from their checkouts, and asked by lines of JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from experiments import ResultError

HERE: Final = Path(__file__).parent
JARS: Final = Path("/usr/share/java")
"""The folder of Debian's jars."""
NEEDED: Final = ("jackson-core.jar", "jackson-databind.jar", "jackson-annotations.jar", "jsr305.jar")
MEMORY: Final = "-Xmx6g"
NUMBERS: Final = "ch.randelshofer.fastdoubleparser"
STAND_IN: Final = f"""package {NUMBERS};
public class JavaBigDecimalParser {{
    public static java.math.BigDecimal parseBigDecimal(CharSequence text) {{
        return new java.math.BigDecimal(text.toString());
    }}
}}
"""
"""Debian has no fastdoubleparser; event-ruler calls it for constants and values that are numbers."""


class Program:
    """A peer as a process on one core."""

    def __init__(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def ask(self, **command: Any) -> dict[str, Any]:
        """Return the answer to a command.

        Raises
        ------
        ResultError
            The program has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ResultError(f"{self.name} ended with exit status {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def build_ruler(checkout: Path, folder: Path) -> list[str | Path]:
    """Compile event-ruler and what drives it into a folder. Return the command that runs it."""
    sources = sorted((checkout / "src" / "main").rglob("*.java"))
    if not sources:
        raise ResultError(f"{checkout} is no checkout of event-ruler: it has no src/main with Java in it")
    jars = [JARS / name for name in NEEDED]
    if shutil.which("javac") is None or not all(jar.exists() for jar in jars):
        raise ResultError(
            "event-ruler needs a compiler and two libraries: "
            "apt-get install default-jdk-headless libjackson2-databind-java libjsr305-java"
        )
    stand_in = folder / "JavaBigDecimalParser.java"
    stand_in.write_text(STAND_IN)
    path = os.pathsep.join(map(str, jars))
    classes = folder / "classes"
    _run(["javac", "-nowarn", "-d", classes, "-cp", path, stand_in, HERE / "Peer.java", *sources])
    return ["java", MEMORY, "-XX:+UseSerialGC", "-cp", f"{classes}{os.pathsep}{path}", "Peer"]


def build_quamina(checkout: Path, folder: Path) -> list[str | Path]:
    """Compile quamina and what drives it into a folder. Return the command that runs it."""
    if not (checkout / "quamina.go").exists():
        raise ResultError(f"{checkout} is no checkout of quamina: it has no quamina.go")
    if shutil.which("go") is None:
        raise ResultError("quamina needs Go 1.22 or newer: no program go is in PATH")
    source = folder / "quamina"
    source.mkdir()
    shutil.copy(HERE / "peer.go", source / "main.go")
    module = "quamina.net/go/quamina/v2"
    (source / "go.mod").write_text(
        f"module peer\n\ngo 1.22\n\nrequire {module} v2.0.0\n\nreplace {module} => {checkout.resolve()}\n"
    )
    _run(["go", "build", "-mod=mod", "-o", folder / "peer", "."], source)
    return [folder / "peer"]


def _run(command: Sequence[str | Path], folder: Path | None = None) -> None:
    ended = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ResultError(f"{command[0]} failed:\n{ended.stderr.strip()[-2000:]}")
