"""The rank program of the hosts part: a rank on each host tells about it.

    ddlrun -H node1,node2 -accelerators 1 python -m ddl_ce_smoke.hosts

Every rank writes the release that it runs from, how far its clock is from rank 0's, and the space
for temporary files. `judge_hosts` finds the host that differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddl_ce_smoke.model import Case

#: Seconds between two hosts' clocks above which make, logs and leases go wrong.
MOST_OFFSET = 1.0
#: Bytes for temporary files, and for memory that the ranks of a host share.
LEAST_FREE = {"temporary files": 100 << 20, "/dev/shm": 64 << 20}


def release_of(prefix: Path) -> str:
    """A digest of the packages of an environment, with their builds: 12 digits."""
    names = sorted(path.name for path in (prefix / "conda-meta").glob("*.json"))
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]


def free_space() -> dict[str, int]:
    """Bytes that are free, by the keys of LEAST_FREE."""
    folders = zip(LEAST_FREE, (tempfile.gettempdir(), "/dev/shm"), strict=True)
    return {name: shutil.disk_usage(folder).free for name, folder in folders}


def space_problems(free: Mapping[str, int]) -> dict[str, str]:
    """By the keys of LEAST_FREE: what is wrong with so many free bytes; "" where they do."""
    return {
        name: ""
        if free[name] >= least
        else f"{free[name] >> 20} MiB are free for {name}, {least >> 20} MiB needed"
        for name, least in LEAST_FREE.items()
    }


def judge_hosts(rows: Sequence[dict[str, Any]]) -> list[Case]:
    """A case for each host, from the `host` events of all ranks."""
    releases = Counter(row["release"] for row in rows)
    usual = releases.most_common(1)[0][0] if releases else ""
    return [_judge(row, usual) for row in rows]


def _judge(row: dict[str, Any], usual: str) -> Case:
    problems = []
    if row["release"] != usual:
        problems.append(f"runs release {row['release']} in {row['prefix']}, most others {usual}")
    # The answer took some time, within which the clock was read.
    beyond = abs(row["offset"]) - row["within"]
    if beyond > MOST_OFFSET:
        ahead = "ahead of" if row["offset"] > 0 else "behind"
        problems.append(f"its clock is {abs(row['offset']):.1f} s {ahead} that of {row['first']}")
    problems += filter(None, space_problems(row["free"]).values())
    says = f"{row['cores']} cores, {row['gpus']} GPUs, release {row['release']}"
    outcome = Case(row["host"], "passed", message=says)
    if problems:
        return Case(row["host"], "failed", message=f"{row['host']}: {'; '.join(problems)}")
    return outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on one rank of every host; the suite reads the journals."""
    import torch

    from ddl_ce_smoke.rank import Rank, Session, journal, session
    from ddl_ce_smoke.train import add_journal_options

    def offset(job: Session) -> tuple[float, float]:
        """Seconds of this clock before rank 0's, and how far that may be wrong (as NTP does it)."""
        measured = (0.0, 0.0)
        for index in range(1, job.rank.size):
            if job.rank.index == index:
                start = time.time()
                job.store.set(f"clock asked by {index}", "")
                theirs = float(job.store.get(f"clock for {index}"))
                end = time.time()
                measured = ((start + end) / 2 - theirs, (end - start) / 2)
            elif job.rank.index == 0:
                job.store.wait([f"clock asked by {index}"], job.timeout)
                job.store.set(f"clock for {index}", str(time.time()))
        return measured

    parser = argparse.ArgumentParser(prog="python -m ddl_ce_smoke.hosts", description=__doc__)
    add_journal_options(parser)
    args = parser.parse_args(argv)
    rank = Rank.from_environment()
    with journal(args.journal, rank) as record, session(None, args.timeout) as job:
        if rank.index == 0:
            job.store.set("first host", rank.host)
        seconds, within = offset(job)
        record.write(
            "host",
            host=rank.host,
            prefix=sys.prefix,
            release=release_of(Path(sys.prefix)),
            offset=seconds,
            within=within,
            first=job.store.get("first host").decode(),
            free=free_space(),
            cores=len(os.sched_getaffinity(0)),
            gpus=torch.cuda.device_count(),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
