"""The address by which other hosts reach mpiexec here. Hydra tells all of them the same one."""

import shlex
import sys

from ddl.launch.errors import HostError
from ddl.launch.hosts import address_towards, is_local, is_loopback
from ddl.launch.layout import Job
from ddl.launch.ssh import ask

# Prints those of the given addresses at which a machine answers. Nobody has to listen there: a port
# that is closed answers, too.
REACHED = """
import socket, sys
for address in sys.argv[1:]:
    try:
        socket.create_connection((address, 9), 3).close()
    except ConnectionRefusedError:
        pass
    except OSError:
        continue
    print(address)
"""


def own_addresses(job: Job) -> list[str]:
    """What other hosts may be told, the best first; nothing: Hydra's own choice, the short name.

    More than one where hosts lie on several networks, and this host has an address in each.
    """
    said = {word.lstrip("-").partition("=")[0] for word in job.mpi_arguments}
    if "localhost" in said:  # the user's choice
        return []
    words = [host for host in job.hosts if is_local(host) and not is_loopback(host)]
    if words:
        return words[:1]
    if "iface" in said:
        return []
    return list(dict.fromkeys(filter(None, map(address_towards, job.hosts))))


def common_address(addresses: list[str], hosts: list[str]) -> str:
    """The first of our addresses that all hosts reach, by asking them over ssh.

    Where a host reaches none at all, as behind a firewall that answers nothing, it cannot be told,
    and has no say.

    Raises:
        HostError: there is none.
    """
    script = shlex.join([sys.executable, "-I", "-S", "-c", REACHED, *addresses])
    # A host's shell may say more than the script does.
    reached = {
        answer.host: set(answer.output.split()) & set(addresses) for answer in ask(hosts, script)
    }
    for address in addresses:
        if all(address in some for some in reached.values() if some):
            return address
    told = "; ".join(
        f"{host} reaches {', '.join(a for a in addresses if a in some)}"
        for host, some in reached.items()
        if some
    )
    raise HostError(
        f"no address of this host is reached by all hosts: {told}",
        "Give these networks a route, or an address that all reach: -mpiarg '-localhost ADDRESS'.",
    )
