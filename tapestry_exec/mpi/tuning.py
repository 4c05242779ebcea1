"""Numbers of this wing."""

HEAD_NBYTES = 16
"""In front of a parcel: when it was packed and how long that took, two floats of 8 bytes."""
SPINS = 50
"""How often a rank that waits looks without sleeping: more ranks than cores only slow each other down."""
NAP_SECONDS = 2e-5
"""How long it sleeps between two looks then."""
LOOKS_FOR_FAILURE = 16
"""A rank that waits looks once in so many looks whether another one has failed."""
