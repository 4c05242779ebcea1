"""Windows of every kind, cut in every way, against ONNX Runtime or the definition."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ir.signature import Signature
from tapestry_sets import Box
from tests.cutting import Array, close, ort, run_cut


@dataclass(frozen=True)
class WindowCase:
    """A convolution or a pool with attributes drawn at random, and a cut of its index space."""

    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    channels: int
    filters: int
    batch: int
    cut: tuple[int, ...]

    @property
    def onnx(self) -> dict[str, Any]:
        """The attributes under ONNX's names."""
        return {"strides": list(self.strides), "dilations": list(self.dilations), "pads": list(self.pads)}

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes under ours."""
        return {"strides": self.strides, "dilations": self.dilations, "pads": self.pads}

    def parts(self, signature: Signature) -> dict[str, int]:
        """The cut, with at most as many parts as points on each axis."""
        sizes = zip(signature.axes, self.cut, strict=False)
        return {axis.name: min(axis.size, parts) for axis, parts in sizes}


@st.composite
def windows(draw: st.DrawFn) -> WindowCase:
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
        return st.tuples(*[st.integers(low, high)] * rank)

    kernel, dilations = draw(each(1, 3)), draw(each(1, 3))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    # ONNX Runtime wants pads below the kernel's own extent, dilated or not.
    pads = tuple(draw(st.integers(0, k - 1)) for k in kernel * 2)
    extents = tuple(r + draw(st.integers(0, 6 if rank < 3 else 3)) for r in reach)
    return WindowCase(
        extents,
        kernel,
        draw(each(1, 4)),
        dilations,
        pads,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        tuple(draw(st.lists(st.integers(1, 3), min_size=9, max_size=9))),
    )


@given(windows(), st.booleans())
def test_conv_with_any_window_and_any_cut(case: WindowCase, with_bias: bool) -> None:
    rng = np.random.default_rng(3)
    shapes = [
        (case.batch, case.channels * case.groups, *case.extents),
        (case.filters * case.groups, case.channels, *case.kernel),
        (case.filters * case.groups,),
    ]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes[: 3 if with_bias else 2]]
    attrs = {**case.attrs, "groups": case.groups}
    op = BUILTIN_OPS["conv"]
    wanted = ort("Conv", arrays, group=case.groups, **case.onnx)
    parts = case.parts(op.signature([array.shape for array in arrays], attrs))
    (actual,) = run_cut(op, attrs, arrays, parts)
    close(actual, wanted)


@given(windows(), st.booleans())
def test_max_pool_with_any_window_and_any_cut(case: WindowCase, ceil_mode: bool) -> None:
    x = np.random.default_rng(4).normal(size=(case.batch, case.channels, *case.extents)).astype(np.float32)
    attrs = {**case.attrs, "kernel": case.kernel, "ceil_mode": ceil_mode}
    op = BUILTIN_OPS["max_pool"]
    wanted = ort("MaxPool", [x], kernel_shape=list(case.kernel), ceil_mode=int(ceil_mode), **case.onnx)
    (actual,) = run_cut(op, attrs, [x], case.parts(op.signature([x.shape], attrs)))
    close(actual, wanted)


@given(windows(), st.booleans(), st.booleans())
def test_average_pool_with_any_window_and_any_cut(case: WindowCase, ceil_mode: bool, count_include_pad: bool) -> None:
    x = np.random.default_rng(5).normal(size=(case.batch, case.channels, *case.extents)).astype(np.float32)
    flags = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    attrs = {**case.attrs, **flags, "kernel": case.kernel}
    op = BUILTIN_OPS["average_pool"]
    wanted = average_pool_by_hand(x, case, ceil_mode, count_include_pad)
    (actual,) = run_cut(op, attrs, [x], case.parts(op.signature([x.shape], attrs)))
    close(actual, wanted)


def average_pool_by_hand(x: Array, case: WindowCase, ceil_mode: bool, count_include_pad: bool) -> Array:
    """The definition, window by window, on a tensor padded with NaN where no cell counts."""
    rank = len(case.kernel)
    begins, ends = case.pads[:rank], case.pads[rank:]
    fill = 0.0 if count_include_pad else np.nan
    padded = np.pad(x, [(0, 0), (0, 0), *zip(begins, ends, strict=True)], constant_values=fill)
    beyond = [(0, 0), (0, 0), *((0, s) for s in case.strides)]
    padded = np.pad(padded, beyond, constant_values=np.nan)
    reach = [(k - 1) * d + 1 for k, d in zip(case.kernel, case.dilations, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    counts = []
    for n, a, b, r, s in zip(case.extents, begins, ends, reach, case.strides, strict=True):
        count = (n + a + b - r) // s + 1
        if ceil_mode and (n + a + b - r) % s and count * s < n + a:
            count += 1
        counts.append(count)
    picked = views[(slice(None), slice(None), *(slice(0, c * s, s) for c, s in zip(counts, case.strides, strict=True)))]
    cells = picked[(..., *(slice(None, None, d) for d in case.dilations))]
    mean: Array = np.nanmean(cells.astype(np.float64), axis=tuple(range(2 + rank, 2 + 2 * rank)))
    return mean.astype(np.float32)


@given(windows(), st.booleans())
def test_the_oracle_for_average_pools_equals_onnx_runtime(case: WindowCase, count_include_pad: bool) -> None:
    # without ceil_mode, where ONNX Runtime's releases differ in what they count
    x = np.random.default_rng(6).normal(size=(1, 1, *case.extents)).astype(np.float32)
    flags = {"count_include_pad": int(count_include_pad)}
    wanted = ort("AveragePool", [x], kernel_shape=list(case.kernel), **flags, **case.onnx)
    close(average_pool_by_hand(x, case, False, count_include_pad), wanted)


@given(windows(), st.booleans(), st.data())
def test_conv_transpose_with_any_window_and_any_cut(case: WindowCase, with_bias: bool, data: st.DataObject) -> None:
    rng = np.random.default_rng(3)
    shapes = [
        (case.batch, case.channels * case.groups, *(n - r + 1 for n, r in zip(case.extents, reach(case), strict=True))),
        (case.channels * case.groups, case.filters, *case.kernel),
        (case.filters * case.groups,),
    ]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes[: 3 if with_bias else 2]]
    # ONNX Runtime wants it below the stride; it may reach the dilation.
    more = tuple(data.draw(st.integers(0, s - 1), "output_padding") for s in case.strides)
    attrs = {**case.attrs, "groups": case.groups, "output_padding": more}
    op = BUILTIN_OPS["conv_transpose"]
    rank = len(case.kernel)
    spans = zip(shapes[0][2:], case.strides, reach(case), more, case.pads[:rank], case.pads[rank:], strict=True)
    assume(all((n - 1) * s + r + o - a - b >= 1 for n, s, r, o, a, b in spans))
    wanted = ort("ConvTranspose", arrays, group=case.groups, output_padding=list(more), **case.onnx)
    parts = case.parts(op.signature([array.shape for array in arrays], attrs))
    (actual,) = run_cut(op, attrs, arrays, parts)
    close(actual, wanted)


def reach(case: WindowCase) -> list[int]:
    return [(k - 1) * d + 1 for k, d in zip(case.kernel, case.dilations, strict=True)]


@given(windows())
def test_conv_transpose_is_the_adjoint_of_conv(case: WindowCase) -> None:
    """⟨conv(x), y⟩ = ⟨x, conv_transpose(y)⟩, with as much output padding as brings x's extents back."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1, case.channels * case.groups, *case.extents))
    w = rng.normal(size=(case.filters * case.groups, case.channels, *case.kernel))
    attrs = {**case.attrs, "groups": case.groups}
    (made,) = run_cut(BUILTIN_OPS["conv"], attrs, [x, w])
    y = rng.normal(size=made.shape)
    rank = len(case.kernel)
    spans = zip(case.extents, case.pads[:rank], case.pads[rank:], reach(case), case.strides, strict=True)
    more = tuple((n + a + b - r) % s for n, a, b, r, s in spans)
    (back,) = run_cut(BUILTIN_OPS["conv_transpose"], {**attrs, "output_padding": more}, [y, w])
    assert back.shape == x.shape
    np.testing.assert_allclose((made * y).sum(), (x * back).sum(), rtol=1e-9, atol=1e-9)


@given(*[st.integers(1, 4)] * 4, st.integers(0, 3), st.data())
def test_what_a_transposed_convolution_reads(
    n: int, kernel: int, stride: int, dilation: int, pad: int, data: st.DataObject
) -> None:
    """All that it needs, and without dilation at most one cell more on either side; none between whole runs."""
    extent = (n - 1) * stride + (kernel - 1) * dilation + 1 - 2 * pad
    assume(extent > 0)
    attrs = {"strides": stride, "dilations": dilation, "pads": pad}
    signature = BUILTIN_OPS["conv_transpose"].signature([(1, 1, n), (1, 1, kernel)], attrs)
    begin = data.draw(st.integers(0, extent - 1), "begin")
    end = data.draw(st.integers(begin + 1, extent), "end")
    region = signature.input_region(0, Box((0, 0, begin, 0), (1, 1, end - begin, 1)), (1, 1, n))
    read = {int(point[2]) for point in region.points()}
    reached = {(i, i * stride + k * dilation - pad) for i in range(n) for k in range(kernel)}
    needed = {i for i, o in reached if begin <= o < end}
    assert needed <= read
    if dilation == 1 and needed:
        assert read <= {i + step for i in needed for step in (-1, 0, 1)}
        if begin % stride == 0 and (end % stride == 0 or end == extent) and pad % stride == 0:
            assert read == needed


@given(windows(), st.booleans())
def test_sum_pool_with_any_window_and_any_cut(case: WindowCase, ceil_mode: bool) -> None:
    """A convolution of each channel with ones, where no window goes beyond the padding."""
    x = np.random.default_rng(5).integers(-9, 9, (case.batch, case.channels, *case.extents))
    attrs = {**case.attrs, "kernel": case.kernel, "ceil_mode": ceil_mode}
    op = BUILTIN_OPS["sum_pool"]
    (actual,) = run_cut(op, attrs, [x], case.parts(op.signature([x.shape], attrs)))
    ones = np.ones((case.channels, 1, *case.kernel), x.dtype)
    (wanted,) = run_cut(BUILTIN_OPS["conv"], {**case.attrs, "groups": case.channels}, [x, ones])
    inside = tuple(map(slice, wanted.shape))
    np.testing.assert_array_equal(actual[inside], wanted)


@given(
    st.integers(1, 12),
    st.integers(1, 20),
    st.sampled_from(["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]),
    st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "linear"]),
    st.integers(1, 5),
)
def test_resize_by_any_factor_and_any_cut(n: int, m: int, coordinates: str, how: str, parts: int) -> None:
    """By the definition, in fractions: ONNX Runtime rounds places to single precision first."""
    x = np.random.default_rng(6).normal(size=(1, 1, n))
    attrs: dict[str, Any] = {"sizes": (1, 1, m), "coordinates": coordinates, "mode": "nearest", "nearest": how}
    if how == "linear":
        attrs = {"sizes": (1, 1, m), "coordinates": coordinates, "mode": "linear"}
    wanted = [resized_by_hand(x[0, 0], o, m, coordinates, how) for o in range(m)]
    op = BUILTIN_OPS["resize"]
    (actual,) = run_cut(op, attrs, [x], {"i2": min(parts, m)})
    np.testing.assert_allclose(actual[0, 0], wanted, atol=1e-12)


def resized_by_hand(x: Array, o: int, m: int, coordinates: str, how: str) -> float:
    n, half = len(x), Fraction(1, 2)
    place = {
        "half_pixel": (o + half) * n / m - half,
        "pytorch_half_pixel": (o + half) * n / m - half if m > 1 else Fraction(0),
        "asymmetric": Fraction(o * n, m),
        "align_corners": Fraction(o * (n - 1), m - 1) if m > 1 else Fraction(0),
    }[coordinates]
    low = floor(place)
    if how == "linear":
        share = float(place - low)
        return float(x[min(max(low, 0), n - 1)] * (1 - share) + x[min(max(low + 1, 0), n - 1)] * share)
    tie = place - low == half
    cell = {
        "floor": low,
        "ceil": ceil(place),
        "round_prefer_floor": low if tie else floor(place + half),
        "round_prefer_ceil": low + 1 if tie else floor(place + half),
    }[how]
    return float(x[min(max(cell, 0), n - 1)])


@given(st.integers(1, 12), st.integers(1, 20), st.sampled_from(["half_pixel", "asymmetric", "align_corners"]))
def test_linear_resizing_equals_onnx_runtime(n: int, m: int, coordinates: str) -> None:
    x = np.random.default_rng(7).normal(size=(1, 1, 2, n)).astype(np.float32)
    attrs = {"sizes": (1, 1, 3, m), "coordinates": coordinates, "mode": "linear"}
    mode = {"coordinate_transformation_mode": coordinates, "mode": "linear"}
    wanted = ort("Resize", [x, None, None, np.array([1, 1, 3, m])], **mode)
    (actual,) = run_cut(BUILTIN_OPS["resize"], attrs, [x])
    close(actual, wanted)


def weigh(apart: float, mode: str, a: float) -> float:
    """The weight of a cell at a distance, as ONNX defines it."""
    if mode == "linear":
        return max(0.0, 1 - apart)
    if apart <= 1:
        return (a + 2) * apart**3 - (a + 3) * apart**2 + 1
    return a * apart**3 - 5 * a * apart**2 + 8 * a * apart - 4 * a if apart < 2 else 0.0


@given(
    st.integers(1, 9),
    st.integers(2, 14),
    st.sampled_from(["half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric", "tf_crop_and_resize"]),
    st.sampled_from(["linear", "cubic"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
)
def test_interpolation_is_a_sum_of_weighted_cells(
    n: int, m: int, coordinates: str, mode: str, antialias: bool, exclude: bool, parts: int
) -> None:
    """Of every cell, near or far, each at its distance; cells beyond the ends are the last ones, or have no weight."""
    x, a = np.random.default_rng(8).normal(size=n), -0.6
    attrs: dict[str, Any] = {"sizes": (m,), "coordinates": coordinates, "mode": mode, "cubic": a, "outside": 9.0}
    attrs |= {"antialias": antialias, "exclude_outside": exclude, "part": ((-0.25, 0.75),)}
    half, scale = Fraction(1, 2), Fraction(m, n)
    wanted = []
    for o in range(m):
        place = {
            "asymmetric": o / scale,
            "align_corners": Fraction(o * (n - 1), m - 1),
            "tf_crop_and_resize": Fraction(o * (n - 1), m - 1) - Fraction(n - 1, 4),
        }.get(coordinates, (o + half) / scale - half)
        if coordinates == "tf_crop_and_resize" and not 0 <= place <= n - 1:
            wanted.append(9.0)
            continue
        narrow = min(scale, 1) if antialias else 1
        cells = range(floor(place) - 3 * n - 3, ceil(place) + 3 * n + 4)
        weights = [weigh(float(narrow * abs(place - cell)), mode, a) for cell in cells]
        if exclude:
            weights = [w if 0 <= cell < n else 0.0 for w, cell in zip(weights, cells, strict=True)]
        total = sum(w * x[min(max(cell, 0), n - 1)] for w, cell in zip(weights, cells, strict=True))
        wanted.append(total / sum(weights))
    (actual,) = run_cut(BUILTIN_OPS["resize"], attrs, [x], {"i0": min(parts, m)})
    np.testing.assert_allclose(actual, wanted, atol=1e-9)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_shrinking_equals_onnx_runtime(mode: str) -> None:
    x = np.random.default_rng(9).normal(size=(1, 1, 9, 12)).astype(np.float32)
    how = {"mode": mode, "antialias": 1, "exclude_outside": int(mode == "cubic")}
    wanted = ort("Resize", [x, None, None, np.array([1, 1, 4, 5])], **how)
    attrs = {"sizes": (1, 1, 4, 5), "mode": mode, "antialias": True, "exclude_outside": mode == "cubic"}
    (actual,) = run_cut(BUILTIN_OPS["resize"], attrs, [x])
    close(actual, wanted)
