"""Placements in the words of JAX, PyTorch and Dask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from math import prod
from typing import Any, Generic, Literal, TypeVar

from tapestry_plan.steps.exports.placements import (
    FineMesh,
    Lying,
    MeshPlacement,
    NotExported,
    TensorBlocks,
    join_axes,
    place_all,
)
from tapestry_sets.draw import align, as_html
from tapestry_sets.limits import (
    FrozenDict,
    Guarded,
    check_arguments,
    cut_text,
    escape_controls,
    list_names,
    put_fields,
    quote,
    tell_count,
)

Said = TypeVar("Said")
HEADS = ("tensor", "what", "shape", "where it lies")
PlacedKey = tuple[bool, str]
"""Whether it is an output, and its name."""


class Shardings(Guarded, Mapping[str, Said], Generic[Said]):
    """Where the tensors of a plan lie, as a library says it: a mapping from names, of those that it can say.

    A tensor that it cannot say is none of the keys; to ask for it raises `NotExported` with the reason.

    Parameters
    ----------
    said : mapping of str to object
        By tensor.
    refused : mapping of str to str
        The reasons, by tensor.
    placements : mapping of str to TensorBlocks
        Those of `MeshPlacement` where a mesh is spoken of.
    mesh : FineMesh, optional
        The axes that it is said by: those of the plan's mesh, or their factors, as ``x.0`` and ``x.1``.
    head : str
        Lines of Python that stand before those of the tensors.
    line : callable
        One line of the library's Python, of a tensor's name and what is said of it.
    outputs : Shardings, optional
        The same of the graph's outputs, by their labels, as they lie when the plan has run; a plan may move them there
        from where they are made.
    word : callable, optional
        Makes the library's own value of what is said, when it is asked for: only then must the library be there. The
        code needs it not.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (8, 4)), name="act"), "y")
    >>> found = plan(g, Mesh(2), fix={"act": {"i0": 2}}).to_mesh_axes()
    >>> print(found)
    tensor  what    shape  where it lies
    x       input   8×4    (('x',), ())
    act     result  8×4    (('x',), ())
    >>> found["act"], found.refused
    ((('x',), ()), {})
    """

    def __init__(
        self,
        said: Mapping[str, Said],
        refused: Mapping[str, str],
        placements: Mapping[str, TensorBlocks],
        mesh: FineMesh | None,
        head: str,
        line: Callable[[str, str, Said], str],
        outputs: Shardings[Said] | None = None,
        word: Callable[[Any], Said] | None = None,
    ) -> None:
        self._said, self._head, self._line = dict[str, Any](said), head, line
        self._word: Callable[[Any], Said] = _say_as_it_is if word is None else word
        put_fields(self, refused=FrozenDict(refused), placements=FrozenDict(placements), mesh=mesh, outputs=outputs)

    refused: Mapping[str, str]
    placements: Mapping[str, TensorBlocks]
    mesh: FineMesh
    outputs: Shardings[Said]

    def __getitem__(self, name: str) -> Said:
        if name in self._said:
            return self._word(self._said[name])
        if name in self.refused:
            raise NotExported(f"tensor {quote(name)}: {self.refused[name]}")
        if self.outputs is not None and (name in self.outputs or name in self.outputs.refused):
            raise KeyError(f"{quote(name)} is an output of the graph; ask for .outputs[{quote(name)}]")
        known = list_names([*self._said, *self.refused], name, "tensors")
        raise KeyError(f"the plan places and makes no tensor {quote(name)}; {known}")

    def __contains__(self, name: object) -> bool:
        return name in self._said

    def get(self, name: str, default: Any = None) -> Any:
        """What is said of a tensor; the default for one that is refused or not there.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (8, 4)), name="act"), "y")
        >>> plan(g, Mesh(2), fix={"act": {"i0": 2}}).to_dask_chunks().get("nothing", "not there")
        'not there'
        """
        return self[name] if name in self._said else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    @check_arguments
    def of_kind(self, kind: Literal["input", "constant", "result"]) -> dict[str, Said]:
        """Those of inputs ("input"), weights ("constant"), or what operators make ("result").

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (8, 4)), name="act"), "y")
        >>> plan(g, Mesh(2), fix={"act": {"i0": 2}}).to_dask_chunks().of_kind("input")
        {'x': ((4, 4), (4,))}
        """
        return {name: self[name] for name in self._said if self.placements[name].kind == kind}

    @property
    def _ends(self) -> Shardings[Said]:
        if self.outputs is not None:
            return self.outputs
        return Shardings({}, {}, {}, self.mesh, "", self._line)

    def map(self, change: Callable[[Said], Any]) -> Shardings[Any]:
        """The same tensors in other words, each of which is made of the one that stands when it is asked for."""
        before = self._word
        ends = None if self.outputs is None else self.outputs.map(change)
        return Shardings(
            self._said,
            self.refused,
            self.placements,
            self.mesh,
            self._head,
            self._line,
            ends,
            lambda said: change(before(said)),
        )

    @property
    def every_refusal(self) -> dict[str, str]:
        """The reasons, of tensors and of outputs, by what each is called in a message."""
        mine = {f"tensor {quote(name)}": why for name, why in self.refused.items()}
        return mine | {f"output {quote(name)}": why for name, why in self._ends.refused.items()}

    def check(self) -> None:
        """Raise `NotExported`, with all reasons, where some tensor, or the end of an output, cannot be said."""
        refused = self.every_refusal
        if refused:
            told = "; ".join(f"{name}: {why}" for name, why in refused.items())
            raise NotExported(f"{len(refused)} of {len(self) + len(self._ends) + len(refused)} tensors: {told}")

    def to_code(self) -> str:
        """The same as lines of Python that run, to take along; what is refused is named in comments.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (8, 6)), name="act"), "y")
        >>> print(plan(g, Mesh(3), fix={"act": {"i0": 2}}).to_mesh_axes().to_code())
        mesh = {'x': 3}
        placed = {}
        outputs = {}
        # refused: tensor 'x': device 2 has none of it
        # refused: tensor 'act': device 2 has none of it
        # refused: output 'y': device 2 has none of it
        """
        lines, ends = self._write_lines("placed"), self._ends._write_lines("outputs")
        why = [escape_controls(f"# refused: {name}: {reason}", "") for name, reason in self.every_refusal.items()]
        return "\n".join([self._head, "placed = {}", *lines, "outputs = {}", *ends, *why])

    def _write_lines(self, table: str) -> Iterator[str]:
        for name, said in self._said.items():
            beside = "; ".join(_tell_beside(self.placements[name]))
            yield self._line(table, name, said) + (f"  # in the plan {beside}" if beside else "")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({tell_count(len(self), 'tensor')}, {len(self.refused):,} refused)"

    def __str__(self) -> str:
        return "\n".join(align([HEADS, *self._list_rows()]))

    def _repr_html_(self) -> str:
        return as_html([HEADS, *self._list_rows()], numbers=())

    def _list_rows(self) -> Iterator[list[str]]:
        for name, said in self._said.items():
            placement = self.placements[name]
            beside = "".join(f", {told}" for told in _tell_beside(placement))
            shape = "×".join(map(str, placement.shape)) or "one cell"
            yield [cut_text(name), placement.kind, shape, str(said) + beside]
        for name, why in self.refused.items():
            yield [cut_text(name), "", "", f"refused: {why}"]


def _say_as_it_is(said: Any) -> Any:
    return said


def _tell_beside(placement: TensorBlocks) -> Iterator[str]:
    """What a plan has otherwise than libraries, which have no word for it."""
    if any(placement.halos):
        halos = (f"{n} cells beside along axis {axis}" for axis, n in enumerate(placement.halos) if n)
        yield f"with {' and '.join(halos)}"
    if isinstance(placement, MeshPlacement) and placement.idle:
        yield f"on one device along {' and '.join(placement.idle)}"


# -- what libraries can say --------------------------------------------------------------------------------


def _list_keyed(lying: Lying) -> dict[PlacedKey, TensorBlocks | str]:
    ends = {(True, name): one for name, one in lying.outputs.items()}
    return {(False, name): one for name, one in lying.tensors.items()} | ends


def _split(
    every: Mapping[PlacedKey, Any],
    refused: Mapping[PlacedKey, str],
    placements: Mapping[PlacedKey, TensorBlocks],
    mesh: FineMesh | None,
    head: str,
    line: Callable[[str, str, Any], str],
) -> Shardings[Any]:
    """Shardings of tensors that have those of the outputs with them."""

    def part(of_outputs: bool, values: Mapping[PlacedKey, Any]) -> dict[str, Any]:
        return {name: value for (is_output, name), value in values.items() if is_output == of_outputs}

    outputs, tensors = (
        (part(which, every), part(which, refused), part(which, placements), mesh, head, line) for which in (True, False)
    )
    return Shardings(*tensors, outputs=Shardings(*outputs))


def _say_each(
    found: Mapping[PlacedKey, Any], refused: dict[PlacedKey, str], say: Callable[[Any], Any]
) -> tuple[dict[PlacedKey, Any], dict[PlacedKey, Any]]:
    """What is said of each, and the placements of these; reasons of the others are put to those refused."""
    said, placements = dict[PlacedKey, Any](), dict[PlacedKey, Any]()
    for key, placement in found.items():
        try:
            said[key] = say(placement)
            placements[key] = placement
        except NotExported as error:
            refused[key] = str(error)
    return said, placements


def _say_on_mesh(
    lying: Lying,
    say: Callable[[MeshPlacement, FineMesh], Any],
    head: Callable[[FineMesh], str],
    line: Callable[[str, str, Any], str],
) -> Shardings[Any]:
    """What a library says by axes of a mesh, these taken apart no further than what it can say needs."""
    fine, placed = place_all(lying.mesh, _list_keyed(lying))
    refused = {key: one for key, one in placed.items() if isinstance(one, str)}
    able = {key: one for key, one in placed.items() if isinstance(one, MeshPlacement)}
    _, able = _say_each(able, refused, lambda one: say(one, fine))
    mesh, joined = join_axes(lying.mesh, fine, able)
    said, placements = _say_each(joined, refused, lambda one: say(one, mesh))
    return _split(said, refused, placements, mesh, head(mesh), line)


def check_even(placement: TensorBlocks, library: str) -> None:
    """Raise `NotExported` where parts have several sizes."""
    for axis, sizes in enumerate(placement.sizes):
        if len(set(sizes)) > 1:
            told = ", ".join(map(str, sizes))
            raise NotExported(f"parts along axis {axis} are {told} cells; those of {library} are even")


def say_axes(lying: Lying) -> Shardings[tuple[tuple[str, ...], ...]]:
    """The axes of the mesh that each tensor is cut along, in words that are nobody's."""
    return _say_on_mesh(lying, lambda one, mesh: one.axes, _tell_mesh, _write_value)


def _tell_mesh(mesh: FineMesh) -> str:
    return f"mesh = {dict(zip(mesh.names, mesh.shape, strict=True))!r}"


def _write_value(table: str, name: str, said: Any) -> str:
    return f"{table}[{name!r}] = {said!r}"


# -- JAX ---------------------------------------------------------------------------------------------------


def say_jax(lying: Lying, on: Any = None) -> Shardings[Any]:
    """PartitionSpecs, or NamedShardings on a mesh of JAX.

    Raises
    ------
    TypeError
        For what is not a mesh of JAX.
    ValueError
        When that mesh has other axes.
    """

    def say(placement: MeshPlacement, mesh: FineMesh) -> Any:
        check_even(placement, "JAX")
        return tuple(each[0] if len(each) == 1 else each or None for each in placement.axes)

    found = _say_on_mesh(lying, say, _open_jax, _write_jax)
    specs = found.map(lambda axes: import_library("jax.sharding", "jax").PartitionSpec(*axes))
    if on is None:
        return specs
    sharding = import_library("jax.sharding", "jax")
    if not isinstance(on, (sharding.Mesh, sharding.AbstractMesh)):
        raise TypeError(f"to_jax: mesh is {quote(on)}; give a jax.sharding.Mesh, or none for PartitionSpecs")
    mesh = found.mesh
    if list(on.shape.items()) != list(zip(mesh.names, mesh.shape, strict=True)):
        raise ValueError(
            f"to_jax: the mesh of JAX has axes {quote(dict(on.shape))}; the plan's tensors are cut along "
            f"{quote(dict(zip(mesh.names, mesh.shape, strict=True)))}: make it of these, as the first lines of "
            "to_jax().to_code() do"
        )
    return specs.map(lambda spec: sharding.NamedSharding(on, spec))


def _open_jax(mesh: FineMesh) -> str:
    return (
        "import jax\nimport numpy as np\nfrom jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n\n"
        f"mesh = Mesh(np.array(jax.devices()[:{prod(mesh.shape)}]).reshape({mesh.shape}), {mesh.names})"
    )


def _write_jax(table: str, name: str, said: Any) -> str:
    return f"{table}[{name!r}] = NamedSharding(mesh, P({', '.join(map(repr, said))}))"


# -- PyTorch -----------------------------------------------------------------------------------------------


def say_dtensor(lying: Lying) -> Shardings[Any]:
    """Placements of PyTorch's DTensor, one for each axis of the mesh."""

    def say(placement: MeshPlacement, mesh: FineMesh) -> Any:
        extents = dict(zip(mesh.names, mesh.shape, strict=True))
        said = dict[str, tuple[int, int]]()
        for axis, (names, sizes) in enumerate(zip(placement.axes, placement.sizes, strict=True)):
            at = [mesh.names.index(name) for name in names]
            later = [prod(mesh.shape[one] for one in at[:k] if one > mine) for k, mine in enumerate(at)]
            if max(later, default=1) > 1:  # DTensor goes along the mesh's axes in their order
                check_even(placement, "DTensor, along axes of the mesh in another order,")
            theirs = _chunk(placement.shape[axis], [extents[name] for name in names])
            if theirs != list(sizes):
                mine, theirs_told = (", ".join(map(str, each)) for each in (sizes, theirs))
                raise NotExported(f"parts along axis {axis} are {mine} cells; those of DTensor are {theirs_told}")
            said |= {name: (axis, factor) for name, factor in zip(names, later, strict=True)}
        return tuple(said.get(name) for name in mesh.names)

    def word(axes: Sequence[tuple[int, int] | None]) -> Any:
        return tuple(map(_make_placement, axes))

    return _say_on_mesh(lying, say, _open_dtensor, _write_dtensor).map(word)


def _make_placement(cut: tuple[int, int] | None) -> Any:
    """The placement along an axis of the mesh: the axis of a tensor, and how many parts others cut it in before."""
    tensor = import_library("torch.distributed.tensor", "torch")
    if cut is None:
        return tensor.Replicate()
    axis, factor = cut
    if factor == 1:
        return tensor.Shard(axis)
    return import_library("torch.distributed.tensor.placement_types", "torch")._StridedShard(axis, split_factor=factor)


def _chunk(extent: int, counts: list[int]) -> list[int]:
    """The parts of an axis as `torch.chunk` makes them, of parts of parts where there are several counts.

    >>> _chunk(8, [3]), _chunk(7, [3]), _chunk(8, [2, 2])
    ([3, 3, 2], [3, 3, 1], [2, 2, 2, 2])
    """
    parts = [extent]
    for count in counts:
        parts = [max(0, min(-(-n // count), n - k * -(-n // count))) for n in parts for k in range(count)]
    return parts


def _open_dtensor(mesh: FineMesh) -> str:
    return (
        "from torch.distributed.tensor import Replicate, Shard\n"
        "from torch.distributed.tensor.placement_types import _StridedShard\n\n"
        f"# in each process: init_device_mesh(device_type, {mesh.shape}, mesh_dim_names={mesh.names})"
    )


def _write_dtensor(table: str, name: str, said: Any) -> str:
    words = []
    for cut in said:
        factor = "" if cut is None or cut[1] == 1 else f", split_factor={cut[1]}"
        words.append("Replicate()" if cut is None else f"{'_Strided' if factor else ''}Shard({cut[0]}{factor})")
    return f"{table}[{name!r}] = [{', '.join(words)}]"


# -- Dask --------------------------------------------------------------------------------------------------


def say_dask(lying: Lying) -> Shardings[tuple[tuple[int, ...], ...]]:
    """Chunks of Dask, which may be of any sizes; which device has which is not said by them."""
    found = _list_keyed(lying)
    refused = {key: one for key, one in found.items() if isinstance(one, str)}
    blocks = {key: one for key, one in found.items() if isinstance(one, TensorBlocks)}
    said = {key: one.sizes for key, one in blocks.items()}
    return _split(said, refused, blocks, None, "# chunks of each axis", _write_value)


def import_library(module: str, package: str) -> Any:
    """A library that the project does not ask for.

    Raises
    ------
    ImportError
        With what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} cannot be imported ({error}); pip install {package}, and ask again", name=module
        ) from error
