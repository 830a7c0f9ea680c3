"""A share of the processors' time that a cgroup gives, on made-up hosts and on this one."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cgroups import ROOT, cgroup
from ddl.launch.bind import cpu_quota, threads_of_rank

from conftest import DDLRUN


def made_up(root: Path, own: str, files: dict[str, str]) -> float | None:
    """The quota where /proc/self/cgroup is `own` and these files are in /sys/fs/cgroup."""
    for name, text in {"proc/self/cgroup": own, **files}.items():
        path = root / (name if name.startswith("proc") else f"sys/fs/cgroup/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return cpu_quota(str(root))


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/a/b", {"a/b/cpu.max": "50000 100000"}, 0.5),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3.0),
        ("0::/a/b", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "150000 100000"}, 1.5),
        ("0::/a", {"a/cpu.max": "max 100000"}, None),
        ("0::/", {"cpu.max": "200000 100000"}, 2.0),
        ("0::/../../kubepods/x", {"cpu.max": "200000 100000"}, 2.0),
        (
            "4:memory:/m\n3:cpu,cpuacct:/slurm/job_7\n0::/",
            {
                "cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/slurm/job_7/cpu.cfs_period_us": "100000",
            },
            2.5,
        ),
        (
            "1:cpu:/docker/7f\n0::/",
            {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"},
            1.0,
        ),
        ("1:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ("3:cpuset:/a", {"a/cpu.max": "100000 100000"}, None),
        ("", {}, None),
        ("nonsense", {}, None),
    ],
)
def test_quotas(tmp_path: Path, own: str, files: dict[str, str], quota: float | None) -> None:
    assert made_up(tmp_path, own, files) == quota


def test_threads_of_a_rank() -> None:
    assert threads_of_rank(8, 2, None) == 8
    assert threads_of_rank(8, 1, 0.5) == 1
    assert threads_of_rank(8, 2, 6.0) == 3
    assert threads_of_rank(2, 1, 64.0) == 2


def cgroup_with(quota: int) -> contextlib.AbstractContextManager[Path]:
    """A cgroup with that many thousandths of a processor."""
    limits = {"cpu.max": f"{quota * 100} 100000", "cpu.cfs_quota_us": f"{quota * 100}"}
    return cgroup(ROOT / "cpu" if (ROOT / "cpu").is_dir() else ROOT, limits)


@pytest.mark.parametrize(("quota", "ranks", "threads"), [(500, 1, "1"), (1900, 1, "1")])
def test_ranks_in_a_cgroup(quota: int, ranks: int, threads: str) -> None:
    show = "import os; print(os.environ['OMP_NUM_THREADS'])"
    environ = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [*DDLRUN, "-np", str(ranks), sys.executable, "-c", show]
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one processor alone is one thread anyway")
    with cgroup_with(quota) as folder:
        enter = f'echo $$ >{folder}/cgroup.procs; exec "$@"'
        done = subprocess.run(
            ["sh", "-c", enter, "sh", *command],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said = [line.rpartition(" ")[2] for line in done.stdout.splitlines()]
    assert said == threads.split(), done.stdout
