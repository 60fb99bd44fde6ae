"""Operations on mask words that numba cannot express: bit counts, vectors of `LANES` words, prefetching.

A vector stays in a register from the first row to the last; numba's own loops would store it after each.
LLVM picks the machine's widest instructions (one 512-bit register, or two or four narrower ones).
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rtfilter.kernels.layout import LANES

_I64 = ir.IntType(64)
_VECTOR = ir.VectorType(_I64, LANES)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _vector_at(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.bitcast(_pointer(context, builder, kind, array, index), _VECTOR.as_pointer())


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


#: Number of zero bits below the lowest set bit of a non-zero uint64.
trailing_zeros: Any = intrinsic(_trailing_zeros)


def _ones(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


#: Number of set bits of a uint64.
ones: Any = intrinsic(_ones)


def _intersect(typing_context: Any, masks: Any, rows: Any, count: Any, shift: Any, found: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        masks, rows, count, shift, found = arguments
        kinds = signature.args

        def row(i: Any) -> Any:
            at = builder.add(builder.load(_pointer(context, builder, kinds[1], rows, i)), shift)
            return builder.load(_vector_at(context, builder, kinds[0], masks, at), align=8)

        first = row(_I64(0))
        entry = builder.block
        test, again, done = (builder.append_basic_block(name) for name in ("test", "again", "done"))
        builder.branch(test)
        builder.position_at_end(test)
        i, both = builder.phi(_I64), builder.phi(_VECTOR)
        bits = ir.IntType(64 * LANES)
        left = builder.icmp_unsigned("!=", builder.bitcast(both, bits), bits(0))
        builder.cbranch(builder.and_(left, builder.icmp_signed("<", i, count)), again, done)
        builder.position_at_end(again)
        narrowed, following = builder.and_(both, row(i)), builder.add(i, _I64(1))
        builder.branch(test)
        i.add_incoming(_I64(1), entry)
        i.add_incoming(following, again)
        both.add_incoming(first, entry)
        both.add_incoming(narrowed, again)
        builder.position_at_end(done)
        builder.store(both, _vector_at(context, builder, kinds[4], found, shift), align=8)
        return left

    return types.boolean(masks, rows, types.int64, types.int64, found), generate


#: (masks, rows, count, shift, found): AND the words masks[rows[i] + shift :][:LANES] of the first `count` > 0
#: rows, ending early once none is left, into found[shift:][:LANES]. Returns whether any bit is left.
intersect: Any = intrinsic(_intersect)


def _not_in_both(
    typing_context: Any, masks: Any, one: Any, other: Any, shift: Any, found: Any, out: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        masks, one, other, shift, found, out = arguments
        kinds = signature.args

        def load(kind: Any, array: Any, index: Any) -> Any:
            return builder.load(_vector_at(context, builder, kind, array, index), align=8)

        both = builder.and_(
            load(kinds[0], masks, builder.add(one, shift)), load(kinds[0], masks, builder.add(other, shift))
        )
        rest = builder.and_(load(kinds[4], found, shift), builder.not_(both))
        builder.store(rest, _vector_at(context, builder, kinds[5], out, shift), align=8)
        lanes = builder.icmp_unsigned("!=", rest, ir.Constant(_VECTOR, [0] * LANES))
        return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), _I64)

    return types.uint64(masks, types.int64, types.int64, types.int64, found, out), generate


#: (masks, one, other, shift, found, out): the bits of found[shift:][:LANES] that are not set in both the rows
#: masks[one:] and masks[other:], into out[shift:]. Returns a bit for each of these words that is not zero.
not_in_both: Any = intrinsic(_not_in_both)


def _prefetch(typing_context: Any, masks: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.bitcast(
            _pointer(context, builder, signature.args[0], *arguments), ir.IntType(8).as_pointer()
        )
        number = ir.IntType(32)
        fetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [at.type], ir.FunctionType(ir.VoidType(), [at.type, number, number, number])
        )
        builder.call(fetch, [at, number(0), number(3), number(1)])  # to read; keep in all caches; data
        return context.get_dummy_value()

    return types.void(masks, types.int64), generate


#: (masks, index): ask the cache for the line of masks[index], without waiting for it.
prefetch: Any = intrinsic(_prefetch)
