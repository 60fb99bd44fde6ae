"""Optional packages of `rtree-filter`; the error for a missing one says how to install it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = "rtree-filter"


def install(extra: str = "") -> str:
    """Return the command that installs this package with an extra, from where it was installed.

    That is a checkout, another folder, a repository, or else the package index, by its name.
    """
    from shlex import quote

    extras = f"[{extra}]" if extra else ""
    checkout = Path(__file__).parents[1]
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
    """The folder or the address that pip installed this package from; None for the package index."""
    import json  # all of these take long to import
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
    """Let an import that fails name the extra that it is part of.

    Parameters
    ----------
    extra : str
        Name of the extra: ``arrow``, ``replay``, ``spark`` ...
    what : str
        What needs it, the beginning of the message.

    Raises
    ------
    ModuleNotFoundError
        In the place of one about a package of others; its ``name`` is the same.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "rtfilter") or "pip install" in str(error):
            raise
        raise ModuleNotFoundError(f"{what} needs {package}: {install(extra)}", name=error.name) from error
