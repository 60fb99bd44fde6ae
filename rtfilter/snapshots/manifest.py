"""The manifest of a snapshot, which is checked before the arrays are used."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rtfilter import __version__
from rtfilter.basics.errors import SnapshotError

VERSION = 2
MANIFEST = "manifest.json"
SAVED_BY = "saved_by"
"""Key of the version of rtree-filter that wrote a snapshot; absent if that was 0.2.0 or earlier."""

_NAME = re.compile(r"[a-z_]+")
_FILE = re.compile(r"[a-z_]+\.[0-9a-f]{12}\.bin")  # a path could lead anywhere
_RELEASE = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,40}")
_DTYPE = re.compile(r"[<>|][biufMmV][0-9]+(\[[a-z0-9]+\])?")


def read(root: Path) -> dict[str, Any]:
    """Return the manifest of the snapshot in a folder.

    Raises `SnapshotError` if there is none, or if it is not of this version.
    """
    try:
        content = (root / MANIFEST).read_bytes()
    except NotADirectoryError:
        raise SnapshotError(f"{root} is no snapshot, which is a folder: it is a file, or in one") from None
    except FileNotFoundError:
        if not root.exists():
            raise SnapshotError(
                f"there is nothing at {root}; a snapshot is the folder that was saved"
            ) from None
        raise SnapshotError(f"{root} is no snapshot: it has no {MANIFEST}; give another folder") from None
    except IsADirectoryError:
        raise SnapshotError(f"{root} is no snapshot: {MANIFEST} is a folder, not a file") from None
    return parse(content, root)


def parse(content: bytes, root: Path | str) -> dict[str, Any]:
    """Return the manifest of a snapshot at `root` from the content of its file. Raises `SnapshotError`."""
    try:
        manifest = json.loads(content)
        if not isinstance(manifest, dict):
            raise ValueError("it holds no JSON object")
        written = manifest.pop("crc32", None)
        version = manifest.get("version")
        if version != VERSION and isinstance(version, int):
            raise SnapshotError(
                f"{root} has format version {version}, this rtfilter reads version {VERSION}; "
                + _remedy(version, manifest.get(SAVED_BY))
            )
        if written != checksum(manifest):
            raise SnapshotError(f"{root}/{MANIFEST} is altered: its checksum does not fit; save it again")
        _require_form(manifest)
    except SnapshotError:
        raise
    except RecursionError:
        raise SnapshotError(f"{root}/{MANIFEST} is altered: it is nested too deeply; save it again") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise SnapshotError(f"{root}/{MANIFEST} is truncated or altered: {error}; save it again") from None
    return manifest


def _remedy(version: int, saved_by: object) -> str:
    """Return the remedy for a snapshot of another format version."""
    if version < VERSION:
        return f"make it again with rtree-filter {__version__}"
    if isinstance(saved_by, str) and _RELEASE.fullmatch(saved_by):
        return f"upgrade rtree-filter to {saved_by} or newer, as the snapshot was saved by {saved_by}"
    return f"upgrade rtree-filter, as the snapshot was saved by a version after {__version__}"


def checksum(manifest: Mapping[str, Any]) -> int:
    """Return the CRC-32 of a manifest."""
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


def files(manifest: bytes) -> list[str]:
    """Return the names of the files that a manifest lists; no other snapshot has files of these names."""
    return [entry["file"] for entry in json.loads(manifest)["arrays"].values()]


def _require_form(manifest: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless a manifest has all that `rtfilter.snapshots.arrays` relies on."""
    for key, kind in (("version", int), ("format", str), ("meta", dict), ("arrays", dict)):
        if not isinstance(manifest.get(key), kind):
            raise ValueError(f"it has no {key}")
    for name, entry in manifest["arrays"].items():
        if not _NAME.fullmatch(name) or not _is_entry(entry):
            raise ValueError(f"its entry of the array {name!r} cannot be used")


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    file, dtype, shape = entry.get("file"), entry.get("dtype"), entry.get("shape")
    if not isinstance(file, str) or not _FILE.fullmatch(file):
        return False
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        return False
    if not isinstance(shape, list) or not all(
        map(_is_size, [*shape, entry.get("bytes"), entry.get("crc32")])
    ):
        return False
    return bool(entry["bytes"] == prod(shape) * np.dtype(dtype).itemsize)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63
