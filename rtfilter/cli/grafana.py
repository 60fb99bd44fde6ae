"""``rtfilter grafana``: write the files of the dashboard and of its Prometheus."""

from __future__ import annotations

import argparse
import shlex
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from rtfilter.cli.arguments import some_path
from rtfilter.cli.terminal import CommandError, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a dashboard for Grafana, rules and alerts for Prometheus, and a compose file that starts\n"
        "both. Files that exist already are kept if they are the same; otherwise nothing is written."
    )
    parser.epilog = "example:\n  rtfilter grafana --out monitoring\n"
    parser.add_argument("--out", metavar="DIR", type=some_path, required=True, help="directory to write to")


def run(arguments: argparse.Namespace) -> int:
    if arguments.out.exists() and not arguments.out.is_dir():
        raise CommandError(f"{arguments.out}: is a file; --out is the directory to write to")
    contents = {arguments.out / name: data for name, data in shipped().items()}
    other = [str(path) for path, data in contents.items() if path.exists() and not _holds(path, data)]
    if other:
        raise CommandError(f"{', '.join(other)}: exists with other content; move it, or choose another --out")
    for path, data in contents.items():
        if path.exists():
            say(f"kept {path}")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:  # fails if the file has appeared since
            file.write(data)
        say(f"wrote {path}")
    say(
        "to go on, start Prometheus and Grafana, and serve metrics on port 17464, for example of a replay:\n"
        f"  docker compose -f {shlex.quote(str(arguments.out / 'compose.yaml'))} up --detach\n"
        "  rtfilter replay narrow --bursts 100000 --poisson 300 --insert 20 --delete 20 "
        "--metrics-port 17464\n"
        "then open http://127.0.0.1:3000/d/rtfilter"
    )
    return 0


def shipped() -> dict[str, bytes]:
    """Return the files of the package, by their names below the directory."""
    found: dict[str, bytes] = {}

    def add(folder: Traversable, prefix: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                add(entry, f"{prefix}{entry.name}/")
            else:
                found[prefix + entry.name] = entry.read_bytes()

    add(files("rtfilter.watch") / "grafana", "")
    return found


def _holds(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data
