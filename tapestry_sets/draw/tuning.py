"""The numbers of this wing: what bounds a picture, and how it is laid out.

Another value changes pictures, and with them examples in docstrings; no answer and no benchmark depends on them.
"""

# ------------------------------------------------------------------ bounds: what is refused, or drawn in part

MAX_CELLS = 1 << 14
"""A picture of more cells than this is refused: nobody could read it."""
MAX_LENGTH = 1 << 10
"""A picture of nested levels, which is one line, is refused above this many integers."""
MAX_LINE = 1 << 10
"""Memory of more cells than this is drawn as rows in windows, not whole."""
MAX_WINDOWS = 6
"""At most so many windows show one line of memory."""
MAX_PAIRS = 10
"""At most so many pairs of views are counted in a legend."""
MAX_LISTED = 1 << 20
"""A view of at most so many cells is listed, where its cells are held in no form that lists a window of them."""
MAX_OUTLINED = 64
"""Of a union of at most so many regions the axes are said, and the hulls drawn."""
PERIOD_BITS = 1 << 10
"""A period of more bits is not outlined."""
MAX_RUNS = 32
"""At most so many runs of an axis are marked one by one."""

# ------------------------------------------------------------------ layout

SHOWN_LENGTH = 64
"""The longest period that is shown whole without being asked, and the cells in a line of a drawing."""
SHOWN_CELLS = 1 << 12
"""The largest box that a notebook draws without being asked."""
MIN_SHOWN = 24
"""Short periods are repeated to at least this many integers in a notebook, so that one sees that they repeat."""
BEFORE, AFTER = 16, 48
"""How many cells a window of a line shows before and after the cell that it is about."""
BOX = (3, 24, 64)
"""At most so many planes, rows and columns of an allocation too large to draw are shown."""
INDEX_BOX = (1, 8, 24)
"""As `BOX`, for the picture of a view's own shape."""
FAR_NUMBER = 10**7
"""A window of a line that goes beyond this number is labeled by the distance from its first cell."""
MAX_ROW = 240
"""A row of more cells than this is drawn in part."""
SHOWN_BITS = 99
"""A number of more bits is written as the power of two that it is over."""
SHOWN_NAME = 24
"""The longest name that stands before a row."""
PAGE = 960
"""The width in pixels that drawings keep to where they can."""
NARROW_PAGE = 352
"""The same of drawings for narrow pages: 400, less the margins."""
MIN_FOLD = 8
"""A line is folded after at least so many cells, however narrow the page is."""
CHARACTER, SMALL, LINE = 6, 10, 16
"""Pixels: the advance of a small monospaced character, its font size, and the height of a line."""
BARS_TOP, BAR_ROW, BAR = 16, 28, 18
"""Pixels: above the first row of bars, from one row to the next, and the height of a bar."""
AXIS_PARTS = 32
"""In so many parts of equal length is said how full an axis is."""
AXIS_WIDTH, AXIS_BAR = 320, 10
"""Pixels: the longest and the height of the bar that stands for an axis."""
SIDES, SIDE_PER_DOUBLING = (32, 128), 8
"""Pixels: the shortest and the longest side of a box, and how much shorter a side is for each halving."""
DOTS = 12
"""Pixels beside or above the cells where dots say that more are left out."""
TOLD = 600
"""The most characters of a picture's description, which screen readers speak."""
NARROW_VIEWPORT = 640
"""Pixels: pages up to this width get the drawing that is laid out for narrow pages."""

# ------------------------------------------------------------------ colors

INK, FAINT, PAPER = "#222222", "#8a8a8a", "#ffffff"
"""Words and outlines, the outlines of free cells, and the ground, on a light page."""
DARK_PAPER = "#111111"
"""The ground on a dark page, that of Jupyter's dark theme; all other colors of dark pages follow from it."""
