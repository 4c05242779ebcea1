"""How do NumPy arrays hold a device's memory?

One isolated, poisoned arena for each device of the mesh, in this process.
"""

from tapestry_exec.numpy.backend import NumpyBackend, NumpyDevice
from tapestry_exec.numpy.tuning import POISON_FLOAT, POISON_OTHER
