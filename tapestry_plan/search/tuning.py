"""The numbers of this wing: which of them are limits of exact counting, which bound work, and which are tuning.

Limits keep sums within 64 bits: beyond them an argument is refused. Bounds keep work and memory finite: beyond them the
plan stays right, but its bound is lower, so that `ShardPlan.gap` may be above zero, or fewer graphs are compared, as
`ShardPlan.expansions` says. Tuning changes how long planning takes, never its answer.

What one number changed, with the others as they are, in processor seconds of the rows of `bench_planner.py` (on a busy
machine, so that a tenth says nothing); the gaps are 0 in all:

| | GPT, 12 layers | ResNet-50 on 8 devices |
|---|---|---|
| as they are | 1.97 | 3.51 |
| `FEW_ENTRIES` 0, 10⁹ | 2.02, 1.99 | 5.71, 3.56 |
| `COLUMNS` 16, 1024 | 2.05, 2.23 | 3.74, 3.57 |
| `BLOCK_ENTRIES` 10⁴, 10⁸ | 2.09, 2.05 | 3.69, 3.67 |
| `MIN_PACKED_ENTRIES` 10⁹ | 3.47 | 4.52 |
| `MAX_PAIRS` 512, 131,072 | 1.76, 1.84 | 3.57, 3.66 |
| `MAX_CODES` 2¹⁶ | 1.75 | 3.69 |
"""

# -- limits of exact counting --------------------------------------------------------------------------------

MAX_CELLS = 2**60
"""Cells of one tensor; beyond it byte counts would not fit 64 bits."""
MAX_WEIGHED = 2**61
"""Bytes of a moment times its weight under a memory cap, and picoseconds of any plan."""
MAX_COUNTED = 2**62
"""Bytes of a plan times the number of choices: with more, ties are not broken by the number of expansions."""

# -- what the model tells apart ------------------------------------------------------------------------------

PRODUCT_FLOP_A_CELL = 64
"""Flop for each cell of its operands above which an operator is a product for the model, whatever its signature.

Of the operators that come along, cell by cell ones and those of whole rows do 1 to 20; an attention of 256 keys 256.
"""

# -- bounds of work ------------------------------------------------------------------------------------------

MAX_FACTOR_ENTRIES = 4_000_000
"""Entries of one tensor's cost table; beyond it, its consumers are counted one by one in the search."""
FIRST_FACTOR_ENTRIES = 50_000
"""The same in the first round, before layouts are left out: of most large tables little is needed then."""
SECOND_FACTOR_ENTRIES = 250_000
"""The same where elimination has to split tables: a better plan, and more of the tables of one tensor, pay then."""
FACTOR_GROWTH = 4
"""Times that it grows from one round of leaving layouts out to the next: the largest tables are made of few layouts.

Twice so often where a round leaves less than a tenth out, as `MAX_KEPT_SHARE` says: the next one would not do more.
"""
MAX_APART = 64
"""Operators of a graph up to which it is planned again with equal ones apart; larger ones only if that seems to pay."""
NEAR_FACTOR_ENTRIES = 20_000
"""The same near another plan: what may be better there is known by few layouts."""
MAX_BLOCK_OPERATORS = 12
"""Operators that may be one block: what each part of such a chain takes is counted."""
MAX_COUNTED_PAIRS = 1_000_000_000
"""Pairs of devices times entries of a table over several consumers, which are counted from device to device."""
WEIGHT = 1 << 20
"""Parts of which the weights of a tensor's consumers are made where they are counted one by one."""
MAX_WEIGHINGS = 8
"""Times that these weights are changed, each with one elimination, so that the bound gets higher."""
MAX_DIRECT_ENTRIES = 1_000_000
"""Entries of all tables, of alike ones once, up to which they are made at once: the search over them may be exact."""
MAX_KEPT_SHARE = 0.9
"""Another round is made where no more than this share of the layouts is left: each takes its time."""
MAX_WHOLE_DEVICES = 8
"""Devices up to which every factorization of their number is compared, unless the caller says which layouts are.

Times of the best plan along the axes of the mesh, as parts of that of the whole space, without expansions:

| | 3, 4, 6 devices | (8,) | (4, 2) | (2, 2, 2) |
|---|---|---|---|---|
| BERT of the tests | 0.94 to 0.99 | 1.13 | 1.12 | 0.97 |
| GPT-2 of the tests | 0.96 to 1.00 | 1.11 | 1.10 | 1.00 |
| SqueezeNet | 1.00 | 1.01 | | |

Where messages cost as much as the work, four parts in two replicas are better than eight; a mesh of two axes cannot cut
two index axes in two each. Above 8 devices the whole space takes minutes.
"""
MAX_PLACED_ENTRIES = 1 << 16
"""Layouts of all readers of an input together, up to which the bytes that they place are counted jointly."""
MAX_JOINT_CONSUMERS = 5
"""Consumers of one tensor that are counted jointly: the terms of the union double with each."""
MIN_WHOLE_PARTS = 8
"""Parts from which on whole blocks are offered to be merged in stages: of fewer few messages are saved."""
MAX_EXCHANGES = 1 << 18
"""Devices times classes of layouts whose exchanges are summed at once: such sums fit the processor's second cache."""
MIN_EXCHANGED_COLUMNS = 256
"""Of these the classes of needs that are summed at once, where there are so many: of fewer each sum has its price."""
MAX_EXCHANGED_NEEDS = 16
"""Different needs for each of these columns at most: with more, fewer classes are summed at once."""
MAX_PAIRED_PRODUCTS = 8
"""Products of sets of a holding times those of a need up to which all are paired where runs are counted; of more only
those that are near each other, which costs as much as some pairs."""
MAX_NEAR_PAIRS = 1 << 15
"""Pairs of products whose runs are counted at once, before they are met with what devices hold."""
MAX_LISTED_EXTENT = 1 << 13
"""Extents up to which sets of an axis that are not intervals are listed where runs are counted, a byte a place."""
MAX_CASES = 64
"""Ways to choose among the operators around one tensor; beyond it, its consumers are counted one by one."""
MAX_TABLE_ENTRIES = 256_000_000
"""Entries of the largest joint table that elimination goes through before it splits a bucket: a second or less."""
WINDOW_OPERATORS = 40
"""Operators in a row of which all layouts are compared, the others as they are: some hundredths of a second."""
MAX_ENTRIES = 1_000_000_000
"""Entries of all joint tables, of alike ones once; as they are used up, elimination splits buckets earlier."""
MAX_KEPT_ENTRIES = 32_000_000
"""Entries of all tables that elimination keeps, of 16 bytes each; as they are used up, it splits buckets earlier."""
SHARES = 4
"""One table takes at most this part of what is left of `MAX_ENTRIES` and of `MAX_KEPT_ENTRIES`."""
ENTRIES_PER_SECOND = 200_000_000
"""Joint entries that elimination goes through in a second at least: what is left of a time limit is counted in them."""
MAX_ROUGH_ENTRIES = 64_000_000
"""Likewise where some table must be split anyway: what more would prove, layouts that are left out do sooner."""
MIN_SPLIT_ENTRIES = 250_000
"""Entries of a table that is built even where others have used up `MAX_ENTRIES`."""
MAX_PRUNING_ENTRIES = 16_000_000
"""Entries of the largest table that is built to leave layouts out; beyond it, its bucket is split."""
FIRST_PRUNING_ENTRIES = 250_000
"""The same in first passes: while the bound comes nearer from pass to pass, larger tables would take longer."""
WIDER_PRUNING_ENTRIES = 40_000_000
"""Entries of all tables, of alike ones once, up to which passes have larger tables at once."""
MAX_MISSING_SHARE = 0.85
"""Another pass over such tables is made where no more than this share of what the bound misses is left by the last."""
SHIFTED = 0.4
"""The part of what the parts of a split bucket differ by that is shifted between them after a pass; more overshoots."""
PRUNING_GROWTH = 4
"""Times that the tables of passes grow where those over smaller ones do no more."""
LIKELY_LAYOUTS = 6
"""Layouts of each variable, in the mean, among which a plan is sought before others are left out beside it."""
MIN_JOINT_ENTRIES = 4_000_000
"""Entries that elimination may always take to compare expansions, however small the graph as given."""
JOINT_ENTRIES_FACTOR = 8
"""Times the entries that the graph as given took: what elimination may take to compare expansions beyond that."""
MAX_DEPTH = 3
"""Expansions of what expansions build are considered so deep: attention has a softmax, which has sums."""
MAX_EXPANSION_NODES = 64
"""Expansions into more operators are not considered: the planner's work grows with them."""
MAX_READINGS = 32
"""Combinations of views that one operator reads through, where expansions end in views; beyond it some are left out.

One after the other, the deepest first and of these the last: what the graph's own operators are said in goes last.
"""
MAX_DERIVED = 8
"""Layouts of one operator that its neighbors ask for, beyond those that every operator has."""
MAX_DERIVED_PARTS = 2000
"""Parts of one operator, of all its cuts together, that are compared with those of a neighbor."""
MAX_OFFERED = 4
"""Layouts over split axes of one operator that no neighbor asks for outright."""
MAX_SPLITS = 3
"""Ways to work over more index axes that one operator is offered, as its neighbors' views ask."""
MAX_SPLIT_REGIONS = 16
"""Products that a block comes out as, up to which the periods of their stripes are looked at."""
MAX_COMPARED = 24
"""Operators whose expansions are compared by default; of more, which would take minutes and prove little, none are."""
MAX_CUTS = 400
"""Cuts over split axes that the views of expansions may ask for; of more, nothing is expanded for the sake of phases.

A WaveNet of 14 convolutions with dilations of 1 to 64 asks for 950 on 8 devices and for 1,850 on 16, with which it was
planned in 10 and 40 times the time, to no use.
"""
MAX_ROUNDS = 2
"""Times that the search for undominated operators is made with more of them; then none counts as dominated."""
MAX_COMPARISONS = 1000
"""Consumers that are counted again, one by one, to compare the shardings of one operator."""
MAX_POINTS = 100
"""Plans of one graph in less and less memory; each takes a search."""
MAX_TOLD_DEVICES = 64
"""Devices up to which an error about memory says what twice as many need."""
MAX_HELD_ENTRIES = 1_000_000
"""Of a table of what one tensor's consumers hold; where it would be larger, the mean of what they read is counted."""
MAX_MEMORY_DEVICES = 4
"""Devices whose memory is counted together where one of them may be idle; of more, evenly chosen ones."""
MAX_LATE = 12
"""Results that may be computed again for late readers, under a memory cap: those that would save the most."""
MAX_LATE_TOGETHER = 3
"""Of so many each subset is planned; of more all of them, and each alone."""
MAX_LABELS = 2_000_000
"""Sums of picoseconds and bytes that are gone through at once under a memory cap."""
MAX_LISTED = 20_000
"""The same where all choices are listed, each of which may have to be laid out in arenas."""
LABEL_ROUNDS = 10
"""Times so many that are gone through in all."""
CAPPED_UNITS = (4096, 256)
"""Parts of a memory cap that are told apart where there would be too many sums."""
CAPPED_MOMENTS = 4
"""Times that the weight of a moment is sought under a memory cap, where plans need too much at it."""
CAPPED_STEPS = 20
"""Weights of a moment that are tried, each with one elimination."""
CAPPED_NEARNESS = 1e-5
"""By how much a bound may be below the best one of a moment's weights."""
CAPPED_START = 64
"""The part of the fastest plan's time at which all bytes below the cap are weighed first, if none needs few enough."""
CAPPED_FIRST_STEP = 1024
"""The part of the fastest plan's time by which the first limit is above the bound."""
CAPPED_GROWTH = 4
"""Times that this grows from one limit to the next."""
CAPPED_LAID_OUT = 200
"""Choices that are laid out in arenas one after the other, where counted bytes do not say which keeps the cap."""
CAPPED_TRIES = 8
"""Times that plans with fewer counted bytes are sought, where these are too many."""
CAPPED_MOVES = 8
"""Layouts of one operator that are laid out in arenas in its place, the fastest first."""
LOWER_CAPS = (15 / 16, 7 / 8, 3 / 4, 5 / 8, 1 / 2)
"""Shares of a cap under which a plan is sought where none was found that needs nearly all of it."""
MAX_LOWERED = 8
"""Times that `pareto` lowers a cap by a sixteenth to find where plans end."""
FORBIDDEN_TICKS = 2**52
"""Of layouts that need not be looked at, as others are the same: more than any plan takes."""
IMPROVING_VALUES = 500_000
"""Values that improving moves look at, some seconds; none are made where the plan is proved to be the best."""
TRIED_IN_BLOCKS = 0.2
"""Times the work that the graph as given took: what graphs with expansions may take that only blocks make better."""
MIN_TRIED_IN_BLOCKS = 10_000_000
"""The same in entries of tables, however small that graph: about a twentieth of a second."""
MIN_TRYING_WORK = 200_000_000
"""Entries that trying graphs one after another may take, about a second, however soon the graph as given was planned.

Work is counted rather than timed, so that a call gives the same plan on a busy machine.
"""
WORK_OF_OPERATOR = 200_000
"""Entries that posing a problem is counted as, for each operator: about a millisecond."""
WORK_OF_LABEL = 100
"""Entries that a sum which is carried along the tree under a memory cap is counted as."""
WORK_OF_STEPS = 400_000
"""Entries that writing down the steps of one operator is counted as, and laying them out in arenas."""

MIDDLE_COLLECTIONS = 1_000_000_000
"""Collections of Python's garbage in the middle generation before a full one, while planning: none comes to so many."""
MAX_REDUCTIONS = 3
"""Times that dominated values are left out before elimination: with fewer values left, others are dominated."""
MAX_COMPARED_ENTRIES = 64_000_000
"""Entries of a variable's tables times the values that others are compared with, to find the dominated ones."""

# -- tuning --------------------------------------------------------------------------------------------------

MAX_CODES = 1 << 22
"""Combinations of an axis' sets up to which they are numbered in a table of 32 MB, so that nothing is sorted."""
CODES_A_NUMBER = 16
"""Combinations for each of those that are there, beyond which these are sorted: they are fewer than its entries."""
MIN_PACKED_ENTRIES = 4096
"""Entries of a joint table from which pairs of ticks and bytes are packed in single numbers: packing has its price."""
MAX_SHARED_ENTRIES = 250_000
"""Entries of what is outside of a bucket up to which it is compared with that of alike ones, as bytes."""
MIN_BATCHED = 64
"""Pairs of sets of an axis from which they are counted together: making columns of them has its price."""
MIN_ALONG_DEVICES = 32
"""Devices from which what they exchange is counted along the axes of the mesh, where layouts allow it."""
KEPT_ORDERS = 8
"""Orders of elimination that are kept: what is weighed again and again has the same one."""
COLUMNS = 128
"""Of a table that are looked at before all of them, to see whether a value may be dominated."""
FIRST_COLUMNS = 8
"""Those that are looked at before these, of many pairs of values at once."""
COLUMNS_AT_ONCE = 4096
"""Those that are looked at after these, before it is asked again whether a value may be dominated."""
FEW_ENTRIES = 20_000_000
"""Joint entries up to which elimination goes through all of them rather than look for dominated values first."""
BLOCK_ENTRIES = 100_000
"""Entries of a joint table that are summed and compared at once: two such blocks fit the processor's second cache."""
FEW_VALUES = 32
"""Values of an axis up to which what they cost is compared value by value, not by one sum over the axis."""
SMALL_SHARE = 8
"""The part of a joint table that tables may span together to be summed before it is made."""
MAX_PAIRS = 8_192
"""Pairs of values that are compared at once in few columns."""
