"""The place of compiled kernels: numba's cache, else a folder of the user, else memory.

numba stores compiled code in NUMBA_CACHE_DIR, beside the source, or below the user's home, and refuses a
function if it can write to none of them: a service often has no home, and a container no writable folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core import caching

REMEDY = "set NUMBA_CACHE_DIR to a folder that lasts and can be written, and fill it with `rtfilter warm`"

# numba's cache notices a changed file, but not a change in another file whose kernels were inlined.
# One digest over all kernels here is the stamp of each, so a cached kernel is never older than its parts; a
# kernel that lies elsewhere, as those of matchers do, may use these and others of its own file.
_DIGEST = hashlib.blake2b(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()


class NotCachedError(Exception):
    """No cache has a kernel, and this thread must not compile; `folder` is the folder of the cache."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"a kernel is missing in {folder}")
        self.folder = folder


_thread = threading.local()


@contextlib.contextmanager
def only_cached() -> Iterator[None]:
    """Let this thread load kernels, and raise `NotCachedError` instead of compiling one."""
    _thread.only_cached = True
    try:
        yield
    finally:
        _thread.only_cached = False


class _Named(caching.UserProvidedCacheLocator):
    """The cache in the folder of NUMBA_CACHE_DIR. If it cannot be written, another one is used."""

    def ensure_cache_path(self) -> None:
        try:
            super().ensure_cache_path()
        except OSError as error:
            folder = Path(self.get_cache_path()).parent
            _warn_once(
                f"the folder {folder}, which NUMBA_CACHE_DIR names, cannot be written "
                f"({error.strerror or error}), so the compiled kernels of rtfilter are not kept there; name "
                "one that lasts and can be written, and fill it with `rtfilter warm`"
            )
            raise


class _Home(caching.UserWideCacheLocator):
    """The cache below the user's home; not in a folder "~", which numba would make for a user without one."""

    def ensure_cache_path(self) -> None:
        if not os.path.isabs(self.get_cache_path()):
            raise OSError("the user has no home")
        super().ensure_cache_path()


class _Private(caching.UserWideCacheLocator):
    """The cache in a folder for temporary files that no other user can read or write.

    Reading a cache runs its content, so a folder that others could have written to is not used.
    """

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        super().__init__(function, path)
        self._cache_path = str(private_folder() / self.get_suitable_cache_subpath(path))

    def ensure_cache_path(self) -> None:
        folder = private_folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        own = not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)
        if not (stat.S_ISDIR(found.st_mode) and own):
            raise OSError(f"{folder} is not private")
        super().ensure_cache_path()
        _warn_once(
            "neither the folder of rtfilter nor one below your home can be written, so its compiled kernels "
            f"are in {folder}; {REMEDY}"
        )


def private_folder() -> Path:
    """Return the folder of this user among the temporary files."""
    user = os.geteuid() if hasattr(os, "geteuid") else ""
    return Path(tempfile.gettempdir(), f"rtfilter-{user}")


class _Located(caching.CompileResultCacheImpl):
    _locator_classes: Any = (
        _Named,
        caching.InTreeCacheLocator,
        _Home,
        caching.IPythonCacheLocator,
        _Private,
    )


class KernelCache(caching.FunctionCache):
    """numba's cache of one kernel. It compiles unreadable code again, and warns if it cannot write."""

    _impl_class = _Located

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        own = hashlib.blake2b(Path(function.__code__.co_filename).read_bytes()).hexdigest()
        # numba looks at the stamp only after unpickling it beside the kernels' types, which fails where a
        # class of an earlier version is gone; it looks at its own version before, so that is where the digest
        # must be as well.
        index: Any = self._cache_file
        index._source_stamp = _DIGEST + own
        index._version += _DIGEST + own

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the compiled code, None if it is not there."""
        try:
            found = super().load_overload(signature, context)
        except Exception:  # of a damaged file unpickling raises anything
            found = None
            with contextlib.suppress(OSError):
                self.flush()
        if found is None and getattr(_thread, "only_cached", False):
            raise NotCachedError(Path(self.cache_path))
        if found is None:
            _say_once(f"compiling kernels for this machine, up to a minute, once; kept in {self.cache_path}")
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Store the compiled code."""
        try:
            super().save_overload(signature, compiled)
        except OSError as error:
            self.disable()
            _warn_once(
                f"the compiled kernels of rtfilter cannot be written to {self.cache_path} ({error}); {REMEDY}"
            )


def cache_of(function: Callable[..., Any]) -> caching.FunctionCache | None:
    """Return the cache of `function`, or None, after a warning, if there is no place."""
    try:
        return KernelCache(function)
    except (RuntimeError, OSError):  # numba finds no folder; or the source is no file
        _warn_once(
            f"the kernels of rtfilter are compiled again in each process: no folder can be written; {REMEDY}"
        )
        return None


_said: set[str] = set()


def _say_once(text: str) -> None:
    """Log a slow compilation, unless a warning has reported it."""
    if not _said:
        _said.add(text)
        logging.getLogger("rtfilter").warning(text)


def _warn_once(text: str) -> None:
    """Warn of the first problem only: it is mostly the same for all kernels."""
    if not _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


_warned: set[str] = set()
