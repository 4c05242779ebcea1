"""Work as launches of the kernels in kernels.cu: pure arithmetic, without a GPU and without CuPy.

Each module lays out one kind of work: what is to be done is brought to its normal form (`copies`) and put into structs
that go by value (`structs`); what was worked out once is kept, and only addresses change from launch to launch.
"""

from tapestry_exec.cuda.kernels.convolution import Convolving, convolutions, count_blocks, padded_channels
from tapestry_exec.cuda.kernels.epilogue import epilogues
from tapestry_exec.cuda.kernels.merge import DTYPES, MERGES, merges
from tapestry_exec.cuda.kernels.philox import random_uniforms, random_words
from tapestry_exec.cuda.kernels.rows import rows_of
from tapestry_exec.cuda.kernels.scatter import Strided, scatters
from tapestry_exec.cuda.kernels.structs import OPTIONS, SOURCE, Launch
from tapestry_exec.cuda.kernels.transfers import copies, fills
from tapestry_exec.cuda.tuning import LANES, PARTS
