"""Numbers of this wing."""

HEAD_NBYTES = 16
"""In front of a parcel: when it was packed and how long that took, two floats of 8 bytes."""
SPIN_SECONDS = 0.0005
"""How long a process with a core of its own looks for parcels before it sleeps: to be woken takes a tenth of that."""
END_SECONDS = 5.0
"""How long processes may take to end by themselves, before they are killed."""
PATIENCE_SECONDS = 30.0
"""How long a process may be stopped before all are ended."""
LOOK_SECONDS = 1.0
"""How often the caller looks whether devices come further, while none says anything."""
AT_ONCE_NBYTES = 1 << 16
"""What a socket takes in, of one message that is not read yet; of more a sender waits for who reads."""
