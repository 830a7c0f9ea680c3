"""Small collectives between hosts: their data travel with the agreement on the call."""

from __future__ import annotations

import collections
import json
import math
from pathlib import Path

import pytest

from conftest import Launch

CALLS = 5  # as programs/small.py has it


def messages(file: Path) -> tuple[collections.Counter[int], collections.Counter[int]]:
    """How many messages of 4 KiB and more each rank sent and received."""
    sent: collections.Counter[int] = collections.Counter()
    received: collections.Counter[int] = collections.Counter()
    for event in json.loads(file.read_text())["traceEvents"]:
        if event["ph"] == "X" and "call" not in event["args"]:
            (received if "from" in event["args"] else sent)[event["pid"]] += 1
    return sent, received


@pytest.mark.parametrize("hosts", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ["allreduce", "allreduce_async", "reduce", "allgather"])
def test_one_message_for_each_doubling_of_hosts(
    passes: Launch, tmp_path: Path, name: str, hosts: int
) -> None:
    file = tmp_path / "t.json"
    passes("small", name, "4096", n=hosts, hosts=hosts, env={"DDL_TIMELINE": str(file)})
    each = CALLS * math.ceil(math.log2(hosts))
    assert messages(file) == (dict.fromkeys(range(hosts), each),) * 2


@pytest.mark.parametrize("hosts", [2, 3, 4, 8])
def test_a_broadcast_comes_once_to_each_host(passes: Launch, tmp_path: Path, hosts: int) -> None:
    file = tmp_path / "t.json"
    passes("small", "broadcast", "4096", n=hosts, hosts=hosts, env={"DDL_TIMELINE": str(file)})
    sent, received = messages(file)
    assert sent.total() == received.total() == CALLS * (hosts - 1)
    assert max(received.values()) <= CALLS


# Beside several ranks on a host, and up to the largest that goes this way.
@pytest.mark.parametrize(("n", "hosts"), [(5, 2), (6, 4), (5, 3)])
@pytest.mark.parametrize(
    "name", ["allreduce", "allreduce_async", "reduce", "allgather", "broadcast"]
)
def test_ranks_that_share_a_host(passes: Launch, name: str, n: int, hosts: int) -> None:
    for nbytes in (4, 1024, 8192, 8196):
        passes("small", name, str(nbytes), n=n, hosts=hosts)
