"""ONNX's own cases of single operators as a backend of ONNX's: planned on 1 and on 3 devices and run; also a script.

python tests/node_cases.py            prints what became of them
python tests/node_cases.py --write    also writes it to tests/bench/results/node_cases.md, unless passes became less;
                                      with --lower "REASON" then too, and the reason stands in the table
python tests/node_cases.py NAME …     the cases whose names hold a text, one line each
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import signal
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.loader import load_model_tests

sys.path[:0] = [str(Path(__file__).parents[1])] if __name__ == "__main__" else []

from tapestry_exec import run, run_stages  # noqa: E402
from tapestry_plan import Graph, Mesh, ShardPlan, UnsupportedOp, operation, plan  # noqa: E402
from tapestry_plan.onnx import StagedModel, load_onnx  # noqa: E402
from tests.exact_nodes import evaluate_exactly  # noqa: E402

Array = NDArray[Any]

COLUMNS = ("sharded", "whole", "opaque")
"""How a case passes: its operators are split; it has views alone, or no axis longer than 1; something ran whole."""
FAILED = ("off", "refused", "wrong", "error")
"""How it does not: what ONNX wants is off; it is refused; its values are wrong; there are none."""
HEAD = """# ONNX's cases of single operators

{day}, onnx {onnx}, onnxruntime {ort}, `python tests/node_cases.py --write`. A case passes when all its outputs are
ONNX's, at the case's own tolerances. Each operator is in parts of its first axis that has as many points as there are
devices. How a case passes is of one kind alone, the last one that any of its operators is:

- **sharded**: operators that are split, here or on more devices
- **whole**: views, which are no operators, and operators that have no axis longer than 1
- **opaque**: something runs whole on one device: a node without declaration, by ONNX's reference, in the graph or
  between two stages; or an operator whose declaration projects every axis whole

"off" is no pass, but nothing wrong here: the values that ONNX wants are farther than the case's tolerance from what its
formula comes to in double precision, rounded once or, as ONNX's expansion is written, after each node. The values here
are within it, cell by cell (`is_off`). Of attention in bfloat16 the wanted values come of products whose sums are
rounded after each term; of one in halves, of a Softmax that rounds within; of transforms, zeros are what single
precision leaves of them.

"bound": passes of the three kinds whose small operands were given as `values=`, as stages do with what they know. Base
cases are those that ONNX does not write as the expansion of others.
"""
RESULTS = Path(__file__).parent / "bench" / "results" / "node_cases.md"
LOWERED = re.compile(r"^Lowered on .*$", re.MULTILINE)
"""A line of the table that says which passes became less, and why; it stays."""
DEVICES = (1, 3)
SECONDS = 40
"""How long one case may take on one number of devices."""
SLOW_MODULES = ("averagepool", "lppool", "maxpool")
"""Modules of cases whose making takes seconds, since ONNX's reference pools cell by cell."""


DRAWN = ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial")
"""Operators whose values ONNX leaves open: shape and dtype are compared."""


@dataclass(frozen=True)
class Verdict:
    """What became of a case: one of `COLUMNS` or `FAILED`, and why.

    A case is bound that is refused as given, and passes where operands behind the first whose values are integers, or
    one number, are given as `values=`.
    """

    kind: str
    why: str = ""
    bound: bool = False


class Wrong(Exception):
    """An output that is not what the case wants."""


# -- the cases -------------------------------------------------------------------------------------------


def load_cases(leave_out: Sequence[str] = ()) -> list[Any]:
    """ONNX's cases, sorted by name, but for those of some modules."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not leave_out:
            return sorted(load_model_tests(kind="node"), key=lambda case: case.name)
        for found in pkgutil.walk_packages(node.__path__, f"{node.__name__}."):  # those of other domains lie deeper
            if found.name.rpartition(".")[2] not in leave_out:
                importlib.import_module(found.name)
        cases = [case for case in node._NodeTestCases if _module(case) not in leave_out]
    return sorted(cases, key=lambda case: case.name)


def _module(case: Any) -> str:
    return operator_of(case).lower()


def operator_of(case: Any) -> str:
    """The operator that a case is of; of an expansion, whichever comes first."""
    return str(case.model.graph.node[0].op_type)


def is_base(case: Any) -> bool:
    """Whether a case is of an operator itself, not of the others that define it."""
    return "_expanded" not in case.name


def as_array(value: Any) -> Any:
    """A tensor or a number of a case as an array; what is neither stays as it is, and no graph takes it."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


# -- the backend -----------------------------------------------------------------------------------------


class Planned(BackendRep):
    """A model that is planned when it is given its inputs.

    Parameters
    ----------
    model : onnx.ModelProto
    devices : int
    """

    def __init__(self, model: Any, devices: int) -> None:
        self.model, self.devices = model, devices
        self.column = ""
        """How the last run went, one of `COLUMNS`."""
        self.bound = False

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, ...]:
        """The outputs: from a graph without opaque operators, else with them, else in stages."""
        feeds = {value.name: array for value, array in zip(self.model.graph.input, inputs, strict=False)}
        small = {
            name: array
            for name, array in list(feeds.items())[1:]
            if isinstance(array, np.ndarray | np.generic) and (array.dtype.kind in "iub" or array.size == 1)
        }
        for values, opaque in (({}, False), (small, False), ({}, True)):
            try:
                graph = load_onnx(self.model, values=values, opaque=opaque)
            except ValueError as error:
                if not _is_own(error):
                    raise
                continue
            self.bound = bool(values)
            self.column = column_of([graph])
            return tuple(self._run(graph, feeds)[value.name] for value in self.model.graph.output)
        return self._run_staged(feeds)

    def _run_staged(self, feeds: Mapping[str, Any]) -> tuple[Any, ...]:
        found = run_stages(StagedModel(self.model, feeds), {}, self._plan)
        graphs = [stage.graph for stage in found.stages if stage.graph is not None]
        self.bound = False
        self.column = "opaque" if found.whole else column_of(graphs)
        return tuple(found.outputs[value.name] for value in self.model.graph.output)

    def _plan(self, graph: Graph) -> ShardPlan:
        return plan(graph, Mesh((self.devices,)), fix=_cuts(graph, self.devices), expand=False)

    def _run(self, graph: Graph, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        needed = {tensor.name for tensor in graph.stored.values() if tensor.kind == "input"}
        outputs: Mapping[str, Any] = run(self._plan(graph), {name: feeds[name] for name in needed}).outputs
        return outputs


class Tapestry(Backend):
    """The project as one of ONNX's backends; `devices=` says for how many devices models are planned."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Planned:
        """A model to be run; nothing is planned yet, since shapes may follow from inputs."""
        return Planned(model, kwargs.get("devices", 1))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there are such devices: NumPy's."""
        return device == "CPU"


class OnnxRuntime(Backend):
    """ONNX Runtime beside it."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Any:
        """A session of the model."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])

        class Rep(BackendRep):
            def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, ...]:
                names = [value.name for value in session.get_inputs()]
                return tuple(session.run(None, dict(zip(names, inputs, strict=False))))

        return Rep()


def column_of(graphs: Sequence[Graph]) -> str:
    """How graphs are run: the last of `COLUMNS` that any operator is."""
    kinds = {_kind_of(graph, name) for graph in graphs for name in graph.nodes}
    return next((kind for kind in ("opaque", "sharded") if kind in kinds), "whole")


def _kind_of(graph: Graph, name: str) -> str:
    """How one operator can be run, by the axes that it declares and the tensors that it touches."""
    node, found = graph.nodes[name], operation(graph, name)
    if node.op == "opaque":
        return "opaque"
    if any(axis.size > 1 for axis in found.signature.axes):
        return "sharded"
    shapes = [graph.tensor(tensor).shape for tensor in (*node.inputs, *node.outputs)]
    return "opaque" if any(n > 1 for shape in shapes for n in shape) else "whole"


def _cuts(graph: Graph, devices: int) -> dict[str, dict[str, int]]:
    """Every operator in as many parts of its first axis that has them, or in 2 where none has; sums only at last."""
    found = {}
    for name in graph.nodes:
        axes = sorted(graph.signature(name).axes, key=lambda axis: axis.kind != "parallel")
        for parts in range(devices, 1, -1):
            fits = [axis.name for axis in axes if axis.size >= parts]
            if fits:
                found[name] = {fits[0]: parts}
                break
    return found


# -- verdicts --------------------------------------------------------------------------------------------


def judge(case: Any, devices: int, backend: type[Backend] = Tapestry) -> Verdict:
    """Prepare and run a case on so many devices, every data set of it."""
    try:
        with _alarm(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = backend.prepare(case.model, devices=devices)
            for given, wanted in case.data_sets:
                outputs = prepared.run([as_array(value) for value in given])
                try:
                    compare_all(case, outputs, [as_array(one) for one in wanted])
                except Wrong as error:
                    return Verdict("off" if is_off(case, given, outputs, wanted) else "wrong", str(error))
    except Exception as error:
        kind = "refused" if isinstance(error, ValueError) and _is_own(error) else "error"
        return Verdict(kind, f"{type(error).__name__}: {error}")
    return Verdict(getattr(prepared, "column", "") or "whole", bound=getattr(prepared, "bound", False))


def _is_own(error: Exception) -> bool:
    """Whether an error is one of the importer's or of a run's, in words."""
    return isinstance(error, UnsupportedOp) or str(error).startswith(("load_onnx: ", "StagedModel: ", "run: "))


def compare_all(case: Any, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """As `_compare`, of all outputs."""
    for value, one, other in zip(case.model.graph.output, found, wanted, strict=True):
        _compare(case, value.name, one, other)


def is_off(case: Any, given: Sequence[Any], found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether outputs are what a case's formula comes to, rounded once or after each node, and ONNX's are not."""
    expanded = {one.name: one for one in load_cases(SLOW_MODULES)}.get(f"{case.name}_expanded", case)
    outputs = [as_array(one) for one in wanted]
    if not all(
        isinstance(one, np.ndarray) and (one.dtype.kind == "f" or one.dtype.name == "bfloat16") for one in outputs
    ):
        return False
    names = [value.name for value in expanded.model.graph.input]
    feeds = {name: as_array(array) for name, array in zip(names, given, strict=True)}
    near_us = near_them = False
    for rounds in (False, True) if is_base(case) else (True,):  # an expansion says what is between its nodes
        exact = evaluate_exactly(expanded.model, feeds, rounds=rounds).values()
        short = [array.astype(one.dtype) for array, one in zip(exact, outputs, strict=True)]
        near_us, near_them = near_us or _agree(case, found, short), near_them or _agree(case, outputs, short)
    return near_us and not near_them


def _agree(case: Any, one: Sequence[Any], other: Sequence[Any]) -> bool:
    try:
        compare_all(case, one, other)
    except Wrong:
        return False
    return True


def _compare(case: Any, name: str, found: Any, wanted: Any) -> None:
    """Raise Wrong where an output differs in shape, dtype or value, within the case's tolerances."""
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            raise Wrong(f"{name} is {found!r}, wanted {wanted!r}")
        for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
            _compare(case, f"{name}[{k}]", one, other)
        return
    if wanted is None or found is None:
        if wanted is not found:
            raise Wrong(f"{name} is {found!r}, wanted {wanted!r}")
        return
    found, wanted = np.asarray(found), np.asarray(wanted)
    is_text = wanted.dtype.kind in "OSU" and found.dtype.kind in "OSU"
    if found.shape != wanted.shape or (found.dtype != wanted.dtype and not is_text):
        raise Wrong(f"{name} is {found.dtype}{found.shape}, wanted {wanted.dtype}{wanted.shape}")
    if any(node.op_type in DRAWN for node in case.model.graph.node):
        return
    try:
        if is_text:
            np.testing.assert_array_equal(found.astype(str), wanted.astype(str))
        else:
            is_own = wanted.dtype.kind in "biufc"  # NumPy's, not those of other packages
            wide = (found, wanted) if is_own else (found.astype(np.float32), wanted.astype(np.float32))
            np.testing.assert_allclose(*wide, rtol=case.rtol, atol=case.atol)
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


# -- the table -------------------------------------------------------------------------------------------

Found = Mapping[str, Verdict]
"""Verdicts by the names of cases."""


def count_kinds(verdicts: Sequence[Verdict]) -> list[int]:
    """How many verdicts are of each column, of each failure, and how many passed bound."""
    counts = Counter(verdict.kind for verdict in verdicts)
    return [*(counts[kind] for kind in (*COLUMNS, *FAILED)), sum(verdict.bound for verdict in verdicts)]


def count_passes(verdicts: Sequence[Verdict]) -> tuple[int, int, int]:
    """Passes of the first column, of the first two, and of all three: none of these may fall."""
    sharded, whole, opaque = count_kinds(verdicts)[:3]
    return sharded, sharded + whole, sharded + whole + opaque


EXPANDED = ", expanded"
"""Behind an operator's name, of the cases that are its expansion; in `Floor` behind a number of devices."""

Floor = Mapping[str, tuple[int, int, int]]
"""Passes, as `count_passes` has them, of the base cases and of the expanded ones of each operator on the most devices,
and of all expanded cases by the number of devices."""


def group_cases(cases: Sequence[Any]) -> dict[str, list[Any]]:
    """Cases by what the table calls those that they are counted among: their operator, or its expansion."""
    operators = {case.name: operator_of(case) for case in cases if is_base(case)}
    found = defaultdict(list)
    for case in cases:
        origin = case.name.partition("_expanded")[0]
        name = operators.get(origin, operator_of(case))
        found[name if is_base(case) else name + EXPANDED].append(case)
    return dict(found)


def read_floor(text: str | None = None) -> dict[str, tuple[int, int, int]]:
    """The passes that a table has, the committed one where none is given, as `Floor`."""
    text = RESULTS.read_text() if text is None else text
    kinds = r"(\d+) \| (\d+) \| (\d+) \|"
    found = {}
    for name, *counts in re.findall(rf"^\| (\w+(?:{EXPANDED})?) \| \d+ \| {kinds}", text, re.MULTILINE):
        found[name] = _sum_up(map(int, counts))
    rows = re.findall(rf"^\| (all|base), \d+ \| (\d+) \| {kinds}", text, re.MULTILINE)
    totals = {(label, devices): [*map(int, counts)] for label, devices, *counts in rows}
    for devices in (devices for label, devices in totals if label == "all"):
        pairs = zip(totals["all", devices], totals["base", devices], strict=True)
        found[f"{devices}{EXPANDED}"] = _sum_up(every - base for every, base in pairs)
    return found


def _sum_up(counts: Iterable[int]) -> tuple[int, int, int]:
    sharded, whole, opaque = counts
    return sharded, sharded + whole, sharded + whole + opaque


def count_all(cases: Sequence[Any], found: Mapping[int, Found]) -> dict[str, tuple[int, int, int]]:
    """The passes of cases that were judged, as `Floor`."""
    last, expanded = found[max(found)], [case.name for case in cases if not is_base(case)]
    groups = {name: [last[case.name] for case in members] for name, members in group_cases(cases).items()}
    groups |= {f"{devices}{EXPANDED}": [verdicts[name] for name in expanded] for devices, verdicts in found.items()}
    return {name: count_passes(verdicts) for name, verdicts in groups.items()}


def list_falls(now: Floor, then: Floor) -> list[str]:
    """A line for each group whose passes became less; one that is not there any more has none."""
    return [
        f"{name}: {now.get(name, (0, 0, 0))} of {least}"
        for name, least in then.items()
        if any(one < other for one, other in zip(now.get(name, (0, 0, 0)), least, strict=True))
    ]


def _rows(cases: Sequence[Any], found: Mapping[int, Found], beside: Found) -> Iterator[str]:
    """The lines of the table: all cases by devices, and the base cases by operator."""
    kinds = [*COLUMNS, *FAILED, "bound"]
    yield f"| cases | devices | {' | '.join(kinds)} | passes | ONNX Runtime |"
    yield "|---" * (4 + len(kinds)) + "|"
    for label, chosen in (("all", cases), ("base", [case for case in cases if is_base(case)])):
        ort = sum(beside[case.name].kind not in FAILED for case in chosen)
        for devices, verdicts in found.items():
            counts = count_kinds([verdicts[case.name] for case in chosen])
            shown = " | ".join(map(str, counts))
            yield f"| {label}, {len(chosen)} | {devices} | {shown} | {sum(counts[:3])} | {ort} |"
    by_operator = {name: [case.name for case in members] for name, members in group_cases(cases).items()}
    base = {name: names for name, names in by_operator.items() if not name.endswith(EXPANDED)}
    yield from _rows_by_operator("base cases", base, found[DEVICES[-1]], beside)
    expanded = {name: names for name, names in by_operator.items() if name.endswith(EXPANDED)}
    yield from _rows_by_operator("expanded cases", expanded, found[DEVICES[-1]], beside)


def _rows_by_operator(
    label: str, by_operator: Mapping[str, Sequence[str]], last: Found, beside: Found
) -> Iterator[str]:
    yield ""
    yield f"The {label} by operator, on {DEVICES[-1]} devices:"
    yield ""
    yield f"| operator | cases | {' | '.join([*COLUMNS, *FAILED])} | ONNX Runtime |"
    yield "|---" * (3 + len([*COLUMNS, *FAILED])) + "|"
    for operator, names in sorted(by_operator.items()):
        counts = count_kinds([last[name] for name in names])[:-1]
        ort = sum(beside[name].kind not in FAILED for name in names)
        yield f"| {operator} | {len(names)} | {' | '.join(map(str, counts))} | {ort} |"


def _exceptions(found: Mapping[int, Found]) -> Iterator[str]:
    """A line for each case that does not pass, or differs between numbers of devices."""
    for name in found[DEVICES[0]]:
        mine = {devices: verdicts[name] for devices, verdicts in found.items()}
        for devices, verdict in mine.items():
            if verdict.kind in FAILED:
                yield f"- {name} on {devices}: {verdict.kind}, {verdict.why[:200]}"
        if len({verdict.kind for verdict in mine.values()}) > 1:
            yield f"- {name} differs: " + ", ".join(f"{verdict.kind} on {n}" for n, verdict in mine.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only cases whose names hold one of these")
    parser.add_argument("--write", action="store_true", help=f"write the table to {RESULTS}")
    parser.add_argument("--lower", metavar="REASON", help="write it though passes became less, and say why")
    options = parser.parse_args()
    cases = load_cases()
    if options.names:
        cases = [case for case in cases if any(name in case.name for name in options.names)]
    found: dict[int, dict[str, Verdict]] = {devices: {} for devices in DEVICES}
    beside: dict[str, Verdict] = {}
    for case in cases:
        beside[case.name] = judge(case, 1, OnnxRuntime)
        for devices, verdicts in found.items():
            verdicts[case.name] = verdict = judge(case, devices)
            if options.names or verdict.kind in ("wrong", "error"):
                bound = ", bound" if verdict.bound else ""
                shown = f"{verdict.kind}{bound}"
                print(devices, case.name, operator_of(case), shown, verdict.why[:400], sep="\t", flush=True)
    table = [*_rows(cases, found, beside)]
    print("\n".join(table[:6] if options.names else table))
    if options.write and not options.names:
        told = LOWERED.findall(RESULTS.read_text())
        falls = list_falls(count_all(cases, found), read_floor())
        if falls and not options.lower:
            sys.exit("\n".join(["not written, since passes became less (--lower REASON):", *falls]))
        told += [f"Lowered on {date.today()}, {'; '.join(falls)}: {options.lower}"] * bool(falls)
        head = HEAD.format(day=date.today(), onnx=version("onnx"), ort=version("onnxruntime"))
        reasons = [line for one in told for line in (one, "")]
        RESULTS.write_text("\n".join([head, *reasons, *table, "", *_exceptions(found), ""]))


if __name__ == "__main__":
    main()
