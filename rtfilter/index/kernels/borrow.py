"""Arrays that kernels use without counting references to them.

In a call from Python, numba takes 2 us to read the arrays of a tree. At 10 ns each, it also counts references
to every array in a tuple at each call of a kernel that branches, and to an array at each view of it: often
more than the work itself. None of this is necessary for arrays that the caller keeps alive.
"""

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

_I64 = ir.IntType(64)


class Opened(types.Type):
    """A named tuple of arrays as addresses and lengths: smaller than arrays, without reference counts."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(name=f"Opened({kind.name})")


@register_model(Opened)
class _Model(models.StructModel):
    def __init__(self, manager: Any, opened: Any) -> None:
        members: list[Any] = []
        for name, part in zip(opened.kind.fields, opened.kind.types, strict=True):
            members.append((name, types.CPointer(part.dtype)))
            members += [(f"{name}.{axis}", types.int64) for axis in range(part.ndim)]
        super().__init__(manager, opened, members)


@infer_getattr
class _Fields(AttributeTemplate):
    key = Opened

    def generic_resolve(self, opened: Any, name: str) -> Any:  # type: ignore[override]
        return dict(zip(opened.kind.fields, opened.kind.types, strict=True)).get(name)


@lower_getattr_generic(Opened)
def _field(context: Any, builder: Any, opened: Any, value: Any, name: str) -> Any:
    """Return an array of the opened tree, without counting a reference to it."""
    part = opened.kind.types[opened.kind.fields.index(name)]
    parts = cgutils.create_struct_proxy(opened)(context, builder, value)
    shape = [getattr(parts, f"{name}.{axis}") for axis in range(part.ndim)]
    size = _I64(part.dtype.size if isinstance(part.dtype, types.Record) else part.dtype.bitwidth // 8)
    strides = [size]
    for side in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], side))
    array, populate = context.make_array(part)(context, builder), cast(Any, populate_array)
    data = getattr(parts, name)
    populate(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return array._getvalue()


@unbox(Opened)
def _unboxed(opened: Any, given: Any, c: Any) -> Any:
    """Unbox the named tuple of a caller in Python, which keeps its arrays alive."""
    parts = cgutils.create_struct_proxy(opened)(c.context, c.builder)
    failed = cgutils.false_bit
    for place, (name, part) in enumerate(zip(opened.kind.fields, opened.kind.types, strict=True)):
        found = c.unbox(part, c.pyapi.tuple_getitem(given, place))
        array = c.context.make_array(part)(c.context, c.builder, found.value)
        setattr(parts, name, array.data)
        for axis in range(part.ndim):
            setattr(parts, f"{name}.{axis}", c.builder.extract_value(array.shape, axis))
        c.context.nrt.decref(c.builder, part, found.value)
        failed = c.builder.or_(failed, found.is_error)
    return NativeValue(parts._getvalue(), is_error=failed)


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, Opened):
        return value
    if hasattr(kind, "types"):
        parts = [
            _uncounted(context, builder, part, builder.extract_value(value, i))
            for i, part in enumerate(kind.types)
        ]
        return context.make_tuple(builder, kind, parts)
    array = context.make_array(kind)(context, builder, value)
    array.meminfo, array.parent = (ir.Constant(old.type, None) for old in (array.meminfo, array.parent))
    return array._getvalue()


def _borrowed(typing_context: Any, arrays: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _uncounted(context, builder, arrays, arguments[0])

    return arrays(arrays), generate


#: (array, or tuple of such): the same, uncounted. For arguments of a kernel, not to be returned by it.
borrowed: Any = intrinsic(_borrowed)


class ByAddress:
    """Passes named tuples of arrays, like those of `example()`, to kernels called from Python.

    Such a kernel gets `addresses(arrays)` and calls `opened` on them. It returns none of the arrays; the
    caller keeps them alive. After the first call of `addresses`, a kernel that gets the named tuple itself
    reads it in the same way; numba then takes 2 us.
    """

    def __init__(self, example: Callable[[], tuple[NDArray[Any], ...]]) -> None:
        self._example = example
        self._held: tuple[tuple[NDArray[Any], ...], Opened] | None = None
        self.opened: Any = intrinsic(self._opened)

    def _examples(self) -> tuple[tuple[NDArray[Any], ...], Opened]:
        """Create the arrays and their type once."""
        if self._held is None:
            with global_compiler_lock:  # a thread that loads a kernel reads numba's table of types
                if self._held is None:
                    self._held = self._known(self._example())
        return self._held

    def _known(self, example: tuple[NDArray[Any], ...]) -> tuple[tuple[NDArray[Any], ...], Opened]:
        typeof: Any = numba.typeof
        kind = Opened(typeof(example))

        @typeof_impl.register(type(example))
        def opened_also_from_python(value: Any, context: Any) -> Opened:
            self.addresses(value)  # raises where kernels expect others
            return kind

        return example, kind

    def addresses(self, arrays: tuple[NDArray[Any], ...]) -> NDArray[np.int64]:
        """Return the addresses and lengths of arrays, int64. Raises `TypeError` for arrays of other types."""
        numbers = []
        for array, example in zip(arrays, self._examples()[0], strict=True):
            if array.dtype != example.dtype or array.ndim != example.ndim or not array.flags.carray:
                raise TypeError(
                    f"kernels take writable, contiguous arrays of {example.dtype} with {example.ndim} axes, "
                    f"not {array.dtype} of shape {array.shape}"
                )
            numbers += [array.__array_interface__["data"][0], *array.shape]
        return np.array(numbers, np.int64)

    def _opened(self, typing_context: Any, where: Any) -> Any:
        return self._examples()[1](where), _open


def _open(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Return the arrays at some `addresses`."""
    kind = signature.return_type.kind
    numbers = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    rows = iter(range(sum(1 + part.ndim for part in kind.types)))

    def following() -> Any:
        return builder.load(builder.gep(numbers, [_I64(next(rows))]))

    opened = cgutils.create_struct_proxy(signature.return_type)(context, builder)
    for name, part in zip(kind.fields, kind.types, strict=True):
        setattr(opened, name, builder.inttoptr(following(), getattr(opened, name).type))
        for axis in range(part.ndim):
            setattr(opened, f"{name}.{axis}", following())
    return opened._getvalue()
