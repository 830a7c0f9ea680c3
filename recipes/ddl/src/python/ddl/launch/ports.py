"""Ports on which the ranks of a job listen."""

import random
import socket
from collections.abc import Collection

from ddl.launch.errors import LaunchError

PORTS = range(20000, 32000)  # below those that the system takes for outgoing connections


def free_port(*, is_local: bool, taken: Collection[int] = ()) -> int:
    """A port that is none of `taken`, and free if that can be seen from here."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if port in taken:
            continue
        if not is_local:
            return port  # only that host could tell
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise LaunchError(
        f"no port from {PORTS.start} to {PORTS.stop - 1} is free on this host",
        "Other jobs here have them all: see `ss -tln`. Or give -x MASTER_PORT=PORT.",
    )
