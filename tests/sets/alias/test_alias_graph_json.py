"""The JSON form of alias graphs: it gives the graph back, and wrong documents are refused with the place."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    AffineMap,
    AliasGraph,
    concatenate,
)
from tapestry_sets.views import (
    Flip,
    IndexMap,
    Piece,
)
from tests.edited_graphs import Play, check


@given(st.data())
def test_json_gives_the_graph_back(data: st.DataObject) -> None:
    play = Play(data.draw)
    for _ in range(data.draw(st.integers(0, 8))):
        play.add()
    play.to_view()
    g = play.g
    for t in g:
        if data.draw(st.booleans()):
            t.rename(f't{t.id} Ω"')
    text = g.to_json(indent=data.draw(st.none() | st.integers(0, 2)))
    back = AliasGraph.from_json(text)
    assert back == g and [t.name for t in back] == [t.name for t in g]
    assert back.to_json() == AliasGraph.from_json(text.encode()).to_json()
    check(back, play.model)


# ---------------------------------------------------------------------------------------------------------- JSON


def example() -> AliasGraph:
    g = AliasGraph()
    a = g.allocate((4, 6), name="a", color=("weights", 1, (True, None, 2.5)), dtype="float32")
    b = g.allocate((4, 6), name="b", itemsize=4)
    concatenate([a, b], 1)[1:, ::-2].rename("c")
    b.to_view(Flip((0,)), a)
    return g


def test_json_keeps_the_types_of_colors() -> None:
    g = AliasGraph()
    colors: list[Hashable] = [0, 1, True, 1.0, "1", None, (), ("a", (1, False)), 10**30, -0.5, "ß"]
    for color in colors:
        g.allocate((1,), color=color)
    back = AliasGraph.from_json(g.to_json())
    assert [(type(t.color), t.color) for t in back] == [(type(c), c) for c in colors]


class Halved:
    """Every second cell of a line: a kind from outside, without fields or equality."""

    def out_shape(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return ((shapes[0][0] + 1) // 2,)

    def pieces(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Piece, ...]:
        return (Piece(0, (), IndexMap((AffineMap(((2,),), (0,)),))),)


def test_a_kind_from_outside_works_and_is_written_as_its_pieces() -> None:
    g = AliasGraph()
    a, b = g.allocate((7,), name="a"), g.allocate((4,), name="b", color=1)
    even = a.apply(Halved())
    assert even.same_elements(a[::2]) and not even.overlaps(a[1::2])
    assert repr(even) == "AliasTensor(2: Halved() of 0, shape (4,))"
    b.to_view(Halved(), a)
    assert b.same_elements(even) and [t.id for t in b.aliases()] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"has shape \(4,\) and 1 bytes a cell, but Halved\(\) of \[2\] has \(2,\)"):
        b.to_view(Halved(), even)
    back = AliasGraph.from_json(g.to_json())
    assert back != g and back.to_json() == g.to_json()
    assert [t.view.pieces for t in back] == [t.view.pieces for t in g]
    assert [[u.id for u in t.aliases()] for t in back] == [[u.id for u in t.aliases()] for t in g]


@pytest.mark.parametrize("color", [frozenset({1}), float("nan"), float("inf"), ("a", b"b"), np.int64(3)])
def test_a_color_without_a_json_form_is_named(color: Hashable) -> None:
    g = AliasGraph()
    g.allocate((1,))
    g.allocate((1,), color=color)
    with pytest.raises(TypeError, match=r"nodes\[1\]\.color(\[1\])?: .* has no JSON form; use None, strings"):
        g.to_json()


def at(*path: Any, value: Any = ..., drop: bool = False) -> Callable[[dict[str, Any]], None]:
    """A change of one place of a document."""

    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for step in path[:-1]:
            inner = inner[step]
        if drop:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value

    return change


SPOILT: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (at("format", value="tapestry-graph"), r"format is 'tapestry-graph', .* reads 'tapestry-alias-graph/3'; write"),
    (at("format", value="tapestry-alias-graph"), r"format is 'tapestry-alias-graph', .* anew with AliasGraph.to_json"),
    (at("format", drop=True), r"format is None, this version reads"),
    (at("more", value=1), r"unknown field `more`; write the graph anew"),
    (at("nodes", drop=True), r"missing required field `nodes`"),
    (at("nodes", value={}), r"Expected `array`, got `object` - at `\$\.nodes`"),
    (at("nodes", 0, value=3), r"Expected `object`, got `int` - at `\$\.nodes\[0\]`, which is 3"),
    (at("nodes", 0, "shape", value="4"), r"^nodes\[0\]: Expected `array`, got `str` - at `\$\.shape`, which is '4'"),
    (at("nodes", 0, "shape", 1, value=-1), r"^nodes\[0\]: Expected `int` >= 0 - at `\$\.shape\[1\]`, which is -1"),
    (at("nodes", 0, "shape", 1, value=6.0), r"^nodes\[0\]: .* got `float` - at `\$\.shape\[1\]`, which is 6.0"),
    (at("nodes", 0, "shape", 1, value=True), r"^nodes\[0\]: .* got `bool` - at `\$\.shape\[1\]`, which is True"),
    (at("nodes", 0, "itemsize", value=0), r"^nodes\[0\]: Expected `int` >= 1 - at `\$\.itemsize`, which is 0"),
    (at("nodes", 0, "color", value=[{}]), r"^nodes\[0\]\.color\[0\]: must be null, a string.*, not {}"),
    (at("nodes", 0, "color", drop=True), r"^nodes\[0\]: .*missing required field `color`"),
    (at("nodes", 0, "dtype", value="float32"), r"^nodes\[0\]: .*unknown field `dtype`"),
    (at("nodes", 0, "name", value=None), r"^nodes\[0\]: Expected `str`, got `null` - at `\$\.name`, which is None"),
    (at("nodes", 1, "name", value="a"), r"^nodes\[1\]\.name: 'a' is the name of nodes\[0\] too"),
    (at("nodes", 3, "inputs", 0, value=4), r"^nodes\[3\]\.inputs\[0\]: must be a node's number below 4, not 4"),
    (at("nodes", 3, "inputs", 0, value="b"), r"^nodes\[3\]: .* - at `\$\.inputs\[0\]`, which is 'b'"),
    (at("nodes", 3, "inputs", value=[]), r"^nodes\[3\]\.inputs: .*at least one input"),
    (at("nodes", 3, "inputs", value=[0, 1]), r"^nodes\[3\]\.inputs: slice: takes one source, not 2"),
    (at("nodes", 3, "inputs", 0, value=3), r"^nodes\[3\]\.inputs\[0\]: 3 reads 3: that is a cycle"),
    (at("nodes", 1, "inputs", 0, value=3), r"^nodes\[[123]\]\.inputs\[[01]\]: .*1 reads 3 reads 2.*: that is a cycle"),
    (at("nodes", 3, "shape", 0, value=4), r"^nodes\[3\]\.shape: is \[4, 6\], but the kind makes \[3, 6\]"),
    (at("nodes", 3, "kind", value=None), r"^nodes\[3\]: .* - at `\$\.kind`, which is None"),
    (at("nodes", 3, "kind", value={"kind": "Slices"}), r"^nodes\[3\]\.kind\b"),
    (at("nodes", 3, "itemsize", value=4), r"^nodes\[3\]: .*unknown field `itemsize`"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT)
def test_a_document_that_is_wrong_is_refused_with_the_place(
    spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
    document = json.loads(example().to_json())
    spoil(document)
    with pytest.raises(ValueError, match=message):
        AliasGraph.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        ("{", "Expecting property name"),
        ("[1]", "format is None"),
        ('{"format": NaN}', "NaN is not a JSON number"),
        ('{"format": 1, "format": 2}', "field 'format' is given twice"),
        ("[" * 100_000, "recursion"),
        (b"\xff\xfe\xff", "codec"),
    ],
)
def test_text_that_is_no_document_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^an alias graph's JSON: .*{message}"):
        AliasGraph.from_json(text)
