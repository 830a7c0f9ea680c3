"""One run of bench_ddp: steps of training on one backend, in one order of ranks."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.lab.cell import Budget
from bench.lab.layout import rank_order
from bench.lab.network import Lab
from bench.lab.peers.base import DEVICE, Start
from bench.lab.peers.ddl import start_told
from bench.lab.peers.mpich import hydra
from bench.lab.run import failure_of, report_of, run_on

WORKER = Path(__file__).parent / "workers" / "training_step.py"
PORT = 29500
TORCH_ENV = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": DEVICE}
"""For one thread a rank, and Gloo's network."""


@dataclass(frozen=True)
class Training:
    """What was measured.

    Attributes:
        layout: the layout's name.
        order: the ranks' order.
        backend: the name that init_process_group was given, or horovod-OPERATIONS.
        nbytes: the size of all gradients.
        times: the seconds of each step, the slowest rank's.
        uplink: bytes on the busiest uplink, in one direction, by step and size.
        cores: processors that all ranks used together.
        loss: after the third step.
        failure: why there are no times, or "".
        library: what ran.
    """

    layout: str
    order: str
    backend: str
    nbytes: int
    times: tuple[float, ...] = ()
    uplink: float = 0
    cores: float = 0
    loss: float = 0
    failure: str = ""
    library: str = ""


def train(
    lab: Lab, order: str, nbytes: int, backend: str, prefix: Path, budget: Budget
) -> Training:
    """Runs the training once; a failure is an outcome, not an error.

    Args:
        lab: the lab, one rank to a host.
        order: of the ranks, as `rank_order` takes it.
        nbytes: the size of all gradients.
        backend: `ddl`, `gloo`, with `fsdp-` or `hsdp-` before for a sharded model, or Horovod's
            operations as `horovod-ddl`, `horovod-mpi` or `horovod-gloo`; ddl is told the
            layout in a topology file.
        prefix: an environment with PyTorch, ddl_torch, Horovod and MPICH.
        budget: how much; no step is begun after its seconds, but three are made.
    """
    hosts = [f"h{host}" for host in rank_order(lab.layout, order)]
    words = [str(prefix / "bin" / "python"), str(WORKER), backend, str(nbytes)]
    words += [str(budget.iterations), str(budget.seconds), str(lab.counters), str(lab.folder)]
    words += [f"tcp://{lab.address(hosts[0])}:{PORT}"]
    started = STARTS[backend](lab, prefix, hosts, words)
    env = TORCH_ENV | {"HOROVOD_GLOO_IFACE": DEVICE} | started.env
    outcome = run_on(lab, "h0", started.command, env, budget.limit)
    key = (lab.layout.name, order, backend, nbytes)
    if failure := failure_of(outcome, budget.limit, line=-1):
        return Training(*key, failure=failure)
    report = report_of(outcome)
    if report["differing"]:
        return Training(*key, failure=f"{report['differing']} weights differ between ranks")
    if report["hosts"] != hosts:
        return Training(*key, failure=f"its ranks are on {' '.join(report['hosts'])}")
    times = tuple(report["times"])
    return Training(
        *key,
        times=times,
        uplink=lab.crossed() / (len(times) * nbytes),
        cores=report["cpu"] / sum(times),
        loss=report["loss"],
        library=report["library"],
    )


def _start(lab: Lab, _prefix: Path, hosts: list[str], words: list[str]) -> Start:
    """A process for each rank, started directly."""
    ranks = [
        shlex.join([str(lab.launcher), host, shlex.join([*words, str(rank), str(len(hosts))])])
        for rank, host in enumerate(hosts)
    ]
    script = lab.folder / "start"
    script.write_text("\n".join([*(f"{rank} &" for rank in ranks), "wait"]) + "\n")
    return Start(["sh", str(script)])


STARTS: dict[str, Callable[[Lab, Path, list[str], list[str]], Start]] = {
    "ddl": start_told,
    "gloo": _start,
    **{f"{kind}-ddl": start_told for kind in ("fsdp", "hsdp")},
    **{f"{kind}-gloo": _start for kind in ("fsdp", "hsdp")},
    "horovod-ddl": start_told,
    "horovod-mpi": hydra,
    "horovod-gloo": hydra,
}
