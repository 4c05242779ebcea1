"""Pictures of index projections: a few index points, and the cells of each coordinate that each of them touches.

>>> from tapestry_sets import AffineMap, IndexProjection
>>> print(projection_picture(IndexProjection(AffineMap([[2]], [-1]), (3,))).text)
P(d0): a box of 3 cells
coordinate 0: 3 cells from 2*d0 - 1 on
     0    5    10
(0) 111..........
(1) ..111........
(2) ....111......
(3) ......111....
(4) ........111..
(5) ..........111
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from tapestry_sets.draw import Picture, canvas
from tapestry_sets.limits import cut_text, tell_count
from tapestry_sets.regions import tuning
from tapestry_sets.regions.affine_words import spell_sum


def projection_picture(p: Any) -> Picture:
    """The picture of an index projection: each coordinate in words, and as cells where they are few."""
    rank = max(0, p.index_rank)
    index = cut_text(", ".join(f"d{k}" for k in range(rank)), tuning.SHOWN_INDEX)
    sides = cut_text(" × ".join(f"{n:,}" for n in p.shape), tuning.SHOWN_INDEX)
    title = f"P({index}): {'one cell' if all(n == 1 for n in p.shape) else f'a box of {sides} cells'}"
    lines = [
        f"d{rank + 2 * k}, d{rank + 2 * k + 1}: quotient and remainder of d{axis} by {by}"
        for k, (axis, by) in enumerate(p.splits)
    ]
    grids = [_draw_coordinate(p, c, rank) for c in range(min(len(p.shape), tuning.SHOWN_COORDINATES))]
    more = len(p.shape) - len(grids)
    left = [f"and {tell_count(more, 'more coordinate')}"] if more else []
    told = [words if grid is None else canvas.grid_text(grid) for words, grid in grids]
    text = "\n".join([title, *lines, *told, *left])

    def drawing() -> canvas.Drawing:
        drawn = [
            canvas.as_drawn(words) if grid is None else canvas.grid_drawing(grid, tuning.CELL, marks=False)
            for words, grid in grids
        ]
        return canvas.below([*map(canvas.as_drawn, lines), *drawn, *map(canvas.as_drawn, left)], 12)

    return canvas.draw_twice(lambda: (text, canvas.document(drawing(), title)))


def _draw_coordinate(p: Any, c: int, rank: int) -> tuple[str, canvas.CellGrid | None]:
    """A coordinate in words, and which of its cells some points touch; none where these are many."""
    row, by, n = p.map.matrix[c], p.map.offset[c], p.shape[c]
    words = f"coordinate {c}: {tell_count(n, 'cell')} from {spell_sum(row, by)} on"
    # An axis moves a coordinate by itself, or by the digits into which a split takes it.
    digits = {rank + 2 * k + j: axis for k, (axis, _) in enumerate(p.splits) for j in range(2)}
    axes = {digits.get(k, k) for k, factor in enumerate(row) if factor}
    reach = 2 if len(axes) > 1 else tuning.SHOWN_POINTS
    points = [*product(*(range(reach) if k in axes else (0,) for k in range(rank)))][: tuning.SHOWN_POINTS]
    boxes = [p(point) for point in points]
    low, high = min(box.start[c] for box in boxes), max(box.stop[c] for box in boxes)
    if high - low > tuning.SHOWN_CELLS:
        return words, None
    cells = np.zeros((len(points), high - low), np.int64)
    for k, box in enumerate(boxes):
        cells[k, box.start[c] - low : box.stop[c] - low] = 1
    heads = [f"({', '.join(map(str, point))})" for point in points]
    grid = canvas.CellGrid(
        cells, (), range(low, high), words, lambda row, column: f"{heads[row]}:{low + column}", heads=heads
    )
    return words, grid
