"""Progress: how much of planning is done, as far as its length is known beforehand.

Planning goes through stages in a fixed order, each as long as the graph has operators::

    costs         tables of what operators and neighbors cost: half of it who reads what, half the tables
    layouts       variables eliminated from the sum of all tables
    expansions    steps of comparing operators with their expansions
    steps         operators whose steps are written down
    memory        only where there are caps: graphs whose plans may need less, or these plans, one after the other

Some stages are gone through again, as equal operators and expansions make other graphs: how often is not known before,
so the count stands still then. It never falls, and it is all at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Progress = Callable[[int, int, str], None]
"""``(done, total, words)``: called as a plan is made; the words say what is being done."""

StageName = Literal["costs", "layouts", "expansions", "steps", "memory"]
STAGES: tuple[StageName, ...] = ("costs", "layouts", "expansions", "steps", "memory")


class Meter:
    """Counts what is done, and says it where somebody asks.

    Parameters
    ----------
    progress : callable, optional
        Called where the count grows.
    operators : int
        Of the graph as given.
    has_caps : bool
        Whether there is a stage for plans that need less memory.

    Examples
    --------
    >>> told = []
    >>> meter = Meter(lambda *one: told.append(one), 10)
    >>> meter.tell("costs", 1, 2)
    >>> meter.tell("costs", 1, 4)
    >>> meter.enter("expansions")
    >>> meter.tell("costs", 2, 2)
    >>> meter.finish()
    >>> told
    [(5, 40, 'costs'), (20, 40, 'expansions'), (40, 40, 'done')]
    """

    def __init__(self, progress: Progress | None = None, operators: int = 0, has_caps: bool = False) -> None:
        self._progress = progress
        self._stages = STAGES if has_caps else STAGES[:-1]
        self._length = max(operators, 1)
        self._total = self._length * len(self._stages)
        self._done = self._at = 0

    def enter(self, stage: StageName) -> None:
        """A stage begins: those before it are over."""
        self._at = max(self._at, self._stages.index(stage))
        self._say(self._at * self._length, stage)

    def tell(self, stage: StageName, done: int, total: int) -> None:
        """So much of a stage is done; of one that is over nothing is said."""
        if self._progress is not None and total and self._stages.index(stage) == self._at:
            self._say(self._at * self._length + self._length * done // total, stage)

    def finish(self) -> None:
        """The plan is there."""
        self._say(self._total, "done")

    def _say(self, done: int, words: str) -> None:
        if self._progress is not None and done > self._done:
            self._done = done
            self._progress(done, self._total, words)
