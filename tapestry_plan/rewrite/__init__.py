"""Which other graph computes the same?

Rules, the drafts that they edit, derivations that record and replay them, fused and partial operators, motion.
"""

from tapestry_plan.rewrite.derivation import RULES, Applied, Derivation, Rule, find, rewrite, rule
from tapestry_plan.rewrite.derived import Derived, merge_of, part_of, state_of
from tapestry_plan.rewrite.draft import Draft, NotApplicable
from tapestry_plan.rewrite.fusion import fuse_ops
from tapestry_plan.rewrite.motion import Message, Motion, Reads, motion, reads, replay, selected_view
from tapestry_plan.rewrite.online_softmax import key_blocks
from tapestry_plan.rewrite.rules import compose, expand, fold, forward, fuse, move, shard, simplify
from tapestry_plan.rewrite.selections import Change, Rewrite, move_selection, simplify_selection, simplify_selections
