"""Optional packages of `rtree-filter`; the error for a missing one says how to install it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = "rtree-filter"


def install(extra: str = "") -> str:
    """Return the command that installs this package with an extra, from where it was installed.

    The source is a checkout, another folder, a repository, or else the package index.
    """
    from shlex import quote

    extras = f"[{extra}]" if extra else ""
    checkout = Path(__file__).parents[2]
    if _is_ours(checkout / "pyproject.toml"):
        return f"pip install -e {quote(f'{checkout}{extras}')}"
    source = _source()
    if source is None:
        return f"pip install {quote(NAME + extras)}"
    if isinstance(source, Path):
        return f"pip install {quote(f'{source}{extras}')}"
    return f"pip install {quote(f'{NAME}{extras} @ {source}')}"


def _is_ours(project: Path) -> bool:
    try:
        return f'name = "{NAME}"' in project.read_text(encoding="utf-8")
    except OSError:
        return False


def _source() -> Path | str | None:
    """Return the folder or the address that pip installed this package from; None for the package index."""
    import json  # these imports are slow
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        text = distribution(NAME).read_text("direct_url.json")
        told = json.loads(text) if text else {}
        url = told.get("url")
        if not url:
            return None
        if "vcs_info" in told:
            vcs = told["vcs_info"]
            return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        if "dir_info" in told:
            return Path(url2pathname(urlsplit(url).path))
        return str(url)
    except (PackageNotFoundError, OSError, ValueError, LookupError):
        return None


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Make an import that fails name the extra to install.

    Parameters
    ----------
    extra : str
        Name of the extra: ``arrow``, ``replay``, ``spark`` ...
    what : str
        The feature that needs the extra; the message begins with it.

    Raises
    ------
    ModuleNotFoundError
        A package outside rtfilter is missing; the ``name`` of the error is that package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "rtfilter") or "pip install" in str(error):
            raise
        raise ModuleNotFoundError(f"{what} needs {package}: {install(extra)}", name=error.name) from error
