"""What does a set or a view look like?

Text and SVG on one canvas of cells: sets, nested levels, views; and outlines of boxes that are too large for cells.
Every picture is a `Picture`, whose HTML follows the theme of the page that it is in. Tables are text or HTML.
"""

from tapestry_sets.draw import canvas, views
from tapestry_sets.draw.boxes import box_picture
from tapestry_sets.draw.canvas import Picture, names_of
from tapestry_sets.draw.levels import levels_svg, levels_text, show_levels
from tapestry_sets.draw.sets import Drawn, mimebundle, show, summary, text
from tapestry_sets.draw.tables import align, as_html, yes_or_no
from tapestry_sets.draw.tuning import SHOWN_LENGTH
from tapestry_sets.draw.views import ADDRESSES, number_repeats, views_picture
