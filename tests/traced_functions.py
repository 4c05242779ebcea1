"""Functions that JAX traces, and their jaxprs as plain data: read back, they are what `from_jaxpr` asks of JAX's own.

``python -m tests.traced_functions`` writes the data anew, where JAX is installed: with each function's jaxpr what JAX
makes of its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FILE = Path(__file__).parent / "plan" / "jaxpr" / "traced.json"


def arguments(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """An array for each shape: whole numbers under 5 for names that begin with `i`."""
    rng = np.random.default_rng(len(shapes))
    return {
        name: rng.integers(0, 5, shape).astype(np.int32)
        if name.startswith("i")
        else rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def functions() -> dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]]:
    """By name a function and the shapes of its arguments."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def layers(x: Any, w: Any, v: Any) -> Any:
        return jax.nn.relu(x @ w) @ v

    def normalized(x: Any, scale: Any, shift: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        return centered * lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * scale + shift

    def attention(x: Any, q: Any, k: Any, v: Any, scale: Any, shift: Any) -> Any:
        batch, length, width = x.shape
        h = normalized(x, scale, shift)
        heads = [(h @ w).reshape(batch, length, 2, width // 2).transpose(0, 2, 1, 3) for w in (q, k, v)]
        scores = jnp.einsum("bhqd,bhkd->bhqk", *heads[:2]) / np.sqrt(width // 2)
        seen = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(seen, -1), heads[2])
        return x + mixed.transpose(0, 2, 1, 3).reshape(x.shape)

    def convolved(x: Any, k: Any, w: Any) -> Any:
        y = jax.nn.gelu(lax.conv_general_dilated(x, k, (2, 2), "SAME"))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return y.reshape(y.shape[0], -1) @ w

    def channels_last(x: Any, k: Any) -> Any:
        words = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, k, (1, 2), "SAME", dimension_numbers=words, rhs_dilation=(2, 1))
        return lax.reduce_window(y, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")

    def recurrent(h: Any, xs: Any, w: Any, u: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w + x @ u)
            return h, h * 2

        return lax.scan(step, h, xs)

    def backwards(h: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (h * 0.5 + x, h), h, xs, reverse=True)

    def by_indices(table: Any, i: Any) -> Any:
        return jnp.take(table, i, axis=0, mode="clip"), table[i], jnp.argmax(table, -1), jnp.cumsum(table, 0)

    def views(x: Any) -> Any:
        padded = jnp.pad(x, ((1, 2), (0, 1)), constant_values=3)
        parts = jnp.split(x, [2, 3], 1)
        return jnp.concatenate([x[::2], x[::-1][:1]], 0), padded, *parts, x.T.reshape(3, 10), jnp.roll(x, 1, 0)

    def cells(x: Any) -> Any:
        smooth = jax.nn.silu(x), jax.nn.gelu(x, approximate=False), jax.nn.softplus(x), jax.nn.elu(x)
        bent = jnp.round(x * 3), jnp.clip(x, -0.5, 0.5), x**3, jnp.abs(x) ** 1.5, jnp.floor(x), jnp.sign(x)
        return *smooth, *bent, jnp.isfinite(x), jnp.where((x > 0) & ~(x > 1), x, 0), jnp.exp2(x), lax.erfc(x)

    def rows(x: Any) -> Any:
        return jax.nn.log_softmax(x), x.std(0), x.max(1), x.min(0), x.prod(1), (x > 0).any(0), (x > -1).all(1)

    def whole(i: Any) -> Any:
        return lax.div(i - 2, 2), lax.rem(i - 2, 2), i & 3, i ^ 1, i | 4, i.astype(jnp.float32), i.sum(0)

    def products(a: Any, b: Any, c: Any) -> Any:
        return jnp.einsum("abcd,cbe->aed", a, b), jnp.einsum("abcd,d->cab", a, c), jnp.dot(c, c)

    layered = {"x": (4, 6), "w": (6, 8), "v": (8, 2)}
    attended = {"x": (2, 4, 8), "q": (8, 8), "k": (8, 8), "v": (8, 8), "scale": (8,), "shift": (8,)}
    turns = {"h": (2, 4), "xs": (3, 2, 3), "w": (4, 4), "u": (3, 4)}
    contracted = {"a": (2, 3, 4, 5), "b": (4, 3, 6), "c": (5,)}

    def slope(f: Callable[..., Any], *numbers: int) -> Callable[..., Any]:
        return jax.grad(lambda *given: sum((one**2).sum() for one in jax.tree.leaves(f(*given))), argnums=numbers)

    return {
        "layers": (layers, layered),
        "the slopes of layers": (slope(layers, 1, 2), layered),
        "attention": (attention, attended),
        "the slopes of attention": (slope(attention, 1, 2, 3), attended),
        "convolved": (convolved, {"x": (2, 3, 8, 8), "k": (4, 3, 3, 3), "w": (16, 5)}),
        "channels last": (channels_last, {"x": (2, 7, 7, 4), "k": (3, 3, 4, 6)}),
        "recurrent": (recurrent, turns),
        "the slopes of a recurrence": (slope(recurrent, 2, 3), turns),
        "backwards": (backwards, {"h": (2,), "xs": (4, 2)}),
        "by indices": (by_indices, {"table": (5, 4), "i": (3, 2)}),
        "views": (views, {"x": (5, 6)}),
        "cells": (cells, {"x": (4, 3)}),
        "rows": (rows, {"x": (4, 3)}),
        "whole numbers": (whole, {"i": (4, 3)}),
        "products": (products, contracted),
        "the slopes of products": (slope(products, 0, 1), contracted),
        "recomputed": (jax.checkpoint(layers), layered),  # type: ignore[attr-defined]
    }


# -- as plain data -------------------------------------------------------------------------------------------


def write(jaxpr: Any, numbers: dict[Any, int]) -> dict[str, Any]:
    """A jaxpr as plain data; variables by number."""

    def var(v: Any) -> dict[str, Any]:
        if hasattr(v, "val"):
            return {"val": np.asarray(v.val).tolist(), "dtype": np.dtype(v.aval.dtype).name}
        number = numbers.setdefault(v, len(numbers))
        return {"var": number, "shape": list(v.aval.shape), "dtype": np.dtype(v.aval.dtype).name}

    def plain(value: Any) -> Any:
        if hasattr(value, "consts") and hasattr(value, "jaxpr"):
            return {"closed": write(value.jaxpr, {}), "consts": [as_data(const) for const in value.consts]}
        if hasattr(value, "eqns"):
            return {"open": write(value, {})}
        if hasattr(value, "_fields"):
            return {"fields": {name: plain(getattr(value, name)) for name in value._fields}}
        if isinstance(value, tuple | list):
            return [plain(one) for one in value]
        if hasattr(value, "name") and hasattr(value, "value"):
            return {"fields": {"name": value.name}}
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return {"other": str(value)[:60]} if not hasattr(value, "__dataclass_fields__") else {
            "fields": {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
        }  # fmt: skip

    return {
        "constvars": [var(v) for v in jaxpr.constvars],
        "invars": [var(v) for v in jaxpr.invars],
        "eqns": [
            {
                "primitive": eqn.primitive.name,
                "params": {key: plain(value) for key, value in eqn.params.items() if not callable(value)},
                "invars": [var(v) for v in eqn.invars],
                "outvars": [var(v) for v in eqn.outvars],
            }
            for eqn in jaxpr.eqns
        ],
        "outvars": [var(v) for v in jaxpr.outvars],
    }


def as_data(array: Any) -> dict[str, Any]:
    """An array as plain data."""
    made = np.asarray(array)
    cells = [float(str(one)) if made.dtype.kind == "f" else one.item() for one in made.ravel()]  # as few digits as do
    return {"dtype": made.dtype.name, "shape": list(made.shape), "cells": cells}


def as_array(data: Mapping[str, Any]) -> Array:
    """The array of plain data."""
    return np.array(data["cells"], data["dtype"]).reshape(data["shape"])


class Variable:
    """What stands for a variable of JAX: its type, and nothing that compares equal to another one."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.aval = SimpleNamespace(shape=shape, dtype=np.dtype(dtype))


def read(data: Mapping[str, Any]) -> Any:
    """A jaxpr of plain data."""
    known: dict[int, Variable] = {}

    def var(v: Mapping[str, Any]) -> Any:
        if "val" in v:
            return SimpleNamespace(val=np.asarray(v["val"], v["dtype"]))
        return known.setdefault(v["var"], Variable(tuple(v["shape"]), v["dtype"]))

    def rich(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(rich(one) for one in value)
        if not isinstance(value, dict):
            return value
        if "closed" in value:
            return SimpleNamespace(jaxpr=read(value["closed"]), consts=[as_array(one) for one in value["consts"]])
        if "open" in value:
            return read(value["open"])
        return SimpleNamespace(**{name: rich(one) for name, one in value.get("fields", {}).items()})

    return SimpleNamespace(
        constvars=[var(v) for v in data["constvars"]],
        invars=[var(v) for v in data["invars"]],
        eqns=[
            SimpleNamespace(
                primitive=SimpleNamespace(name=eqn["primitive"]),
                params={key: rich(value) for key, value in eqn["params"].items()},
                invars=[var(v) for v in eqn["invars"]],
                outvars=[var(v) for v in eqn["outvars"]],
            )
            for eqn in data["eqns"]
        ],
        outvars=[var(v) for v in data["outvars"]],
    )


def recorded() -> dict[str, dict[str, Any]]:
    """By name what was recorded of a function."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return found


def record() -> dict[str, dict[str, Any]]:
    """Trace all functions, and run them."""
    import jax

    found = {}
    for name, (f, shapes) in functions().items():
        given = arguments(shapes)
        traced = jax.make_jaxpr(f)(*given.values())
        made = jax.tree.leaves(jax.jit(f)(*given.values()))
        found[name] = {
            "shapes": {word: list(shape) for word, shape in shapes.items()},
            "jaxpr": write(traced.jaxpr, {}),
            "consts": [as_data(const) for const in traced.consts],
            "results": [as_data(one) for one in made],
        }
    return found


if __name__ == "__main__":
    rows = [f"{json.dumps(name)}:{json.dumps(one, separators=(',', ':'))}" for name, one in record().items()]
    FILE.write_text("{" + ",\n".join(rows) + "}\n")
