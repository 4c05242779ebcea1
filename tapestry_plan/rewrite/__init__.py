"""Which other graph computes the same?

Rules, the drafts that they edit, derivations that record and replay them, fused and partial operators, motion.
"""

from tapestry_plan.rewrite.derivation import RULES, Derivation, Rule, find, rewrite, rule
from tapestry_plan.rewrite.draft import Change, Draft, NotApplicable, Rewrite, as_tuple
from tapestry_plan.rewrite.motion import Motion, motion, replay, selected_view
from tapestry_plan.rewrite.online_softmax import key_blocks
from tapestry_plan.rewrite.rules import compose, expand, fold, forward, fuse, move, shard, simplify
from tapestry_plan.rewrite.selections import move_selection, simplify_selection, simplify_selections
