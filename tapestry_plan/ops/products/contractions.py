"""Contractions: einsum of any equation, and the product of matrices before its sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

from msgspec import Struct

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Axis, Shape, Shard, Signature, Tensor
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import numeric, same_dtype, touched, writes
from tapestry_plan.ops.products.matrices import matmul_signature
from tapestry_sets.limits import quote


class Equation(Struct, frozen=True):
    """An equation of einsum, its ellipses spelled out as axes e0, e1, … that broadcast from the right.

    Parameters
    ----------
    operands : tuple of tuple of str
        For each operand the name of each of its axes.
    output : tuple of str
        Names of the axes of the result; all others are summed.
    """

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]

    @classmethod
    def parse(cls, text: Any, ranks: Sequence[int]) -> Equation:
        """Read an equation for operands of the given ranks.

        Raises
        ------
        ValueError
            For a wrong equation, another number of operands or axes, or an output that names an axis twice or
            one that no operand has.

        Examples
        --------
        >>> Equation.parse("...ij,jk", (3, 2))
        Equation(operands=(('e0', 'i', 'j'), ('j', 'k')), output=('e0', 'i', 'k'))
        """
        if not isinstance(text, str):
            raise ValueError(f"the equation is {quote(text)}; give a string like 'ij,jk->ik'")
        left, arrow, right = "".join(text.split()).partition("->")
        terms = left.split(",")
        if len(terms) != len(ranks):
            raise ValueError(f"equation {quote(text)} has {len(terms)} operands; {len(ranks)} are given")
        widest = max([n - _letters(term, text) for term, n in zip(terms, ranks, strict=True) if "..." in term] or [0])
        operands = tuple(
            _axes_of(term, n, widest, text, k) for k, (term, n) in enumerate(zip(terms, ranks, strict=True))
        )
        dots = tuple(f"e{k}" for k in range(widest))
        if arrow:
            before, ellipsis, after = right.partition("...")
            _letters(right, text)
            output = (*before, *(dots if ellipsis else ()), *after)
        else:
            counts = Counter("".join(terms).replace(".", ""))
            output = (*dots, *sorted(letter for letter, n in counts.items() if n == 1))
        _check_output(output, operands, text)
        return cls(operands, output)

    @property
    def summed(self) -> tuple[str, ...]:
        """Names of the axes that the output lacks, in the order of the operands."""
        names = dict.fromkeys(name for operand in self.operands for name in operand)
        return tuple(name for name in names if name not in self.output)


def _letters(term: str, text: str) -> int:
    """How many axes a term names beside its ellipsis."""
    rest = term.replace("...", "", 1)
    unknown = [c for c in rest if c not in ascii_letters]
    if unknown:
        raise ValueError(
            f"equation {quote(text)} has {quote(unknown[0])} in {quote(term)}; axes are letters, others '...'"
        )
    return len(rest)


def _axes_of(term: str, rank: int, widest: int, text: str, operand: int) -> tuple[str, ...]:
    count = _letters(term, text)
    if count > rank or ("..." not in term and count != rank):
        raise ValueError(
            f"equation {quote(text)} names {count} axes of operand {operand}, which has rank {rank}; name each, or "
            "write ... for some"
        )
    before, _, after = term.partition("...")
    return (*before, *(f"e{k}" for k in range(widest - rank + count, widest)), *after)


def _check_output(output: tuple[str, ...], operands: tuple[tuple[str, ...], ...], text: str) -> None:
    known = {name for operand in operands for name in operand}
    for name in output:
        if name not in known:
            raise ValueError(
                f"equation {quote(text)}: the output names {quote(name)}, which no operand has; leave it out"
            )
        if output.count(name) > 1:
            raise ValueError(f"equation {quote(text)}: the output names {quote(name)} twice; name each axis once")


def _einsum_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    text = attrs.get("equation")
    equation = Equation.parse(text, [len(shape) for shape in shapes])
    sizes: dict[str, int] = {}
    for k, (names, shape) in enumerate(zip(equation.operands, shapes, strict=True)):
        for name, n in zip(names, shape, strict=True):
            if names.count(name) > 1:
                raise ValueError(
                    f"equation {quote(text)} names {quote(name)} twice in operand {k}; give its diagonal, which is a "
                    "view: the function einsum does"
                )
            seen = sizes.setdefault(name, n)
            broadcast = name.startswith("e") and len(name) > 1 and 1 in (seen, n)
            if seen != n and not broadcast:
                raise ValueError(
                    f"equation {quote(text)}: axis {quote(name)} has {seen} values, but {n} in operand {k}: "
                    f"{quote(shape)}; axes of one name must be equal"
                )
            sizes[name] = max(seen, n)
    axes = (
        *(Axis(name, sizes[name]) for name in equation.output),
        *(Axis(name, sizes[name], "reduction") for name in equation.summed),
    )
    inputs = tuple(
        touched(axes, [name if n == sizes[name] else "" for name, n in zip(names, shape, strict=True)])
        for names, shape in zip(equation.operands, shapes, strict=True)
    )
    return Signature(axes, inputs, (touched(axes, equation.output),))


def _einsum_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    equation = Equation.parse(shard.attrs["equation"], [x.ndim for x in inputs])
    letter = _as_letters(equation)
    terms, blocks = [], []
    for x, names, operand in zip(inputs, equation.operands, shard.signature.inputs, strict=True):
        moves = [any(row) for row in operand.projection.map.matrix]  # an axis that is broadcast does not
        blocks.append(x[tuple(slice(None) if moving else 0 for moving in moves)])
        terms.append("".join(letter[name] for name, moving in zip(names, moves, strict=True) if moving))
    text = f"{','.join(terms)}->{''.join(letter[name] for name in equation.output)}"
    outputs[0][...] = xp.einsum(text, *blocks, optimize=True)


def _as_letters(equation: Equation) -> dict[str, str]:
    """One letter for each axis; those of the ellipsis get letters that are free."""
    names = [name for operand in equation.operands for name in operand]
    free = iter([c for c in ascii_letters if c not in names])
    return {name: name if len(name) == 1 else next(free) for name in dict.fromkeys(names)}


def _einsum_flop(signature: Signature, attrs: Attrs) -> float:
    """A product of all operands, and an addition where something is summed."""
    return float(max(1, len(signature.inputs) - 1 + bool(signature.reductions)))


def _products_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """The index space of a product of matrices, every axis of which the output has."""
    summed = matmul_signature(shapes, attrs)
    axes = tuple(Axis(axis.name, axis.size) for axis in summed.axes)
    return Signature(axes, summed.inputs, (touched(axes),))


def _products(xp: Any, out: Any, a: Any, b: Any) -> None:
    xp.multiply(a[..., :, None, :], xp.swapaxes(b, -1, -2)[..., None, :, :], out=out)


@operator(
    block=_einsum_block,
    signature=_einsum_signature,
    flop=_einsum_flop,
    reduction="sum",
    dtype=numeric,
    adjoint=adjoints.einsum,
)
def einsum(equation: str, *operands: Tensor, name: str | None = None) -> Tensor:
    """The sum of products that an equation says.

    Parameters
    ----------
    equation : str
        Letters for the axes of each operand, a comma between them, and after ``->`` those of the result; without it
        the result has the letters that occur once, in the order of the alphabet. ``...`` stands for leading axes that
        broadcast. A letter that comes twice in one operand takes its diagonal, as a view.
    operands : Tensor
        Of one dtype of numbers.

    Raises
    ------
    ValueError
        For text that is not an equation, operands that do not fit it, or no operands.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import einsum
    >>> g = Graph()
    >>> a, b = g.input("a", (2, 3, 4)), g.input("b", (2, 4, 5))
    >>> einsum("bik,bkj->bij", a, b, name="mm").shape
    (2, 3, 5)
    >>> [(axis.name, axis.kind) for axis in g.signature("mm").axes]
    [('b', 'parallel'), ('i', 'parallel'), ('j', 'parallel'), ('k', 'reduction')]

    References
    ----------
    ONNX Einsum; NumPy's einsum.
    """
    if not operands:
        raise ValueError("einsum: no tensors given; give at least one")
    graph = operands[0].graph
    with graph._all_or_nothing():
        viewed, text = _without_repeats(equation, operands)
        return add_op(einsum.op, *viewed, name=name, equation=text)


def _without_repeats(equation: str, operands: Sequence[Tensor]) -> tuple[list[Tensor], str]:
    """The operands' diagonals where a letter comes twice, and the equation for them."""
    parsed = Equation.parse(equation, [x.ndim for x in operands])
    if all(len(set(names)) == len(names) for names in parsed.operands):
        return list(operands), equation
    letter = _as_letters(parsed)
    terms, views = [], []
    for x, names in zip(operands, parsed.operands, strict=True):
        view, left = _diagonals(x, names)
        terms.append("".join(letter[n] for n in left))
        views.append(view)
    return views, f"{','.join(terms)}->{''.join(letter[n] for n in parsed.output)}"


def _diagonals(x: Tensor, names: Sequence[str]) -> tuple[Tensor, list[str]]:
    """x with one axis for each name, the last one for a name that came twice."""
    left = list(names)
    while len(set(left)) < len(left):
        second = next(k for k, name in enumerate(left) if name in left[:k])
        first = left.index(left[second])
        if x.shape[first] != x.shape[second]:
            raise ValueError(
                f"einsum: axes {first} and {second} of {quote(x.shape)} are both {quote(left[first])}, but have "
                f"{quote(x.shape[first])} and {quote(x.shape[second])} values; they must be equal"
            )
        x = x.diagonal(0, first, second)
        name = left.pop(second)
        left.remove(name)
        left.append(name)
    return x, left


@operator(block=writes(_products), signature=_products_signature, dtype=same_dtype, adjoint=adjoints.products)
def matrix_products(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """Products of the cells of (…, m, k) and (…, k, n), not summed: (…, m, n, k); their sum over k is `matmul`.

    Parameters
    ----------
    a : Tensor of shape (…, m, k)
    b : Tensor of shape (…, k, n)
        Of a's dtype.

    Returns
    -------
    Tensor of shape (…, m, n, k)

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> a, b = g.constant("a", [[1.0, 2.0]]), g.constant("b", [[3.0], [4.0]])
    >>> _ = g.output(ops.matrix_products(a, b), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[3.0, 8.0]]]
    """
