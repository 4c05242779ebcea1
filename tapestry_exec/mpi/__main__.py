"""``mpiexec -n 4 python -m tapestry_exec.mpi program.py …``: an error of one rank ends all, the first one prints.

In place of a file it takes ``-m module`` or ``-c text``, as Python does: ``mpiexec -n 4 python -m tapestry_exec.mpi -m
tapestry_exec.cli run model.onnx --mesh 4 --backend mpi``.
"""

import os
import sys


def main() -> None:
    """Run a program on this rank."""
    try:
        from mpi4py import MPI, run
    except (ImportError, RuntimeError) as error:
        sys.exit(f"tapestry_exec.mpi needs mpi4py and an MPI library ({error}): pip install 'tapestry-tensor[mpi]'")
    if len(sys.argv) < 2:
        sys.exit("usage: mpiexec -n RANKS python -m tapestry_exec.mpi (FILE | -m MODULE | -c TEXT) [ARGUMENTS]")
    if MPI.COMM_WORLD.rank:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the program ends
    try:
        run.run_command_line(sys.argv[1:])
    except SystemExit as ended:
        run.set_abort_status(ended)
        raise
    except BaseException as error:
        run.set_abort_status(error)
        raise


if __name__ == "__main__":
    main()
