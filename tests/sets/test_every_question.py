"""Every public question is asked of hard values under an alarm: an answer, or a refusal on purpose, within seconds.

What the answers are, other tests say; here nothing may hang, run out of memory or die of an error that nobody
raised. The table names each public attribute of each class, and each exported function, or why it is not asked.
"""

from __future__ import annotations

import linecache
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from operator import attrgetter, methodcaller
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Symbol

import tapestry_sets as ts
from tapestry_sets import (
    AffineMap,
    AliasGraph,
    Allocation,
    Box,
    BoxArray,
    CuteLayout,
    DisjointRegions,
    DisjointSetts,
    ImplicitRegion,
    IndexProjection,
    Intersection,
    Overlap,
    Region,
    RegionArray,
    Reshaped,
    Sett,
    Stripe,
    StripeArray,
    View,
    allocate,
    overlap,
    pad,
    symbolic_allocate,
)
from tapestry_sets.integers.lazy import Filled, Sampled
from tapestry_sets.interop.symbolic import SymbolicView
from tests.strategies import view_pairs

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGVTALRM"), reason="needs interval timers to interrupt")

SECONDS = 4.0
"""Processor time after which a question is interrupted: 2 s are promised, the rest is for slow machines."""
ONE_IN = {"view": 120, "region": 12, "set": 30}
"""The default run asks one in so many pairs of question and values, 4 where none is given."""
Question = Callable[[Any, Any], Any]
"""Asks one value, or two values of one kind; the second may be the first."""


class TooSlow(BaseException):
    """The alarm; no question may catch it."""


def interrupt(number: int, frame: Any) -> None:
    raise TooSlow


def is_refusal(error: Exception) -> bool:
    """Whether the project raised an error on purpose, in words: no other may come out of a question."""
    if isinstance(error, ts.TooHard | ts.TooManyPieces | ts.NonAffineSize):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = "/tapestry_sets/" in last.filename
    meant = isinstance(error, ValueError | IndexError | TypeError | OverflowError) and len(str(error)) > 10
    lines = (linecache.getline(last.filename, n).strip() for n in range(last.lineno or 0, (last.end_lineno or 0) + 1))
    return own and meant and any(line.startswith("raise ") for line in lines)


def ask(question: Question, x: Any, y: Any) -> str:
    """Ask under the alarm; return what went wrong, or ""."""
    before = signal.signal(signal.SIGVTALRM, interrupt)
    began = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        question(x, y)
    except TooSlow:
        return f"interrupted after {time.process_time() - began:.1f} s"
    except (MemoryError, RecursionError) as error:
        return f"{type(error).__name__}"
    except Exception as error:
        if not is_refusal(error):
            return f"{type(error).__name__}: {error} (at {traceback.extract_tb(error.__traceback__)[-1]})"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return ""


# ------------------------------------------------------------------------------------------------ questions


def of_one(properties: str, methods: str = "") -> dict[str, Question]:
    """Return questions that need one value alone: attributes to read, and methods without arguments."""
    read = {name: (lambda x, y, get=attrgetter(name): get(x)) for name in properties.split()}
    called = {name: (lambda x, y, call=methodcaller(name): call(x)) for name in methods.split()}
    return {**read, **called}


def of_two(methods: str) -> dict[str, Question]:
    return {name: (lambda x, y, name=name: getattr(x, name)(y)) for name in methods.split()}


def far(rank: int) -> tuple[int, ...]:
    return (10**9,) * rank


def halves(x: Any) -> tuple[slice, ...]:
    return tuple(slice(lo, lo + (n + 1) // 2) for lo, n in zip(x.start, x.shape, strict=True))


FAR = 10**15
SET: dict[str, Question] = {
    **of_one("is_empty period", "simplify setts complement"),
    **of_two(
        "count_common difference fill intersection isdisjoint issubset same_points sample symmetric_difference union"
    ),
    "count": lambda s, t: (s.count(), s.count(-FAR, FAR)),
    "elements": lambda s, t: (s.elements(0, 1000), s.elements(0, FAR)),
    "find": lambda s, t: s.find(FAR),
    "first": lambda s, t: s.first(FAR, 2 * FAR),
    "first_common": lambda s, t: s.first_common(t, FAR),
    "nth": lambda s, t: s.nth(FAR),
    "rank": lambda s, t: s.rank(FAR),
    "reverse": lambda s, t: s.reverse(7),
    "scale": lambda s, t: s.scale(10**6),
    "shift": lambda s, t: s.shift(FAR),
    "split": lambda s, t: s.split(1001),
}
REGION: dict[str, Question] = {
    **of_one(
        "is_box is_empty is_full members rank regions shape size start", "bounds explicit flatten flip points transpose"
    ),
    **of_two("count_common fill fill_into first_common isdisjoint issubset same_points sample"),
    **of_one("counts setts spans progressions", "grids merge"),
    "broadcast_to": lambda r, q: r.broadcast_to((10**6, *r.shape)),
    "reduce_to": lambda r, q: r.reduce_to((*r.shape[:-1], 1)),
    "reshape": lambda r, q: r.reshape(-1).size,
    "shift": lambda r, q: r.shift(far(r.rank)),
    "slice": lambda r, q: r.slice(halves(r)),
}
VIEW: dict[str, Question] = {
    **of_one("allocations itemsize nbytes ndim rank shape size sources strides offset"),
    **of_one(
        "", "colors find_strided has_internal_overlap internal_overlap is_contiguous origins simplify strided_form"
    ),
    **of_two("contains same_elements same_view"),
    "preimage": lambda v, w: v.preimage(w.origins()),
}
CHANGES: dict[str, Question] = {
    **of_one("T mT", "flatten flip fliplr flipud matrix_transpose ravel rot90 squeeze transpose tril triu"),
    "unstack": lambda v, w: v[..., :5].unstack(-1),
    "array_split": lambda v, w: v.array_split(3),
    "as_strided": lambda v, w: v.as_strided((2, 2), (1, 1)),
    "broadcast_to": lambda v, w: v.broadcast_to((10**6, *v.shape)),
    "diagonal": lambda v, w: v.diagonal().size,
    "expand_dims": lambda v, w: v.expand_dims(0),
    "moveaxis": lambda v, w: v.moveaxis(0, -1),
    "paged": lambda v, w: v.paged([1, 0], block=1),
    "permute_dims": lambda v, w: v.permute_dims(tuple(reversed(range(v.rank)))),
    "ragged": lambda v, w: v.ragged([1, sum(v.shape[:1]) - 1]),
    "reshape": lambda v, w: v.reshape(-1),
    "sample": lambda v, w: v.sample(Region.from_slices(v.shape, (slice(0, 1),) * v.rank)),
    "sliding_windows": lambda v, w: v.sliding_windows(2, axis=0),
    "split": lambda v, w: v.split(1),
    "swapaxes": lambda v, w: v.swapaxes(0, -1),
    "swizzle": lambda v, w: v.swizzle(1, 0, 1),
    "take": lambda v, w: v.take([0, -1], axis=0),
    "fill_into": lambda v, w: v.fill_into(Region.full(v.shape), v),
    "view_as": lambda v, w: v.view_as("int8"),
}
"""Views of a view; each is asked whether it overlaps the second."""
VIEW.update({name: lambda v, w, change=change: overlaps_made(change(v, w), w) for name, change in CHANGES.items()})


def overlaps_made(made: Any, w: View) -> Any:
    return (
        [ts.overlaps(m, w) for m in made] if isinstance(made, list) else isinstance(made, View) and ts.overlaps(made, w)
    )


IMPLICIT: dict[str, Question] = {
    **of_one("is_empty rank size shape start", "bounds points to_isl"),
    **of_two("isdisjoint same_points"),
}
OVERLAP = of_one("a b allocations decisions found nbytes regions shared size witness witnesses", "explain")
COVERAGE = of_one("decisions exactly_once gap twice views", "explain")
MAP: dict[str, Question] = {
    **of_one("matrix offset in_rank out_rank is_identity", "terms"),
    **of_two("then"),
    "apply": lambda m, n: m.apply(far(m.in_rank)),
}


def unit(p: IndexProjection, extent: int = 10**9) -> Box:
    return Box.of((extent,) * p.index_rank)


PROJECTION: dict[str, Question] = {
    **of_one("index_rank is_separable map shape splits"),
    **of_two("then"),
    "bound_adjustment": lambda p, q: p.bound_adjustment(unit(p).shape),
    "bounding_box": lambda p, q: p.bounding_box(unit(p)),
    "first_incoherence": lambda p, q: p.first_incoherence(unit(p).shape),
    "image": lambda p, q: p.image(unit(p)).size,
    "images": lambda p, q: [found.size for found in p.images([unit(p, 5), unit(p)], far(len(p.shape)))],
    "marginal": lambda p, q: p.marginal(0),
    "preimage": lambda p, q: p.preimage(Box.of(far(len(p.shape))), unit(p)).size,
    "relative_start": lambda p, q: p.relative_start(unit(p).shape),
    "reversed": lambda p, q: p.reversed(0, 10**9),
    "shared": lambda p, q: p.shared(unit(p), unit(p, 1000)).size,
}
GRAPH: dict[str, Question] = {
    **of_one("", "all_aliases copy table to_json"),
    "aliases": lambda g, h: [g.aliases(t) for t in g],
    "from_json": lambda g, h: AliasGraph.from_json(g.to_json()),
}
SYMBOLIC: dict[str, Question] = {
    **of_one("T base rank shape size", "flip"),
    "at": lambda v, w: v.at({"N": 10**6}),
    "to_isl": lambda v, w: ts.from_isl(ts.to_isl(v)).shape,
    "broadcast_to": lambda v, w: v.broadcast_to((3, *v.shape)),
    "expand_dims": lambda v, w: v.expand_dims(0),
    "permute_dims": lambda v, w: v.permute_dims(tuple(reversed(range(v.rank)))),
    "reshape": lambda v, w: v.reshape(v.size),
    "squeeze": lambda v, w: v.expand_dims(0).squeeze(0),
    "distinct_count": lambda v, w: ts.distinct_count(v),
    "overlap_condition": lambda v, w: ts.overlap_condition(v, w),
    "overlap_count": lambda v, w: ts.overlap_count(v, w),
}
BATCH: dict[str, Question] = {
    **of_one("batch_shape is_empty rank size", "bounds"),
    **of_two("intersection isdisjoint overlap_matrix overlapping_pairs overlaps"),
    "count": lambda b, c: b.count(0, 10**6),
    "count_common": lambda b, c: b.count_common(c, 0, 10**6) if isinstance(b, StripeArray) else b.count_common(c),
    "count_matrix": lambda b, c: b.count_matrix(),
    "first_common": lambda b, c: b.first_common(c, 0) if isinstance(b, StripeArray) else b.first_common(c),
}
CUTE: dict[str, Question] = {
    **of_one("cosize leaves modes rank shape size stride"),
    **of_one("", "coalesce complement flatten left_inverse right_inverse"),
    **of_two("compose divide multiply"),
    "from_cute": lambda c, d: ts.from_cute(c).origins(),
    "to_cute": lambda c, d: ts.to_cute(ts.from_cute(c)),
}
SETT: dict[str, Question] = {
    **of_one("stripes written nest"),
    **of_two("merge"),
    "runs": lambda s, t: s.runs(0, 10**6),
    "strided": lambda s, t: s.strided(7, 1001),
    "from_isl": lambda s, t: ts.from_isl(ts.to_isl(s)),
}
SETS: dict[str, Question] = {  # exported functions of sets
    "set count_common": lambda s, t: (ts.count_common(s, t), ts.count_common(s, t, s)),
    "set first_common": lambda s, t: ts.first_common(s, t, s, start=FAR),
    "set isdisjoint": lambda s, t: ts.isdisjoint(s, t, s),
    "set to_isl": lambda s, t: ts.to_isl(s),
}
OF_ONE_VIEW = "has_internal_overlap internal_overlap origins is_contiguous as_view to_cute to_isl"
OF_TWO_VIEWS = "contains overlaps same_elements"
OF_MANY_VIEWS = "overlap_matrix overlap_sizes shared_memory"
VIEWS: dict[str, Question] = {  # exported functions of views
    name: (lambda v, w, name=name: getattr(ts, name)(v)) for name in OF_ONE_VIEW.split()
}
VIEWS |= {name: (lambda v, w, name=name: getattr(ts, name)(v, w)) for name in OF_TWO_VIEWS.split()}
VIEWS |= {name: (lambda v, w, name=name: getattr(ts, name)([v, w, v])) for name in OF_MANY_VIEWS.split()}
VIEWS |= {
    name: (lambda v, w, name=name: ts.overlaps(getattr(ts, name)([v, v]), w))
    for name in ["concatenate", "stack", "hstack", "vstack", "interleave"]
}
VIEWS |= {
    "overlap size": lambda v, w: ts.overlap(v, w).size,
    "overlap": lambda v, w: ts.overlap(v, w).witness,
    "covers": lambda v, w: bool(ts.covers([v, w], v)),
    "reshape_is_view": lambda v, w: ts.reshape_is_view(v, (-1, 1)),
    "origins_table": lambda v, w: str(ts.origins_table(v, w)),
    "show_views": lambda v, w: ts.show_views(v, w),
    "broadcast_arrays": lambda v, w: ts.broadcast_arrays(v, v),
    "pad": lambda v, w: ts.overlaps(pad(v, 1, "reflect"), w),
    "repeat": lambda v, w: ts.overlaps(ts.repeat(v, 3, 0), w),
    "roll": lambda v, w: ts.overlaps(ts.roll(v, 1), w),
    "tile": lambda v, w: ts.overlaps(ts.tile(v, 2), w),
    "fill_into": lambda v, w: ts.overlaps(ts.fill_into([Region.full(v.shape)], [v]), w),
    "chunks": lambda v, w: ts.chunks(tuple(slice(0, (n + 1) // 2) for n in v.shape), v.shape, v.shape),
}
TABLE: dict[str, dict[str, Question]] = {
    "set": SET | SETT | SETS,
    "region": REGION | {"to_isl": lambda r, q: ts.to_isl(r), "from_isl": lambda r, q: ts.from_isl(ts.to_isl(r), r)},
    "implicit": IMPLICIT,
    "view": VIEW | {f"function {name}": question for name, question in VIEWS.items()},
    "overlap": OVERLAP,
    "coverage": COVERAGE,
    "map": MAP | {"to_mlir": lambda m, n: ts.to_mlir(m)},
    "projection": PROJECTION | {"from_mlir": lambda p, q: ts.from_mlir(ts.to_mlir(p))},
    "graph": GRAPH,
    "symbolic": SYMBOLIC,
    "batch": BATCH,
    "cute": CUTE,
}

# --------------------------------------------------------------------------------------------- is it complete?

ASKED: dict[type, str] = {
    **dict.fromkeys((Sett, DisjointSetts, Intersection, Filled, Sampled), "set"),
    **dict.fromkeys((Region, DisjointRegions, Reshaped), "region"),
    **dict.fromkeys((View, Allocation), "view"),
    **dict.fromkeys((StripeArray, BoxArray, RegionArray), "batch"),
    ImplicitRegion: "implicit",
    Overlap: "overlap",
    ts.Coverage: "coverage",
    AffineMap: "map",
    IndexProjection: "projection",
    AliasGraph: "graph",
    SymbolicView: "symbolic",
    CuteLayout: "cute",
}
MAKERS = "empty full identity interval from_bounds from_slices of of_stripes parse permutation select from_split"
EDITS = "allocate clone grow pad recolor rename to_allocation to_identity to_view"
PARTS = "forms is_numbered members operands nests box deep high low on period phase row regions"
HELD = "memory cells outer ink inner at terms start stop shape of"
NOT_ASKED: dict[str, str] = {
    **dict.fromkeys(MAKERS.split(), "makes a value, in time that its arguments bound"),
    **dict.fromkeys(EDITS.split(), "edits a graph or a label"),
    **dict.fromkeys([*PARTS.split(), *HELD.split()], "hands out a part that the value holds"),
    **dict.fromkeys(["known_points", "known_size", "text", "color", "name"], "hands out a part"),
    **dict.fromkeys(["apply", "as_nest", "pieces", "strided_cells"], "what the project's own wings build on"),
    **dict.fromkeys(["is_disjoint_within", "is_inside"], "asked by isdisjoint, issubset and size"),
    **dict.fromkeys(["from_exprs", "from_relative_start"], "makes a value, in time that its arguments bound"),
}
CLASSES: dict[str, str] = {
    "AliasTensor": "a view within a graph: each question goes to its view",
    "Box": "a few comparisons an axis",
    "Integers": "the base of sets",
    "Decision": "numbers and words; a formula is written from what the count looked at",
    "Limits": "numbers alone",
    "ReshapeView": "a few comparisons an axis",
    "Picture": "text alone",
    "Stripe": "a set of one level: asked as a Sett",
    "Tally": "numbers alone",
    "ViewKind": "a protocol",
    "Witness": "a tuple",
    **dict.fromkeys(("NonAffineSize", "TooHard", "TooManyPieces"), "a refusal"),
}
FUNCTIONS = {
    **dict.fromkeys(("allocate", "symbolic_allocate"), "makes a value"),
    **dict.fromkeys(("limits", "tally"), "a context"),
}


def test_every_public_name_is_asked_or_says_why_not() -> None:
    functions = {name.split()[-1] for table in TABLE.values() for name in table}
    unasked = []
    for name in ts.__all__:
        value = getattr(ts, name)
        if not isinstance(value, type):
            if name not in functions and name not in FUNCTIONS:
                unasked.append(name)
        elif value not in ASKED and name not in CLASSES:
            unasked.append(name)
    for kind, group in ASKED.items():
        public = {name for name in dir(kind) if not name.startswith("_")}
        unasked += [f"{kind.__name__}.{name}" for name in public if name not in TABLE[group] and name not in NOT_ASKED]
    assert not unasked, "neither asked in a table here nor listed with a reason: " + ", ".join(sorted(unasked))


def test_the_table_names_nothing_that_is_gone() -> None:
    names = {name for kind in ASKED for name in dir(kind)} | set(ts.__all__)
    asked = {name.split()[-1] for table in TABLE.values() for name in table}
    assert asked - names == set()
    assert set(NOT_ASKED) <= names
    assert {*CLASSES, *FUNCTIONS} <= set(ts.__all__)


# ------------------------------------------------------------------------------------------------- hard values


def nested(*periods: int) -> Sett:
    return Sett(*(Stripe(p // 2, p - p // 2, k) for k, p in enumerate(periods)))


def sets() -> dict[str, Any]:
    deep, other = nested(1000003, 10007, 101), nested(999983, 9973, 103)
    many = DisjointSetts(Sett(Stripe(3, 1000003 - 3, 11 * k)) for k in range(300))
    few = DisjointSetts(Sett(Stripe(2, 999983 - 2, 13 * k)) for k in range(200))
    shallow = nested(30, 7)
    return {
        "three levels": deep,
        "other three levels": other,
        "short": shallow,
        "union of 300": many,
        "union of 200": few,
        "lazy intersection": Intersection((deep, other, many)),
        "filled": deep.fill(other),
        "sampled": deep.sample(many),
    }


def regions() -> dict[str, Any]:
    shape = (10**12, 10**6)
    one = Region(shape, (nested(1000003, 1009, 13), nested(1013, 17)))
    two = Region(shape, (nested(999983, 997, 11), nested(1019, 19)))
    many = DisjointRegions(
        shape, [Region.from_slices(shape, (slice(5 * k, 5 * k + 3), slice(k, k + 7))) for k in range(200)]
    )
    return {
        "nests": one,
        "other nests": two,
        "200 boxes": many,
        "reshaped": many.reshape(10**6, 10**12),
        "reshaped nests": one.reshape(10**9, 10**9),
    }


def views() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    root = allocate(10**6, "A")
    huge = allocate((10**12, 10**12), "B")
    pages = allocate((4000, 16, 8), "C")
    table = rng.permutation(4000)
    padded = allocate((10**6, 10**6), "D")
    return {
        "entangled": root.as_strided((20,) * 4, (9973, 7919, 6007, 5003)),
        "entangled too": root.as_strided((20,) * 4, (9967, 7907, 5987, 4999)),
        "axes of 10^12": huge[3::7, ::-5],
        "axes of 10^12, turned": huge.T[1::11, 2::3],
        "cut reshape": huge.reshape(10**24)[12345:-6789][::7],
        "cut reshape across": padded.reshape(10**12)[7:-3][: 999 * 10**9].reshape(10**9, 999)[:, 3:500],
        "twice padded": pad(pad(padded, 3, "reflect")[1:-2], 2, "wrap"),
        "twice padded, flipped": pad(pad(padded.flip(), ((1, 2), (3, 4)), "symmetric"), 5, "edge")[::3],
        "paged": pages[table[:1500]],
        "paged, other": pages[table[1400:3000]][:, ::2],
        "windows": root.sliding_windows(1000, 7)[:, ::3],
    }


def symbolic() -> dict[str, Any]:
    size = Symbol("N", positive=True, integer=True)
    n = symbolic_allocate((size,))
    two = symbolic_allocate((2 * size,))
    return {
        "part of a reshape": two.reshape(2, size)[1],
        "other part": two.reshape(2, size)[0],
        "strided": two[1::3],
        "reversed": two[::-1][:5],
        "plain": n,
    }


def maps() -> dict[str, Any]:
    return {
        "skewed": AffineMap(((10007, 101), (1, -3)), (5, 7)),
        "huge": AffineMap(((10**12, 10**9 + 7), (3, 10**15)), (0, -(10**18))),
        "turned": AffineMap(((0, 1), (1, 0)), (0, 0)),
    }


def projections() -> dict[str, Any]:
    found = {name: IndexProjection(m, (1000, 7)) for name, m in maps().items()}
    return found | {
        "split": IndexProjection(AffineMap(((7, 1, 0), (0, 5, 3)), (0, 0)), (3, 2), [(0, 1001)]),
        "sum": IndexProjection(AffineMap(((1009, 101, 11),), (0,)), (3,)),
    }


def graphs() -> dict[str, Any]:
    graph = AliasGraph()
    a = graph.allocate((1000, 1000), "a")
    last = a
    for k in range(60):
        last = last.T[k % 3 :: 2 if k % 20 == 0 else 1] if k % 2 else a.reshape(-1)[k:].reshape(-1, 1)
    return {"sixty tensors": graph}


def batches() -> dict[str, Any]:
    n = 300
    shape = (10**9, 10**6)
    stripe_regions = [Region(shape, (nested(1009 + 2 * k, 31), nested(101 + k))) for k in range(40)]
    return {
        "stripes": StripeArray.of([Stripe(k + 1, 10**6 + k, 7 * k) for k in range(n)]),
        "boxes": BoxArray.of([Box((k * 10**9, -k), (10**10, 3 + k)) for k in range(n)]),
        "regions": RegionArray.of(stripe_regions),
    }


def layouts() -> dict[str, Any]:
    texts = ("((4,8),(16,1000)):((1,128),(4,4096))", "(1000,1000):(1001,1)", "(64,64,64):(1,64,4096)")
    return {text: CuteLayout.parse(text) for text in texts}


def overlaps_of_views() -> dict[str, Any]:
    found = views()
    pairs = [("entangled", "entangled too"), ("paged", "paged, other"), ("axes of 10^12", "axes of 10^12, turned")]
    return {f"{a} and {b}": overlap(found[a], found[b]) for a, b in pairs}


def coverages() -> dict[str, Any]:
    found = views()
    pairs = [("entangled", "entangled too"), ("paged", "paged, other"), ("axes of 10^12", "axes of 10^12, turned")]
    whole = {f"{a} and {b}": ts.covers([found[a], found[b]]) for a, b in pairs}
    return whole | {f"{a} of {b}": ts.covers([found[a]], found[b]) for a, b in pairs}


def implicit() -> dict[str, Any]:
    found = {name: p.image(unit(p, 10**6)) for name, p in projections().items()}
    return {name: image for name, image in found.items() if isinstance(image, ImplicitRegion)}


VALUES: dict[str, Callable[[], dict[str, Any]]] = {
    "set": sets,
    "region": regions,
    "implicit": implicit,
    "view": views,
    "overlap": overlaps_of_views,
    "coverage": coverages,
    "map": maps,
    "projection": projections,
    "graph": graphs,
    "symbolic": symbolic,
    "batch": batches,
    "cute": layouts,
}


def has(value: Any, name: str) -> bool:
    """Whether a question is one of this value's class: regions and batches differ in a few."""
    own = TABLE[next(group for kind, group in ASKED.items() if isinstance(value, kind))]
    shared = any(hasattr(kind, name) for kind, group in ASKED.items() if TABLE[group] is own)
    return hasattr(type(value), name) or not shared


def asked_of(group: str, one_in: int) -> Iterator[str]:
    """Ask the questions of a group; yield what went wrong."""
    values = VALUES[group]()
    for name, question in TABLE[group].items():
        for a, x in values.items():
            for b, y in values.items():
                text = f"{group} {name}: {a}; {b}"
                if (type(x) is not type(y) and group == "batch") or not has(x, name) or crc32(text.encode()) % one_in:
                    continue
                if wrong := ask(question, x, y):
                    yield f"{text}: {wrong}"


@pytest.mark.heavy(2)
@pytest.mark.parametrize("group", TABLE)
def test_some_questions_of_hard_values_end(group: str) -> None:
    assert list(asked_of(group, ONE_IN.get(group, 4))) == []


@pytest.mark.heavy
@pytest.mark.parametrize("group", [group for group in TABLE if group not in ("view", "set")])
def test_every_question_of_hard_values_ends(group: str) -> None:
    """All but those of views and sets, which take many minutes."""
    assert list(asked_of(group, 1)) == []


@given(view_pairs(), st.sampled_from(sorted(TABLE["view"])))
def test_questions_of_random_views_end(pair: tuple[Any, ...], name: str) -> None:
    v, _, w, _, _ = pair
    assert ask(TABLE["view"][name], v, w) == ""


# -------------------------------------------------------------------------------------------------- named cases


def test_two_entangled_arrays_of_20_to_the_4_are_counted_or_refused() -> None:
    found = views()
    assert ask(lambda v, w: overlap(v, w).size, found["entangled"], found["entangled too"]) == ""


def test_indices_that_read_many_regions_are_told_or_refused() -> None:
    """Thousands of regions that are known to be disjoint: comparing each with each took 80 s."""
    found = views()
    (home,) = found["entangled"].allocations
    many = found["entangled too"].cells[home].regions()
    assert len(many.regions) > 1000
    assert ask(lambda v, regions: v.preimage(regions), found["entangled"], many) == ""


def two_thousand_boxes() -> tuple[DisjointRegions, np.ndarray]:
    """Boxes of some sizes, one in each tile of 10 x 10, and the same as a mask."""
    mask = np.zeros((450, 450), bool)
    keys = []
    for k in range(2000):
        i, j = 10 * (k // 45), 10 * (k % 45)
        keys.append((slice(i, i + 1 + k * 7 % 9), slice(j, j + 1 + k * 5 % 8)))
        mask[keys[-1]] = True
    return DisjointRegions(mask.shape, [Region.from_slices(mask.shape, key) for key in keys]), mask


def test_two_thousand_regions_are_taken_away_at_once() -> None:
    """What is left was compared with each of them, and parts that a projection makes were united one by one."""
    boxes, mask = two_thousand_boxes()
    window = IndexProjection(AffineMap(((2, 0), (0, 1)), (0, 0)), (3, 3))
    touched, reach = np.zeros((901, 452), bool), np.zeros((450, 450), bool)
    for h, w in np.ndindex(3, 3):
        touched[h : h + 900 : 2, w : w + 450] |= mask
        near = np.pad(mask, ((0, 453), (0, 3)))
        reach |= near[h : h + 900 : 2, w : w + 450]
    for question, wanted in (
        (lambda r, _: ~r, ~mask),
        (lambda r, _: window.image(r, touched.shape), touched),
        (lambda r, _: window.preimage(r, mask.shape), reach),
        (lambda r, _: r.reduce_to((1, 450)), mask.any(axis=0, keepdims=True)),
    ):
        found: list[DisjointRegions] = []
        assert ask(lambda r, _, question=question, found=found: found.append(question(r, None)), boxes, None) == ""
        assert np.array_equal(found[0].points(), np.argwhere(wanted))


def test_a_sett_of_three_levels_comes_back_from_isl_or_is_refused() -> None:
    for value in (nested(1000003, 10007, 101), nested(30, 7, 3), nested(1001, 91, 12)):
        assert ask(lambda s, t: ts.from_isl(ts.to_isl(s)), value, value) == ""


def test_a_cell_of_an_entangled_array_that_another_lacks_is_found() -> None:
    a, b = views()["entangled"], views()["entangled too"]
    held = set(cells_of(a).ravel().tolist())
    missing: list[Any] = []
    assert ask(lambda v, w: missing.append(ts.covers([v], w).gap), a, b) == ""
    (number,) = missing[0].cell
    assert number not in held
    assert number == cells_of(b)[missing[0].at]


def cells_of(view: View) -> np.ndarray[Any, Any]:
    """The cells that a view with strides reads, by NumPy."""
    assert view.strides is not None
    grids = np.ix_(*(by * np.arange(n) for n, by in zip(view.shape, view.strides, strict=True)))
    return np.asarray(sum(grids[1:], grids[0]))


def test_points_of_a_huge_reshaped_region_are_refused_before_they_are_listed() -> None:
    with pytest.raises(ts.TooManyPieces, match="numbers to look through"):
        regions()["reshaped nests"].points()
