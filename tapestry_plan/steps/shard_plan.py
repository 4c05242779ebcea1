"""Shard plans: choices, and the steps that follow from them, the executor's only input; a versioned JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from tapestry_plan.ir import Graph, Op, same_graph
from tapestry_plan.rewrite import Derivation
from tapestry_plan.steps import showing
from tapestry_plan.steps.asking.alternatives import Alternative
from tapestry_plan.steps.asking.differences import PlanDifference
from tapestry_plan.steps.asking.explaining import Explanation, check_known, explain, tell_gap
from tapestry_plan.steps.asking.lookups import Lookups
from tapestry_plan.steps.asking.memory_use import MemoryUse, list_memory
from tapestry_plan.steps.asking.transfers import PlannedTransfers, list_transfers
from tapestry_plan.steps.choices import Choices
from tapestry_plan.steps.collectives import group_steps
from tapestry_plan.steps.deriving import cut_program, derive_program, derive_steps
from tapestry_plan.steps.documents import seal
from tapestry_plan.steps.exports.placements import Lying, find_blocks
from tapestry_plan.steps.exports.shardings import Shardings, say_axes, say_dask, say_dtensor, say_jax
from tapestry_plan.steps.inside import Inside, list_readers_inside, open_blocks
from tapestry_plan.steps.layouts.layout import tell_rule
from tapestry_plan.steps.layouts.local import count_local
from tapestry_plan.steps.layouts.mesh import Mesh, Space
from tapestry_plan.steps.plan_document import read_plan, write_plan
from tapestry_plan.steps.programs import Program
from tapestry_plan.steps.schedule import Schedule, list_queued, run_queues
from tapestry_plan.steps.showing import MeasuredRun
from tapestry_plan.steps.stages import Expansions, Fused, OpaqueCost, Stage
from tapestry_plan.steps.step import Buffer, Collective, GroupedStep, Output, Step, Written, ungroup
from tapestry_sets.limits import FrozenDict, Public, Units, check_arguments, check_target, freeze_dicts, tell_count
from tapestry_sets.regions import Box

if TYPE_CHECKING:
    from tapestry_plan.report import Report
    from tapestry_plan.symbolic import SymbolicTransfers


class NotFound(ValueError):
    """No plan was found that keeps what was asked for; there may be one.

    Parameters
    ----------
    message : str
        With what was tried.
    fastest : ShardPlan
        The plan that would be given if it did not need more memory than allowed; `spill` may make it fit. Where only
        one with its operators apart would, that is it.
    least_nbytes : int
        Bytes that any plan of the graph as given, its operators apart, needs on some device, at least.
    found_nbytes : int
        The least of the plans that were looked at: as `memory_nbytes` it is enough.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_plan import Graph, Mesh, NotFound, ops, plan
    >>> g = Graph()
    >>> hidden = ops.relu(g.input("x", (8, 16)) @ g.constant("w1", np.ones((16, 32), np.float32)))
    >>> _ = g.output(hidden @ g.constant("w2", np.ones((32, 4), np.float32)), "y")
    >>> try:
    ...     plan(g, Mesh(2), memory_nbytes=2300)
    ... except NotFound as error:
    ...     print(error.least_nbytes, error.found_nbytes, sum(error.fastest.peak_nbytes) > 0)
    2304 2304 True
    """

    def __init__(self, message: str, fastest: Any, least_nbytes: int, found_nbytes: int) -> None:
        super().__init__(message)
        self.fastest, self.least_nbytes, self.found_nbytes = fastest, least_nbytes, found_nbytes


class ShardPlan(Struct, frozen=True, dict=True, weakref=True, metaclass=Public):
    """A plan that says what runs where: its choices, the steps that follow from them, and their predicted costs.

    What is predicted was counted twice before a plan is given out: by region algebra on the layouts, and while
    the steps were written.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> product = g.input("x", (32, 64)) @ g.input("w", (64, 16))
    >>> _ = g.output(ops.relu(product), "y")
    >>> p = plan(g, Mesh(4), fix={"matmul": {"k": 4}})
    >>> p.sharding, p.nbytes_moved, p.gap
    ({'matmul': {'k': 4}, 'relu': {'i1': 4}}, 6144, 0.0)
    >>> p.stage["matmul"].nbytes_received, p.nbytes_by_link[0, 1]
    ((0, 0, 0, 0), 512)
    """

    graph: Graph
    mesh: Mesh
    choices: Choices
    """What was decided; the steps, of all devices or of one, follow from it."""
    stages: tuple[Stage, ...]
    nbytes_received: tuple[int, ...]
    """Bytes that each device gets from other devices."""
    nbytes_by_link: dict[tuple[int, int], int]
    """Bytes from device to device."""
    nbytes_placed: tuple[int, ...]
    """Bytes of inputs and weights that start on each device."""
    peak_nbytes: tuple[int, ...]
    """High-water mark of each device's arena."""
    flop: tuple[float, ...]
    """Floating-point operations of each device."""
    seconds: float
    """Modeled time: the sum over stages of the slowest device's compute plus transfers."""
    bound: float
    """No plan of the searched `space` takes fewer seconds.

    The space has every expansion that was considered; one that was not chosen has its operators apart in it, not in
    blocks with each other or with those around them (`apart`).
    """
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    """For each operator, its shardings from best to worst, all other operators kept; compared when asked for.

    They are compared whatever `fix` and `forbid` asked for. A plan that was read from a document has those that had
    been asked for before; others are compared anew.
    """
    nbytes_local: tuple[int, ...] = ()
    """Bytes that each device copies within itself while the plan runs, as `seconds` counts them.

    They are found from the layouts. Those of the steps, with what puts inputs together before, are `nbytes_copied`.
    """
    nbytes_spilled: tuple[int, ...] = ()
    """Bytes that each device sends to host memory for want of room, and gets back; zeros if not given."""
    expansions: tuple[Expansions, ...] = ()
    """The operators whose expansions were compared with them, each with what was chosen."""
    space: Space = "all"
    """The layouts that were compared, over which the bound holds: "mesh" or "all", as in `plan`."""
    fused: tuple[Fused, ...] = ()
    """Operators that are one block with the one that reads their result; `plan(…, fuse=False)` has none."""
    unified: dict[str, str] = field(default_factory=dict)
    """Operators and constants of the graph as given, by name, for which equal ones stand: the rule `unify`."""
    recomputed: dict[str, str] = field(default_factory=dict)
    """Operators that run again for late readers, by name, with those that they are like: the rule `recompute`."""
    made_by: dict[str, str] = field(default_factory=dict)
    """Results of the graph as given that the plan's graph does not have, by name, with the operators that make them.

    They are inside of a block, expanded, or equal to others; those that are called like their operators are left out.
    """
    limit_nbytes: tuple[int, ...] | None = None
    """By device the bytes that its arena may have, as it was asked; None where nothing was. It is not compared."""
    explicit: Written | None = None
    """Steps that somebody wrote, in place of those that follow from the choices (see `with_steps`)."""
    asked: Mapping[str, Any] | None = None
    """What `plan` was asked for beside graph and mesh, by argument, without defaults: to plan other sizes alike.

    None where that is not known: of a plan that was read from a document, since none has it, and with `like` and `fix`.
    It is not compared.
    """

    def __repr__(self) -> str:
        peak = max(self.peak_nbytes, default=0)
        nodes, devices = len(self.graph.nodes), self.mesh.size
        return (
            f"ShardPlan({tell_count(nodes, 'operator')} on {tell_count(devices, 'device')}, "
            f"space={self.space!r}: {Units().seconds(self.seconds)} modeled, {tell_gap(self)}, "
            f"{self.nbytes_moved:,} B moved, at most {peak:,} B on a device)"
        )

    def __post_init__(self) -> None:
        for name in ("nbytes_by_link", "alternatives", "unified", "recomputed", "made_by", "asked"):
            force_setattr(self, name, freeze_dicts(getattr(self, name)))
        for name in ("nbytes_spilled", "nbytes_local"):
            if not getattr(self, name) and isinstance(self.mesh, Mesh):
                force_setattr(self, name, (0,) * self.mesh.size)

    # -- what follows from the choices -------------------------------------------------------------------

    @cached_property
    def written(self) -> Written:
        """The steps of all devices, with their buffers and outputs: written down when they are first asked for.

        Raises
        ------
        ValueError
            For choices that do not fit the graph.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> plan(g, Mesh(2), fix={"add": {"i0": 2}}).written
        Written(16 steps, 6 buffers, 1 output)
        """
        return derive_steps(self.graph, self.mesh, self.choices) if self.explicit is None else self.explicit

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The blocks of memory that the steps use.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)).T + g.input("y", (4, 4)), "z")
        >>> p = plan(g, Mesh(2), fix={"add": {"i0": 2}})
        >>> [(buffer.tensor, buffer.shape) for buffer in p.buffers if buffer.device == 1]
        [('x', (4, 2)), ('y', (2, 4)), ('add', (2, 4))]
        """
        return self.written.buffers

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all devices, in an order in which they can be run.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)).T + g.input("y", (4, 4)), "z")
        >>> [type(step).__name__ for step in plan(g, Mesh(1)).steps]
        ['Alloc', 'Copy', 'Alloc', 'Copy', 'Alloc', 'Compute', 'Free', 'Free']
        """
        return cast("tuple[Step, ...]", self.written.steps)

    @cached_property
    def grouped_steps(self) -> tuple[GroupedStep, ...]:
        """The same steps, where those that are one operation of a group of devices are one `Collective`.

        It has them, so that a backend may run either: `ungroup` of these are the plan's steps, in their order.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (32, 64)) @ g.input("w", (64, 16))), "y")
        >>> p = plan(g, Mesh(2), fix={"matmul": {"k": 2}, "relu": {"i0": 2}})
        >>> len(p.steps), len(p.grouped_steps)
        (34, 25)
        """
        return tuple(group_steps(self.steps, self.buffers, self.mesh))

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Where the graph's outputs lie at the end.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> [(one.name, one.tensor) for one in plan(g, Mesh(2)).outputs]
        [('y', 'add')]
        """
        return self.written.outputs

    @cached_property
    def placement(self) -> dict[str, dict[int, tuple[Box, ...]]]:
        """For each operator, the index boxes of each device that takes part; those inside of blocks come last.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (7, 4)), name="act"), "y")
        >>> plan(g, Mesh(2), fix={"act": {"i0": 2}}).placement["act"][1]
        (Box(start=(4, 0), shape=(3, 4)),)
        """
        boxes = {name: layout.boxes for name, layout in self.choices.of_kind("operator").items()}
        boxes |= {name: one.boxes for name, one in self._inside.items()}
        return FrozenDict(
            (name, FrozenDict((device, (box,)) for device, box in enumerate(mine) if box is not None))
            for name, mine in boxes.items()
        )

    @cached_property
    def _inside(self) -> dict[str, Inside]:
        """The operators whose results stay inside of blocks."""
        boxes = {name: layout.boxes for name, layout in self.choices.of_kind("operator").items()}
        return open_blocks(self.graph, ((pair.first, pair.second) for pair in self.fused), boxes)

    @cached_property
    def sharding(self) -> dict[str, dict[str, int]]:
        """For each operator, its split index axes and their numbers of parts; those inside of blocks come last.

        Axes are called as the operators call them, as `fix` takes them: of a block, which is named after its last
        operator, as that one does. `Stage.sharding`, `explain` and reports have the same names.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (7, 4)), name="act"), "y")
        >>> plan(g, Mesh((2, 2)), fix={"act": {"i0": ("x",), "i1": ("y",)}}).sharding
        {'act': {'i0': 2, 'i1': 2}}
        """
        found = {
            name: {axis.name: n for axis, n in zip(axes, layout.parts, strict=True) if n > 1}
            for name, layout in self.choices.of_kind("operator").items()
            for axes in [self.graph.signature(name).axes]
        }
        found |= {name: one.sharding for name, one in self._inside.items()}
        return FrozenDict((name, FrozenDict(each)) for name, each in found.items())

    @cached_property
    def opaque(self) -> dict[str, OpaqueCost]:
        """Operators that are opaque, see `tapestry_plan.ops.opaque`, and their costs.

        Nodes of ONNX that have no declaration run whole, once, on one device, which sends what others read. Their
        modeled time is that of going through their bytes once, the least there may be; so a plan's bound stays one.
        A Loop or Scan of too many rounds to unroll takes as long as its rounds' operators, or those of one round, where
        how many there are is known in a run alone; several devices may run it, each over its part.

        Examples
        --------
        >>> from onnx import parser
        >>> from tapestry_plan import Mesh, load_onnx, plan
        >>> text = 'agraph (float[6, 4] x) => (float[6, 4] y) { a = Relu(x) b = ai.onnx.ml.LabelEncoder '
        >>> text += '<keys_floats: floats = [0], values_floats: floats = [1]> (a) y = Neg(b) }'
        >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21, "ai.onnx.ml" : 3]> {text}')
        >>> g = load_onnx(model, opaque=True)
        >>> cost = plan(g, Mesh(2), fix={"Relu_0": {"i0": 2}}).opaque["LabelEncoder_0"]
        >>> cost.nbytes_moved, cost.nbytes_read, cost.nbytes_written
        (48, 96, 96)
        """
        graph = self.graph
        names = [node.name for node in graph.nodes.values() if graph.ops[node.op].opaque and node.name in self.stage]
        return FrozenDict((one, OpaqueCost.of(graph, self.stage[one], len(self.placement[one]))) for one in names)

    @check_arguments
    def program(self, device: int, *, grouped: bool = False) -> Program:
        """The steps of one device, in which a copy between devices is a `Send` on one side and a `Recv` on the other.

        It follows from the choices without the steps of other devices, and is the same wherever it is worked out. Only
        where steps were written by hand it is cut out of these.

        Parameters
        ----------
        device : int
            A number of the mesh.
        grouped : bool
            Whether what is one operation of a group of devices is one `Collective` step, which has this device's own
            steps: cut out of the steps of all devices then.

        Raises
        ------
        ValueError
            For a number that the mesh does not have.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> from tapestry_plan.ops import relu
        >>> g = Graph()
        >>> _ = g.output(relu(relu(g.input("x", (4, 4)), name="a").T, name="b"))
        >>> p = plan(g, Mesh(2), fix={"a": {"i0": 2}, "b": {"i0": 2}})
        >>> [(type(step).__name__, step.tag) for step in p.program(0).steps if hasattr(step, "peer")]
        [('Send', 1), ('Recv', 1)]
        """
        if not 0 <= device < self.mesh.size:
            raise ValueError(f"program: device is {device}; the mesh has devices 0 to {self.mesh.size - 1}")
        if grouped:
            return cut_program(self.graph, self.written, device, self.grouped_steps)
        if self.explicit is not None:
            return cut_program(self.graph, self.explicit, device)
        return derive_program(self.graph, self.mesh, self.choices, device)

    @check_arguments
    def transfers(
        self,
        source: int | None = None,
        target: int | None = None,
        *,
        tensor: str | None = None,
        producer: str | None = None,
        consumer: str | None = None,
    ) -> PlannedTransfers:
        """What goes from device to device: which cells of which tensor, who makes and who reads them, and why.

        Their bytes are those of `nbytes_by_link`. There are none of what lies where it is read.

        Parameters
        ----------
        source, target : int, optional
            Only from, or to, this device.
        tensor, producer, consumer : str, optional
            Only of this tensor; of what this operator makes ("input" or "constant": what is given); for this operator,
            or a stage without one, as "landing t".

        Raises
        ------
        ValueError
            For a device that is not on the mesh, and for names that the plan's graph does not have as such: of an
            operator that is inside of a block, which the message names, and of a view, whose tensor it names.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> from tapestry_plan.ops import relu
        >>> g = Graph()
        >>> _ = g.output(relu(relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> print(p.transfers(source=1))
        step  from  to  tensor  made by  read by  bytes  why
          12     1   0  rows    rows     columns     24  columns on device 0 reads cells that device 1 made
        >>> p.transfers().nbytes_by("source", "target") == p.nbytes_by_link
        True
        """
        for what, device in (("source", source), ("target", target)):
            if device is not None and not 0 <= device < self.mesh.size:
                raise ValueError(f"transfers: {what} is {device}; the mesh has devices 0 to {self.mesh.size - 1}")
        every = self._transfers.rows
        asked = {"source": source, "target": target, "tensor": tensor, "producer": producer, "consumer": consumer}
        for what, name in asked.items():
            if isinstance(name, str) and not any(getattr(row, what) == name for row in every):
                check_known(self, what, name)
        wanted = [(what, value) for what, value in asked.items() if value is not None]
        rows = tuple(r for r in every if all(getattr(r, what) == value for what, value in wanted))
        return self._transfers._pick(rows)

    @cached_property
    def memory(self) -> tuple[MemoryUse, ...]:
        """By device: what its arena holds step by step, and which buffers where that is the most.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> from tapestry_plan.ops import relu
        >>> g = Graph()
        >>> _ = g.output(relu(relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> print(p.memory[1])
        device 1 holds 192 B at step 18; its arena has 192 B
        bytes  tensor   what    cells          from step  to step
           64  rows     result  [2, 4)×[0, 6)          6       21
           64  rows     result  [0, 4)×[3, 6)         13       23
           64  columns  result  [3, 6)×[0, 4)         18       23
        """
        buffers = {buffer.id: buffer for buffer in self.buffers}
        return tuple(list_memory(self.graph, buffers, self.steps, self.peak_nbytes))

    @cached_property
    def _transfers(self) -> PlannedTransfers:
        buffers = {buffer.id: buffer for buffer in self.buffers}
        return PlannedTransfers(tuple(list_transfers(self.graph, buffers, self.steps)), self.mesh.prices_runs)

    @check_arguments
    def collectives(self) -> tuple[Collective, ...]:
        """The steps that are equal parts over one group of devices: what a library such as NCCL has in one call.

        They are those of `grouped_steps`, in this order; a backend may run each as what it is called. Of parts that are
        merged in stages each stage has its own, over fewer devices.

        Examples
        --------
        A product whose reduction is cut, its parts merged in rows, which all devices read:

        >>> from tapestry_plan import Graph, Mesh, plan
        >>> from tapestry_plan.ops import relu
        >>> g = Graph()
        >>> product = g.op("matmul", g.input("x", (64, 64)), g.input("w", (64, 64)), name="product")
        >>> _ = g.output(relu(product, name="r"))
        >>> p = plan(g, Mesh(2), fix={"product": {"k": 2}, "r": {"i0": 2}})
        >>> [(one.kind, one.group, one.axes, one.nbytes) for one in p.collectives()]
        [('reduce_scatter', (0, 1), ('x',), 8192)]
        """
        return tuple(step for step in self.grouped_steps if isinstance(step, Collective))

    @check_arguments(
        steps="they are of Alloc, Copy, Compute, Reduce, Free, Spill, Fetch and Collective",
        buffers="they are of Buffer",
        outputs="they are of Output",
    )
    def with_steps(
        self,
        steps: Sequence[GroupedStep] | None = None,
        *,
        buffers: Sequence[Buffer] | None = None,
        outputs: Sequence[Output] | None = None,
    ) -> ShardPlan:
        """The plan with steps, buffers or outputs of one's own; what is not given is as it follows from the choices.

        Its document has them written out. Nothing is checked before the plan is run. A collective counts as its steps.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> p = plan(g, Mesh(2))
        >>> p.with_steps(steps=p.steps) == p, p.with_steps(steps=p.steps[1:]) == p
        (True, False)
        """
        steps = None if steps is None else cast("tuple[Step, ...]", tuple(ungroup(steps)))
        given = {"steps": steps, "buffers": buffers, "outputs": outputs}
        found = {name: tuple(value) for name, value in given.items() if value is not None}
        return replace(self, explicit=replace(self.written, **found))

    def __eq__(self, other: object) -> bool:
        """Whether two plans are of the same graph and say the same: so a plan that was written and read is."""
        if not isinstance(other, ShardPlan):
            return NotImplemented
        # What was compared beside the choices, or might have kept others from being made, says nothing of them.
        derived = ("graph", "explicit", "alternatives", "limit_nbytes", "asked")
        fields = [name for name in self.__struct_fields__ if name not in derived]
        if any(getattr(self, name) != getattr(other, name) for name in fields):
            return False
        if self.graph is not other.graph and not same_graph(self.graph, other.graph):
            return False
        return self.explicit == other.explicit or self.written == other.written

    __hash__ = None  # type: ignore[assignment]  # plans have dictionaries

    # -- to look at --------------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        return showing.show_plan(self)

    @check_arguments(path="give the path of a file, as 'report.html'", run="give what run(plan, …) returns")
    def report(self, path: str | PathLike[str] | None = None, *, run: MeasuredRun | None = None) -> Report:
        """The plan in one page of HTML: what it comes to, the graph, reasons, bytes by pair of devices, memory, time.

        The page needs no network, and is at most 2 MB. Notebooks show it. What there was no room for it says.

        Parameters
        ----------
        path : path, optional
            Write the page to this file too.
        run : RunResult, optional
            A run of this plan, whose times are shown beside those that were predicted.

        Raises
        ------
        ValueError
            For a run of another plan, and a path in a folder that is not there.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph("perceptron")
        >>> _ = g.output(g.input("x", (8, 8)) @ g.input("w", (8, 8)))
        >>> plan(g, Mesh(2)).report()  # doctest: +ELLIPSIS
        Report(perceptron: 1 operator on 2 devices: ... B of HTML; save('report.html') writes it)
        """
        target = None if path is None else check_target(path, "report")
        made: Report = showing.make_report(self, run)
        if target is not None:
            made.save(target)
        return made

    # -- to take home ------------------------------------------------------------------------------------

    @check_arguments
    def to_jax(self, mesh: object = None) -> Shardings[Any]:
        """Where tensors lie, as JAX says it: what inputs and weights are put to, and what results are constrained to.

        Exact, or refused: parts of one size, in the order of the mesh. Where a device is given cells beside an even
        part, as rows with a halo, it is the part: JAX moves the halo itself. Along an axis of the mesh of which one
        device alone has a tensor JAX has copies: the code says so, and `Shardings.placements` which axes are `idle`.
        `Shardings.outputs` says where the graph's outputs are in the end, for ``out_shardings``.

        Parameters
        ----------
        mesh : jax.sharding.Mesh, optional
            With the axes that `Shardings.mesh` says, as the code of `Shardings.to_code` makes one. With it there are
            `NamedSharding`s, else `PartitionSpec`s.

        Returns
        -------
        Shardings
            By tensor; those that JAX cannot say are in `refused`, and asking for one raises `NotExported`.

        Raises
        ------
        ImportError
            Without JAX, when a value is asked for; `Shardings.to_code` does without.
        TypeError, ValueError
            For what is not a mesh of JAX, and for one with other axes.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (8, 4)), name="act"), "y")
        >>> p = plan(g, Mesh(2), fix={"act": {"i0": 2}})
        >>> print(p.to_jax().to_code().splitlines()[-3])
        placed['act'] = NamedSharding(mesh, P('x', None))
        >>> p.to_jax()["x"]  # doctest: +SKIP
        PartitionSpec('x', None)
        """
        return say_jax(self._lying, mesh)

    def to_mesh_axes(self) -> Shardings[tuple[tuple[str, ...], ...]]:
        """Where tensors lie: for each of their axes the axes of the mesh that it is cut along, the outermost first.

        What `to_jax` and `to_dtensor` say in these libraries' words, parts of several sizes too.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> from tapestry_plan.ops import relu
        >>> g = Graph()
        >>> _ = g.output(relu(g.input("x", (8, 6)), name="act"), "y")
        >>> found = plan(g, Mesh((2, 2)), fix={"act": {"i0": ("x",), "i1": ("y",)}}).to_mesh_axes()
        >>> found["act"], found.outputs["y"]
        ((('x',), ('y',)), (('x',), ('y',)))
        """
        return say_axes(self._lying)

    def to_dtensor(self) -> Shardings[Any]:
        """Where tensors lie, as the placements of PyTorch's DTensor: one for each axis of the mesh.

        Parts are those of `torch.chunk`; others are refused, as by `to_jax`. An axis that is cut along several axes of
        the mesh in another order than theirs, in even parts, has a ``_StridedShard``. DTensor moves no halos: of
        convolutions and windows that are cut along their rows it computes each part by itself, padded, and says
        nothing.

        Raises
        ------
        ImportError
            Without PyTorch, when a value is asked for; `Shardings.to_code` does without.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (8, 4)), name="act"), "y")
        >>> p = plan(g, Mesh(2), fix={"act": {"i0": 2}})
        >>> p.to_dtensor()["x"]  # doctest: +SKIP
        (Shard(dim=0),)
        """
        return say_dtensor(self._lying)

    def to_onnx(self) -> Any:
        """The plan as an ONNX model, whose nodes say by `ShardingSpecProto`s where they read and make tensors.

        Blocks of several operators are written as these, each with shardings of its own.

        Returns
        -------
        onnx.ModelProto

        Raises
        ------
        UnsupportedOp
            For operators and views that ONNX does not have.
        NotExported
            With the reasons, where tensors lie as ONNX cannot say.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.exp(ops.relu(g.input("x", (8, 4)))), "y")
        >>> p = plan(g, Mesh(2))
        >>> [node.op for node in p.graph.nodes.values()], [node.op_type for node in p.to_onnx().graph.node]
        (['fused(relu,exp)'], ['Relu', 'Exp'])

        References
        ----------
        ONNX, "Sharding formalism" (MultiDevice).
        """
        return showing.write_model(self)

    def to_dask_chunks(self) -> Shardings[tuple[tuple[int, ...], ...]]:
        """The chunks of tensors, as Dask has them: for each axis the extents of its parts, of any sizes.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> from tapestry_plan.ops import relu
        >>> g = Graph()
        >>> _ = g.output(relu(g.input("x", (8, 6)), name="y"))
        >>> p = plan(g, Mesh(3), fix={"y": {"i0": 3}})
        >>> p.to_dask_chunks()["y"]
        ((3, 3, 2), (6,))
        """
        return say_dask(self._lying)

    @cached_property
    def _lying(self) -> Lying:
        return find_blocks(self.graph, self.mesh, self.buffers, self.steps, self.outputs)

    @property
    def nbytes_moved(self) -> int:
        """Bytes between devices, once for each receiving device.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> p.nbytes_moved, p.nbytes_by_link
        (48, {(0, 1): 24, (1, 0): 24})
        """
        return sum(self.nbytes_received)

    @property
    def cost(self) -> float:
        """The figure that the search minimized: `seconds`.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> p = plan(g, Mesh(2))
        >>> p.cost == p.seconds >= p.bound
        True
        """
        return self.seconds

    @cached_property
    def nbytes_copied(self) -> tuple[int, ...]:
        """Bytes of cells that each device copies within itself, counted from the steps when they are asked for.

        They are of blocks that are not strided in one buffer, and of its own cells beside others that come, as of rows
        beside a halo. What is made where it is read is copied by nobody. These are the bytes that `seconds` and
        `nbytes_local` count; here are also those of inputs that are put together before a run. A run counts them.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> rows = ops.relu(g.input("x", (4, 6)), name="rows")
        >>> _ = g.output(ops.relu(rows.T, name="columns"))
        >>> plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}}).nbytes_copied
        (24, 24)
        """
        return count_local(self.graph, self.buffers, self.steps, self.mesh.size)

    @cached_property
    def schedule(self) -> Schedule:
        """When each step runs where copies run beside work; worked out when asked for.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
        >>> p = plan(g, Mesh(2))
        >>> p.schedule.seconds == p.makespan_seconds
        True
        """
        work = {stage.node: stage.work_seconds for stage in self.stages}
        return run_queues(list_queued(self.steps, self.buffers, self.mesh, work))

    @property
    def makespan_seconds(self) -> float:
        """Modeled time with copies beside work: every device's work, and every link, in a queue of its own.

        Messages of one device over one link go one after the other, whole, so that it may be more than `seconds`, of
        which `bound` is a bound, where a stage's messages do not fit together; mostly it is less.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
        >>> p = plan(g, Mesh(2))
        >>> 0 < p.makespan_seconds <= p.seconds
        True
        """
        return self.schedule.seconds

    @property
    def gap(self) -> float:
        """(cost − bound) / cost, 0 when the cost is 0; 1 where nothing was searched, as in a plan that `bind` made.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
        >>> plan(g, Mesh(2)).gap  # no plan of the space is faster
        0.0
        """
        return (self.cost - self.bound) / self.cost if self.cost else 0.0

    @property
    def apart(self) -> tuple[str, ...]:
        """Operators whose expansions were not chosen: `bound` is of plans that have these in no block.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.softmax(g.input("x", (4, 6))), "y")
        >>> plan(g, Mesh(2)).apart
        ('softmax',)
        """
        return tuple(found.node for found in self.expansions if found.considered and found.chosen is None)

    @cached_property
    def expanded(self) -> dict[str, str]:
        """The operators that the search said in other ones, each with the name of its expansion.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.softmax(g.input("x", (1, 2**20)), name="shares"), "y")
        >>> plan(g, Mesh(4)).expanded  # one row, which is cut so
        {'shares': 'exp_sum'}
        """
        return FrozenDict((found.node, found.chosen) for found in self.expansions if found.chosen is not None)

    @property
    def derivation(self) -> Derivation:
        """The rewrites that lead from the graph that was planned to the graph that the plan has.

        Replayed, they give the same operators on the same tensors, but for their order: the plan runs what stands for
        an operator where the operator would run, rewrites add it at the end. Where several operators read one tensor,
        the first of them pays for what arrives, so that a plan of the replayed graph may cost a little less or more.
        With `same_bits` it is `fix_bits(graph)` that was planned.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (32, 64)) @ g.input("w", (64, 16))), "y")
        >>> plan(g, Mesh(2)).derivation
        Derivation(1 step: fuse at 'relu')
        """
        steps = Derivation()
        for name, other in self.unified.items():
            steps = steps.then("unify", name, other=other)
        pairs = [(pair.first, pair.second) for pair in self.fused]
        for name, node in self.recomputed.items():
            steps = steps.then("recompute", node, by=list_readers_inside(self.graph, pairs, name), name=name)
        for found in self.expansions:
            if found.split:
                steps = steps.then("split_axes", found.node, **tell_rule(found.split))
            elif found.chosen is not None:
                steps = steps.then("expand", found.node, into=found.chosen)
        for pair in self.fused:
            steps = steps.then("fuse", pair.second, operand=pair.operand)
        return steps

    @cached_property
    def kept(self) -> WeakKeyDictionary[object, Any]:
        """Answers kept for this plan, by who keeps them here; gone with either. Neither written nor compared.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> class Mine:
        ...     '''Who keeps something.'''
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> p, mine = plan(g, Mesh(2)), Mine()
        >>> p.kept[mine] = "looked at"
        >>> p.kept[mine]
        'looked at'
        """
        return WeakKeyDictionary()

    @cached_property
    def stage(self) -> dict[str, Stage]:
        """The stages by operator: of one that is inside of a block the block's.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> p.stage["columns"].nbytes_received, p.stage["columns"].sharding
        ((24, 24), {'i0': 2})
        """
        found = {stage.node: stage for stage in self.stages}
        for pair in reversed(self.fused):
            found[pair.first] = found[pair.second]
        return FrozenDict(found)

    @cached_property
    def _lookups(self) -> Lookups:
        """Its blocks and expansions by operator."""
        return Lookups.of(self.fused, self.expansions)

    @check_arguments
    def explain(self, node: str) -> Explanation:
        """Why an operator is sharded as it is: what its shards read and from where, and its costs otherwise.

        An operator may be asked for by a tensor that it makes, as an ONNX file calls it, and by an output. Of an input,
        a constant or a view it tells where it lies, who reads it, and what moves because of it. Where several things
        have one name, "operator x", "tensor x" and, of an output, "label x" say which is meant.

        Of each tensor that is read it tells how much lies where it is read, and one of the copies that bring the rest.
        Of a large plan on many devices it does so where its steps are written, and else says how to have them.
        Each other sharding has the totals of the whole graph, all else being equal, by how much they differ from the
        plan's, and why: whose bytes move, merge, or lie on more devices then. ``plan(graph, mesh, like=p, fix={node:
        sharding})`` is the plan that has these totals. Of a stage without an operator, as "output y" or "landing t",
        it tells what goes from where to where. Names are in one line each.

        Returns
        -------
        Explanation
            A str, which notebooks show as a table.

        Raises
        ------
        ValueError
            When the plan has no operator, stage, input, constant, view or output of that name, or several.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
        >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        >>> print(p.explain("columns").splitlines()[2])
          reads 96 B of result rows; 48 B come from other devices, as cells [2, 4)×[0, 3) from device 1 to 0
        >>> print(p.explain("x"))
        x: input, float32 of 4×6, 96 B
          placed: 48 B on each of 2 devices
          rows reads 96 B of input x, all of it where it is placed
          nothing moves because of it
        """
        return explain(self, node)

    @check_arguments
    def diff(self, other: ShardPlan) -> PlanDifference:
        """What another plan has otherwise: totals, the machine, each operator whose parts lie elsewhere, and transfers.

        Operators are compared by name: plans of different graphs have few in common. It is false where nothing that is
        listed differs, not even a total; ``print`` writes lines, a notebook has tables.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (64, 64)) @ g.input("w", (64, 64)))
        >>> p, q = plan(g, Mesh(4)), plan(g, Mesh(4), fix={"matmul": {"k": 4}})
        >>> bool(p.diff(p)), [row.after for row in p.diff(q).operators]
        (False, ['k:4'])
        >>> print(p.diff(q))  # doctest: +ELLIPSIS
        time          ... us ->          ... us ...
        moved           0 B ->      ... B ...
        """
        return PlanDifference(self, other)

    # -- at other sizes ----------------------------------------------------------------------------------

    @check_arguments(to="give sizes by symbol, as {'batch': 32}, or a graph, as load_onnx returns one")
    def bind(self, to: Graph | Mapping[str, int] | None = None, /, **sizes: int) -> ShardPlan:
        """The plan of the same model with other sizes of its open axes: all choices are kept, and counted anew.

        Each part stays on its device. Even parts are as even as can be again; uneven ones share the new extent in
        their proportions. So bytes, memory and time are those of this very plan at the new sizes, exactly. Nothing is
        searched: `bound` is 0, which proves nothing, and ``plan(p.graph.bind(batch=32), mesh)`` says whether another
        plan is better there.

        Parameters
        ----------
        to : mapping of str to int, or Graph, optional
            Sizes by symbol, as ``{"batch": 32}``; or the model's graph at the sizes that are wanted, for a plan that
            was read from a document, or whose graph was changed after it was loaded.
        **sizes : int
            Sizes by symbol. Symbols that are not named keep their sizes.

        Raises
        ------
        ValueError
            For unknown symbols, those that are given twice, sizes below 1, or none; for a plan whose graph has no
            model to be read again; and where an axis has fewer points than parts, or cannot be cut into so many.
        NotFound
            Where a device has less memory than the plan needs at these sizes, or was to have less (`limit_nbytes`). Its
            `fastest` is the plan all the same.

        Examples
        --------
        >>> from onnx import parser
        >>> from tapestry_plan import Mesh, load_onnx, plan
        >>> text = 'agraph (float[batch, 4] x) => (float[4, batch] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
        >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
        >>> g = load_onnx(model, shapes={"batch": 8})
        >>> p = plan(g, Mesh(2), fix={"Relu_0": {"i0": 2}, "Exp_0": {"i0": 2}})
        >>> p.nbytes_moved, p.bind(batch=32).nbytes_moved, p.bind(batch=32).sharding == p.sharding
        (64, 256, True)
        """
        made: ShardPlan = showing.bind_plan(self, to, sizes)
        return made

    @check_arguments(confirm="give sizes, as range(8, 58)")
    def symbolic_transfers(self, symbol: str | None = None, *, confirm: Sequence[int] = ()) -> SymbolicTransfers:
        """The transfers with their bytes as polynomials in one size of the model, all choices kept.

        The other symbols keep their sizes. In each class of remainders, as of N divided by 4 where N points are cut
        into 4 parts, cells are a set whose parameter is the size, and the set engine counts them for all sizes at once.
        How the model's extents and views depend on the size is read from it near the plan's own size, where they must
        be affine, and at far ones, to 4,096 times that: where they are otherwise there, polynomials end before
        (`SymbolicTransfers.most`, `least`). Between the sizes that were read nothing is proved of the model; `confirm`
        tests single ones. What cannot be said so is in `SymbolicTransfers.refused`, with the reason.

        Parameters
        ----------
        symbol : str, optional
            The one that there is, by default.
        confirm : sequence of int
            Sizes at which the plan is bound too, and its bytes compared row by row, as those of the plan itself are.

        Raises
        ------
        ValueError
            For an unknown symbol, none of several, and a plan whose graph was not read from a model with open axes; for
            a size of `confirm` for which polynomials do not hold, or at which the plan moves other bytes than they say.
        TooHard
            Where parts differ in too many classes of sizes, or the set engine cannot count some cells.
        ImportError
            Without islpy or sympy.

        Examples
        --------
        >>> from onnx import parser
        >>> from tapestry_plan import Mesh, load_onnx, plan
        >>> text = 'agraph (float[N, 4] x) => (float[4, N] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
        >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
        >>> p = plan(load_onnx(model, shapes={"N": 8}), Mesh(2), fix={"Relu_0": {"i0": 2}, "Exp_0": {"i0": 2}})
        >>> str(p.symbolic_transfers("N", confirm=range(4, 10)).nbytes)
        '8·N'
        """
        found: SymbolicTransfers = showing.find_transfers(self, symbol, confirm)
        return found

    # -- as a document -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> p = plan(g, Mesh(2))
        >>> p.to_dict()["nbytes_received"]
        [0, 0]
        """
        return write_plan(self)

    def to_json(self) -> str:
        """The plan as a JSON document with its own SHA-256, so that an edited plan is recognized.

        Of `alternatives` it has those that were asked for so far, since comparing all takes about as long as planning.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ShardPlan, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> p = plan(g, Mesh(2))
        >>> ShardPlan.from_json(p.to_json()) == p
        True
        """
        return seal(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes, ops: Mapping[str, Op] | None = None) -> ShardPlan:
        """A plan from its JSON document; `ops` declares operators beyond the built-in ones.

        Raises
        ------
        PlanVersionError
            For text that is not JSON, another format or version, a document that was edited, or figures that are not
            of the plan's operators, choices and devices.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ShardPlan, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
        >>> text = plan(g, Mesh(2)).to_json()
        >>> ShardPlan.from_json(text).stages[0].node
        'add'
        """
        return read_plan(text, cls, ops)
