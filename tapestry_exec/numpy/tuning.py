"""Numbers of this wing: what bytes hold that nobody wrote, and when devices get threads.

No right result changes with them; a wrong one shows.
"""

POISON_FLOAT = 0xFF
"""In buffers of floats: all bits set is a NaN in every IEEE format."""
POISON_OTHER = 0xA5
"""In buffers of other cells: no small number, and no truth value."""
MIN_THREADED_SECONDS = 2e-3
"""How long the work of a plan must take, roughly, on one core, so that threads pay."""
MIN_THREADED_SHARD_SECONDS = 8e-4
"""The same of a shard of an operator, on average: in between threads wait for each other's Python.

On two cores ResNet-50 on four devices (1.7 ms a shard, by this estimate) takes 0.8 of the time of one loop, SqueezeNet
(0.3 ms) 1.3 times that, and ShuffleNet 1.4 times.
"""
KEPT_LAUNCHES = 1 << 11
"""A device that has run so many steps forgets where their blocks lie when it is closed.

Of views that are packed, and of those that are unpacked, it keeps so many.
"""
KEPT_CALLS = 1 << 8
"""Of an operator's block that takes more calls they are listed anew in every run: 600 bytes each, beside 10 us or more.
"""
