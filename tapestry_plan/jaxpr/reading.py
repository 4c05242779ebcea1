"""Traced functions as graphs: equations one after another, calls and loops opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tapestry_plan.ir import Graph, Tensor, UnsupportedOp, concat
from tapestry_plan.jaxpr import tuning
from tapestry_plan.jaxpr.primitives import PRIMITIVES, TracedStep, TracedValue, as_tensor, hold, refuse_unknown
from tapestry_sets.limits import check_arguments, quote

INSIDE = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Parameters of a call that have what is called."""


@check_arguments(jaxpr="trace a function, as jax.make_jaxpr(f)(*arguments)", names="name its arguments in order")
def from_jaxpr(jaxpr: Any, names: Sequence[str] | None = None, name: str = "jaxpr") -> Graph:
    """Return the graph of a function that JAX has traced.

    Calls are opened, and loops of a known number of rounds (``jax.lax.scan``) unrolled. Arrays that the function holds
    become constants. Where JAX takes an index out of range for another, the graph's run refuses it.

    Parameters
    ----------
    jaxpr : ClosedJaxpr
        What ``jax.make_jaxpr(f)(*arguments)`` returns.
    names : sequence of str, optional
        Of the graph's inputs, one for each array among the arguments, in order; ``x0``, ``x1`` and so on by default.
        The outputs are called ``y0``, ``y1`` and so on.
    name : str
        Of the graph.

    Raises
    ------
    TypeError
        For what is not a traced function.
    ValueError
        For names that are not one for each input.
    UnsupportedOp
        For primitives, or parameters of these, that no operator has: data-dependent loops and branches, random numbers,
        windows of gathers.

    Examples
    --------
    >>> import jax, jax.numpy as jnp  # doctest: +SKIP
    >>> from tapestry_plan import from_jaxpr
    >>> layer = lambda x, w: jax.nn.relu(x @ w)  # doctest: +SKIP
    >>> traced = jax.make_jaxpr(layer)(jnp.ones((8, 4)), jnp.ones((4, 2)))  # doctest: +SKIP
    >>> from_jaxpr(traced, ["x", "w"])  # doctest: +SKIP
    <Graph 'jaxpr': 2 operators, 0 selections, 2 stored tensors>

    References
    ----------
    JAX's document "Understanding jaxprs".
    """
    inner = getattr(jaxpr, "jaxpr", None)
    if inner is None or not hasattr(inner, "eqns") or not hasattr(jaxpr, "consts"):
        raise TypeError(
            f"from_jaxpr: jaxpr is a {type(jaxpr).__name__}; trace a function, as jax.make_jaxpr(f)(*arguments)"
        )
    called = [f"x{k}" for k in range(len(inner.invars))] if names is None else list(names)
    if len(called) != len(inner.invars):
        shapes = [tuple(var.aval.shape) for var in inner.invars]
        raise ValueError(f"from_jaxpr: names has {len(called)}; the inputs are {len(shapes)}, of {quote(shapes)}")
    graph = Graph(name)
    given: list[TracedValue] = [
        graph.input(word, tuple(var.aval.shape), np.dtype(var.aval.dtype).name)
        for word, var in zip(called, inner.invars, strict=True)
    ]
    reading = _Tracing(graph)
    for k, made in enumerate(reading.run(inner, jaxpr.consts, given)):
        where = TracedStep("output", {}, (), "", f"output {k}", graph)
        tensor = as_tensor(where, made)
        graph.output(tensor, f"y{k}")
    return graph


def as_number(value: Any) -> np.generic:
    """A number as NumPy has it, with its dtype."""
    found: np.generic = np.asarray(value)[()]  # type: ignore[assignment]
    return found


class _Tracing:
    """Adds equations to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants: dict[int, tuple[Any, Tensor]] = {}
        """By identity of the array, which is kept."""
        self.count = 0

    def run(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[TracedValue]) -> list[TracedValue]:
        """The results of a jaxpr, of constants and arguments."""
        known: dict[Any, TracedValue] = dict(zip(jaxpr.invars, given, strict=True))
        known.update({var: self._keep(const) for var, const in zip(jaxpr.constvars, consts, strict=True)})

        def read(atom: Any) -> TracedValue:
            return as_number(atom.val) if hasattr(atom, "val") else known[atom]

        for eqn in jaxpr.eqns:
            self.count += 1
            if self.count > tuning.MAX_EQUATIONS:
                raise UnsupportedOp(
                    f"from_jaxpr: with loops unrolled there are more than {tuning.MAX_EQUATIONS:,} equations; trace "
                    "fewer rounds"
                )
            made = list(self._add(eqn, [read(atom) for atom in eqn.invars]))
            known.update(zip(eqn.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _keep(self, const: Any) -> TracedValue:
        """A constant of the graph, the same for each that holds it."""
        array = np.asarray(const)
        if not array.ndim:
            return as_number(const)
        if id(const) not in self.constants:
            self.constants[id(const)] = const, hold(self.graph, array)
        return self.constants[id(const)][1]

    def _add(self, eqn: Any, given: list[TracedValue]) -> Sequence[TracedValue]:
        name, params = eqn.primitive.name, eqn.params
        if name == "scan":
            return list(self._unroll(params, given))
        inside = next((params[key] for key in INSIDE if key in params), None)
        if inside is not None and name not in ("while", "cond"):
            return self._call(inside, given)
        aval = eqn.outvars[0].aval
        shape = tuple(aval.shape)
        where = f"equation {self.count} ({name}, of shape {quote(shape)})"
        equation = TracedStep(name, params, shape, np.dtype(aval.dtype).name, where, self.graph)
        if name not in PRIMITIVES:
            raise refuse_unknown(equation)
        try:
            made = PRIMITIVES[name](equation, *given)
        except UnsupportedOp:
            raise
        except (ValueError, TypeError) as error:
            raise UnsupportedOp(f"{where}: {error}") from None
        results = [made] if isinstance(made, Tensor | np.generic) else list(made)
        for var, result in zip(eqn.outvars, results, strict=True):
            wanted = tuple(var.aval.shape), np.dtype(var.aval.dtype).name
            got = (result.shape, result.dtype if isinstance(result, Tensor) else result.dtype.name)
            assert got == wanted, f"{where}: made {got}, JAX has {wanted}"
        return results

    def _call(self, inside: Any, given: Sequence[TracedValue]) -> list[TracedValue]:
        """What is inside of a call: closed with its constants, or open."""
        closed = hasattr(inside, "consts")
        return self.run(inside.jaxpr if closed else inside, inside.consts if closed else (), given)

    def _unroll(self, params: Mapping[str, Any], given: list[TracedValue]) -> Iterator[TracedValue]:
        """The rounds of a scan one after another; what each gives is stacked, as a view."""
        fixed, carried = params["num_consts"], params["num_carry"]
        held, state, rows = given[:fixed], given[fixed : fixed + carried], given[fixed + carried :]
        inside, stacked = params["jaxpr"], list[list[Tensor]]()
        order = range(params["length"])
        where = TracedStep("scan", {}, (), "", f"equation {self.count} (scan)", self.graph)
        if not order:
            raise where.refuse("it has no rounds", "trace one or more, or what it is without")
        for k in reversed(order) if params["reverse"] else order:
            made = self._call(inside, [*held, *state, *(as_tensor(where, x)[k] for x in rows)])
            state = made[:carried]
            one = [as_tensor(where, x) for x in made[carried:]]
            stacked.append([x.reshape((1, *x.shape)) for x in one])
        yield from state
        if params["reverse"]:
            stacked.reverse()
        yield from (concat(parts, 0) for parts in zip(*stacked, strict=True))
