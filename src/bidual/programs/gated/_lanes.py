"""Vectors of numbers inside compiled code: one instruction for sixteen outputs of a row.

LLVM does not keep a row of accumulators in registers by itself (it cannot know that arrays do not overlap), which costs
a factor of five. These few intrinsics name the registers; LLVM maps them to whatever the processor has.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model

#: Numbers in one vector.
LANES = 16


class Lanes(types.Type):
    """A vector of :data:`LANES` numbers of one type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        scalar = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}[lanes.dtype]
        super().__init__(manager, lanes, ir.VectorType(scalar, LANES))


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """The vector at ``index`` of a flat array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = context.get_value_type(signature.return_type)
        address = _address(context, builder, signature.args[0], args[0], args[1])
        value = builder.load(builder.bitcast(address, vector.as_pointer()))
        value.align = array.dtype.bitwidth // 8
        return value

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a vector to ``index`` of a flat array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = context.get_value_type(signature.args[2])
        address = _address(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(address, vector.as_pointer())).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def zeros(typing: Any, array: Any) -> Any:
    """A vector of zeros of the type of ``array``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = context.get_value_type(signature.return_type)
        return ir.Constant(vector, [0.0] * LANES)

    return Lanes(array.dtype)(array), generate


@intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """``a + b``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(args[0], args[1])

    return a(a, b), generate


@intrinsic
def scaled(typing: Any, array: Any, index: Any, vector: Any, total: Any) -> Any:
    """``array[index] * vector + total``, fused where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        number = builder.load(_address(context, builder, signature.args[0], args[0], args[1]))
        i32, undefined = ir.IntType(32), ir.Constant(kind, ir.Undefined)
        first = builder.insert_element(undefined, number, ir.Constant(i32, 0))
        everywhere = ir.Constant(ir.VectorType(i32, LANES), [0] * LANES)
        spread = builder.shuffle_vector(first, undefined, everywhere)
        product = builder.fmul(spread, args[2], flags=("contract",))
        return builder.fadd(product, args[3], flags=("contract",))

    return total(array, types.intp, vector, total), generate


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of ``array[index]``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i8, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(_address(context, builder, signature.args[0], args[0], args[1]), i8)
        kind = ir.FunctionType(ir.VoidType(), [i8, i32, i32, i32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [i8], kind)
        builder.call(fetch, [address, *(ir.Constant(i32, k) for k in (0, 3, 1))])  # to read, and keep: data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate
