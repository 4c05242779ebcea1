"""An arena that is filled as steps are written: each buffer in the lowest place that is large enough."""

from __future__ import annotations

from bisect import bisect
from math import inf

from msgspec import Struct, field

from tapestry_plan.steps.layouts.mesh import align


class Arena(Struct):
    """First-fit allocation in one device's memory, and its high-water mark.

    The free places are listed, which are few, not the taken ones::

        0 ██████░░░░███░░░░░██████████░░░░░░░░ …     starts [ 6, 13, 28]
                                                     stops  [10, 18,  ∞]
    """

    starts: list[int] = field(default_factory=lambda: [0])
    stops: list[float] = field(default_factory=lambda: [inf])
    peak: int = 0

    def take(self, nbytes: int) -> int:
        """Offset of a free place; the lowest one that is large enough."""
        size = align(nbytes)
        at = next(k for k, start in enumerate(self.starts) if start + size <= self.stops[k])
        offset = self.starts[at]
        if offset + size == self.stops[at]:
            del self.starts[at], self.stops[at]
        else:
            self.starts[at] += size
        self.peak = max(self.peak, offset + size)
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        """Free a place."""
        if not nbytes:
            return
        stop = offset + align(nbytes)
        at = bisect(self.starts, offset)
        if at < len(self.starts) and self.starts[at] == stop:
            self.starts[at] = offset
        else:
            self.starts.insert(at, offset)
            self.stops.insert(at, stop)
        if at and self.stops[at - 1] == offset:
            self.stops[at - 1] = self.stops[at]
            del self.starts[at], self.stops[at]
