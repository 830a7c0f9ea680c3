"""Where the other ranks of a job reach this one, for libraries that make connections themselves."""

from __future__ import annotations

from ddl.launch.hosts import address_towards
from mpi4py import MPI


def own_address(comm: MPI.Intracomm) -> str:
    """This host's address, as other hosts of the job see it. Collective over the communicator.

    Where all ranks are on one host it is 127.0.0.1, which no other host reaches.

    Raises:
        OSError: no other host's name is known here, or there is no way to it.
    """
    names: list[str] = comm.allgather(MPI.Get_processor_name())
    others = [name for name in names if name != names[comm.rank]]
    if not others:
        return "127.0.0.1"
    # A host's own name is often 127.0.1.1 to itself: the way to another one tells the address.
    address = address_towards(others[0])
    if not address:
        raise OSError(f"{names[comm.rank]} knows no IPv4 address of {others[0]}, or no way to it")
    return address
