"""Operators: one declaration each, and what is raised where none fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any, cast
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir.blocks import Block, CellBlock, Shard
from tapestry_plan.ir.boundary import AROUND
from tapestry_plan.ir.forms import Form
from tapestry_plan.ir.handles import Tensor
from tapestry_plan.ir.monoids import MONOIDS, Monoid
from tapestry_plan.ir.pictures import Shown
from tapestry_plan.ir.signature import Shape, Signature
from tapestry_plan.ir.tensors import Attrs
from tapestry_sets.limits import (
    ANYTHING,
    FrozenDict,
    Kind,
    Public,
    check_arguments,
    check_fields,
    conform,
    cut_text,
    list_names,
    quote,
)
from tapestry_sets.regions import Box


class UnsupportedOp(ValueError):
    """A model asks for operators that have no declaration.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> g = Graph()
    >>> g.op("sofmax", g.input("x", (4, 6)))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tapestry_plan.ir.op.UnsupportedOp: operator 'sofmax' has no declaration; nearest of ... operators: 'softmax', ...
    """


class NotApplicable(ValueError):
    """The conditions of a rule or an expansion fail at a place; the message says which and why.

    Examples
    --------
    >>> from tapestry_plan import Graph, ops, rewrite
    >>> g = Graph()
    >>> _ = g.output(ops.add(g.input("x", (4, 6)), 1.0), "y")
    >>> rewrite.expand.apply(g, "add", into="sum_div")
    Traceback (most recent call last):
        ...
    tapestry_plan.ir.op.NotApplicable: expand at 'add': the declaration of add lists no expansion 'sum_div';
    there are no expansions
    """


class DtypeNotTaken(ValueError):
    """An operator has no such results for operands of these dtypes."""


Expansion = Callable[[Sequence[Tensor], Attrs], Any]
"""Builds a graph equal to an operator: from its inputs, present ones only, and its attributes to its outputs."""


Adjoint = Callable[["Backward"], Sequence[Tensor | None]]
"""The gradient that each input of an operator receives, or None."""


class Backward(Struct, frozen=True, metaclass=Public):
    """The arguments of an operator's adjoint.

    Parameters
    ----------
    inputs, outputs : tuple of Tensor
        Of the node, as the graph has them.
    grads : tuple of (Tensor or None)
        The gradient of each output; None for those that the result does not depend on.
    attrs : mapping
        The node's attributes.

    Examples
    --------
    >>> from tapestry_plan import Backward, Graph, Tensor, gradient, ops
    >>> def thrice(back: Backward) -> list[Tensor]:
    ...     return [back.grad * 3.0]
    >>> @ops.operator(block=lambda xp, ins, outs, shard: xp.multiply(ins[0], 3, out=outs[0]), adjoint=thrice)
    ... def triple(x: Tensor, *, name: str | None = None) -> Tensor:
    ...     '''3 x.'''
    >>> g = Graph()
    >>> x = g.input("x", (4,))
    >>> (slope,) = gradient(triple(x).sum(), [x])
    >>> slope.shape, list(g.nodes)
    ((4,), ['triple', 'sum', 'multiply'])
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    grads: tuple[Tensor | None, ...]
    attrs: Attrs

    @property
    def grad(self) -> Tensor:
        """The gradient of the only output."""
        (grad,) = self.grads
        assert grad is not None, "an adjoint is asked where some output has a gradient"
        return grad

    @property
    def out(self) -> Tensor:
        """The first output."""
        return self.outputs[0]

    def op(self, name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """Add an operator to the graph, by name."""
        return cast("Tensor", self.inputs[0].graph.op(name, *inputs, **attrs))


def take_first_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """The dtype of an operator whose one result has that of its first operand."""
    return (dtypes[0],)


def take_no_workspace(shard: Shard, itemsize: int) -> int:
    """Bytes of scratch memory of operators that declare none: zero."""
    return 0


_DESCRIBED: WeakKeyDictionary[Callable[[Shard], Form | None], Block] = WeakKeyDictionary()
"""The block function that each `Op.work` was declared with first."""


class InnerWork(Struct, frozen=True):
    """An operator that another one runs inside, again and again, as the rounds of a loop do.

    Parameters
    ----------
    times : int
        How often, each time a launch.
    is_contraction : bool
        Whether it sums over an axis along which it reads several operands (`Signature.is_contraction`).
    flop : float
        Of one time, over the whole index space of the operator that runs it.
    axes : tuple of int
        Index axes of that operator along which this work is cut where a shard has a part of them.
    operands : tuple of (int, int, int, tuple of int)
        Of each operand and result its cells, bytes of a cell, cells that contractions pack, and the axes that cut it.
    """

    times: int
    is_contraction: bool
    flop: float
    axes: tuple[int, ...]
    operands: tuple[tuple[int, int, int, tuple[int, ...]], ...]

    def count_flop(self, shares: Sequence[float]) -> float:
        """Operations of all times, in a shard that has these shares of the index axes."""
        return self.times * self.flop * prod(shares[axis] for axis in self.axes)


def shares_of(signature: Signature, box: Box) -> tuple[float, ...]:
    """How much of each index axis a box has."""
    return tuple(n / axis.size for n, axis in zip(box.shape, signature.axes, strict=True))


class Op(Shown, Struct, frozen=True, metaclass=Public):
    """The one declaration of an operator.

    Parameters
    ----------
    name : str
        What graphs and plans call it.
    signature : callable
        ``(input shapes, attrs) -> Signature``; raises ValueError for shapes that do not fit.
    block : callable
        ``(xp, inputs, outputs, shard)``: writes the output blocks, in place, with functions of the array
        namespace `xp`. With a sharded reduction it writes the partial result of its part.
    flop : float or callable
        Floating-point operations for each index point, or ``(signature, attrs) -> float``.
    reduction : Monoid, or the name of one of `MONOIDS`, optional
        How partial results merge; needed for signatures with reduction axes. Where the monoid's state is not the
        result itself, the block writes states always, component by component, and the only output is unwrapped from
        the merged ones.
    dtype : callable
        ``(input dtypes, attrs) -> output dtypes``; the first input's by default.
    workspace : callable
        ``(shard, itemsize) -> nbytes`` of scratch memory that the block wants.
    attributes : tuple of str
        Names of the attributes that it takes; any other is an error.
    defaults : tuple of (str, value)
        Attributes that nodes have where they are not given.
    kinds : tuple of (str, Kind)
        What attributes may be; those not named here are not checked.
    needed : tuple of str
        Attributes that every node must be given.
    expansions : tuple of callable
        Functions ``(inputs, attrs) -> tensor``, or a tuple of tensors, that say the operator in other ones and in
        views, and raise NotApplicable where they cannot; rewrites know them by their names.
    adjoint : callable, optional
        ``(Backward) -> gradients``: for each input the gradient that it receives, or None; a gradient of a larger shape
        is summed to the input's. Without it, gradients go through the first expansion.
    host_only : bool
        Whether the block needs NumPy arrays: then it runs on no GPU.
    work : callable, optional
        ``(shard) -> Form or None``: the block's work in words that backends may have kernels for. It is of the block
        function that it was declared with: an operator that has it with another one has none.
    points_per_launch : callable, optional
        ``(signature, attrs) -> int``: index points of each launch, where the block launches work of one size again and
        again; by default a shard is one launch.
    passes : callable, optional
        ``(signature, attrs) -> ints``: how often a shard goes through each of the first inputs, where that is more
        than once for one of them, as a recurrence goes through its weights at each step; modeled time counts the
        memory's traffic so.
    local : callable, optional
        ``(shard, shapes of its input blocks) -> attrs or None``: the attributes with which the operator, applied to
        the blocks alone, gives what the shard does; None where that depends on where the blocks lie. Without it that is
        taken to be so, but of operators that work cell by cell.
    opaque : bool
        Whether nothing is known of what it does: no plan lets two devices run the same part of it. Without index axes
        it runs whole, whatever it is given, and no plan splits it. Plans tell what it costs.
    repeats : callable, optional
        ``(signature, attrs) -> operators``: what it runs inside, round after round (`InnerWork`), as far as that is
        known. Modeled time is the sum of theirs then, where it is more than once through operands and results, and so
        is `count_flop`; `flop` is to be the same for each index point.
    rows : bool
        Whether results have the same bits where rows of blocks, their runs along the last axis, lie apart in memory.
        Plans make blocks inside others only where that is so, or where these lie side by side.

    Examples
    --------
    >>> from tapestry_plan import Graph, Op, ops
    >>> cube = Op(
    ...     "cube",
    ...     signature=ops.relu.op.signature,  # cell by cell, as relu
    ...     block=lambda xp, inputs, outputs, shard: xp.power(inputs[0], 3, out=outputs[0]),
    ...     flop=2.0,
    ... )
    >>> g = Graph()
    >>> g.op(cube, g.input("x", (4, 6))), g.signature("cube")
    (Tensor('cube', (4, 6), float32), Signature(i0:4, i1:6; 1 input, 1 output))
    """

    name: str
    signature: Callable[[Sequence[Shape], Attrs], Signature]
    block: Block
    flop: float | Callable[[Signature, Attrs], float] = 1.0
    reduction: str | Monoid | None = None
    dtype: Callable[[Sequence[str], Attrs], tuple[str, ...]] = take_first_dtype
    workspace: Callable[[Shard, int], int] = take_no_workspace
    attributes: tuple[str, ...] = ()
    expansions: tuple[Expansion, ...] = ()
    adjoint: Adjoint | None = None
    host_only: bool = False
    work: Callable[[Shard], Form | None] | None = None
    defaults: tuple[tuple[str, Any], ...] = ()
    kinds: tuple[tuple[str, Kind], ...] = ()
    needed: tuple[str, ...] = ()
    points_per_launch: Callable[[Signature, Attrs], int] | None = None
    passes: Callable[[Signature, Attrs], Sequence[int]] | None = None
    local: Callable[[Shard, Sequence[Shape]], Attrs | None] | None = None
    rows: bool = False
    opaque: bool = False
    repeats: Callable[[Signature, Attrs], Sequence[InnerWork]] | None = None

    def __repr__(self) -> str:
        merged = "" if self.monoid is None else f", parts merge by {self.monoid.name}"
        return f"{type(self).__name__}({cut_text(quote(self.name), 80)}{merged})"

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.reduction, str) and self.reduction not in MONOIDS:
            raise ValueError(
                f"operator {quote(self.name)}: reduction {quote(self.reduction)} is not one of the monoids; "
                + list_names(sorted(MONOIDS), self.reduction, "monoids")
            )
        if self.work is not None:
            with suppress(TypeError):  # what cannot be referred to weakly is declared once, as it is
                _DESCRIBED.setdefault(self.work, self.block)

    def __reduce__(self) -> Any:
        """A built-in operator is pickled by its name, and by what is replaced of it.

        Its functions may be made where it is declared.
        """
        base = BUILTIN_OPS.get(self.name)
        if base is None or type(self) is not Op:
            return super().__reduce__()
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return _built_in, (self.name, {name: one for name, one in values.items() if one is not getattr(base, name)})

    @property
    def monoid(self) -> Monoid | None:
        """How partial results merge."""
        return MONOIDS[self.reduction] if isinstance(self.reduction, str) else self.reduction

    @property
    def has_states(self) -> bool:
        """Whether the block writes states, which are not results yet."""
        return self.monoid is not None and not self.monoid.is_plain

    @check_arguments
    def flop_per_point(self, signature: Signature, attrs: Attrs) -> float:
        """Floating-point operations at each index point."""
        return self.flop(signature, attrs) if callable(self.flop) else self.flop

    def count_flop(self, signature: Signature, attrs: Attrs, boxes: Sequence[Box | None]) -> list[float]:
        """Floating-point operations of shards, each of an index box; none of an idle device, which has no box."""
        inner = self.list_inner(signature, attrs)
        if inner:
            shares = [shares_of(signature, box) if box else None for box in boxes]
            return [float(sum(one.count_flop(each) for one in inner)) if each is not None else 0.0 for each in shares]
        per_point = self.flop_per_point(signature, attrs)
        return [float(per_point * box.size) if box else 0.0 for box in boxes]

    def list_inner(self, signature: Signature, attrs: Attrs) -> Sequence[InnerWork]:
        """The operators that it runs inside, as far as they are known."""
        return () if self.repeats is None else self.repeats(signature, attrs)

    @check_arguments
    def count_launches(self, signature: Signature, attrs: Attrs, points: int) -> int:
        """How often a shard of so many index points launches work, at least once."""
        return 1 if self.points_per_launch is None else max(1, -(-points // self.points_per_launch(signature, attrs)))

    @check_arguments
    def count_passes(self, signature: Signature, attrs: Attrs) -> tuple[int, ...]:
        """How often a shard goes through each input."""
        given = () if self.passes is None else tuple(self.passes(signature, attrs))
        return given + (1,) * (len(signature.inputs) - len(given))

    def form_of(self, shard: Shard) -> Form | None:
        """The work of a shard in words, if there are any that are of this block function."""
        if self.work is None or _DESCRIBED.get(self.work, self.block) is not self.block:
            return None
        return self.work(shard)

    def attributes_of_blocks(self, shard: Shard, shapes: Sequence[Shape]) -> Attrs | None:
        """The attributes with which the operator, applied to a shard's blocks alone, gives what the shard does.

        None where that depends on where the blocks lie, or is not known.
        """
        if self.local is not None:
            return self.local(shard, shapes)
        return shard.attrs if isinstance(self.block, CellBlock) else None

    @check_arguments
    def complete(self, attrs: Attrs) -> dict[str, Any]:
        """Attributes in the order of their names, with the defaults of those not given."""
        return dict(sorted({**dict(self.defaults), **attrs}.items()))

    @check_arguments
    def check_attributes(self, attrs: Attrs, what: str) -> dict[str, Any]:
        """Attributes as the operator takes them, without those that are None, which is to say that they are not given.

        Raises
        ------
        ValueError
            For an attribute that the operator does not take.
        TypeError
            For a value of a type that the attribute may not have.
        """
        unknown = [name for name in attrs if name not in self.attributes and name != AROUND]
        if unknown:
            raise ValueError(
                f"{what}: there is no attribute {quote(unknown[0])}; "
                + list_names(self.attributes, unknown[0], f"attributes of {self.name}")
            )
        missing = [name for name in self.needed if attrs.get(name) is None]
        if missing:
            raise ValueError(f"{what}: the attribute {missing[0]} is missing; give {missing[0]}=…")
        kinds = dict(self.kinds)
        taken = {name: conform(value, kinds.get(name, ANYTHING), f"{what}: {name}") for name, value in attrs.items()}
        return {name: value for name, value in taken.items() if value is not None or name not in kinds}


def _built_in(name: str, others: Mapping[str, Any]) -> Op:
    base = BUILTIN_OPS[name]
    return replace(base, **others) if others else base


BUILTIN_OPS: dict[str, Op] = FrozenDict()
"""The declared operators by name; `tapestry_plan.ops` fills it."""

DERIVED: dict[str, Callable[..., Op]] = {}
"""How operators are made of other ones, by the word before the brackets; `tapestry_plan.rewrite.derived` fills it."""
