"""One cell of the table: one library, in one layout and order, at one size, once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.lab.bound import lower_bound
from bench.lab.layout import rank_order
from bench.lab.network import Lab
from bench.lab.peers.base import CannotStart, Peer, Start
from bench.lab.run import failure_of, report_of, run_on


@dataclass(frozen=True)
class Budget:
    """How much is measured in a cell.

    Attributes:
        iterations: calls that are timed.
        seconds: no call is begun after these, but three are made.
        limit: seconds after which the whole run is killed.
    """

    iterations: int = 7
    seconds: float = 20
    limit: float = 60


@dataclass(frozen=True)
class Cell:
    """What was measured.

    Attributes:
        layout: the layout's name.
        order: the ranks' order.
        nbytes: the size of the buffer.
        peer: the library's name.
        bound: the seconds that it takes at least.
        times: the seconds of each call, the slowest rank's.
        uplink: bytes on the busiest uplink, in one direction, by call and buffer size.
        cores: processors that all ranks used together.
        failure: why there are no times, or "".
        orphans: processes that had to be killed afterwards.
        library: what the library says it is.
        probe_seconds: how long `ddlrun -probe` took before, all in all; 0: it did not run.
        probe_wrong: what it found that is not so.
    """

    layout: str
    order: str
    nbytes: int
    peer: str
    bound: float
    times: tuple[float, ...] = ()
    uplink: float = 0
    cores: float = 0
    failure: str = ""
    orphans: int = 0
    library: str = ""
    probe_seconds: float = 0
    probe_wrong: tuple[str, ...] = ()


def measure(lab: Lab, order: str, nbytes: int, peer: Peer, budget: Budget) -> Cell:
    """Runs one cell; a failure is an outcome, not an error."""
    hosts = [f"h{host}" for host in rank_order(lab.layout, order)]
    arguments = [str(nbytes), str(budget.iterations), str(budget.seconds)]
    cell = Cell(lab.layout.name, order, nbytes, peer.name, lower_bound(lab.layout, nbytes))
    try:
        started = peer.start(lab, hosts, [*arguments, str(lab.counters), str(lab.folder)])
    except CannotStart as why:
        return replace(cell, failure=str(why))
    if started.probe:
        found = started.probe
        cell = replace(cell, probe_seconds=found.seconds, probe_wrong=found.wrong)
    return outcome_of(lab, cell, hosts, started, budget)


def outcome_of(lab: Lab, cell: Cell, hosts: list[str], started: Start, budget: Budget) -> Cell:
    """The cell with what a worker has reported, or with why it has not.

    Args:
        cell: of which the layout, the order and so on are known.
    """
    outcome = run_on(lab, "h0", started.command, started.env, budget.limit)
    if failure := failure_of(outcome, budget.limit):
        orphans = 0 if outcome.code is None else outcome.orphans  # at the limit, all are killed
        return replace(cell, failure=failure, orphans=orphans)
    report = report_of(outcome)
    times = tuple(report["times"])
    if report["wrong"]:
        return replace(cell, failure=f"{report['wrong']} elements are wrong")
    if report["hosts"] != hosts:
        return replace(cell, failure=f"its ranks are on {' '.join(report['hosts'])}")
    return replace(
        cell,
        times=times,
        uplink=lab.crossed() / (len(times) * cell.nbytes),
        cores=report["cpu"] / sum(times),
        orphans=outcome.orphans,
        library=report["library"],
    )
