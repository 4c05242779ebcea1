"""Wing simulated."""

from tapestry_exec.simulated.backend import SimulatedBackend
