"""Wing numpy."""

from tapestry_exec.numpy.backend import POISON_FLOAT, POISON_OTHER, NumpyBackend, NumpyDevice
