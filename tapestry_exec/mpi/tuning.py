"""Numbers of this wing."""

HEAD_NBYTES = 16
"""In front of a parcel: when it was packed and how long that took, two floats of 8 bytes."""
MAX_COMMUNICATORS = 64
"""Groups of devices whose collectives are MPI's; libraries have some 2,000 communicators for the whole program."""
SPIN_SECONDS = 5e-4
"""How long a rank with a bell and a core of its own looks again and again before it sleeps."""
YIELD_SECONDS = 1e-3
"""The same of one without a bell, which offers its core between two looks, before it sleeps between them."""
WANTED_SECONDS = 2e-5
"""A core that comes back later than this was wanted by others; one that nobody wants is back in a microsecond."""
FIRST_NAPS = 64
MAX_NAPS = 4096
"""How often a rank sleeps then before it offers its core again, which costs milliseconds where it still is wanted."""
NAP_SECONDS = 2e-5
"""How long it sleeps; the system wakes it some 50 microseconds later."""
BELL_SECONDS = 1e-3
"""How long at most where its bell is rung when a message comes."""
LOOKS_AFTER_RING = 16
"""How often it looks then, one behind the other: MPICH looks at a few of its senders at a time."""
NONCE_NBYTES = 16
"""Random bytes in front of a rank's page, by which who opens it knows that it is the one."""
SEMAPHORE_NBYTES = 64
"""Behind them: no library has larger semaphores, and most have some of half that."""
ALIGNED_NBYTES = 16
"""What ranks tell each other at the end of a run lies at multiples of so many bytes, as cells of any dtype do."""
AT_ONCE_NBYTES = 8000
"""A message of more needs both ends to go on, under MPICH between processes of a machine, where a page has its head,
too: who waits then looks as if no bell were rung."""
MAX_PIECES = 4
"""In how many pieces that MPI takes at once a message goes at most; MPICH takes 64 before the first one is read."""
WATCH_SECONDS = 2e-3
"""How often the watch of a rank on a GPU looks whether a message is late, or another rank has failed."""
ENDED_SECONDS = 2.0
"""How long a rank waits before it looks whether others have ended, and behind that for what an ended one had sent."""
LOOK_UP_SECONDS = 5e-3
"""How long between two times that any of all ranks, which wait, asks the process manager for the name of another one;
it takes 0.1 ms to answer."""
ANSWER_SECONDS = 30.0
"""How long a program that ends waits for what the process manager was asked: that there is no such name would be an
error that ends it, as mpi4py has MPI's end treat errors so. MPI's own end waits for the process manager, too."""
CANCEL_SECONDS = 0.5
"""How long a rank that waits for a message no longer waits for MPI to say so: of one that is half here it does not."""
LOOKS_FOR_FAILURE = 16
"""A rank that waits looks once in so many looks whether another one has failed."""
