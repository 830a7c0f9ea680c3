"""ddlrun between hosts that know each other by addresses or full names alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.network import Lab, bring_up
from bench.lab.run import Outcome, run_on
from integration.lab import needs_lab

pytestmark = [pytest.mark.built, needs_lab]

# The ranks meet twice: by MPI, and by the store of torch.distributed at rank 0's address.
MEET = """
import os, socket, ddl, numpy
from datetime import timedelta
from torch.distributed import TCPStore
ddl.init()
assert ddl.allreduce(numpy.ones(3))[0] == ddl.size() == 2
name, port, rank = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), ddl.rank()
store = TCPStore(name, port, 2, rank == 0, timedelta(seconds=30))
store.set(str(rank), socket.gethostname())
other = store.get(str(1 - rank)).decode()
print("rank", rank, "on", socket.gethostname(), "by", name, "met", other, flush=True)
ddl.barrier()
ddl.finalize()
"""
FULL = "{}.cluster.example"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Hosts whose short names nobody knows, not even they themselves."""
    with bring_up(parse_layout("flat-3")) as up:
        known = [f"{up.address(host)} {FULL.format(host)}\n" for host in up.names]
        (up.folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *known]))
        for host in up.names:
            for name in (up.address(host), FULL.format(host)):
                shutil.copy(up.folder / f"{host}.pid", up.folder / f"{name}.pid")  # for ssh
        (up.folder / "meet.py").write_text(MEET)
        yield up


def ddlrun(lab: Lab, hosts: str) -> Outcome:
    """The release's ddlrun on the first host."""
    command = [
        *(str(built() / "bin" / "ddlrun"), "-H", hosts),
        "python",
        str(lab.folder / "meet.py"),
    ]
    path = f"{lab.tools}:{built()}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return run_on(lab, "h0", command, {"PATH": path, "OMP_NUM_THREADS": "1"}, 120)


def said(outcome: Outcome) -> list[str]:
    """What the ranks have printed, in their order."""
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    return sorted(line.partition("] ")[2] for line in outcome.stdout.splitlines())


@pytest.mark.parametrize("name", ["address", "full name"])
def test_ranks_meet_by_the_user_s_words(lab: Lab, name: str) -> None:
    first, second = (
        lab.address(host) if name == "address" else FULL.format(host) for host in ("h0", "h1")
    )
    assert said(ddlrun(lab, f"{first},{second}")) == [
        f"rank 0 on h0 by {first} met h1",
        f"rank 1 on h1 by {first} met h0",
    ]
    assert said(ddlrun(lab, f"{second},{first}")) == [
        f"rank 0 on h1 by {second} met h0",
        f"rank 1 on h0 by {second} met h1",
    ]


def test_a_job_of_other_hosts_alone(lab: Lab) -> None:
    """mpiexec's own name is in no word of the user's."""
    first, second = lab.address("h1"), lab.address("h2")
    assert said(ddlrun(lab, f"{first},{second}")) == [
        f"rank 0 on h1 by {first} met h2",
        f"rank 1 on h2 by {first} met h1",
    ]


@pytest.fixture
def any_address_can_be_bound(lab: Lab) -> Iterator[None]:
    """As on hosts that take over each other's addresses."""

    def switch(value: int, verb: str) -> None:
        setting = f"echo {value} >/proc/sys/net/ipv4/ip_nonlocal_bind"
        words = ["sh", "-ec", f"{setting}; ip route {verb} default dev eth0"]
        outcome = run_on(lab, "h0", words, {}, 20)
        assert outcome.code == 0, outcome.stderr

    switch(1, "add")
    try:
        yield
    finally:
        switch(0, "del")


@pytest.mark.usefixtures("any_address_can_be_bound")
def test_another_host_s_address_that_can_be_bound_here_is_not_ours(lab: Lab) -> None:
    there = lab.address("h1")
    outcome = ddlrun(lab, f"{lab.address('h0')},{there}")
    assert [line.split()[3] for line in said(outcome)] == ["h0", "h1"]
    nobody = ddlrun(lab, "localhost,10.9.9.9")
    assert nobody.code == 2
    assert nobody.stdout == ""  # no rank has run under the other's name
    assert "ddlrun: error: cannot use 10.9.9.9: " in nobody.stderr
