"""One run of bench_ddp: steps of DistributedDataParallel on one backend, in one order of ranks."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from bench.lab.layout import rank_order, topology_yaml
from bench.lab.network import Lab
from bench.lab.peers.base import DEVICE, Start
from bench.lab.peers.mpich import hydra
from bench.lab.run import Outcome, run_on

WORKER = Path(__file__).parent / "workers" / "ddp_step.py"
PORT = 29500


@dataclass(frozen=True)
class Amount:
    """How much is measured in a run.

    Attributes:
        nbytes: the size of all gradients.
        iterations: steps that are timed.
        seconds: no step is begun after these, but three are made.
        limit: seconds after which the whole run is killed.
    """

    nbytes: int = 4 << 20
    iterations: int = 7
    seconds: float = 20
    limit: float = 240


@dataclass(frozen=True)
class Training:
    """What was measured.

    Attributes:
        layout: the layout's name.
        order: the ranks' order.
        backend: the name that init_process_group was given.
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


def train(lab: Lab, order: str, backend: str, prefix: Path, amount: Amount) -> Training:
    """Runs the training once; a failure is an outcome, not an error.

    Args:
        lab: the lab, one rank to a host.
        order: of the ranks, as `rank_order` takes it.
        backend: `ddl` or `gloo`; ddl is told the layout in a topology file.
        prefix: an environment with PyTorch, ddl_torch and MPICH.
        amount: how much.
    """
    hosts = [f"h{host}" for host in rank_order(lab.layout, order)]
    words = [str(prefix / "bin" / "python"), str(WORKER), backend, str(amount.nbytes)]
    words += [str(amount.iterations), str(amount.seconds), str(lab.counters), str(lab.folder)]
    words += [f"tcp://{lab.address(hosts[0])}:{PORT}"]
    started = (
        _start_ddl(lab, prefix, hosts, words) if backend == "ddl" else _start(lab, hosts, words)
    )
    env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": DEVICE, **started.env}
    outcome = run_on(lab, "h0", started.command, env, amount.limit)
    key = (lab.layout.name, order, backend, amount.nbytes)
    if failure := _failure(outcome, amount):
        return Training(*key, failure=failure)
    report = json.loads(_line(outcome))
    if report["differing"]:
        return Training(*key, failure=f"{report['differing']} weights differ between ranks")
    if report["hosts"] != hosts:
        return Training(*key, failure=f"its ranks are on {' '.join(report['hosts'])}")
    before, after = (lab.uplink_bytes((lab.folder / n).read_text()) for n in ("begin", "end"))
    moved = max((after[name] - before[name] for name in after), default=0)
    times = tuple(report["times"])
    return Training(
        *key,
        times=times,
        uplink=moved / (len(times) * amount.nbytes),
        cores=report["cpu"] / sum(times),
        loss=report["loss"],
        library=report["library"],
    )


def _start(lab: Lab, hosts: list[str], words: list[str]) -> Start:
    """A process for each rank, started directly."""
    ranks = [
        shlex.join([str(lab.launcher), host, shlex.join([*words, str(rank), str(len(hosts))])])
        for rank, host in enumerate(hosts)
    ]
    script = lab.folder / "start"
    script.write_text("\n".join([*(f"{rank} &" for rank in ranks), "wait"]) + "\n")
    return Start(["sh", str(script)])


def _start_ddl(lab: Lab, prefix: Path, hosts: list[str], words: list[str]) -> Start:
    """MPICH's mpiexec, and the layout in a topology file."""
    started = hydra(lab, prefix, hosts, words)
    file = lab.folder / "topology.yaml"
    file.write_text(topology_yaml(lab.layout))
    return Start(started.command, {**started.env, "DDL_OPTIONS": f"-topology {file}"})


def _line(outcome: Outcome) -> str:
    """The worker's line of JSON, or ""."""
    lines = [line for line in outcome.stdout.splitlines() if line.startswith('{"times"')]
    return lines[-1] if lines else ""


def _failure(outcome: Outcome, amount: Amount) -> str:
    """Why there is nothing to read, or ""."""
    if outcome.code is None:
        return f"not done after {amount.limit:g} s"
    if outcome.code or not _line(outcome):
        words = (outcome.stderr or outcome.stdout).strip().splitlines()
        return f"exit {outcome.code}: {words[-1][:200] if words else 'no message'}"
    return ""
