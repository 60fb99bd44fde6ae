"""Operations that numba lacks: bit counts, vectors of `LANES` words, comparisons of bytes, prefetching.

A vector stays in a register from the first row to the last; numba's own loops would store it after each.
LLVM uses the machine's widest instructions (one 512-bit register, or two or four narrower ones).
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rtfilter.index.kernels.layout import LANES

#: Vectors of a full leaf that was packed.
TOGETHER = 7

_I64 = ir.IntType(64)
_LANES = ir.IntType(LANES)
_VECTOR = ir.VectorType(_I64, LANES)
_BYTES = ir.VectorType(ir.IntType(8), 64)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _vector_at(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.bitcast(_pointer(context, builder, kind, array, index), _VECTOR.as_pointer())


def _nonzero(builder: Any, vector: Any) -> Any:
    """Return a bit for each word that is not zero: one instruction, where a full comparison takes twenty."""
    return builder.bitcast(builder.icmp_unsigned("!=", vector, ir.Constant(_VECTOR, [0] * LANES)), _LANES)


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


#: Number of zero bits below the lowest set bit of a uint64; 64 when there is none.
trailing_zeros: Any = intrinsic(_trailing_zeros)


def _ones(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


#: Number of set bits of a uint64.
ones: Any = intrinsic(_ones)


def _intersecting(vectors: int) -> Any:
    """Return `intersect` for `vectors` vectors at once."""

    def _intersect(
        typing_context: Any, masks: Any, rows: Any, sure: Any, count: Any, shift: Any, found: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            masks, rows, sure, count, shift, found = arguments
            kinds = signature.args

            def row(i: Any) -> list[Any]:
                at = builder.add(builder.load(_pointer(context, builder, kinds[1], rows, i)), shift)
                return [
                    builder.load(
                        _vector_at(context, builder, kinds[0], masks, builder.add(at, _I64(v * LANES))),
                        align=8,
                    )
                    for v in range(vectors)
                ]

            def some(parts: list[Any]) -> Any:
                total = parts[0]
                for part in parts[1:]:
                    total = builder.or_(total, part)
                return builder.icmp_unsigned("!=", _nonzero(builder, total), _LANES(0))

            def narrowed(parts: list[Any], i: Any) -> list[Any]:
                return [builder.and_(*pair) for pair in zip(parts, row(i), strict=True)]

            def merge() -> list[Any]:
                return [builder.phi(_VECTOR) for _ in range(vectors)]

            def enter(phis: list[Any], parts: list[Any], block: Any) -> None:
                for phi, part in zip(phis, parts, strict=True):
                    phi.add_incoming(part, block)

            first = row(_I64(0))
            entry = builder.block
            blind, narrow, test, again, done = (
                builder.append_basic_block(name) for name in ("blind", "narrow", "test", "again", "done")
            )
            builder.cbranch(some(first), blind, done)
            builder.position_at_end(blind)
            h, unseen = builder.phi(_I64), merge()
            builder.cbranch(builder.icmp_signed("<", h, sure), narrow, test)
            builder.position_at_end(narrow)
            fewer, after = narrowed(unseen, h), builder.add(h, _I64(1))
            builder.branch(blind)
            h.add_incoming(_I64(1), entry)
            h.add_incoming(after, narrow)
            enter(unseen, first, entry)
            enter(unseen, fewer, narrow)
            builder.position_at_end(test)
            i, seen = builder.phi(_I64), merge()
            left = some(seen)
            builder.cbranch(builder.and_(left, builder.icmp_signed("<", i, count)), again, done)
            builder.position_at_end(again)
            rest, following = narrowed(seen, i), builder.add(i, _I64(1))
            builder.branch(test)
            i.add_incoming(h, blind)
            i.add_incoming(following, again)
            enter(seen, unseen, blind)
            enter(seen, rest, again)
            builder.position_at_end(done)
            last, any_left = merge(), builder.phi(ir.IntType(1))
            enter(last, first, entry)
            enter(last, seen, test)
            any_left.add_incoming(ir.IntType(1)(0), entry)
            any_left.add_incoming(left, test)
            for v, part in enumerate(last):
                at = _vector_at(context, builder, kinds[5], found, builder.add(shift, _I64(v * LANES)))
                builder.store(part, at, align=8)
            return any_left

        return types.boolean(masks, rows, types.int64, types.int64, types.int64, found), generate

    return _intersect


#: (masks, rows, sure, count, shift, found): AND the words masks[rows[i] + shift :][:LANES] of the first
#: `count` > 0 rows into found[shift:][:LANES], all of the first `sure`, then on until none is left.
#: Returns whether any bit is left.
intersect: Any = intrinsic(_intersecting(1))

#: The same of `TOGETHER` vectors, until none is left in all of them: reads more, but guesses one end only.
intersect_together: Any = intrinsic(_intersecting(TOGETHER))


def _some_left(typing_context: Any, masks: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = builder.load(_vector_at(context, builder, signature.args[0], *arguments), align=8)
        return builder.icmp_unsigned("!=", _nonzero(builder, words), _LANES(0))

    return types.boolean(masks, types.int64), generate


#: (masks, index): whether any bit of masks[index:][:LANES] is set.
some_left: Any = intrinsic(_some_left)


def _not_in_both(typing_context: Any, masks: Any, one: Any, other: Any, shift: Any, found: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        masks, one, other, shift, found = arguments
        kinds = signature.args

        def load(kind: Any, array: Any, index: Any) -> Any:
            return builder.load(_vector_at(context, builder, kind, array, index), align=8)

        both = builder.and_(
            load(kinds[0], masks, builder.add(one, shift)), load(kinds[0], masks, builder.add(other, shift))
        )
        rest = builder.and_(load(kinds[4], found, shift), builder.not_(both))
        return builder.zext(_nonzero(builder, rest), _I64)

    return types.uint64(masks, types.int64, types.int64, types.int64, found), generate


#: (masks, one, other, shift, found): a bit for each of the words found[shift:][:LANES] that has bits which
#: are not in both of masks[one + shift:] and masks[other + shift:].
not_in_both: Any = intrinsic(_not_in_both)


def _compare(typing_context: Any, masks: Any, index: Any, code: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        masks, index, code = arguments
        at = builder.bitcast(_pointer(context, builder, signature.args[0], masks, index), _BYTES.as_pointer())
        codes = builder.load(at, align=8)
        one = builder.insert_element(
            ir.Constant(_BYTES, ir.Undefined), builder.trunc(code, ir.IntType(8)), _I64(0)
        )
        same = builder.shuffle_vector(
            one, ir.Constant(_BYTES, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        )
        above, equal = (
            builder.bitcast(builder.icmp_unsigned(sign, codes, same), _I64) for sign in (">", "==")
        )
        return context.make_tuple(builder, signature.return_type, [above, equal])

    both: Any = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]
    return both(masks, types.int64, types.int64), generate


#: (masks, index, code): the 64 bytes at masks[index:] compared with a byte: a bit for each that is greater,
#: and a bit for each that is equal.
compare: Any = intrinsic(_compare)


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
