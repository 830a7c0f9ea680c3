"""`python -m ddl.info`: the library, its MPI, and where the ranks are.

Alone it describes one rank; under `ddlrun` or `mpiexec`, the whole job.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import ddl
from ddl import _core


def describe() -> dict[str, Any]:
    """Return versions, options and the ranks of every host. Needs `ddl.init`."""
    hosts: dict[str, list[int]] = {}
    for rank in range(ddl.size()):
        hosts.setdefault(ddl.host_name(rank), []).append(rank)
    return {
        "ddl": ddl.__version__,
        "mpi": _core.mpi_library().strip().splitlines()[0].replace("\t", " "),
        "cuda": _core.cuda_library() or None,
        "ranks": ddl.size(),
        "hosts": hosts,
        "timeout_s": ddl.timeout(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the description on rank 0; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ddl.info", description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        ddl.init()
        facts = describe()
        is_first = ddl.rank() == 0
        ddl.finalize()
    except ddl.DDLError as error:
        print(f"ddl.info: {error}", file=sys.stderr)
        return 1
    if not is_first:
        return 0
    if options.json:
        print(json.dumps(facts, indent=2))
        return 0
    print(f"ddl      {facts['ddl']}")
    print(f"MPI      {facts['mpi']}")
    print(f"CUDA     {facts['cuda'] or 'no'}")
    print(f"ranks    {facts['ranks']} on {len(facts['hosts'])} host(s)")
    for host, ranks in facts["hosts"].items():
        print(f"  {host}: {' '.join(map(str, ranks))}")
    print(f"timeout  {facts['timeout_s']:g} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
