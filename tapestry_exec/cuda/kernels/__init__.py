"""Work as launches of the kernels in kernels.cu: pure arithmetic, without a GPU and without CuPy.

Each module lays out one kind of work: what is to be done is brought to its normal form (`copies`) and put into structs
that go by value (`structs`); what was worked out once is kept, and only addresses change from launch to launch.

Registers a thread::

    kernels                                   budget              most on sm_80 / 90 / 100
    copy (5), fill (5)                        64, 48              64 / 59 / 52, 34 / 32 / 34
    merge (7)                                 48; 64 for 64 bits  40 / 40 / 40; 56 / 56 / 47
    scatter (7), epilogue (4)                 48                  32 / 40 / 46, 36 / 34 / 44
    convolution (6), 9 KB shared; philox (4)  128, 32             104 / 108 / 119, 24 / 22 / 28
    rows (2), 2 KB shared                     48; 64 for 64 bits  32 / 31 / 40; 32 / 32 / 64
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
