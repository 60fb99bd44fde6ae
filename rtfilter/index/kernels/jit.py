"""The decorator of every kernel: compiled by numba, cached on disk, without the GIL."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

# numba's cache notices a changed file, but not a change in another file whose kernels were inlined.
# One digest over all kernels here is the stamp of each, so a cached kernel is never older than its parts; a
# kernel that lies elsewhere, as those of matchers do, may use these and others of its own file.
# numba looks at the stamp only after unpickling it beside the kernels' types, which fails where a class of an
# earlier version is gone; it looks at its own version before, so that is where the digest must be as well.
_DIGEST = hashlib.blake2b(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()


def kernel(function: F) -> F:
    """Compile `function` on first call (nopython, GIL released) and cache the machine code on disk."""
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    index: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp") and hasattr(index, "_version"):
        own = hashlib.blake2b(Path(function.__code__.co_filename).read_bytes()).hexdigest()
        index._source_stamp = _DIGEST + own
        index._version += _DIGEST + own
    result: F = compiled
    return result


class _Announcement(event.Listener):
    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("rtfilter."):
            self._say("compiling the kernels for this machine; takes up to a minute, once")
            self._say = lambda text: None

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def compilation_announced(say: Callable[[str], None]) -> Iterator[None]:
    """Call `say` once if kernels must be compiled meanwhile because no cached ones are there."""
    listener, events = _Announcement(say), cast(Any, event)
    events.register("numba:compile", listener)
    try:
        yield
    finally:
        events.unregister("numba:compile", listener)
