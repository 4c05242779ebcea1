"""Block functions of all operators under CuPy's rules: on simulated devices they give NumPy's bits.

What CuPy refuses is refused there: implicit conversion to NumPy, NumPy operands, functions and keywords that it lacks,
structured dtypes, several values for one cell. Blocks that need more are declared `host_only`. Library functions
compute here as NumPy's do; how far CuPy's are off from these is seen on a GPU only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_exec.cuda.cublas import Handle
from tapestry_exec.cuda.gpus import Current
from tapestry_exec.cuda.namespace import Namespace
from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated.machine import CUDARuntimeError
from tapestry_plan import MONOIDS, Op, Shard
from tapestry_plan.ir import BUILTIN_OPS, States, merge_states
from tests.cutting import Case, cut_boxes, input_block, poisoned
from tests.exec.run.test_operators_sharded import FIRST
from tests.operator_cases import CASES, F_I_F

Array = NDArray[Any]
REFUSALS = (TypeError, ValueError, AttributeError, NotImplementedError, OrderingFault)
"""What a block gets that does what CuPy cannot."""


def inside(shape: Sequence[int]) -> tuple[Any, ...]:
    """The beginning of a larger array, so that blocks are strided."""
    return (..., *(slice(0, n) for n in shape))


def shards_of(op: Op, attrs: dict[str, Any], arrays: Sequence[Array], cut: dict[str, int]) -> list[Shard]:
    """The shards of a cut, without workspace."""
    signature = op.signature([array.shape for array in arrays], attrs)
    found = []
    for index in cut_boxes(signature, cut):
        boxes = tuple(signature.input_box(k, index) for k in range(len(arrays)))
        made = tuple(
            b for b in (signature.output_box(k, index) for k in range(len(signature.outputs))) if b is not None
        )
        found.append(Shard(index, signature, op.complete(attrs), boxes, made, None))
    return found


def on(xp: Any, op: Op, shard: Shard, arrays: Sequence[Array], capture: bool = False) -> list[Array]:
    """The output blocks of one shard, computed by a namespace; nothing beside them is written, no input changes."""
    outer = [input_block(shard.signature, k, shard.index, array)[1] for k, array in enumerate(arrays)]
    given = [None if b is None else xp.asarray(b.base)[inside(b.shape)] for b in outer]
    dtypes = [np.dtype(name) for name in op.dtype([array.dtype.name for array in arrays], shard.attrs)]
    around = [
        xp.asarray(poisoned([n + 1 for n in box.shape], dtype))
        for box, dtype in zip(shard.output_boxes, dtypes, strict=True)
    ]
    made = [whole[inside(box.shape)] for whole, box in zip(around, shard.output_boxes, strict=True)]
    room = xp.asarray(np.full(op.workspace(shard, dtypes[0].itemsize), 0xFF, np.uint8))
    told = Shard(shard.index, shard.signature, shard.attrs, shard.input_boxes, shard.output_boxes, room)
    if capture:
        captured(xp, lambda given_xp: op.block(given_xp, given, made, told))
    else:
        op.block(xp, given, made, told)
    host = (lambda x: x.copy()) if xp is np else xp.asnumpy
    for block, before in zip(given, outer, strict=True):
        if block is not None:
            np.testing.assert_array_equal(host(block), before, "a block function changed an input")
    for whole, box, dtype in zip(around, shard.output_boxes, dtypes, strict=True):
        beside = host(whole)
        beside[inside(box.shape)] = poisoned((), dtype)
        np.testing.assert_array_equal(beside, poisoned(beside.shape, dtype), "cells beside the output are written")
    return [host(block) for block in made]


def captured(xp: Any, issue: Callable[[Any], None]) -> None:
    """Capture work as a graph, and launch it; products are those that the backend gives to blocks."""
    xp.cuda.Device().synchronize()
    stream, pool = xp.cuda.Stream(non_blocking=True), xp.cuda.MemoryPool()
    handle = Handle(xp, stream, False)
    given = Namespace(xp, Current(), lambda: handle)
    with stream, xp.cuda.using_allocator(pool.malloc):
        stream.begin_capture()
        issue(given)
        stream.end_capture().launch(stream)
        stream.synchronize()


def same_bits(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


def cuts_of(case: Case) -> list[dict[str, int]]:
    axes = BUILTIN_OPS[case.op].signature(list(case.shapes), case.attrs).axes
    return [{}, {axis.name: min(2, axis.size) for axis in axes}]


MAX_SHARDS = 4
"""Of a cut, about so many shards are run, the first among them."""


def run_case(op: Op, case: Case, capture: bool = False) -> None:
    arrays = case.arrays(6)
    xp = simulated.cupy(1)
    for cut in cuts_of(case):
        shards = shards_of(op, case.attrs, arrays, cut)
        for shard in shards[:: max(1, len(shards) // MAX_SHARDS)]:
            found, wanted = on(xp, op, shard, arrays, capture), on(np, op, shard, arrays)
            if not capture:
                same_bits(found, wanted)
                continue
            for one, other in zip(found, wanted, strict=True):  # products are not NumPy's, but as good
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                np.testing.assert_allclose(one, other, rtol=2e-3 if one.dtype == np.float16 else 1e-5, atol=1e-6)


# -- built-in operators -------------------------------------------------------------------------------------


def repeated(op: str, how: str) -> Case:
    """A scatter that updates the same cells several times."""
    attrs = {"reduction": how} if how != "none" else {}
    if op == "scatter_nd":
        return Case(op, ((3, 4, 5), (9, 2), (9, 5)), attrs, dtypes=F_I_F, ranges={1: (0, 2)})
    return Case(op, ((3, 4, 5), (3, 9, 5), (3, 9, 5)), {"axis": 1, **attrs}, dtypes=F_I_F, ranges={1: (0, 3)})


MORE = [
    *(repeated(op, how) for op in ("put_along_axis", "scatter_nd") for how in ("none", "add", "mul", "max", "min")),
    Case("scatter_nd", ((3, 4), (2,), ()), {}, dtypes=F_I_F, ranges={1: (0, 2)}),
]


@pytest.mark.heavy(2)
@pytest.mark.parametrize("case", [*CASES, *MORE], ids=str)
def test_blocks_give_numpys_bits(case: Case) -> None:
    op = BUILTIN_OPS[case.op]
    if op.host_only:
        with pytest.raises(REFUSALS):
            run_case(op, case)
    else:
        run_case(op, case)


STATES = sorted(name for name, op in BUILTIN_OPS.items() if op.has_states)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", STATES)
def test_states_are_written_component_by_component(name: str, dtype: str) -> None:
    op = BUILTIN_OPS[name]
    x = np.random.default_rng(5).normal(size=(6, 7)).astype(dtype)
    attrs: dict[str, Any] = {"axis": 1, "keepdims": True}
    monoid = op.monoid
    assert monoid is not None
    kind = np.dtype(monoid.state_dtype(dtype))
    names = kind.names or ("f0",)
    xp = simulated.cupy(1)
    for shard in shards_of(op, attrs, [x], {axis.name: 2 for axis in op.signature([x.shape], attrs).axes}):
        ((outer, box),) = ((input_block(shard.signature, 0, shard.index, x)[1], shard.output_boxes[0]),)
        wanted = np.zeros(box.shape, kind)
        assert outer is not None
        op.block(np, [outer], [wanted], shard)
        parts = {key: xp.zeros(box.shape, (wanted[key] if kind.names else wanted).dtype) for key in names}
        op.block(xp, [xp.asarray(outer)], [States(kind, parts) if kind.names else parts["f0"]], shard)
        same_bits([parts[key].get() for key in names], [wanted[key] if kind.names else wanted for key in names])


def test_every_operator_is_run() -> None:
    assert {case.op for case in CASES} | set(STATES) == set(BUILTIN_OPS)


@pytest.mark.heavy(2)
def test_exactly_the_operators_that_cannot_run_are_declared_so() -> None:
    """Whoever declares a block that CuPy cannot run finds its name here, and says so with `host_only`."""

    def runs(case: Case) -> bool:
        try:
            run_case(BUILTIN_OPS[case.op], case)
        except REFUSALS:
            return False
        return True

    cannot = {case.op for case in FIRST if not runs(case)}
    assert cannot == {name for name, op in BUILTIN_OPS.items() if op.host_only} == {"opaque"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_blocks_write_where_their_output_lies_apart(case: Case) -> None:
    """In a larger buffer as in one of their own: `on` gives them the beginning of a larger one."""
    op, arrays = BUILTIN_OPS[case.op], case.arrays(6)
    for shard in shards_of(op, case.attrs, arrays, {}):
        given = [input_block(shard.signature, k, shard.index, array)[1] for k, array in enumerate(arrays)]
        dtypes = op.dtype([array.dtype.name for array in arrays], shard.attrs)
        made = [poisoned(box.shape, np.dtype(name)) for box, name in zip(shard.output_boxes, dtypes, strict=True)]
        room = np.full(op.workspace(shard, np.dtype(dtypes[0]).itemsize), 0xFF, np.uint8)
        told = Shard(shard.index, shard.signature, shard.attrs, shard.input_boxes, shard.output_boxes, room)
        op.block(np, given, made, told)
        for one, other in zip(on(np, op, shard, arrays), made, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-3 if one.dtype == np.float16 else 1e-5, atol=1e-6)


HOST_LOOKS = {"take", "take_along_axis", "gather_nd", "put_along_axis", "scatter_nd"}
"""Operators that look at their indices, which may be out of range, before they use them."""


@pytest.mark.parametrize("case", [case for case in CASES if not BUILTIN_OPS[case.op].host_only], ids=str)
def test_blocks_that_a_graph_holds(case: Case) -> None:
    """All but few are captured: those that wait for values; none brings tables to the device."""
    op = BUILTIN_OPS[case.op]
    try:
        run_case(op, case, capture=True)
    except CUDARuntimeError as error:
        assert case.op in HOST_LOOKS
        assert "cudaErrorStreamCaptureUnsupported: get waits for" in str(error)
    else:
        assert case.op not in HOST_LOOKS


# -- monoids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fan_in", [None, 2])
@pytest.mark.parametrize("lengths", [(1,), (5,), (3, 1, 8), (2, 2, 9, 4, 1)])
@pytest.mark.parametrize("name", sorted(MONOIDS))
def test_monoids_merge_to_numpys_bits(name: str, lengths: tuple[int, ...], fan_in: int | None) -> None:
    monoid, rng = MONOIDS[name], np.random.default_rng(7)
    parts = [rng.integers(-3, 4, (n, 4)).astype(bool if name in ("any", "all") else np.float32) for n in lengths]

    def merge(xp: Any) -> Any:
        states, first = [], 0
        for part in parts:
            index = xp.arange(first, first + len(part)).reshape(-1, 1)
            states.append(monoid.reduced(xp, xp.asarray(part), index))
            first += len(part)
        return monoid.unwrap(xp, merge_states(monoid, xp, states, fan_in), {})

    with np.errstate(all="ignore"):
        same_bits([merge(XP).get()], [np.asarray(merge(np))])


XP = simulated.cupy(1)


# -- what CuPy refuses --------------------------------------------------------------------------------------


def to_numpy(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][...] = xp.asarray(np.maximum(np.asarray(inputs[0]), 0))


def with_numpy_operand(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][...] = inputs[0] * np.ones(inputs[0].shape, np.float32)


def with_keyword(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    xp.maximum(inputs[0], 0, out=outputs[0], where=inputs[0] > 0)


def with_initial(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][...] = xp.max(inputs[0], initial=0)


def with_function(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][...] = xp.divmod(inputs[0], 2)[0] + xp.sort_complex(inputs[0])


def with_objects(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][...] = inputs[0].astype(object)


def with_fields(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][...] = xp.zeros(inputs[0].shape, "f4,f4")["f0"]


def with_repeated_cells(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][...] = inputs[0]
    outputs[0][xp.zeros(2, int)] = inputs[0][:2]


@pytest.mark.parametrize(
    ("block", "error", "message"),
    [
        (to_numpy, TypeError, "Implicit conversion to a NumPy array is not allowed"),
        (with_numpy_operand, TypeError, "Unsupported type <class 'numpy.ndarray'>"),
        (with_keyword, TypeError, r"Wrong arguments \['where'\]"),
        (with_initial, TypeError, r"max\(\) got an unexpected keyword argument 'initial'"),
        (with_function, AttributeError, "has no attribute"),
        (with_objects, ValueError, "Unsupported dtype object"),
        (with_fields, ValueError, "Unsupported dtype"),
        (with_repeated_cells, OrderingFault, "setitem sets cell 0 .* to several values in no certain order"),
    ],
)
def test_a_block_that_only_numpy_runs_is_found(block: Any, error: type[Exception], message: str) -> None:
    case = Case("relu", ((4, 3),))
    with pytest.raises(error, match=message):
        run_case(replace(BUILTIN_OPS["relu"], block=block), case)


def test_sums_into_repeated_cells_have_no_certain_order() -> None:
    """Some seed makes another sum of floats; of integers never."""
    values = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    sums, counts = set(), set()
    for seed in range(16):
        xp = simulated.cupy(1, seed)
        total, count = xp.zeros(1, np.float32), xp.zeros(1, np.int32)
        xp.add.at(total, xp.zeros(4, int), xp.asarray(values))
        xp.add.at(count, xp.zeros(4, int), xp.arange(4, dtype=np.int32))
        sums.add(float(total.get()[0]))
        counts.add(int(count.get()[0]))
    assert len(sums) > 1
    assert counts == {6}
