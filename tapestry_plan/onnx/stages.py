"""Models whose shapes follow from values: in stages, each a graph, and nodes that run whole between them.

    stage 0   graph: x ─► … ─► scores, boxes       planned and run as any graph
              whole: NonZero(scores) ─► found      on the host, by ONNX Runtime or ONNX's reference
    stage 1   graph: found, boxes ─► …             imported when the shape of `found` is known

A stage ends where an importer needs a value that is known in a run only, and where a node makes what no graph can
declare before: shapes that follow from values, strings, sequences, maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Graph, Unread, UnsupportedOp
from tapestry_plan.onnx.adding import Placing, add_input
from tapestry_plan.onnx.inputs import InputShapes, Sizes, dims_of, read_values, show_dims, take_elements
from tapestry_plan.onnx.models import about_model, check_names, fits_dims, read_checked, shapes_behind_ceil
from tapestry_plan.onnx.nodes import Importing, Node, NotOfGraphs, ValueNeeded, is_number
from tapestry_plan.onnx.operators import importers_of
from tapestry_plan.onnx.order import needed_of, read_nodes
from tapestry_plan.onnx.replacing.bodies import all_names
from tapestry_plan.onnx.replacing.branches import settle_branches
from tapestry_plan.onnx.replacing.sequences import find_sequences
from tapestry_plan.onnx.replacing.whole import NotWhole, reads_of, run_node
from tapestry_sets.limits import Guarded, cut_text, drop_item, list_names, put_fields, quote, tell_count


class ModelStage(Struct, frozen=True):
    """A part of a model that can be planned.

    Parameters
    ----------
    number : int
        From 0.
    graph : Graph or None
        What is planned; None where only nodes that run whole are left before the next stage.
    whole : tuple of str
        Nodes that run on the host after the graph, by ONNX Runtime or ONNX's reference: name and operator.
    wanted : tuple of str
        Tensors whose values the next stage needs to be imported.
    awaited : tuple of str
        Inputs of the model that were not given, and must be: they are wanted, outputs too, or nodes that run whole read
        them.
    reasons : tuple of str
        Why the stage ends, a line for each such node.
    behind : int
        How many nodes of the model wait for the next stages.
    """

    number: int
    graph: Graph | None
    whole: tuple[str, ...]
    wanted: tuple[str, ...]
    awaited: tuple[str, ...]
    reasons: tuple[str, ...]
    behind: int

    def __str__(self) -> str:
        """What the stage has, and why it ends."""
        graph = self.graph
        has = [] if graph is None else [f"{tell_count(len(graph.nodes), 'operator')} planned"]
        has += [f"{tell_count(len(self.whole), 'node')} whole between stages"] if self.whole else []
        nothing = "nothing is planned yet" if self.awaited else "values are bound"
        lines = [f"stage {self.number}: {', '.join(has) or nothing}", *(f"  {why}" for why in self.reasons)]
        if self.behind:
            lines.append(f"  {tell_count(self.behind, 'node')} behind; planned when these values are known")
        return "\n".join(lines)


class StagedModel(Guarded):
    """A model in stages: the next one is imported when the values that it depends on are known.

    Parameters
    ----------
    path_or_model, shapes, values, outputs, ops
        As of `load_onnx`.
    feeds : mapping of str to array, optional
        Inputs of the run, whose values and shapes the first stage may depend on: arrays, lists of them for sequences,
        and dicts for maps.

    Raises
    ------
    UnsupportedOp
        For nodes that are not ONNX's.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import parser
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan.onnx import StagedModel
    >>> text = 'agraph (float[4] x) => (int64[1, n] y) { a = Relu(x) b = NonZero(a) y = Neg(b) }'
    >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
    >>> staged = StagedModel(model, feeds={"x": np.array([-1, 2, 0, 3], np.float32)})
    >>> print(staged.stage)
    stage 0: 1 operator planned, 1 node whole between stages
      node 'NonZero_0' (NonZero): its output 'b' has a shape that follows from values
      1 node behind; planned when these values are known
    >>> while (stage := staged.stage) is not None:
    ...     staged.advance(evaluate(stage.graph, staged.feeds(stage.graph)))
    >>> staged.outputs
    {'y': array([[-1, -3]])}
    """

    alone: list[str]
    """Nodes that ran whole by now, on the host between stages."""
    nbytes_alone: int
    """What these were given: bytes that came to the host."""
    stage: ModelStage | None

    def __init__(
        self,
        path_or_model: Any,
        feeds: Mapping[str, Any] | None = None,
        *,
        shapes: Sizes | None = None,
        values: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        ops: Mapping[str, Any] | None = None,
    ) -> None:
        self._importers = importers_of(ops or {})
        self._checked = read_checked(path_or_model, "StagedModel")
        self._model = self._checked.model
        self._about = self._checked.path or "the model"
        with about_model(self._about, "StagedModel"):
            graph = self._model.graph
            stored = {tensor.name for tensor in graph.initializer}
            known = read_values(graph.input, values or {})
            self._inputs = {v.name: v for v in graph.input if v.name in known or v.name not in stored}
            self._shapes = InputShapes(list(self._inputs.values()), shapes or {}, known, graph.output)
            self._names = list(outputs) if outputs is not None else [value.name for value in graph.output]
            self._nodes: Sequence[Node] = list(read_nodes(graph))
            check_names(self._model, self._nodes, self._names)
            self._taken = {*self._names, *self._inputs}.union(*(all_names(node.proto) for node in self._nodes))
            self._types = {
                name: value.type
                for name, value in self._inputs.items()
                if value.type.WhichOneof("value") in ("sequence_type", "map_type")
            }
            self._host: dict[str, Any] = dict(known)
            self._bound = set(known)
            self._take(feeds or {})
            declared = [*graph.value_info, *graph.output]
            self._declared = {value.name: dims_of(value) for value in declared if value.type.HasField("tensor_type")}
            self._number = -1
            self._whole: list[Node] = []
            put_fields(self, alone=[], nbytes_alone=0, stage=None)
            self._is_as_declared = not (shapes or values)
            self._at: Importing
            self._find_stage()

    @property
    def inputs(self) -> dict[str, Unread]:
        """The inputs of the run that are not given yet, with what the model says of each."""
        return {name: self._shapes.unread(value) for name, value in self._inputs.items() if name not in self._host}

    @property
    def outputs(self) -> dict[str, Any]:
        """The model's outputs that are known by now."""
        kinds = {value.name: value.type for value in self._model.graph.output}
        known = [name for name in self._names if name in self._host]
        return {name: _unwrap(self._host[name], kinds.get(name)) for name in known}

    def feeds(self, graph: Graph) -> dict[str, Any]:
        """What a stage's graph is given: inputs of the run, and what was made before.

        Raises
        ------
        ValueError
            Where an input of the run was not given.
        """
        names = [name for name, stored in graph.stored.items() if stored.kind == "input"]
        absent = [name for name in names if name not in self._host]
        if absent:
            raise ValueError(
                f"StagedModel: input {quote(absent[0])} is not given; {list_names(self._host, absent[0], 'values')}"
            )
        return {name: self._host[name] for name in names}

    def give(self, feeds: Mapping[str, Any]) -> None:
        """Give inputs of the run that were not given before, and import the stage anew.

        Raises
        ------
        ValueError
            For what is not an input, and an array that is not of its dtype and shape.
        """
        with about_model(self._about, "StagedModel"):
            self._take(feeds)
            self._number -= 1
            self._find_stage()

    def _take(self, feeds: Mapping[str, Any]) -> None:
        for name, value in feeds.items():
            declared = self._inputs.get(name)
            is_tensor = declared is not None and declared.type.WhichOneof("value") == "tensor_type"
            value = np.asarray(value) if is_tensor else value
            self._shapes.take_feed(name, np.shape(value) if is_tensor else ())
            if is_tensor:
                _check_dtype(name, value, declared)
            elif declared is not None:
                value = take_elements(value, declared.type, f"feeds[{quote(name)}]")
            self._host[name] = value

    def advance(self, made: Mapping[str, Any]) -> None:
        """Take what the stage's graph made, run the nodes behind it that run whole, and import the next stage.

        Parameters
        ----------
        made : mapping of str to array
            The outputs of the stage's graph; empty where it has none.
        """
        if self.stage is None:
            raise ValueError("StagedModel: all stages are done; make it anew to run the model again")
        wanted = () if self.stage.graph is None else tuple(self.stage.graph.outputs)
        absent = [name for name in wanted if name not in made]
        if absent:
            raise ValueError(f"StagedModel: output {quote(absent[0])} of stage {self.stage.number} is not given")
        self._host |= {name: np.asarray(made[name]) for name in wanted}
        with about_model(self._about, "StagedModel"):
            for name in wanted:
                self._check_declared(f"stage {self.stage.number}", name, self._host[name])
            self._run_whole()
            unknown = [name for name in self.stage.wanted if name not in self._host]
            if unknown:
                raise ValueError(
                    f"the next stage depends on the input {quote(unknown[0])}, which is not given: give it"
                )
            self._bound.update(self.stage.wanted)
            self._find_stage()

    def _run_whole(self) -> None:
        for node in self._whole:
            absent = [name for name in reads_of(node) if name not in self._host]
            if absent:
                raise ValueError(f"{node.where} reads the input {quote(absent[0])}, which is not given: give it")
            given = {name: self._host[name] for name in reads_of(node)}
            nbytes = self.nbytes_alone + sum(count_nbytes(value) for value in given.values())
            put_fields(self, nbytes_alone=nbytes)
            made = run_node(self._at, node, given, self._types)
            for name, value in made.items():
                self._check_declared(node.where, name, value)
            self._host |= made
            self.alone.append(node.where)
        self._whole = []

    def _check_declared(self, maker: str, name: str, value: Any) -> None:
        """Raise ValueError where another shape was made than the model declares.

        Those who run nodes whole are not always right.
        """
        dims = self._declared.get(name)
        if dims is None or not isinstance(value, np.ndarray) or fits_dims(value.shape, dims):
            return
        if shapes_behind_ceil(self._model).get(name) != [dim.dim_value for dim in dims]:
            raise NotWhole(
                f"{maker} makes {quote(name)} of shape {quote(value.shape)}, the model declares {show_dims(dims)}: "
                "who ran it whole is wrong, or the model contradicts itself"
            )

    # -- one stage ---------------------------------------------------------------------------------------

    def _find_stage(self) -> None:
        """Import what can be, binding values that are known already, until there is something to run."""
        while not all(name in self._host for name in self._names):
            placing = self._import()
            self._at = placing.at
            self._keep_known(placing)
            if all(name in self._host for name in self._names):
                continue
            needs = [why for _, why in placing.refused if _is_needed(why, placing.at)]
            wanted = {why.tensor for why in needs if isinstance(why, ValueNeeded)}
            if wanted & (self._host.keys() - self._bound):
                self._bound |= wanted & self._host.keys()
                continue
            self._whole = [node for node, why in placing.refused if why not in needs]
            graph = self._close(placing, wanted)
            if graph is not None or not self._can_run():
                self._number += 1
                found = ModelStage(
                    self._number,
                    graph,
                    tuple(node.where for node in self._whole),
                    tuple(sorted(wanted)),
                    self._awaited(wanted),
                    tuple(_shorten(node, why) for node, why in placing.refused),
                    len(placing.behind) + len(placing.refused) - len(self._whole),
                )
                put_fields(self, stage=found)
                return
            self._run_whole()
        put_fields(self, stage=None)

    def _awaited(self, wanted: set[str]) -> tuple[str, ...]:
        """The inputs that must be given before the next stage: wanted, outputs, or read by nodes that run whole."""
        alone = (name for node in self._whole for name in reads_of(node))
        reads = dict.fromkeys([*sorted(wanted), *alone, *self._names])
        return tuple(name for name in reads if name in self._inputs and name not in self._host)

    def _can_run(self) -> bool:
        """Whether there are nodes that run whole, and all that they read is known."""
        return bool(self._whole) and all(name in self._host for node in self._whole for name in reads_of(node))

    def _import(self) -> Placing:
        """What can be imported of the nodes that are left."""
        model = self._model
        nodes: Sequence[Node] = self._left(self._nodes)
        at = Importing(self._checked, [], self._importers)
        at.taken.update(self._taken)
        if self._is_as_declared:
            at.declare(model.graph)
        placing = Placing(at, opaque=True, held=self._host.keys() - self._bound)
        inputs = {name: value for name, value in self._inputs.items() if name not in self._host}
        if any(node.operator == "If" for node in nodes):
            aside = Importing(self._checked, [], self._importers)
            aside.taken = at.taken
            for name, value in self._host.items():
                if isinstance(value, np.ndarray) and is_number(value.dtype):
                    aside.bind(name, value)
            nodes, at.undecided = settle_branches(nodes, self._names, inputs, self._shapes, aside)
            nodes = self._left(nodes)  # those of a branch, some of which were done before
        left = needed_of(nodes, [name for name in self._names if name not in self._host])
        at.listed = find_sequences(left, self._names, self._importers)
        used = {name for node in left for name in reads_of(node)} | set(self._names)
        for name in (name for name in self._host if name in used):
            self._declare(placing, name, self._host[name])
        for name, value in inputs.items():
            if name in used:
                try:
                    add_input(value, self._shapes, at)
                except NotOfGraphs:
                    placing.foreign.add(name)
        with self._shapes.tell_sizes():
            for node in left:
                placing.place(node)
        if stuck := placing.stuck:
            placing.refused = stuck
            placing.report()
        return placing

    def _left(self, nodes: Sequence[Node]) -> list[Node]:
        return [node for node in nodes if not any(name in self._host for name in node.outputs if name)]

    def _declare(self, placing: Placing, name: str, value: Any) -> None:
        """Let a value that is known on the host be known to the import, or an input of the graph."""
        at = placing.at
        is_tensor = isinstance(value, np.ndarray) and is_number(value.dtype)
        if is_tensor and (name in self._bound or not value.size):
            at.bind(name, value)
        elif is_tensor:
            at.bind(name, at.graph.input(name, value.shape, value.dtype.name))
        else:
            placing.foreign.add(name)

    def _keep_known(self, placing: Placing) -> None:
        """Values that the import found need no run."""
        at = placing.at
        reads = {name for node in (*placing.behind, *(node for node, _ in placing.refused)) for name in reads_of(node)}
        for name in (*self._names, *sorted(reads)):
            if name not in self._host and at.has(name) and at.is_known(name):
                self._host[name] = at.value(name)
                self._bound.add(name)

    def _close(self, placing: Placing, wanted: set[str]) -> Graph | None:
        """The graph with the outputs that others read, or that are the model's; None where there are none."""
        at = placing.at
        reads = [name for node in (*self._whole, *placing.behind) for name in reads_of(node)]
        reads += [name for node, _ in placing.refused for name in reads_of(node)]
        reads += [read for name in reads if name in at.sequences for read in at.sequences[name].read]
        for name in dict.fromkeys([*self._names, *sorted(wanted), *reads]):
            if name not in self._host and name in at.tensors and name not in self._inputs:
                at.graph.output(at.tensors[name], name)
        at.drop_unread_views()
        at.note_folded()
        graph = at.graph
        names = [*graph.outputs.values(), *(name for node in graph.nodes.values() for name in node.inputs)]
        read = {stored for name in names for stored in graph.source(name).stored}
        for name in [name for name, stored in graph.stored.items() if stored.kind == "input" and name not in read]:
            drop_item(graph.stored, name)  # nodes of later stages read it
        return graph if graph.outputs else None


def count_nbytes(value: Any) -> int:
    """Bytes of an array, or of all in a list; 8 for each key of a map, and for each value."""
    if isinstance(value, dict):
        return 16 * len(value)
    return sum(map(count_nbytes, value)) if isinstance(value, list) else int(getattr(value, "nbytes", 0))


def _unwrap(value: Any, kind: Any) -> Any:
    """The value of an optional output, which the reference has as a list of that alone where it is there."""
    if kind is None or kind.WhichOneof("value") != "optional_type" or not isinstance(value, list) or len(value) != 1:
        return value
    is_sequence = kind.optional_type.elem_type.WhichOneof("value") == "sequence_type"
    return value[0] if isinstance(value[0], list) or not is_sequence else value


def _shorten(node: Node, why: UnsupportedOp) -> str:
    """Why a node ends a stage: what keeps it from running whole in a graph, where it has no importer."""
    text = str(why)
    _, _, whole = text.partition("; nor can it run whole: ")
    return cut_text(f"{node.where}: {whole}" if whole else text, 300)


def _is_needed(why: UnsupportedOp, at: Importing) -> bool:
    """Whether a node waits for the value of a tensor of the model, not of one that would stand in its own place."""
    return isinstance(why, ValueNeeded) and at.has(why.tensor)


def _check_dtype(name: str, value: Any, declared: Any) -> None:
    from onnx import TensorProto, helper

    code = declared.type.tensor_type.elem_type
    wanted = helper.tensor_dtype_to_np_dtype(code) if code else value.dtype
    if value.dtype != wanted and not (code == TensorProto.STRING and value.dtype.kind in "UO"):
        raise ValueError(f"feeds[{quote(name)}] has dtype {value.dtype}, the input has {wanted}: convert it")
