"""How much work may a question cost, and who decided it?

From the ground up; each row stands on rows above it:

    printable  units                      values and names as messages show them; bytes, seconds and operations
    arguments  arrays  files              arguments and arrays as callers write them; files that appear whole
    constructors  documents               values; plain data against types
    annotations                           what an annotation admits, said by the checks of arguments
    formulas                              what a count added up, written; sizes that follow from others
    checks                                calls and structs held to their annotations
    budget  tallies                       limits, with the errors `TooHard` and `TooManyPieces`; who decided
    climb                                 the loop that runs a ladder
"""

from tapestry_sets.limits.annotations import ANYTHING, Kind, conform, kind_of, read_hint
from tapestry_sets.limits.arguments import (
    as_int,
    as_ints,
    as_items,
    check_cell,
    check_extent,
    check_flag,
    check_positive,
    check_range,
    check_type,
    describe,
    extents_of,
    is_int,
    wrong_type,
)
from tapestry_sets.limits.arrays import refuse_masked, take_array
from tapestry_sets.limits.budget import (
    OPEN,
    Budget,
    Limits,
    Open,
    Question,
    TooHard,
    TooManyPieces,
    charge,
    check_pieces,
    current,
    limits,
    unite_by_halves,
)
from tapestry_sets.limits.checks import check_arguments, check_fields, check_tuple, hold_calls, skip_checks
from tapestry_sets.limits.climb import HARD, MANY, REFUSALS, Rung, ask_one, attempt, climb, name_way, retell
from tapestry_sets.limits.constructors import (
    Checked,
    Frozen,
    FrozenDict,
    Guarded,
    Public,
    Value,
    compile_constructor,
    drop_item,
    freeze_array,
    freeze_dicts,
    hide_fields,
    make_unchecked,
    mend_calls,
    put_field,
    put_fields,
    put_item,
)
from tapestry_sets.limits.documents import check_format, read_fields, read_json
from tapestry_sets.limits.files import check_target, replace_file
from tapestry_sets.limits.formulas import SizeFormula, read_formula, write_product, write_sum
from tapestry_sets.limits.printable import Brief, cut_middle, cut_text, escape_controls, list_names, quote, tell_fields
from tapestry_sets.limits.tallies import (
    TALLY,
    Asked,
    Decision,
    Tally,
    count_question,
    decide,
    note_help,
    note_rung,
    note_sum,
    read_rung,
    tally,
)
from tapestry_sets.limits.units import Units, tell_count
