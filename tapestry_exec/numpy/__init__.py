"""How do NumPy arrays hold a device's memory?

One isolated, poisoned arena for each device of the mesh, in this process; a thread for each, or one loop.
"""

from tapestry_exec.numpy.backend import Launched, NumpyBackend, NumpyDevice, SerialBackend
from tapestry_exec.numpy.tuning import POISON_FLOAT, POISON_OTHER
