"""ONNX's own cases of single operators, planned on 1 and on 3 devices and run; run as a script.

python tests/node_cases.py            prints what became of them
python tests/node_cases.py --write    also writes it to tests/bench/results/node_cases.md
python tests/node_cases.py NAME …     the cases whose names hold a text, one line each
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import signal
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from tapestry_exec import run
from tapestry_plan import Graph, Mesh, plan
from tapestry_plan.onnx.models import load_onnx

Array = NDArray[Any]

KINDS = ("pass", "bound", "refused", "wrong", "error")
HEAD = """# ONNX's cases of single operators

{day}, onnx {onnx}, `python tests/node_cases.py --write`: {count} cases, each operator in parts of its first axis that
has as many points as there are devices. "bound": refused as given, and passed with small operands as `values=`.
"""
RESULTS = Path(__file__).parent / "bench" / "results" / "node_cases.md"
DEVICES = (1, 3)
SECONDS = 40
"""How long one case may take on one number of devices."""
SLOW_MODULES = ("averagepool", "lppool", "maxpool")
"""Modules of cases whose making takes seconds, since ONNX's reference pools cell by cell."""


PASSED = {"pass": 1447, "bound": 207}
"""How many cases pass, as given and with operands bound; the numbers may only rise."""
ROUNDED = {"test_dft_inverse", "test_dft_inverse_opset19"}
"""Cases whose zeros are what a transform in single precision leaves of them; here, they are nearer to zero."""
SHORT = {
    f"test_attention_{one}_bf16{form}"
    for one in ("3d_causal", "4d_attn_mask_causal", "4d_causal", "4d_causal_padded_kv", "4d_padded_kv")
    for form in ("", "_expanded")
}
"""Attention whose sums the cases make in bfloat16; here they are made in float32, and rounded once."""
OFF = {"test_attention_4d_causal_fp16_expanded", *ROUNDED, *SHORT}
"""Cases with cells that are off by one unit in the last place of a half; ONNX Runtime has more such cells in it.

Its Softmax is of halves: ONNX's reference rounds the differences, the powers, their sum and the quotients to halves;
here, and in ONNX Runtime, only the quotients are, which is nearer to the numbers without rounding.
"""


@dataclass(frozen=True)
class Verdict:
    """What became of a case: "pass", "bound", "wrong", "refused" or "error", and why.

    A case is bound that is refused as given, and passes where operands behind the first whose values are integers, or
    one number, are given as `values=`.
    """

    kind: str
    why: str = ""


class Wrong(Exception):
    """An output that is not what the case wants."""


def load_cases(leave_out: Sequence[str] = ()) -> list[Any]:
    """ONNX's cases, sorted by name, but for those of some modules."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, name, _ in pkgutil.iter_modules(node.__path__):
            if name not in leave_out:
                importlib.import_module(f"{node.__name__}.{name}")
        cases = [case for case in node._NodeTestCases if _module(case) not in leave_out]
    return sorted(cases, key=lambda case: case.name)


def _module(case: Any) -> str:
    return operator_of(case).lower()


def operator_of(case: Any) -> str:
    """The operator that a case is of; cases of its expansion are its own too."""
    return str(case.model.graph.node[0].op_type)


def judge(case: Any, devices: int) -> Verdict:
    """Load, plan and run a case on so many devices, every data set of it."""
    found = _judge(case, devices, bind=False)
    if found.kind != "refused":
        return found
    bound = _judge(case, devices, bind=True)
    return Verdict("bound") if bound.kind == "pass" else found if bound.kind == "refused" else bound


def _judge(case: Any, devices: int, *, bind: bool) -> Verdict:
    try:
        with _alarm(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _try(case, devices, bind)
    except Wrong as error:
        return Verdict("wrong", str(error))
    except ValueError as error:
        is_own = type(error) is not ValueError or str(error).startswith(("load_onnx: ", "run: "))
        return Verdict("refused" if is_own else "error", f"{type(error).__name__}: {error}")
    except Exception as error:
        return Verdict("error", f"{type(error).__name__}: {error}")
    return Verdict("pass")


def _try(case: Any, devices: int, bind: bool) -> None:
    inputs = [value.name for value in case.model.graph.input]
    names = [value.name for value in case.model.graph.output]
    for given, wanted in case.data_sets:
        feeds = {name: as_array(value) for name, value in zip(inputs, given, strict=False)}
        values = {
            name: array
            for name, array in list(feeds.items())[1:]
            if bind and isinstance(array, np.ndarray) and (array.dtype.kind in "iub" or array.size == 1)
        }
        graph = load_onnx(case.model, values=values)
        made = plan(graph, Mesh((devices,)), fix=_cuts(graph, devices), expand=False)
        needed = {tensor.name for tensor in graph.stored.values() if tensor.kind == "input"}
        outputs = run(made, {name: array for name, array in feeds.items() if name in needed}).outputs
        for name, value in zip(names, wanted, strict=True):
            _compare(name, outputs[name], as_array(value), case.rtol, case.atol)


def as_array(value: Any) -> Any:
    """A tensor of a case as an array; what is not a tensor stays as it is, and no graph takes it."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _cuts(graph: Graph, devices: int) -> dict[str, dict[str, int]]:
    """Every operator in as many parts of its first axis that has them, or in 2 where none has."""
    found = {}
    for name in graph.nodes:
        axes = [axis for axis in graph.signature(name).axes if axis.kind == "parallel"]
        for parts in range(devices, 1, -1):
            fits = [axis.name for axis in axes if axis.size >= parts]
            if fits:
                found[name] = {fits[0]: parts}
                break
    return found


def _compare(name: str, found: Array, wanted: Array, rtol: float, atol: float) -> None:
    """Raise Wrong where an output differs in shape, dtype or value, within the case's tolerances."""
    wanted = np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        raise Wrong(f"{name} is {found.dtype}{found.shape}, wanted {wanted.dtype}{wanted.shape}")
    try:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
    except AssertionError as error:
        raise Wrong(f"{name}: " + " ".join(str(error).split())) from None


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after so many seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only cases whose names hold one of these")
    parser.add_argument("--write", action="store_true", help=f"write the table to {RESULTS}")
    options = parser.parse_args()
    cases = load_cases()
    if options.names:
        cases = [case for case in cases if any(name in case.name for name in options.names)]
    counts = {devices: Counter[str]() for devices in DEVICES}
    lines = []
    for case in cases:
        for devices, count in counts.items():
            verdict = judge(case, devices)
            count[verdict.kind] += 1
            if options.names or verdict.kind in ("wrong", "error"):
                print(devices, case.name, operator_of(case), verdict.kind, verdict.why[:400], sep="\t", flush=True)
                lines.append(f"- {case.name} on {devices}: {verdict.kind}, {verdict.why[:200]}")
    rows = [f"| {devices} | {' | '.join(str(count[kind]) for kind in KINDS)} |" for devices, count in counts.items()]
    table = [f"| devices | {' | '.join(KINDS)} |", "|---" * (1 + len(KINDS)) + "|", *rows]
    print("\n".join(table))
    if options.write and not options.names:
        head = HEAD.format(day=date.today(), count=len(cases), onnx=version("onnx"))
        RESULTS.write_text("\n".join([head, *table, "", *lines, ""]))


if __name__ == "__main__":
    main()
