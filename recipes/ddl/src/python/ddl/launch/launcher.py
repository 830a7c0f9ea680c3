"""The interface of a launcher of ranks. Each has a file: hydra.py, and later batch systems."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from ddl.launch.hosts import Host
from ddl.launch.layout import Job


class Demultiplexer(Protocol):
    """Takes one stream of mixed output apart."""

    def feed(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """Pieces of output with their rank; None: the launcher's own words."""
        ...


class Launcher(Protocol):
    """Starts the ranks of a job by one foreground process that ends when they have ended.

    Contract: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS are set for each rank;
    SIGINT and SIGTERM to the process reach the process group of every rank; when the process
    dies, so do the ranks.
    """

    def reserved_hosts(self, environ: Mapping[str, str]) -> list[Host]:
        """The hosts that a batch system reserved for us; [] outside of one."""
        ...

    def check(self, job: Job) -> None:
        """Raises LaunchError for hosts that cannot take part."""
        ...

    def command(self, job: Job) -> list[str]:
        """The process to start."""
        ...

    def environment(self, job: Job) -> dict[str, str]:
        """The variables of that process. Each rank sees those of the job."""
        ...

    def demultiplexer(self) -> Demultiplexer:
        """A fresh one for one stream of that process."""
        ...

    def gone_hosts(self, line: str) -> list[str]:
        """The hosts of which a line of its own words says that no rank can be there any more."""
        ...
