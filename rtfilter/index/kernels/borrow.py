"""Arrays that kernels use without counting references to them.

numba takes 2 us to look at the arrays of a tree in a call from Python, and counts, at 10 ns each, references
to every array in a tuple at each call of a kernel that branches, and to an array at each view of it: often
more than the work to be done. Nothing of this is needed for what the caller keeps alive.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

_I64 = ir.IntType(64)


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
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
    """Hands named tuples of arrays, like those of `example()`, to kernels called from Python.

    Such a kernel gets `addresses(arrays)` and calls `opened` on them. It returns none of the arrays; the
    caller keeps them alive.
    """

    def __init__(self, example: Callable[[], tuple[NDArray[Any], ...]]) -> None:
        self._example = cache(example)
        self.opened: Any = intrinsic(self._opened)

    def addresses(self, arrays: tuple[NDArray[Any], ...]) -> NDArray[np.int64]:
        """Where arrays lie and how long they are, int64. TypeError if kernels expect others."""
        numbers = []
        for array, example in zip(arrays, self._example(), strict=True):
            if array.dtype != example.dtype or array.ndim != example.ndim or not array.flags.carray:
                raise TypeError(
                    f"kernels take writable, contiguous arrays of {example.dtype} with {example.ndim} axes, "
                    f"not {array.dtype} of shape {array.shape}"
                )
            numbers += [array.__array_interface__["data"][0], *array.shape]
        return np.array(numbers, np.int64)

    def _opened(self, typing_context: Any, where: Any) -> Any:
        typeof: Any = numba.typeof
        kind = typeof(self._example())
        return kind(where), partial(_open, kind)


def _open(kind: Any, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The tuple of arrays at some `addresses`."""
    numbers = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    rows = iter(range(sum(1 + part.ndim for part in kind.types)))

    def following() -> Any:
        return builder.load(builder.gep(numbers, [_I64(next(rows))]))

    arrays = []
    for part in kind.types:
        array = context.make_array(part)(context, builder)
        data, shape = builder.inttoptr(following(), array.data.type), [following() for _ in range(part.ndim)]
        size = _I64(part.dtype.size if isinstance(part.dtype, types.Record) else part.dtype.bitwidth // 8)
        strides = [size]
        for side in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], side))
        populate: Any = populate_array
        populate(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
        arrays.append(array._getvalue())
    return context.make_tuple(builder, kind, arrays)
