"""Logic of truth values, and of the bits of integers, cell by cell."""

from __future__ import annotations

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Tensor
from tapestry_plan.ops.declaration import operator
from tapestry_plan.ops.operands import integral, of_kinds, truth, ufunc

_shifted = of_kinds("iu", "bits of integers are shifted")


@operator(block=ufunc("logical_not"), dtype=truth, adjoint=adjoints.none)
def logical_not(x: Tensor, *, name: str | None = None) -> Tensor:
    """Whether x is false, cell by cell.

    Parameters
    ----------
    x : Tensor of truth values

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.logical_not(g.constant("x", [True, False])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [False, True]

    References
    ----------
    ONNX Not; Array API logical_not.
    """


@operator(block=ufunc("logical_and"), dtype=truth, adjoint=adjoints.none)
def logical_and(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a and b are both true, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a truth value
        Of truth values; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.logical_and(g.constant("a", [[False], [True]]), g.constant("b", [False, True])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[False, False], [False, True]]

    References
    ----------
    ONNX And; Array API logical_and.
    """


@operator(block=ufunc("logical_or"), dtype=truth, adjoint=adjoints.none)
def logical_or(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a or b is true, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a truth value
        Of truth values; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.logical_or(g.constant("a", [[False], [True]]), g.constant("b", [False, True])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[False, True], [True, True]]

    References
    ----------
    ONNX Or; Array API logical_or.
    """


@operator(block=ufunc("logical_xor"), dtype=truth, adjoint=adjoints.none)
def logical_xor(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether just one of a and b is true, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a truth value
        Of truth values; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.logical_xor(g.constant("a", [[False], [True]]), g.constant("b", [False, True])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[False, True], [True, False]]

    References
    ----------
    ONNX Xor; Array API logical_xor.
    """


@operator(block=ufunc("invert"), dtype=integral)
def bitwise_invert(x: Tensor, *, name: str | None = None) -> Tensor:
    """Each bit of x turned over, cell by cell.

    Parameters
    ----------
    x : Tensor of integers or truth values

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For floating numbers.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.bitwise_invert(g.constant("x", [0, 5])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-1, -6]

    References
    ----------
    ONNX BitwiseNot; Array API bitwise_invert.
    """


@operator(block=ufunc("bitwise_and"), dtype=integral)
def bitwise_and(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits that a and b both have, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype, of integers or truth values; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.bitwise_and(g.constant("a", [0b1100]), 0b1010), "y")
    >>> evaluate(g, {})["y"].tolist()
    [8]

    References
    ----------
    ONNX BitwiseAnd; Array API bitwise_and.
    """


@operator(block=ufunc("bitwise_or"), dtype=integral)
def bitwise_or(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits that a or b has, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype, of integers or truth values; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.bitwise_or(g.constant("a", [0b1100]), 0b1010), "y")
    >>> evaluate(g, {})["y"].tolist()
    [14]

    References
    ----------
    ONNX BitwiseOr; Array API bitwise_or.
    """


@operator(block=ufunc("bitwise_xor"), dtype=integral)
def bitwise_xor(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits that just one of a and b has, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype, of integers or truth values; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.bitwise_xor(g.constant("a", [0b1100]), 0b1010), "y")
    >>> evaluate(g, {})["y"].tolist()
    [6]

    References
    ----------
    ONNX BitwiseXor; Array API bitwise_xor.
    """


@operator(block=ufunc("left_shift"), dtype=_shifted)
def bitwise_left_shift(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits of a moved up by b places, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype of integers; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.bitwise_left_shift(g.constant("a", [1, 5]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [4, 20]

    References
    ----------
    ONNX BitShift; Array API bitwise_left_shift.
    """


@operator(block=ufunc("right_shift"), dtype=_shifted)
def bitwise_right_shift(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits of a moved down by b places, cell by cell; signs are kept.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype of integers; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.bitwise_right_shift(g.constant("a", [-8, 5]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-2, 1]

    References
    ----------
    ONNX BitShift; Array API bitwise_right_shift.
    """
