"""Every public function and method with each argument in turn replaced by what it does not admit.

What comes must be a TypeError or a ValueError (an IndexError where NumPy raises one) that this package raised on
purpose and that names the argument; what is admitted is answered, or refused on purpose.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from inspect import isfunction, signature
from typing import Any

import numpy as np
import pytest
from sympy import Symbol

import tapestry_sets as ts
from tapestry_sets import (
    AffineMap,
    AliasGraph,
    AliasTensor,
    Box,
    BoxArray,
    CuteLayout,
    DisjointRegions,
    DisjointSetts,
    ImplicitRegion,
    IndexProjection,
    Intersection,
    Region,
    RegionArray,
    Reshaped,
    Sett,
    Stripe,
    StripeArray,
    View,
    allocate,
    draw,
    symbolic_allocate,
)
from tapestry_sets.integers.lazy import Filled, Sampled
from tapestry_sets.interop.symbolic import SymbolicView
from tapestry_sets.views.kinds.choosing import Slice
from tests.wrong_arguments import (
    WRONG,
    Admits,
    Row,
    ask,
    fault_of,
    faults_of,
    is_dtype,
    is_flag,
    is_integer,
    is_iterable,
    is_number,
    is_row,
)

# ------------------------------------------------------------------------------------------ one of each class

T = Sett(Stripe(1, 4))
S = Sett(Stripe(6, 1), Stripe(2, 1))
R = Region((4, 6), [Sett(), Stripe(1, 2)])
Q = Region.from_bounds((4, 6), (0, 0), (2, 3))
A = allocate((4, 6), name="A")
P = IndexProjection(AffineMap(((2, 0), (0, 1)), (0, 0)), (3, 1))
LINE = IndexProjection(AffineMap(((2,),), (-1,)), (3,))
N = Symbol("N", integer=True, positive=True)


def graph() -> AliasGraph:
    """A graph of two allocations, "a" and "b", and a view "c" of "a"."""
    made = AliasGraph()
    made.allocate((4, 6), name="a")
    made.allocate((2, 6), name="b")
    made["a"][::-1].rename("c")
    return made


MADE: dict[type, Callable[[], Any]] = {
    AffineMap: lambda: AffineMap(((2, 0), (0, -1)), (1, 5)),
    AliasGraph: graph,
    AliasTensor: lambda: graph()["b"],
    Box: lambda: Box((0, 0), (4, 6)),
    BoxArray: lambda: BoxArray([[0, 0], [2, 3]], [[3, 4], [2, 2]]),
    CuteLayout: lambda: CuteLayout((4, 8), (1, 4)),
    DisjointRegions: lambda: R & Region.full((4, 6)),
    DisjointSetts: lambda: S | T,
    Filled: lambda: S.fill(T),
    ImplicitRegion: lambda: ImplicitRegion((0, 0), (4, 6), "{ [i, j] : 0 <= i < 4 and 0 <= j < 6 and i + j < 5 }"),
    IndexProjection: lambda: P,
    Intersection: lambda: S & T,
    draw.Picture: lambda: draw.Picture("a", draw.show(T, stop=4).svg),
    Region: lambda: R,
    RegionArray: lambda: RegionArray((8, 8), [[0, 0], [1, 2]], [[8, 8], [8, 8]], [[2, 2], [2, 2]]),
    Reshaped: lambda: R.reshape((6, 4)).reshape((4, 6)),
    Sampled: lambda: S.sample(T),
    Sett: lambda: S,
    Stripe: lambda: Stripe(2, 3),
    StripeArray: lambda: StripeArray(1, [2, 4, 6], [0, 2, 1]),
    SymbolicView: lambda: symbolic_allocate((N, 4)),
    View: lambda: A[1:3],
}

# --------------------------------------------------------------------------------- one right call of each function

BOX = {"start": (0, 0), "shape": (4, 6)}
WITHIN = {"within": (0, 20)}
SET = {"other": T}
MEMBERS = {"other": Q}

CALLS: dict[str, Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]] = {
    # functions
    "allocate": {"shape": (4, 6), "name": "A", "dtype": "f4", "itemsize": 4, "color": 1},
    "as_view": {"x": A},
    "broadcast_arrays": {"views": (A, A[0])},
    "chunks": {"key": (1, slice(5)), "shape": (4, 6), "chunk_shape": (2, 3)},
    "concatenate": {"views": [A, A[1:]], "axis": 0},
    "contains": {"a": A, "b": A[1:]},
    "count_common": {"sets": (S, T), "start": 0, "stop": 30},
    "reshape_is_view": {"x": A, "shape": (A.size,), "order": "C"},
    "covers": {"views": [A[1:], A[:1]], "of": A},
    "distinct_count": {"view": symbolic_allocate((N, 4))},
    "fill_into": {"regions": [R, *(~R).members], "views": [A[:, ::3], A[:, :4]]},
    "first_common": {"sets": (S, T), "start": 0, "stop": 30},
    "from_cute": {"layout": "(4,3):(6,1)", "base": A, "offset": 1},
    "from_isl": {"x": "{ [i, j] : 0 <= i < 4 and 0 <= j < 6 and j mod 3 = 1 }", "within": (4, 6)},
    "from_mlir": {"text": "affine_map<(d0)[s0] -> (d0 + s0)>", "symbols": {"s0": 2}, "shape": (1,)},
    "has_internal_overlap": {"view": A},
    "hstack": {"views": [A, A]},
    "interleave": {"views": [A, A], "axis": 0},
    "internal_overlap": {"view": A},
    "is_contiguous": {"view": A, "order": "C"},
    "isdisjoint": {"sets": (S, T), "within": (0, 30)},
    "limits": {"max_pieces": 9, "budget": 10},
    "origins": {"view": A},
    "origins_table": {"views": (A, A[1:]), "names": ["A", "B"]},
    "overlap": {"a": A, "b": A[1:]},
    "overlap_condition": lambda _: {"a": symbolic_allocate((N, 4)), "b": symbolic_allocate((N, 4))},
    "overlap_count": lambda _: {"a": symbolic_allocate((N, 4)), "b": symbolic_allocate((N, 4))},
    "overlap_matrix": {"views": [A, A[1:]]},
    "overlap_sizes": {"views": [A, A[1:]]},
    "overlaps": {"a": A, "b": A[1:]},
    "pad": {"view": A, "widths": 1, "mode": "constant", "value": 0},
    "repeat": {"view": A, "count": 2, "axis": 0},
    "roll": {"view": A, "shift": 2, "axis": 0},
    "same_elements": {"a": A, "b": A[1:]},
    "shared_memory": {"arrays": [A, A[1:]]},
    "show_views": {"views": (A, A[1:]), "names": ["A", "B"], "mode": "grid", "wrap": 9, "title": "two"},
    "stack": {"views": [A, A], "axis": 0},
    "symbolic_allocate": {"shape": (N, 4), "name": "A"},
    "tile": {"view": A, "reps": (2, 1)},
    "to_cute": {"view": A},
    "to_isl": {"x": S},
    "to_mlir": {"projection": AffineMap.identity(2)},
    "vstack": {"views": [A, A]},
    "draw.box_picture": {"x": R, "title": "R"},
    "draw.levels_svg": {"levels": S, "start": 0, "stop": 14, "cell": 9, "title": "S"},
    "draw.levels_text": {"levels": S, "start": 0, "stop": 14},
    "draw.show": {"things": (S, T), "start": 0, "stop": 14, "names": ["S", "T"], "title": "two", "wrap": 9},
    "draw.show_levels": {"levels": S, "start": 0, "stop": 14, "title": "S"},
    "draw.text": {"sets": (S, T), "start": 0, "stop": 14, "axes": True, "wrap": 9},
    # constructors
    "AffineMap": {"matrix": ((2, 0), (0, -1)), "offset": (1, 5), "in_rank": 2},
    "Allocation": {"shape": (4, 6), "name": "A", "itemsize": 4, "color": 1},
    "Box": BOX,
    "BoxArray": {"start": [[0, 0], [2, 3]], "shape": [[3, 4], [2, 2]]},
    "CuteLayout": {"shape": (4, 8), "stride": (1, 4)},
    "DisjointRegions": {"shape": (4, 6), "members": [R], "start": (0, 0)},
    "DisjointSetts": {"members": [S]},
    "ImplicitRegion": {**BOX, "text": "{ [i, j] : 0 <= i < 4 and 0 <= j < 6 and i + j < 5 }"},
    "IndexProjection": {"map": AffineMap.identity(1), "shape": (3,), "splits": ()},
    "Intersection": {"operands": (S, T)},
    "Limits": {"max_pieces": 9, "budget": 10},
    "Picture": {"text": "a", "svg": "<svg/>", "narrow": "<svg/>"},
    "Picture.bundle": {"words": "a picture"},
    "Region": {"shape": (4, 6), "setts": [Sett(), Stripe(1, 2)], "start": (0, 0)},
    "RegionArray": {"shape": (8, 8), "low": [0, 0], "high": [8, 8]},
    "Reshaped": {"shape": (4, 6), "parts": [T]},
    "Sett": {"stripes": (Stripe(6, 1), Stripe(2, 1))},
    "Stripe": {"on": 1, "off": 2, "phase": 0},
    "StripeArray": {"on": 1, "period": [2, 4], "phase": [0, 1]},
    # affine maps, boxes and projections
    "AffineMap.identity": {"rank": 2},
    "AffineMap.permutation": {"axes": (1, 0)},
    "AffineMap.select": {"in_rank": 1, "terms": [(0, 2), None], "offset": [1, 7]},
    "AffineMap.apply": {"point": (3, 1)},
    "AffineMap.then": {"other": AffineMap.identity(2)},
    "Box.of": {"shape": (4, 6)},
    "Box.from_bounds": {"start": (0, 0), "stop": (4, 6)},
    "Box.__contains__": {"point": (1, 2)},
    "Box.contains": {"other": Box.of((2, 2))},
    "Box.intersect": {"other": Box.of((2, 2))},
    "Box.hull": {"other": Box.of((2, 2))},
    "Box.shift": {"offset": (1, 2)},
    "Box.to_region": {"within": (8, 8)},
    "IndexProjection.from_exprs": {"index": [N], "start": [2 * N], "shape": [3]},
    "IndexProjection.__call__": {"point": (1, 2)},
    "IndexProjection.marginal": {"axis": 1},
    "IndexProjection.from_relative_start": {
        "matrix": [[2]],
        "relative": [-1],
        "shape": [3],
        "extents": [4],
        "splits": (),
    },
    "IndexProjection.bound_adjustment": {"extents": (4, 6)},
    "IndexProjection.relative_start": {"extents": (4, 6)},
    "IndexProjection.reversed": {"axis": 0, "extent": 4},
    "IndexProjection.first_incoherence": {"extents": (9, 6)},
    "IndexProjection.image": {"selection": Box.of((2, 2)), "within": (8, 8)},
    "IndexProjection.images": {"boxes": [Box.of((2, 2))], "within": (8, 8)},
    "IndexProjection.bounding_box": {"box": Box.of((2, 2))},
    "IndexProjection.shared": {"one": Box.of((2, 2)), "other": Box.of((3, 3)), "within": (8, 8)},
    "IndexProjection.preimage": {"region": Box.of((2, 2)), "index": (8, 8)},
    "IndexProjection.then": {"other": P},
    # alias graphs
    "AliasGraph.allocate": {"shape": (4, 6), "name": "z", "dtype": "f4", "itemsize": 4, "color": 1},
    "AliasGraph.__getitem__": {"key": "a"},
    "AliasGraph.__contains__": {"key": "a"},
    "AliasGraph.grow": lambda g: {
        "wanted": ["z"],
        "inputs_of": lambda name: (),
        "make": lambda name, _: g.allocate((2,)),
    },
    "AliasGraph.aliases": {"tensor": "a"},
    "AliasGraph.to_allocation": {"tensor": "b", "color": 1},
    "AliasGraph.to_view": {"tensor": "c", "kind": Slice(((0, 4, None),)), "inputs": ("a",)},
    "AliasGraph.to_identity": {"tensor": "c", "source": "a"},
    "AliasGraph.recolor": {"tensor": "a", "color": 1},
    "AliasGraph.rename": {"tensor": "a", "name": "z"},
    "AliasGraph.clone": {"tensor": "a", "color": 1},
    "AliasGraph.pad": {"tensor": "a", "widths": 1, "color": 1, "shared": True},
    "AliasGraph.table": {"origins": True, "bitwise": True},
    "AliasGraph.to_json": {"indent": 1},
    "AliasGraph.from_json": {"text": graph().to_json()},
    "AliasTensor.apply": {"kind": Slice(((0, 1, None),)), "others": ()},
    "AliasTensor.clone": {"color": 1},
    "AliasTensor.to_allocation": {"color": 1},
    "AliasTensor.to_view": {"kind": Slice(((1, 3, None),)), "inputs": ("a",)},
    "AliasTensor.to_identity": lambda t: {"source": t.graph["a"][2:]},
    "AliasTensor.recolor": {"color": 1},
    "AliasTensor.rename": {"name": "z"},
    "AliasTensor.overlaps": lambda t: {"other": t.graph["a"]},
    "AliasTensor.overlap": lambda t: {"other": t.graph["a"]},
    "AliasTensor.contains": lambda t: {"other": t.graph["a"]},
    "AliasTensor.same_elements": lambda t: {"other": t.graph["a"]},
    "AliasTensor.is_contiguous": {"order": "C"},
    "AliasTensor.has_color": {"color": 1},
    # views
    "Viewable.__getitem__": {"key": (slice(1, None), 2)},
    "Viewable.reshape": {"shape": (3, 4)},
    "Viewable.permute_dims": {"axes": (1, 0)},
    "Viewable.transpose": {"axes": (1, 0)},
    "Viewable.swapaxes": {"axis1": 0, "axis2": 1},
    "Viewable.moveaxis": {"source": 0, "destination": 1},
    "Viewable.swizzle": {"bits": 1, "base": 0, "shift": 1},
    "Viewable.flip": {"axis": 0},
    "Viewable.rot90": {"k": 1, "axes": (0, 1)},
    "Viewable.squeeze": {"axis": ()},
    "Viewable.expand_dims": {"axis": 0},
    "Viewable.broadcast_to": {"shape": (3, 2, 6)},
    "Viewable.diagonal": {"offset": 0, "axis1": 0, "axis2": 1},
    "Viewable.sliding_windows": {"size": 1, "step": 1, "dilation": 1, "axis": 0},
    "Viewable.take": {"indices": [1, 0], "axis": 0},
    "Viewable.paged": {"table": [1, 0], "block": 1, "length": 2},
    "Viewable.ragged": {"lengths": [1, 1], "axis": 0},
    "Viewable.as_strided": {"shape": (2, 2), "strides": (1, 2), "offset": 0},
    "Viewable.tril": {"k": 0, "value": 0},
    "Viewable.triu": {"k": 0, "value": 0},
    "Viewable.unstack": {"axis": 0},
    "Viewable.split": {"sections": 2, "axis": 0},
    "Viewable.array_split": {"sections": 2, "axis": 0},
    "Viewable.sample": {"region": [Sett(), Stripe(1, 2)]},
    "Viewable.fill_into": lambda v: {
        "region": Region((2, 12), [Sett(), Stripe(1, 1)]),
        "into": ts.concatenate([v, v], 1),
    },
    "View.recolor": {"color": 1},
    "View.clone": {"color": 1},
    "View.apply": {"kind": Slice(((0, 1, None),)), "others": ()},
    "View.view_as": {"dtype": "u1"},
    "Questions.strided_form": {"fold": True},
    "Questions.contains": {"other": A},
    "Questions.same_elements": {"other": A},
    "Questions.same_view": {"other": A},
    "Questions.preimage": {"cells": R},
    "Questions.is_contiguous": {"order": "C"},
    "SymbolicView.at": {"values": {N: 3}},
    "SymbolicView.__getitem__": {"key": (slice(1, None), 2)},
    "SymbolicView.reshape": {"shape": (4, N)},
    "SymbolicView.permute_dims": {"axes": (1, 0)},
    "SymbolicView.flip": {"axis": 0},
    "SymbolicView.squeeze": {"axis": ()},
    "SymbolicView.expand_dims": {"axis": 0},
    "SymbolicView.broadcast_to": {"shape": (2, N, 4)},
    # sets of integers
    "Integers.__contains__": {"z": 3},
    "Sampled.__contains__": {"k": 3},
    "Integers.shift": {"k": 3},
    "Integers.reverse": {"pivot": 3},
    "Integers.scale": {"f": 3},
    "Integers.count": {"start": 0, "stop": 9},
    "Integers.rank": {"z": 9},
    "Integers.first": {"start": 0, "stop": 9},
    "Integers.find": {"start": 0},
    "Integers.nth": {"k": 3},
    "Integers.elements": {"start": 0, "stop": 9},
    "Integers.setts": WITHIN,
    "Integers.isdisjoint": SET | WITHIN,
    "Integers.first_common": {"other": T, "start": 0, "stop": 9},
    "Integers.count_common": {"other": T, "start": 0, "stop": 9},
    "Integers.issubset": SET | WITHIN,
    "Integers.same_points": SET | WITHIN,
    "Integers.intersection": SET | WITHIN,
    "Integers.union": SET | WITHIN,
    "Integers.difference": SET | WITHIN,
    "Integers.symmetric_difference": SET | WITHIN,
    "Integers.complement": WITHIN,
    "Integers.fill": {"ink": T},
    "Integers.sample": {"at": T},
    "Integers.split": {"period": 3},
    "Sett.interval": {"lo": 1, "hi": 3, "extent": 9},
    "Sett.runs": {"start": 1, "stop": 9},
    "Sett.merge": {"other": Sett(Stripe(1, 6, 5))},
    "Sett.strided": {"first": 1, "step": 2},
    "DisjointSetts.from_split": {"pairs": [(S, T)], "period": 5},
    "DisjointSetts.__getitem__": {"k": 0},
    "Stripe.__contains__": {"z": 3},
    "Stripe.count": {"start": 0, "stop": 9},
    "Stripe.find": {"start": 0},
    "Stripe.nth": {"k": 3},
    "Stripe.elements": {"start": 0, "stop": 9},
    "Stripe.shift": {"k": 3},
    # regions
    "Points.__contains__": {"point": (1, 2)},
    "Points.isdisjoint": MEMBERS,
    "Points.count_common": MEMBERS,
    "Points.first_common": MEMBERS,
    "Points.issubset": MEMBERS,
    "Points.same_points": MEMBERS,
    "Points.reshape": {"shape": (6, 4)},
    "Members.shift": {"offset": (1, 2)},
    "Members.transpose": {"perm": (1, 0)},
    "Members.flip": {"axes": 0},
    "Members.broadcast_to": {"shape": (2, 4, 6)},
    "Members.reduce_to": {"shape": (6,)},
    "Products.slice": {"slices": (slice(1, 3), 2)},
    "Products.sample": {"at": Q},
    "Products.fill": lambda r: {"ink": Region.full(r.members[0].counts)},
    "Region.fill": lambda r: {"ink": Region.full(r.counts)},
    "Products.fill_into": {"scaffold": Region((8, 12), [Stripe(1, 1), Stripe(1, 1)])},
    "Region.full": {"shape": (4, 6), "start": (0, 0)},
    "Region.empty": {"shape": (4, 6), "start": (0, 0)},
    "Region.from_bounds": {"shape": (4, 6), "lo": (0, 0), "hi": (2, 3), "start": (0, 0)},
    "Region.from_slices": {"shape": (4, 6), "slices": (slice(1, 3), 2), "start": (0, 0)},
    "Region.shift": {"offset": (1, 2)},
    "Region.transpose": {"perm": (1, 0)},
    "Region.flip": {"axes": 0},
    "Region.broadcast_to": {"shape": (2, 4, 6)},
    "Region.reduce_to": {"shape": (6,)},
    "DisjointRegions.full": {"shape": (4, 6), "start": (0, 0)},
    "DisjointRegions.__getitem__": {"k": 0},
    "ImplicitRegion.__contains__": {"point": (1, 2)},
    "ImplicitRegion.isdisjoint": MEMBERS,
    "ImplicitRegion.same_points": MEMBERS,
    "Reshaped.sample": {"at": Q},
    "Reshaped.fill_into": {"scaffold": Region((8, 12), [Stripe(1, 1), Stripe(1, 1)])},
    "Reshaped.slice": {"slices": (slice(1, 3), 2)},
    # batches
    "Batch.__getitem__": {"key": 0},
    "Batch.overlaps": lambda b: {"other": b},
    "Batch.isdisjoint": lambda b: {"other": b},
    "Batch.overlap_matrix": lambda b: {"other": b},
    "Batch.overlapping_pairs": lambda b: {"other": b},
    "BoxArray.of": {"boxes": [Box.of((4, 6))]},
    "BoxArray.intersection": lambda b: {"other": b},
    "BoxArray.count_common": lambda b: {"other": b},
    "BoxArray.first_common": lambda b: {"other": b},
    "RegionArray.of": {"regions": [R]},
    "RegionArray.of_stripes": {"shape": (9, 9), "axes": [[(0, 9, 2, 4, 0), (1, 7, 1, 3, 1)]]},
    "RegionArray.first_common": lambda b: {"other": b},
    "RegionArray.count_common": lambda b: {"other": b},
    "StripeArray.of": {"stripes": [Stripe(1, 2)]},
    "StripeArray.first_common": lambda b: {"other": b, "start": 0},
    "StripeArray.count_common": lambda b: {"other": b, "start": 0, "stop": 9},
    "StripeArray.count": {"start": 0, "stop": 9},
    # CuTe
    "CuteLayout.parse": {"text": "(4,8):(8,1)"},
    "CuteLayout.__call__": {"coordinate": (1, 2)},
    "CuteLayout.compose": {"other": CuteLayout(4, 2)},
    "CuteLayout.complement": {"extent": 64},
    "CuteLayout.divide": {"tiler": CuteLayout(4, 1)},
    "CuteLayout.multiply": {"other": CuteLayout(6, 1)},
}

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__sub__": operator.sub,
    "__xor__": operator.xor,
    "__le__": operator.le,
    "__ge__": operator.ge,
}

# ---------------------------------------------------------------------------------- what is admitted, what is exempt

INTEGERS, POINTS = (Stripe, ts.Integers), (Region, DisjointRegions, Reshaped)


def of(*classes: type) -> Admits:
    return lambda x: isinstance(x, classes)


def is_text(*words: str) -> Admits:
    return lambda x: isinstance(x, str) and x in words


def is_nested(x: Any) -> bool:
    """Whether it is an integer, or a tuple or list of such things."""
    return is_integer(x) or (isinstance(x, (tuple, list)) and all(map(is_nested, x)))


def is_tiler(x: Any) -> bool:
    return x is None or is_integer(x) or (isinstance(x, (tuple, list)) and all(map(is_tiler, x)))


def is_key(x: Any) -> bool:
    """Whether it may stand between brackets for an axis."""
    return is_integer(x) or isinstance(x, (slice, type(Ellipsis)))


def is_table(x: Any) -> bool:
    """Whether it is an array of integers of one axis or more, or lists for one."""
    if isinstance(x, np.ndarray):
        return x.ndim > 0 and (x.dtype.kind in "iu" or not x.size)
    return is_row(x, lambda y: is_integer(y) or is_table(y))


def is_size(x: Any) -> bool:
    """Whether it is a size that may be symbolic."""
    return is_integer(x) or hasattr(x, "free_symbols")


def is_subscript(x: Any) -> bool:
    return is_key(x) or x is None or is_table(x) or (isinstance(x, np.ndarray) and x.dtype.kind == "b")


KNOWN: dict[str, Admits] = {name: of(one) for name, one in vars(ts).items() if isinstance(one, type)} | {
    "BoxKey": lambda x: is_key(x) or (isinstance(x, tuple) and all(map(is_key, x))),
    "CacheKey": lambda x: x is None or is_key(x),
    "ChunkKey": is_subscript,
    "IntTuple": is_nested,
    "Key": is_subscript,
    "Operand": of(*INTEGERS),
    "Order": is_text("C", "F"),
    "PadMode": is_text("constant"),
    "Points": of(*POINTS),
    "Product": lambda x: is_row(x, of(*INTEGERS)),
    "Questions": of(View),
    "Self": of(),
    "SymbolicView": of(SymbolicView),
    "TensorRef": lambda x: is_integer(x) or isinstance(x, str),
    "Tiler": is_tiler,
    "V": of(View, AliasTensor),
    "ViewKind": of(),
    "Within": of(),
    "np.ndarray[Any, Any]": is_table,
    "shapes.BoxKey": lambda x: is_key(x) or (isinstance(x, tuple) and all(map(is_key, x))),
}


def is_memory(x: Any) -> bool:
    """Whether it is a view, an array that is not of objects, or something else with bytes to look at."""
    own = isinstance(x, (View, AliasTensor, bytes, np.generic))
    return own or (isinstance(x, np.ndarray) and not x.dtype.hasobject)


def is_column(x: Any) -> bool:
    """Whether NumPy makes integers of it."""
    try:
        array = np.asarray(x)
    except ValueError:
        return False
    exact = array.dtype == object and all(map(is_integer, array.flat))
    return array.dtype.kind in "iu" or not array.size or exact


ROWS = "Sequence[int]"
TWO = "contains overlap overlaps same_elements"
ONE = "has_internal_overlap internal_overlap is_contiguous origins"
MEMORY = {
    **{f"{name}.{side}": is_memory for name in TWO.split() for side in "ab"},
    **{f"{name}.view": is_memory for name in ONE.split()},
    "reshape_is_view.x": is_memory,
    "covers.of": lambda x: x is None or is_memory(x),
    **dict.fromkeys(("as_view.x", "origins_table.views", "show_views.views"), is_memory),
    **{f"{name}.views": lambda x: is_iterable(x, is_memory) for name in ("covers", "overlap_matrix", "overlap_sizes")},
}
COLUMNS = {
    "BoxArray": "start shape",
    "RegionArray": "low high step",
    "StripeArray": "on period phase",
    "StripeArray.count": "start stop",
    "StripeArray.count_common": "start stop",
    "StripeArray.first_common": "start",
}
ADMITTED: dict[str, str | Admits] = {
    **MEMORY,
    **{f"{key}.{name}": is_column for key, names in COLUMNS.items() for name in names.split()},
    "AffineMap.matrix": "Sequence[Sequence[int]]",
    "AffineMap.offset": ROWS,
    "Allocation.shape": ROWS,
    "Box.start": ROWS,
    "Box.shape": ROWS,
    "ImplicitRegion.start": ROWS,
    "ImplicitRegion.shape": ROWS,
    "AliasGraph.__contains__.key": lambda x: True,
    "RegionArray.of.xp": lambda x: x is np,
    "SymbolicView.broadcast_to.shape": lambda x: is_iterable(x, is_size),
    "pad.value": lambda x: (
        is_number(x) or is_row(x, is_number) or (isinstance(x, np.ndarray) and x.dtype.kind in "iuf")
    ),
    "shared_memory.arrays": lambda x: (
        is_iterable(x, is_memory) or (isinstance(x, dict) and all(map(is_memory, x.values())))
    ),
    "SymbolicView.reshape.shape": lambda x: is_size(x) or is_row(x, is_size),
    "symbolic_allocate.shape": lambda x: is_size(x) or is_iterable(x, is_size),
    "Batch.__getitem__.key": lambda x: is_subscript(x) or is_flag(x),
    "allocate.dtype": is_dtype,
    "AliasGraph.allocate.dtype": is_dtype,
    "View.view_as.dtype": is_dtype,
}
"""What parameters admit whose annotation does not say it: which are of NumPy's own, or of a struct."""

SAYS = {
    "base": "bits",
    "boxes": "Box",
    "regions": "Region",
    "stripes": "Stripe",
    "axis1": "axis",
    "axis2": "axis",
    "k": "member|element",
    "key": "index|indices",
    "matrix": "row",
    "sections": "indices",
    "setts": "Sett",
    "z": "element",
}
"""Other words by which messages name a parameter."""
ALSO_RAISED = (
    IndexError,
    LookupError,
    OverflowError,
    ts.TooHard,
    ts.TooManyPieces,
    ts.NonAffineSize,
    NotImplementedError,
)
"""Where NumPy raises an IndexError, and where a question is too hard."""
ANSWER = "an answer of this package; nobody gives its fields"
EXEMPT = {
    "AliasTensor": "a graph makes its tensors, by `allocate` and the words of views",
    "Coverage": ANSWER,
    "Decision": ANSWER,
    "Overlap": ANSWER,
    "ReshapeView": ANSWER,
    "Tally": ANSWER,
    "Tally.note": "called by the rungs of a ladder, with words of their own",
    "Tally.absorb": "called where a question inside another ends",
    "Tally.note_rung": "called where a ladder is climbed, with the rung that answered",
    "Tally.tell": "called where a question ends, with the time measured there",
    "Tally.settle": "called where a question ends, with a number counted there",
    "Witness": ANSWER,
    "Integers": "a base: its classes have the methods",
    "View": "a base: `allocate` and the words make views",
    "ViewKind": "a protocol, which users fill; `View.apply` refuses what does not",
    "NonAffineSize": "an error, which takes what every exception takes",
    "TooHard": "an error, which takes what every exception takes",
    "TooManyPieces": "an error, which takes what every exception takes",
    "Intersection.is_disjoint_within": "asked by `Integers.isdisjoint`, which checks the window and the other set",
    "Intersection.is_inside": "asked by `Integers.issubset`, which checks the window and the other set",
    "draw.align": "called by tables, with rows of their own",
    "draw.as_html": "called by tables, with rows of their own",
    "draw.mimebundle": "called by notebooks, with the set that they show",
    "draw.names_of": "called by pictures; `show` and `show_views` are asked here",
    "draw.number_repeats": "called by pictures; `show_views` is asked here",
    "draw.shorten": "called by pictures, with words of their own",
    "draw.summary": "called by repr, with the set that is shown",
    "draw.views_picture": "called by `show_views`, which is asked here, with views",
    "draw.yes_or_no": "called by tables, with questions of their own",
    "Allocation.memory": "no parameter: what makes the allocation another than one of the same fields",
    "Questions.strided_form.fold": "asked in every question of views; whatever counts as true means it",
    "ImplicitRegion.known_points": "an array of points, refused by shape and dtype; see the test below",
}
"""What is not walked, functions, methods and parameters, and why."""

# ----------------------------------------------------------------------------------------------------- the walk

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(ts, name) for name in ts.__all__},
    **{f"draw.{name}": each for name, each in vars(draw).items() if isfunction(each)},
}
OF_NO_ARGUMENTS = {name for name, each in FUNCTIONS.items() if name not in EXEMPT and not signature(each).parameters}
ASKED = ("__contains__", "__getitem__", "__call__")


def methods(one: type) -> Iterator[str]:
    """The public methods of a class of this package that take arguments, and of the others the operators."""
    for name in dir(one):
        owner = next(k for k in one.__mro__ if name in vars(k))
        function = getattr(vars(owner)[name], "__func__", vars(owner)[name])
        if (
            not isfunction(function)
            or not owner.__module__.startswith("tapestry")
            or EXEMPT.get(f"{owner.__name__}.{name}")
        ):
            continue
        is_public = not name.startswith("_") or name in ASKED
        if is_public and len(signature(function).parameters) > (not isinstance(vars(owner)[name], staticmethod)):
            yield name


def key_of(one: type, name: str) -> str:
    """The key of a method's row: the nearest class of its own, then those that it inherits from; else the method."""
    return next((key for k in one.__mro__ if (key := f"{k.__name__}.{name}") in CALLS), f"{one.__name__}.{name}")


SITES: dict[str, tuple[str, type | None]] = {
    name: (name, None) for name in sorted(FUNCTIONS.keys() - EXEMPT.keys() - OF_NO_ARGUMENTS)
}
SITES |= {f"{one.__name__}.{name}": (key_of(one, name), one) for one in MADE for name in methods(one)}
"""For each function, and each method of each class, the key of its row, and the class."""


def row_of(site: str) -> Row:
    """The right call of a function, or of a method of a new thing."""
    key, one = SITES[site]
    right, name = CALLS[key], site.split(".")[-1]
    found = FUNCTIONS[site] if one is None else inspect.getattr_static(one, name)
    parts = [word for word in ADMITTED if word.rpartition(".")[0] == key]
    row = {
        "takes": {word.rpartition(".")[2]: ADMITTED[word] for word in parts},
        "says": SAYS,
        "raises": ALSO_RAISED,
        "skips": {word.rpartition(".")[2] for word in EXEMPT if word.rpartition(".")[0] == key},
        "known": KNOWN,
        "by_type": True,
    }
    if one is None or isinstance(found, classmethod | staticmethod):
        call = FUNCTIONS[site] if one is None else getattr(one, name)
        return Row(call, lambda: dict(right(None) if callable(right) else right), **row)

    def given() -> dict[str, Any]:
        owner = MADE[one]()
        return {"self": owner, **(right(owner) if callable(right) else right)}

    return Row(found, given, **row)


@pytest.mark.parametrize("site", SITES)
def test_a_wrong_argument_is_refused_by_name(site: str) -> None:
    row = row_of(site)
    ask(row, row.given())
    assert not faults_of(site, row)


@pytest.mark.parametrize(
    ("one", "sign"), [(one, sign) for one in MADE for sign in OPERATORS if isfunction(getattr(one, sign, None))]
)
def test_a_wrong_operand_is_refused_by_its_type(one: type, sign: str) -> None:
    """By words of this package, or by those of Python and NumPy, which name the operator or the types."""
    mine = MADE[one]()
    for wrong in WRONG:
        pairs = [(mine, wrong)] if isinstance(wrong, np.ndarray | np.generic) else [(mine, wrong), (wrong, mine)]
        for left, right in pairs:
            with pytest.raises(TypeError) as caught:
                OPERATORS[sign](left, right)
            words = ("not supported between instances of ", "unsupported operand type(s)", "does not support ufuncs")
            if not any(one in str(caught.value) for one in words):
                fault = fault_of(caught.value, "other", re.escape(type(wrong).__name__))
                assert not fault, f"{sign} of {left!r:.40} and {right!r:.40}: {fault}"


def test_nothing_public_is_left_out() -> None:
    """A new function or method needs a row above, or a reason why it has none."""
    assert {key for key, _ in SITES.values()} == CALLS.keys()
    assert SITES.keys() | OF_NO_ARGUMENTS | EXEMPT.keys() >= FUNCTIONS.keys()
    asked = {each for name, each in FUNCTIONS.items() if isinstance(each, type) and name not in EXEMPT}
    assert {one.__name__ for one in asked if any(methods(one)) and one not in MADE} == {"Allocation"}  # a View
    assert len(SITES) > 350 and len(WRONG) > 35


def test_known_points_are_integers_of_the_rank() -> None:
    for wrong in (np.zeros((2, 3), int), np.zeros(2, int), np.zeros((2, 2)), [(0, 0)]):
        with pytest.raises((TypeError, ValueError), match="ImplicitRegion: known_points must be"):
            ImplicitRegion((0, 0), (4, 6), "{ [i, j] : false }", known_points=wrong)
