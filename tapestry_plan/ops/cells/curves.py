"""Functions of real numbers, cell by cell: roots, exponentials, logarithms and those of angles."""

from __future__ import annotations

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Activation, Tensor
from tapestry_plan.ops.declaration import operator
from tapestry_plan.ops.operands import floating, ufunc


@operator(block=ufunc("tanh"), dtype=floating, adjoint=adjoints.tanh, work=lambda shard: Activation("tanh"))
def tanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The hyperbolic tangent, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.tanh(g.constant("x", [-1.0, 0.0, 20.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [-0.762, 0.0, 1.0]

    References
    ----------
    ONNX Tanh; Array API tanh.
    """


@operator(block=ufunc("exp"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: y))
def exp(x: Tensor, *, name: str | None = None) -> Tensor:
    """The exponential, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.exp(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [1.0, 2.718]

    References
    ----------
    ONNX Exp; Array API exp.
    """


@operator(block=ufunc("sqrt"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 0.5 / y))
def sqrt(x: Tensor, *, name: str | None = None) -> Tensor:
    """The square root, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.sqrt(g.constant("x", [0.0, 9.0])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.0, 3.0]

    References
    ----------
    ONNX Sqrt; Array API sqrt.
    """


@operator(block=ufunc("log"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / x))
def log(x: Tensor, *, name: str | None = None) -> Tensor:
    """The natural logarithm, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.log(g.constant("x", [1.0, 2.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 0.693]

    References
    ----------
    ONNX Log; Array API log.
    """


@operator(block=ufunc("log1p"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / (x + 1)))
def log1p(x: Tensor, *, name: str | None = None) -> Tensor:
    """log(1 + x), cell by cell, exact for small x too.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.log1p(g.constant("x", [0.0, 1e-20])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.0, 1e-20]

    References
    ----------
    Array API log1p.
    """


@operator(block=ufunc("expm1"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: y + 1))
def expm1(x: Tensor, *, name: str | None = None) -> Tensor:
    """exp(x) - 1, cell by cell, exact for small x too.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.expm1(g.constant("x", [0.0, 1e-20])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.0, 1e-20]

    References
    ----------
    Array API expm1.
    """


@operator(block=ufunc("sin"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: op("cos", x)))
def sin(x: Tensor, *, name: str | None = None) -> Tensor:
    """The sine, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.sin(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 0.841]

    References
    ----------
    ONNX Sin; Array API sin.
    """


@operator(block=ufunc("cos"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: -op("sin", x)))
def cos(x: Tensor, *, name: str | None = None) -> Tensor:
    """The cosine, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.cos(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [1.0, 0.54]

    References
    ----------
    ONNX Cos; Array API cos.
    """


@operator(block=ufunc("tan"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: y * y + 1))
def tan(x: Tensor, *, name: str | None = None) -> Tensor:
    """The tangent, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.tan(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 1.557]

    References
    ----------
    ONNX Tan; Array API tan.
    """


@operator(block=ufunc("arcsin"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / op("sqrt", 1 - x * x)))
def asin(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse sine, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.asin(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 1.571]

    References
    ----------
    ONNX Asin; Array API asin.
    """


@operator(block=ufunc("arccos"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: -1 / op("sqrt", 1 - x * x)))
def acos(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse cosine, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.acos(g.constant("x", [-1.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [3.142, 0.0]

    References
    ----------
    ONNX Acos; Array API acos.
    """


@operator(block=ufunc("arctan"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / (x * x + 1)))
def atan(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse tangent, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.atan(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 0.785]

    References
    ----------
    ONNX Atan; Array API atan.
    """


@operator(block=ufunc("sinh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: op("cosh", x)))
def sinh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The hyperbolic sine, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.sinh(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 1.175]

    References
    ----------
    ONNX Sinh; Array API sinh.
    """


@operator(block=ufunc("cosh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: op("sinh", x)))
def cosh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The hyperbolic cosine, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.cosh(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [1.0, 1.543]

    References
    ----------
    ONNX Cosh; Array API cosh.
    """


@operator(block=ufunc("arcsinh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / op("sqrt", x * x + 1)))
def asinh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic sine, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.asinh(g.constant("x", [0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 0.881]

    References
    ----------
    ONNX Asinh; Array API asinh.
    """


@operator(block=ufunc("arccosh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / op("sqrt", x * x - 1)))
def acosh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic cosine, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.acosh(g.constant("x", [1.0, 2.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 1.317]

    References
    ----------
    ONNX Acosh; Array API acosh.
    """


@operator(block=ufunc("arctanh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / (1 - x * x)))
def atanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic tangent, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

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
    >>> _ = g.output(ops.atanh(g.constant("x", [0.0, 0.5])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 0.549]

    References
    ----------
    ONNX Atanh; Array API atanh.
    """
