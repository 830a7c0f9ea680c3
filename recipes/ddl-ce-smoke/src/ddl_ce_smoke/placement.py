"""Where ranks run: on this host, on hosts that are named, or on those of a batch job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Placement:
    """What ddlrun is told of it.

    Attributes:
        words: ddlrun's, for the hosts; none in a batch job, whose hosts it finds itself.
        is_local: this host alone.
        where: for the user.
        shared: a folder that all hosts have; None: the one for temporary files.
    """

    words: tuple[str, ...]
    is_local: bool
    where: str
    shared: Path | None

    def on(self, ranks: int, hosts: int) -> list[str]:
        """ddlrun's words for so many ranks, spread over so many hosts."""
        if self.is_local:
            return ["-H", f"localhost:{ranks}"]
        each = math.ceil(ranks / hosts)
        return [*self.words, "-accelerators", str(each), "-np", str(ranks)]

    def one_on_each(self) -> list[str]:
        """ddlrun's words for a rank on every host."""
        return [*self.words, "-accelerators", "1"]


def place(
    hosts: str | None,
    hostfile: Path | None,
    is_local: bool,
    shared: Path | None,
    environ: Mapping[str, str],
) -> Placement:
    """The user's choice, else the batch job that this is, else this host.

    Args:
        hosts: as ddlrun's -H.
        hostfile: as ddlrun's -hostfile.
        is_local: this host, in a batch job too.
        shared: a folder that all hosts have; the current one where others are to be used.
        environ: may be a batch job's.
    """
    folder = shared or Path.cwd()
    if hosts:
        return Placement(("-H", hosts), False, hosts, folder)
    if hostfile:
        return Placement(("-hostfile", str(hostfile)), False, f"the hosts in {hostfile}", folder)
    scheduler = None if is_local else _scheduler(environ)
    if scheduler:
        return Placement((), False, f"the hosts of this job of {scheduler}", folder)
    return Placement((), True, "this host", shared)


def _scheduler(environ: Mapping[str, str]) -> str | None:
    """The batch system whose job this is, as ddlrun knows them."""
    try:
        from ddl.launch.batch import scheduler_of
    except Exception:  # whatever is wrong with it, the suite is there to tell
        return None
    found = scheduler_of(environ)
    return found.name if found else None
