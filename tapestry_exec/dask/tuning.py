"""Numbers of this wing."""

RESOURCE = "tapestry"
"""What a device takes of a worker: one of these."""
TASK = "tapestry-"
"""With which the keys of the tasks of devices begin."""
PATIENCE_SECONDS = 30.0
"""How long a worker may be silent, or not be there, before all devices are ended."""
BEAT_SECONDS = 1.0
"""How often a device says that it is alive, or more often where patience is short."""
TELL_SECONDS = 3.0
"""How long a device that is ended may take to tell what it had sent, and then to be done with its step."""
PAUSE_SECONDS = 0.005
"""How often a device that is ended looks whether it is done with a send."""
LOOK_SECONDS = 0.5
"""How often the caller looks who is silent."""
HELLO_SECONDS = 10.0
"""How long who connects to a device may take to say the key of its generation."""
ACCEPT_SECONDS = 0.02
"""How long a device that can take in nobody, as it has no more files, waits until it looks again."""
MAX_ASKED = 64
"""How many devices are asked for wires at once, each by a thread."""
NAP_SECONDS = 0.1
"""How often the caller looks whether workers that were lost have successors."""
CLOCK_ROUNDS = 8
"""How often devices of other machines are asked for their clocks' time; the quickest round counts."""
HEAD_NBYTES = 32
"""In front of a parcel on a wire: its tag, its bytes, when it was packed and how long that took, of 8 bytes each."""
ROOM_NBYTES = 1 << 16
"""Of what comes through a wire so much is read at once, and sorted then; larger parcels are read where they stay."""
PIECE_NBYTES = 1 << 12
"""Cells that lie in pieces of so many bytes and more are sent from where they lie, others packed before."""
PLACED_NBYTES = 1 << 14
"""A parcel of so many bytes at most has memory of its own at both ends, and goes by calls that are known by heart."""
SHELVED_NBYTES = 1 << 17
"""The memory of a parcel of so many bytes and more is kept for the next one: the system gives such by the page."""
ALIGNED_NBYTES = 64
"""Cells in a message begin at a multiple of so many bytes."""
MAX_BUFFERS = 512
"""How many pieces of memory a call of the system sends at most; Linux takes 1,024."""
WAKES_NBYTES = 4096
"""So many times a thread may be woken before it looks why."""
SPIN_SECONDS = 0.0005
"""How long a device with a core of its own looks for parcels before it sleeps: to be woken takes a tenth of that."""
NONCE_NBYTES = 32
"""Random bytes that either end of a wire gives, and bytes of the proof (SHA-256) that it knows the key."""
END_SECONDS = 10.0
"""How long a cluster of the caller's may take to end by itself, before its processes are killed."""
STREAM_BARS = 4_000
"""How many bars a run may add to Dask's task stream, over all devices: of more the oldest of each device are one."""
LEFT_CHUNKS = 10_000
"""In how many chunks an output may be left on workers."""
