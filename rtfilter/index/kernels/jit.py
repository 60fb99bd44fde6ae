"""The decorator of every kernel: numba compiles it, without the GIL, and caches it on disk.

A kernel is compiled in two ways. For callers in Python it becomes machine code, which is cached. For other
kernels it is a part: inserted into the code of its callers, and optimised there. numba itself would optimise
each part, make machine code of it, and add code that unpacks Python's arguments: this takes longer than
everything else, and would never run.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar, cast

from numba import types
from numba.core import sigutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from rtfilter.index.kernels import counts
from rtfilter.index.kernels.cache import cache_of

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function: F) -> F:
    """Compile `function` on first call (nopython, GIL released) and cache the machine code on disk."""
    return cast(F, Kernel(function, targetoptions=_OPTIONS))


def part(function: F) -> F:
    """Compile `function` for the kernels that call it. Python runs it uncompiled."""
    return cast(F, functools.wraps(function)(_Inner(function)))


def unwrapped(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function`, which calls kernels that return arrays, with interrupts raised unchanged.

    numba runs some Python code to return an array. It turns an exception of a signal handler in that code
    into a `SystemError`, which ``except Exception`` would catch; the interrupt is the cause of its causes.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except SystemError as error:
            cause: BaseException = error
            while isinstance(cause, SystemError) and cause.__cause__ is not None:
                cause = cause.__cause__
            if cause is error:
                raise
            raise cause from None

    return call


class _Inner:
    """A function that is compiled for kernels, but not for Python."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        options = _OPTIONS | {"no_cpython_wrapper": True}
        self._part = _Part(function, targetoptions=options, pipeline_class=_PartCompiler)

    @property
    def _numba_type_(self) -> Any:
        return self._part._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


class Kernel(CPUDispatcher):
    """A kernel, as Python calls it."""

    known: list[Kernel] = []  # noqa: RUF012
    """All imported kernels."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        parts = {**self.targetoptions, "no_cpython_wrapper": True}
        self.part = _Part(self.py_func, targetoptions=parts, pipeline_class=_PartCompiler)
        self._looked = False
        Kernel.known.append(self)

    @property
    def _numba_type_(self) -> Any:
        """The part that other kernels call."""
        return self.part._numba_type_

    def typeof_pyval(self, value: Any) -> Any:
        """Return the numba type of an argument of a new type."""
        # For this numba goes through a table that grows when another thread loads a kernel, and fails then.
        with global_compiler_lock:
            return super().typeof_pyval(value)

    def compile(self, signature: Any) -> Any:
        """Load or compile the kernel for arguments of these types; an interrupt ends only the wait for it."""
        # A finalizer may come here while this thread compiles something else: no other thread could, then.
        if threading.current_thread() is not threading.main_thread() or global_compiler_lock.is_locked():
            return self._compile(signature)
        # Signals come to the main thread, and an interrupted numba fails in all later calls.
        done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        threading.Thread(target=self._compile_for, args=(signature, done)).start()
        compiled, error = done.get()
        if error is not None:
            raise error
        return compiled

    def _compile_for(self, signature: Any, done: SimpleQueue[tuple[Any, BaseException | None]]) -> None:
        try:
            done.put((self._compile(signature), None))
        except BaseException as error:
            done.put((None, error))

    def _compile(self, signature: Any) -> Any:
        given, _ = sigutils.normalize_signature(signature)
        plain = tuple(map(_writable, given))
        if plain != given:
            entry = self._compile(plain)
            self._insert([kind._code for kind in given], entry, False)  # type: ignore[attr-defined]
            return entry
        with global_compiler_lock:  # a second thread waits here until the cache is set
            if not self._looked:  # not while importing: most kernels are only called by kernels
                found = cache_of(self.py_func)
                if found is not None:
                    self._cache = found
                self._looked = True
            counts.loads += 1
            known, missed = len(self.overloads), self._missed()
            entry = super().compile(signature)
            counts.compiled += self._missed() - missed
            if len(self.overloads) > known:
                for watch in tuple(counts.watchers):
                    watch()
        return entry

    def _missed(self) -> int:
        """Return how often no cache had the kernel."""
        return sum(self.stats.cache_misses.values())


class _Part(CPUDispatcher):
    """A kernel, as other kernels call it."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(map(_widest, args)), kws)


def _writable(kind: Any) -> Any:
    """Return the writable type for an array type: kernels do not write to their inputs."""
    return kind.copy(readonly=False) if isinstance(kind, types.Array) and not kind.mutable else kind


def _widest(kind: Any) -> Any:
    """Return int64 for all signed integers and constants, so that a part is not compiled for each."""
    plain: Any = getattr(kind, "literal_type", kind)
    whole = plain in (types.int8, types.int16, types.int32, types.int64)
    return types.int64 if whole else kind


class _PartCompiler(Compiler):
    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, _PartLibrary(target.codegen(), "part"), *rest)


class _PartLibrary(JITCodeLibrary):
    """Code of a part, which is not compiled to machine code."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironment(self._codegen)


class _WithoutEnvironment:
    """numba's code generator, without the search for a part's constants where there is no machine code."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass
