"""Changed models are imported or refused in a clear line: no other error, at most 10 s of processor time and 1 GB.

One message alone has several lines: that of nodes without operators, of which each has its own.
"""

from __future__ import annotations

import pytest
from onnx import helper

from tapestry_plan import UnsupportedOp, load_onnx
from tapestry_plan.onnx import StagedModel
from tests.mutated_models import CASES, COUNT, FUSED, LISTED, MANY, bytes_of, jobs_of, make, try_all
from tests.onnx_models import model_of

SAMPLE = range(0, COUNT, 29)
"""About thirty, as many of bytes as of structure."""
SHARES = 8


def test_a_sample_ends_in_words() -> None:
    found = try_all(SAMPLE)
    assert not {(one.model, one.kind): one.fault for one in found if one.fault}
    assert len(found) == len(jobs_of(SAMPLE)) > len(SAMPLE) > 30
    ways = [f"{kind}: {way}" for kind in ("bytes", "structure") for way in ("import", "stages", "plan")]
    assert {one.kind for one in found} == {*ways}
    assert {one.status for one in found} == {0, 2}, "some are imported, some refused"


@pytest.mark.heavy
@pytest.mark.parametrize("share", range(SHARES))
def test_all_end_in_words(share: int) -> None:
    chosen = range(share, COUNT, SHARES)
    found = try_all(chosen)
    assert not {(one.model, one.kind): one.fault for one in found if one.fault}
    assert len(found) == len(jobs_of(chosen))


def test_the_models_are_the_same_in_each_run() -> None:
    assert make(7) == make(7) != make(9)
    assert make(8) == make(8) != make(10)


def test_the_good_models_are_imported() -> None:
    for name in (*CASES, *FUSED, *MANY):
        assert StagedModel(bytes_of(name)).stage is not None, name


def test_a_message_of_several_lines_has_a_line_for_each_node() -> None:
    nodes = [helper.make_node(kind, ["x"], [kind]) for kind in ("Foo", "Bar")]
    model = model_of([*nodes, helper.make_node("Add", ["Foo", "Bar"], ["y"])], {"x": (2,)})
    for read in (load_onnx, StagedModel):
        with pytest.raises(UnsupportedOp) as caught:
            read(model)
        assert LISTED.fullmatch(str(caught.value)) and str(caught.value).count("\n  node '") == 2
        assert not LISTED.fullmatch(f"{caught.value}\nand more") and not LISTED.fullmatch("load_onnx: m: one\ntwo")
