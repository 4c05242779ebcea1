"""Models in stages: each is planned when it is known, run, and what it made leads to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tapestry_exec.run.deployment import run
from tapestry_exec.run.results import RunResult
from tapestry_plan.ir import Graph
from tapestry_plan.steps import ShardPlan
from tapestry_sets.limits import Public

if TYPE_CHECKING:  # a program that has no such model does without the importer
    from tapestry_plan.onnx import ModelStage, StagedModel


class StagedResult(Struct, frozen=True, metaclass=Public):
    """What a model gave that ran in stages: `run_stages` makes it.

    Parameters
    ----------
    outputs : dict of str to array, list of arrays, dict, or list of dicts
        Sequences are lists, and maps dicts.
    stages : tuple of ModelStage
        One after the other, with what they say of themselves.
    plans : tuple of ShardPlan
        Of the stages that have a graph.
    runs : tuple of RunResult
        Of these plans.
    whole : tuple of str
        Nodes that ran whole between stages, on the host.
    nbytes_whole : int
        What these were given: bytes that came to the host for them.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import parser
    >>> from tapestry_exec import run_stages
    >>> from tapestry_plan import Mesh, plan
    >>> from tapestry_plan.onnx import StagedModel
    >>> text = 'agraph (float[4] x) => (float[4] y) { y = Relu(x) }'
    >>> model = StagedModel(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}'))
    >>> found = run_stages(model, {"x": np.ones(4, np.float32)}, lambda graph: plan(graph, Mesh(2)))
    >>> len(found.stages), found.whole, found.runs[0].nbytes_moved
    (1, (), 0)
    """

    outputs: dict[str, Any]
    stages: tuple[ModelStage, ...]
    plans: tuple[ShardPlan, ...]
    runs: tuple[RunResult, ...]
    whole: tuple[str, ...]
    nbytes_whole: int

    @property
    def whole_before(self) -> tuple[str, ...]:
        """Nodes that ran whole and are of none of the stages: what they read was known before there was one."""
        told = {name for stage in self.stages for name in stage.whole}
        return tuple(name for name in self.whole if name not in told)


def run_stages(
    model: StagedModel, feeds: Mapping[str, Any], planned: Callable[[Graph], ShardPlan], **options: Any
) -> StagedResult:
    """Plan and run a model stage by stage.

    Parameters
    ----------
    model : StagedModel
        At its first stage.
    feeds : mapping of str to array, list or dict
        The inputs of the run that the model was not made with; lists are sequences, and dicts maps.
    planned : callable
        The plan of a stage's graph.
    **options
        Of `run`, for each stage.

    Returns
    -------
    StagedResult

    Raises
    ------
    ValueError
        For inputs that are missing or do not fit, and nodes that nobody runs; else as `run`.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import parser
    >>> from tapestry_exec import run_stages
    >>> from tapestry_plan import Mesh, plan
    >>> from tapestry_plan.onnx import StagedModel
    >>> text = 'agraph (float[4] x) => (int64[1, n] y) { a = Relu(x) b = NonZero(a) y = Neg(b) }'
    >>> model = StagedModel(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}'))
    >>> found = run_stages(model, {"x": np.array([-1, 2, 0, 3], np.float32)}, lambda graph: plan(graph, Mesh(2)))
    >>> found.outputs["y"].tolist(), found.whole, found.nbytes_whole, len(found.plans)
    ([[-1, -3]], ("node 'NonZero_0' (NonZero)",), 16, 2)
    """
    if feeds:
        model.give(feeds)
    stages: list[ModelStage] = []
    plans, runs = list[ShardPlan](), list[RunResult]()
    while (stage := model.stage) is not None:
        stages.append(stage)
        made: Mapping[str, Any] = {}
        if stage.graph is not None:
            plans.append(planned(stage.graph))
            runs.append(run(plans[-1], model.feeds(stage.graph), **options))
            made = runs[-1].outputs
        model.advance(made)
    return StagedResult(model.outputs, tuple(stages), tuple(plans), tuple(runs), tuple(model.alone), model.nbytes_alone)
