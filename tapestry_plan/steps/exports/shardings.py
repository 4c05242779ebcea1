"""Placements in the words of JAX, PyTorch and Dask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from tapestry_plan.steps.exports.placements import FineMesh, MeshPlacement, NotExported
from tapestry_sets.draw import align, as_html
from tapestry_sets.limits import FrozenDict, Guarded, check_arguments, list_names, put_fields, quote

Said = TypeVar("Said")
HEADS = ("tensor", "what", "shape", "where it lies")


class Shardings(Guarded, Mapping[str, Said], Generic[Said]):
    """Where the tensors of a plan lie, as a library says it: a mapping from names, of those that it can say.

    A tensor that it cannot say is none of the keys; to ask for it raises `NotExported` with the reason.

    Parameters
    ----------
    said : mapping of str to object
        By tensor.
    refused : mapping of str to str
        The reasons, by tensor.
    placements : mapping of str to MeshPlacement
    mesh : FineMesh
        The axes that it is said by: those of the plan's mesh, or their factors, as ``x.0`` and ``x.1``.
    code : callable
        One line of the library's Python, of a tensor's name and what is said of it.
    """

    def __init__(
        self,
        said: Mapping[str, Said],
        refused: Mapping[str, str],
        placements: Mapping[str, MeshPlacement],
        mesh: FineMesh,
        code: Callable[[str, Said], str],
    ) -> None:
        self._said, self._code = dict(said), code
        put_fields(self, refused=FrozenDict(refused), placements=FrozenDict(placements), mesh=mesh)

    refused: Mapping[str, str]
    placements: Mapping[str, MeshPlacement]
    mesh: FineMesh

    def __getitem__(self, name: str) -> Said:
        if name in self._said:
            return self._said[name]
        if name in self.refused:
            raise NotExported(f"tensor {quote(name)}: {self.refused[name]}")
        known = list_names([*self._said, *self.refused], name, "tensors")
        raise KeyError(f"the plan places and makes no tensor {quote(name)}; {known}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    @check_arguments
    def of_kind(self, kind: Literal["input", "constant", "result"]) -> dict[str, Said]:
        """Those of inputs ("input"), weights ("constant"), or what operators make ("result")."""
        return {name: said for name, said in self._said.items() if self.placements[name].kind == kind}

    def check(self) -> None:
        """Raise `NotExported`, with all reasons, where some tensor cannot be said."""
        if self.refused:
            told = "; ".join(f"{quote(name)}: {why}" for name, why in self.refused.items())
            raise NotExported(f"{len(self.refused)} of {len(self) + len(self.refused)} tensors: {told}")

    @check_arguments
    def check_even(self, library: str) -> None:
        """Raise `NotExported` where parts of some tensor have several sizes."""
        for name, placement in self.placements.items():
            try:
                _check_even(placement, library)
            except NotExported as error:
                raise NotExported(f"tensor {quote(name)}: {error}") from None

    def to_code(self) -> str:
        """The same as lines of Python to take along."""
        return "\n".join(self._code(name, said) for name, said in self._said.items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} tensors, {len(self.refused)} refused)"

    def __str__(self) -> str:
        return "\n".join(align([HEADS, *self._list_rows()]))

    def _repr_html_(self) -> str:
        return as_html([HEADS, *self._list_rows()])

    def _list_rows(self) -> Iterator[list[str]]:
        for name, said in self._said.items():
            placement = self.placements[name]
            halo = f", with {max(placement.halos)} cells beside" if any(placement.halos) else ""
            yield [name, placement.kind, "×".join(map(str, placement.shape)) or "one cell", _shown(said) + halo]
        for name, why in self.refused.items():
            yield [name, "", "", f"refused: {why}"]


def _shown(said: Any) -> str:
    return str(getattr(said, "spec", said))


class _Said(Struct, frozen=True):
    said: dict[str, Any]
    refused: dict[str, str]
    placements: dict[str, MeshPlacement]


def _say(found: Mapping[str, MeshPlacement | str], say: Callable[[MeshPlacement], Any]) -> _Said:
    said, refused, placements = dict[str, Any](), dict[str, str](), dict[str, MeshPlacement]()
    for name, placement in found.items():
        if isinstance(placement, str):
            refused[name] = placement
            continue
        try:
            said[name] = say(placement)
            placements[name] = placement
        except NotExported as error:
            refused[name] = str(error)
    return _Said(said, refused, placements)


def _check_even(placement: MeshPlacement, library: str) -> None:
    for axis, sizes in enumerate(placement.sizes):
        if len(set(sizes)) > 1:
            told = ", ".join(map(str, sizes))
            raise NotExported(f"parts along axis {axis} are {told} cells; those of {library} are even")


def say_jax(found: Mapping[str, MeshPlacement | str], mesh: FineMesh, on: Any = None) -> Shardings[Any]:
    """PartitionSpecs, or NamedShardings on a mesh of JAX.

    Raises
    ------
    ValueError
        When that mesh has other axes.
    """
    sharding = import_library("jax.sharding", "jax")
    if on is not None:
        theirs, ours = dict(on.shape), dict(zip(mesh.names, mesh.shape, strict=True))
        if list(theirs.items()) != list(ours.items()):
            raise ValueError(
                f"the mesh of JAX has axes {quote(theirs)}; the plan's tensors are cut along {quote(ours)}"
            )

    def say(placement: MeshPlacement) -> Any:
        _check_even(placement, "JAX")
        entries = [each[0] if len(each) == 1 else each or None for each in placement.axes]
        spec = sharding.PartitionSpec(*entries)
        return spec if on is None else sharding.NamedSharding(on, spec)

    def code(name: str, said: Any) -> str:
        spec = getattr(said, "spec", said)
        return f"shardings[{name!r}] = NamedSharding(mesh, P({', '.join(map(repr, spec))}))"

    split = _say(found, say)
    return Shardings(split.said, split.refused, split.placements, mesh, code)


def say_dtensor(found: Mapping[str, MeshPlacement | str], mesh: FineMesh) -> Shardings[Any]:
    """Placements of PyTorch's DTensor, one for each axis of the mesh."""
    tensor = import_library("torch.distributed.tensor", "torch")

    def say(placement: MeshPlacement) -> Any:
        _check_even(placement, "DTensor")
        cut = {name: axis for axis, names in enumerate(placement.axes) for name in names}
        for axis, names in enumerate(placement.axes):
            if sorted(names, key=mesh.names.index) != list(names):
                told = " then ".join(names)
                raise NotExported(f"axis {axis} is cut along {told}; DTensor cuts along a mesh's axes in their order")
        return tuple(tensor.Shard(cut[name]) if name in cut else tensor.Replicate() for name in mesh.names)

    def code(name: str, said: Any) -> str:
        words = (f"Shard({one.dim})" if hasattr(one, "dim") else "Replicate()" for one in said)
        return f"placements[{name!r}] = [{', '.join(words)}]"

    split = _say(found, say)
    return Shardings(split.said, split.refused, split.placements, mesh, code)


def say_dask(found: Mapping[str, MeshPlacement | str], mesh: FineMesh) -> Shardings[tuple[tuple[int, ...], ...]]:
    """Chunks of Dask, which may be of any sizes; which device has which is not said by them."""
    split = _say(found, lambda placement: placement.sizes)
    code: Callable[[str, Any], str] = lambda name, said: f"chunks[{name!r}] = {said!r}"  # noqa: E731 - as of the others
    return Shardings(split.said, split.refused, split.placements, mesh, code)


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
