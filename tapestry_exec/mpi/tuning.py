"""Numbers of this wing."""

HEAD_NBYTES = 16
"""In front of a parcel: when it was packed and how long that took, two floats of 8 bytes."""
YIELD_SECONDS = 1e-3
"""How long a rank looks again and again before it sleeps, where there is a core for each rank: a message takes 10
microseconds then, and 200 with naps. Where there is none such looks only take the core from the rank waited for."""
NAP_SECONDS = 2e-5
"""How long it sleeps between two looks then."""
LOOKS_FOR_FAILURE = 16
"""A rank that waits looks once in so many looks whether another one has failed."""
