"""One node after another becomes a known value, or operators and selections of the graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import BUILTIN_OPS, DtypeNotTaken, Tensor, UnsupportedOp
from tapestry_plan.onnx.importers.blocked import block_of, in_blocks, reads_blocks
from tapestry_plan.onnx.importers.recurrent import check_lengths
from tapestry_plan.onnx.inputs import InputShapes, dtype_of
from tapestry_plan.onnx.nodes import (
    Array,
    Importing,
    Node,
    NotOfGraphs,
    OutsideText,
    TooLargeToFold,
    ValueNeeded,
    check_attributes,
    check_version,
    refusal,
    schema_of,
)
from tapestry_plan.onnx.operators import IMPORTERS, NOT_ADDED
from tapestry_plan.onnx.replacing.bodies import both_branches, check_one_condition, has_body, nodes_of
from tapestry_plan.onnx.replacing.folding import evaluate
from tapestry_plan.onnx.replacing.sequences import is_of_sequences, replace_sequences
from tapestry_plan.onnx.replacing.whole import (
    NotRun,
    RunsWhole,
    add_whole,
    bind_without_cells,
    check_runs,
    reads_of,
    refuse_if_runs,
)
from tapestry_plan.onnx.walks import DRAWING
from tapestry_plan.onnx.ways import count_ways, list_ways
from tapestry_sets.limits import cut_text, list_names, quote

VALUES_CHECKED = frozenset({"gather_nd", "put_along_axis", "scatter_nd", "take", "take_along_axis"})
"""Operators that end a run for values that they are given: indices beyond the cells."""

STAGED = (
    "; StagedModel plans it in stages, as values are known, and so does tapestry run with --input for what it needs"
)
"""What to do about a model that has no graph, and has stages."""

WHOLE_REFUSED = "opaque=False, or --no-opaque, keeps it from running whole"
"""Why a node is refused that one device could run."""

KEPT = ("Identity", "Dropout")
"""Nodes that give known values another name, whatever these are."""


class NotFolded(UnsupportedOp):
    """A node without importer that was to be evaluated in advance, and cannot be."""


class Placing:
    """The nodes of a model in turn, and what became of those that could not be added.

    Parameters
    ----------
    at : Importing
    opaque : bool
        Whether nodes that are refused may be added as operators that run whole.
    held : collection of str
        Tensors whose values can be made known: who needs one of these does not run whole for want of it.
    """

    def __init__(self, at: Importing, opaque: bool, held: Collection[str] = ()) -> None:
        self.at, self.opaque, self.held = at, opaque, held
        self.refused: list[tuple[Node, UnsupportedOp]] = []
        """Nodes that are not supported, and why."""
        self.behind: list[Node] = []
        """Nodes that read what those do not make, or others of these."""
        self.lost: set[str] = set()
        """What neither makes."""
        self.foreign: set[str] = set()
        """Values that no graph has: of strings, of several tensors, of elements that NumPy has not."""
        self.wrong: list[tuple[Node, UnsupportedOp]] = []
        """Of the refused ones those that are not as ONNX has them, or that nobody takes."""

    def place(self, node: Node) -> None:
        """Add a node to the graph, in one way or another, or note why that cannot be."""
        if not self.lost.isdisjoint(reads_of(node)):
            self.behind.append(node)
            self.lost.update(filter(None, node.outputs))
            return
        try:
            self._add(node)
        except UnsupportedOp as error:
            self._refuse(node, error)

    def _refuse(self, node: Node, why: UnsupportedOp) -> None:
        self.refused.append((node, why))
        self.lost.update(filter(None, node.outputs))

    def _add(self, node: Node) -> None:
        if not self.foreign.isdisjoint(reads_of(node)):
            name = next(name for name in reads_of(node) if name in self.foreign)
            raise NotOfGraphs(f"{node.where} reads {quote(name)}, which is not a tensor of numbers of NumPy")
        try:
            check_node(self.at, node)
        except UnsupportedOp as error:
            self.wrong.append((node, error))
            raise
        try:
            self._refuse_strings(node)
            with self.at.trying():
                _place_node(self.at, node)
            return
        except UnsupportedOp as error:
            refused = error
        if isinstance(refused, NotRun):
            self.wrong.append((node, refused))
        if isinstance(refused, NotRun) or (isinstance(refused, ValueNeeded) and refused.tensor in self.held):
            raise refused
        if isinstance(refused, RunsWhole) and not self.opaque:
            raise UnsupportedOp(f"{refused}; ONNX Runtime or ONNX's reference runs it so, but {WHOLE_REFUSED}")
        if not self.opaque or _is_given(node, self.at) or not has_runner(node, self.at):
            raise refused
        if is_of_sequences(self.at, node):  # which nobody else has
            raise refused
        # One that waits for a value of the model's can be unrolled in the stage behind it.
        waits = isinstance(refused, ValueNeeded) and self.at.has(refused.tensor)
        try:
            with self.at.trying():
                why = str(refused).removeprefix(f"{node.where}: ")
                add_whole(self.at, node, why, place=_place_all, declared=not waits)
            return
        except UnsupportedOp as error:
            whole = error
        if isinstance(refused, ValueNeeded):
            raise refused
        why = str(whole)
        known = "" if why in str(refused) else f"; nor can it run whole: {why.removeprefix(f'{node.where}: ')}"
        refused = type(refused)(f"{refused}{known}")
        if isinstance(whole, NotRun):
            self.wrong.append((node, refused))
        raise refused

    def _refuse_strings(self, node: Node) -> None:
        """Refuse a node that reads strings, unless it is evaluated in advance: importers know numbers alone."""
        name = next((name for name in reads_of(node) if self.at.has_strings(name)), None)
        if name is not None and not _is_folded(node, self.at):
            raise NotOfGraphs(f"{node.where} reads {quote(name)}, which holds strings")

    @property
    def stuck(self) -> list[tuple[Node, UnsupportedOp]]:
        """Of the refused nodes those that do not run between stages either: nobody has them, or takes them so."""
        return [pair for pair in self.refused if pair in self.wrong or not has_runner(pair[0], self.at)]

    def report(self) -> None:
        """Raise UnsupportedOp for all nodes that are not supported, where there are any."""
        if not self.refused:
            return
        at, is_staged = self.at, self.opaque and not self.stuck
        missing = [*self.refused, *((node, None) for node in self.behind if not is_supported(node, at))]
        if len(missing) == 1 and _is_named(missing[0][0], at):
            if is_staged:
                self.refused[0][1].args = (say_staged(self.refused[0][1]),)
            raise self.refused[0][1]
        lines = [
            _missing_line(node, why, at) + ("" if self.opaque or not _is_whole(node, at) else f"; {WHOLE_REFUSED}")
            for node, why in missing
            if why is not None or not self.opaque or not has_runner(node, at)
        ]
        is_asked = not self.opaque and all(_is_whole(node, at) for node, _ in missing)
        what = "only runs whole" if is_asked else "is not supported"
        raise UnsupportedOp(
            f"{len(lines)} node{'s have' if len(lines) > 1 else ' has'} an operator that {what}:\n"
            + "\n".join(lines)
            + f"\n{count_ways()} (listed by `tapestry ops --onnx`); others can be given as "
            'ops={"domain::Type": …}' + STAGED * is_staged
        )


def _place_all(at: Importing, nodes: Sequence[Node]) -> None:
    """Add nodes of a body in turn; those that have no operator may run whole there."""
    placing = Placing(at, opaque=True)
    for node in nodes:
        placing.place(node)
    placing.report()


def say_staged(why: UnsupportedOp) -> str:
    """Why a model has no graph, and what to do about it."""
    text = str(why)
    return text if text.endswith(STAGED) else text + STAGED


def has_runner(node: Node, at: Importing) -> bool:
    """Whether a node is ONNX's, or of an operator that ONNX Runtime has."""
    is_onnx = schema_of(node.op_type, at.opsets.get(node.domain, at.opset), node.domain) is not None
    return is_onnx or ops.is_in_runtime(node.operator)


def is_supported(node: Node, at: Importing) -> bool:
    """Whether a node is in the table or evaluated in advance."""
    return _is_folded(node, at) or _has_importer(node, at) or has_body(node, at)


def _is_folded(node: Node, at: Importing) -> bool:
    """Whether a node is evaluated in advance."""
    if node.domain or node.captured is not None:
        return False
    is_known = all(map(at.is_known, reads_of(node))) and node.op_type not in ops.RANDOM_OPS
    return is_known or node.op_type in NOT_ADDED


def _is_given(node: Node, at: Importing) -> bool:
    """Whether the operator is one that the user gave a declaration of."""
    return at.importers.get(node.operator) is not IMPORTERS.get(node.operator)


def _has_importer(node: Node, at: Importing) -> bool:
    return node.captured is None and node.operator in at.importers


def _is_named(node: Node, at: Importing) -> bool:
    """Whether the operator is known, and what the node asks of it is not."""
    return _has_importer(node, at) or node.operator in NOT_ADDED or has_body(node, at) or is_of_sequences(at, node)


def _is_whole(node: Node, at: Importing) -> bool:
    """Whether a node can be in a graph as an opaque operator alone, where its results have known shapes."""
    return has_runner(node, at) and not _is_named(node, at)


def _missing_line(node: Node, refused: UnsupportedOp | None, at: Importing) -> str:
    """What is known of a node that is not supported."""
    if refused is not None and (_is_named(node, at) or isinstance(refused, NotFolded)):
        return f"  {refused}"
    line = f"  node {quote(node.name)}: {cut_text(node.op_type)} of domain {quote(node.domain or 'ai.onnx')}"
    line += "" if node.domain else f", opset {at.opset}"
    line += "" if node.captured is None else ", with a graph inside"
    why = at.undecided.get(node.outputs[0]) if node.outputs else None
    if why is not None:
        return f"{line}, whose condition is {quote(node.inputs[0])}, {why}"
    _, _, whole = str(refused or "").partition("; nor can it run whole: ")
    whole = f"; it cannot run whole: {whole}" if whole else ""
    whole = whole if has_runner(node, at) else "; neither ONNX nor an installed ONNX Runtime has it"
    unknown = next(
        (f"; its inputs are not known: {at.unfolded[name]}" for name in node.inputs if name in at.unfolded), ""
    )
    from difflib import get_close_matches  # loaded with the first wrong name, not with the package

    names = sorted(list_ways().keys() | at.importers.keys() - IMPORTERS.keys())
    is_known = node.operator in names or has_runner(node, at)
    near = not is_known and get_close_matches(node.operator, names, 1)
    nearest = f"; {list_names(names, node.operator, 'operators')}" if near else ""
    if node.domain and node.op_type in at.importers.keys() - IMPORTERS.keys():
        nearest = f"; ops= has {quote(node.op_type)}, which lacks the domain: give it as {quote(node.operator)}"
    return f"{line}{nearest}{unknown}{whole}"


def check_made(node: Node, name: str, is_made: bool) -> None:
    """Raise ValueError where a node reads what is not made."""
    if not is_made:
        raise ValueError(f"{node.where} reads {quote(name)}, which no node makes and which is not an input")


def add_input(value: Any, shapes: InputShapes, at: Importing) -> None:
    """Declare an input of the model, but for one whose value is known."""
    if at.has(value.name):
        return
    dtype = dtype_of(value)
    if (empty := shapes.empty(value)) is not None:  # of which there is one value alone
        at.bind(value.name, np.empty(empty, dtype))
        return
    shape = shapes.shape(value)
    if prod(shape) >= 2**63:
        raise ValueError(
            f"input {quote(value.name)} of shape {quote(shape)} has 2**63 cells or more, "
            "which cannot be counted: give it smaller extents"
        )
    try:
        at.bind(value.name, at.graph.input(value.name, shape, dtype))
    except TypeError as error:
        raise ValueError(str(error)) from None


def check_node(at: Importing, node: Node) -> None:
    """Refuse a node that is not one of its operator's: by its inputs, its attributes, and what it reads."""
    takes = at.importers.get(node.operator, NOT_ADDED.get(node.operator))
    if takes is not None:
        takes.check_inputs(node)
    check_attributes(node, at.opset)
    if node.operator == "If":
        check_one_condition(node)
    for name in reads_of(node):
        check_made(node, name, at.has(name))
    check_lengths(at, node)


def add_node(at: Importing, node: Node) -> None:
    """Evaluate a checked node in advance where its inputs are known, else add it to the graph."""
    reads = reads_of(node)
    if node.operator in NOT_ADDED:
        NOT_ADDED[node.operator].add(at, node)
        NOT_ADDED[node.operator].check_read(node, at.opset)
    elif node.op_type not in KEPT and _is_folded(node, at) and not _is_given(node, at):
        _add_known(at, node)
    else:
        _add_to_graph(at, node)
    behind = [at.unfolded[name] for name in reads if name in at.unfolded]
    if behind and all(name in at.unfolded or at.is_known(name) for name in reads):
        at.unfolded.update((name, behind[0]) for name in node.outputs if name and not at.is_known(name))


def _place_node(at: Importing, node: Node) -> None:
    """Add a checked node, or where it is of a sequence those that read its tensors."""
    if not is_of_sequences(at, node):
        add_node(at, node)
        return
    _add_in_turn(at, replace_sequences(at, node))


def _add_known(at: Importing, node: Node) -> None:
    """Evaluate a node, or add it to the graph where the reference implementation does not run it."""
    try:
        values = evaluate(node, at)
    except ValueError as error:
        if node.operator not in at.importers and (isinstance(error, TooLargeToFold) or not has_body(node, at)):
            raise NotFolded(str(error)) from None
        if isinstance(error, TooLargeToFold):
            at.unfolded.update(dict.fromkeys(node.outputs, str(error)))
        _add_to_graph(at, node)
        return
    for name, array in zip(node.outputs, values, strict=False):
        at.bind_computed(node, name, array)


def _add_to_graph(at: Importing, node: Node) -> None:
    """Add a node, or know its results, where no operator takes it since it reads or makes tensors without cells.

    Raises
    ------
    NotOfGraphs
        For a node that reads such a tensor, and makes others that have cells.
    NotRun
        For one that nobody takes with such a tensor.
    """
    try:
        with at.trying():
            _add_operators(at, node)
    except ValueError as error:
        is_empty = isinstance(error, NotOfGraphs) or any(map(at.lacks_cells, reads_of(node)))
        if not is_empty or _is_given(node, at) or not has_runner(node, at):
            raise
        if bind_without_cells(at, node):
            return
        check_runs(at, node, str(error))
        if isinstance(error, UnsupportedOp):
            raise
        raise NotOfGraphs(str(error)) from None


def _add_operators(at: Importing, node: Node) -> None:
    """Add a node by its importer; where there is none, or it refuses, by the nodes that can stand in its place."""
    if node.operator == "If" and not at.is_known(node.inputs[0]):
        _add_both(at, node)
        return
    if not _has_importer(node, at):
        if node.operator != "If" and not has_body(node, at):  # it was to be evaluated, but reads what could not be
            why = "its operator is not supported, and its inputs are not known in advance"
            raise refusal(node, why + _unfolded(at, node))
        _add_body(at, node)
        return
    check_version(node, at.opset)
    try:
        with at.trying():
            _import(at, node)
    except ValueError as error:
        if _is_given(node, at) or isinstance(error, OutsideText):
            raise
        refused = error if isinstance(error, UnsupportedOp) else refuse_if_runs(at, node, error)
        if not has_body(node, at):
            raise refused from None
        try:
            with at.trying():
                _add_body(at, node)
        except ValueError as other:
            if isinstance(other, UnsupportedOp) or isinstance(refused, RunsWhole):
                raise refused from None  # which says more of what is asked for
            raise


def _add_body(at: Importing, node: Node) -> None:
    _add_in_turn(at, nodes_of(node, at))


def _add_in_turn(at: Importing, nodes: Iterable[Node]) -> None:
    for one in nodes:
        check_node(at, one)
        add_node(at, one)


def _add_both(at: Importing, node: Node) -> None:
    """Add both branches of an If whose condition a run computes, and of each output the cells of one or the other.

    Where that cannot be, whatever keeps a branch from it, the condition is needed.
    """
    before, (name,) = len(at.graph.nodes), node.inputs
    try:
        with at.trying():
            _add_in_turn(at, both_branches(node, at))
            _check_harmless(at, node, before)
    except ValueError as error:  # a branch that is not taken may be anything
        why = str(error).removeprefix(f"{node.where}: ")
        raise ValueNeeded(
            f"{node.where}: its condition is {quote(name)}, {at.describe_unknown(name)}; both branches cannot run, to "
            f"choose between their results: {cut_text(why, 200)}",
            name,
        ) from None


def _check_harmless(at: Importing, node: Node, before: int) -> None:
    """Raise UnsupportedOp where one of the operators that were added does more than compute its result.

    Both branches run, so that none may draw, end the run for values which only the other branch is meant for, or be an
    operator that is not known here.
    """
    graph = at.graph
    for added in islice(reversed(graph.nodes.values()), len(graph.nodes) - before):
        is_known = graph.ops[added.op] is BUILTIN_OPS.get(added.op) and added.op != "opaque"
        is_power = added.op == "pow" and graph.tensor(added.outputs[0]).dtype.startswith("int")
        if not is_known or is_power or added.op in DRAWING | VALUES_CHECKED:
            raise refusal(node, f"its branches have {quote(added.name)} ({added.op}), which only the taken one may run")


def _unfolded(at: Importing, node: Node) -> str:
    return next((f": {at.unfolded[name]}" for name in node.inputs if name in at.unfolded), "")


def _import(at: Importing, node: Node) -> None:
    """Add a node by its importer, and bind its outputs."""
    takes = at.importers[node.operator]
    blocked = reads_blocks(at, node) and not _is_given(node, at)
    short = [] if takes.moves else [k for k, name in enumerate(node.inputs) if name and at.dtype_of(name) == "bfloat16"]
    try:
        with at.widening() if short else at.unblocking() if blocked else nullcontext():
            results = takes.add(at, node)
    except NotOfGraphs as error:
        raise NotOfGraphs(f"{node.where}: {error}") from None
    except UnsupportedOp:
        raise
    except DtypeNotTaken as error:
        raise refusal(node, str(error)) from None
    except KeyError as error:
        raise ValueError(f"{node.where}: the attribute {error} is missing") from None
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        unfolded = _unfolded(at, node)
        also = f"; it reads what the import cannot know{unfolded}" if unfolded else ""
        kind = OutsideText if isinstance(error, OutsideText) else ValueError
        raise kind(f"{node.where}: {error}{also}") from None
    takes.check_read(node, at.opset)
    if results is None:  # an alias, bound already
        return
    results = [results] if isinstance(results, Tensor) else list(results)
    if blocked:
        block = block_of(node)
        results = [in_blocks(at, node.outputs[0], one, block) for one in results if isinstance(one, Tensor)]
    if short:
        read = [k < len(node.outputs) and bool(node.outputs[k]) for k in range(len(results))]
        results = [_rounded(one, node, k, short, at.opset) if read[k] else one for k, one in enumerate(results)]
    for k, name in enumerate(node.outputs):
        if name and k >= len(results):
            raise refusal(node, f"its output {k}, {quote(name)}, is not made here")
    for name, result in zip(node.outputs, results, strict=False):
        if name:
            at.bind_computed(node, name, result)


def _rounded(made: Tensor | Array, node: Node, k: int, short: Sequence[int], opset: int) -> Tensor | Array:
    """Result k in bfloat16, where the node's schema says that it has the dtype of an input that has it."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is not None:
        last = len(schema.inputs) - 1
        kinds = {schema.inputs[min(n, last)].type_str for n in short}
        if schema.outputs[min(k, len(schema.outputs) - 1)].type_str not in kinds:
            return made
    return ops.astype(made, "bfloat16") if isinstance(made, Tensor) and made.dtype == "float32" else made
