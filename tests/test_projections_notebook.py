"""The notebook on projections: its pictures are legible, with sliders at every setting and without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace

import pytest

from tapestry_sets import Picture
from tests.drawings import assert_legible, read
from tests.notebooks import FOLDER, run_cells

NOTEBOOK = FOLDER / "3_projections.ipynb"


def every_setting(draw: Callable[..., Picture], **sliders: SimpleNamespace) -> list[Picture]:
    """Draw with each slider at its least, first and greatest value, in every combination."""
    values = [sorted({slider.min, slider.value, slider.max}) for slider in sliders.values()]
    return [draw(**dict(zip(sliders, at, strict=True))) for at in product(*values)]


@pytest.mark.heavy(2)
@pytest.mark.parametrize("has_sliders", [False, True])
def test_the_pictures_are_legible_at_every_setting(has_sliders: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SimpleNamespace] = []

    def slider(value: int, min: int, max: int) -> SimpleNamespace:
        made.append(SimpleNamespace(value=value, min=min, max=max))
        return made[-1]

    widgets = SimpleNamespace(IntSlider=slider, interactive=every_setting) if has_sliders else None
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    pictures: list[Picture] = []
    for result in (one.value for one in run_cells(NOTEBOOK, {})):
        pictures += result if isinstance(result, list) else [result] if isinstance(result, Picture) else []
    assert len(pictures) > (120 if has_sliders else 15) and bool(made) == has_sliders
    for picture in pictures:
        assert_legible(read(picture.svg))
