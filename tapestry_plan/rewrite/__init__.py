"""Which other graph computes the same?

From the ground up; each row stands on rows above it:

    draft  derived  motion           a graph being edited; operators made of others; where views are evaluated
    derivation  fusion  selections   rules, recorded and replayed; two operators in one block; shorter cascades
    rules                            shard, fuse, expand, fold, forward, move, simplify, split_axes
    online_softmax  equals  leaves   one rule more, made of these; what is the same, once; blocks that no plan divides
    recomputing                      what runs again for late readers

Examples
--------
>>> from tapestry_plan import Graph, ops, rewrite
>>> g = Graph()
>>> _ = g.output(ops.relu(ops.linear(g.input("x", (8, 16)), g.input("w", (16, 4))), name="act"), "y")
>>> [node.op for node in rewrite.fuse.apply(g, "act", operand=0).order()]
['fused(linear,relu)']
>>> steps = rewrite.Derivation().then(rewrite.shard, "linear", axis="batch", parts=2)
>>> [node.op for node in steps.replay(g).order()]
['part(linear)', 'part(linear)', 'relu']
"""

from tapestry_plan.rewrite.derivation import RULES, Derivation, Rule, find, rewrite, rule
from tapestry_plan.rewrite.derived import Derived, list_inside, with_ops
from tapestry_plan.rewrite.draft import Change, Draft, NotApplicable, Rewrite, as_tuple
from tapestry_plan.rewrite.equals import list_equal_by_chance, unify, unify_equal
from tapestry_plan.rewrite.fusion import Fusion, is_builtin, open_block
from tapestry_plan.rewrite.leaves import count_leaves, fix_bits, leaves
from tapestry_plan.rewrite.motion import Motion, motion, replay, selected_view, view_once
from tapestry_plan.rewrite.online_softmax import key_blocks
from tapestry_plan.rewrite.recomputing import list_readers, recompute
from tapestry_plan.rewrite.rules import (
    compose,
    expand,
    fold,
    follow_cells,
    follow_inputs,
    forward,
    fuse,
    move,
    shard,
    simplify,
    split_axes,
    unfuse,
)
from tapestry_plan.rewrite.selections import move_selection, simplify_selection, simplify_selections
