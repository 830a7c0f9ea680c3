"""A prefix of the packages made from Debian's binaries: solved, installed, and run under emulation.

It takes what `ddlce build --platform linux-ppc64le` left in the store, and builds nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.plan import make_plan
from ddlce.settings import load_settings
from support.run import ok
from support.storeprefix import POWER, POWER_MARKS, prefix_of, run_emulated

SPECS = ["pytorch", "scipy", "scikit-learn", "psutil", "pyyaml"]

pytestmark = POWER_MARKS

#: Two ranks, started by multiprocessing, each checked against what it must get.
RANKS = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp

def run(rank, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    data = torch.arange(1000, dtype=torch.float64)
    mine = data * (rank + 1)
    dist.all_reduce(mine)
    assert torch.equal(mine, data * 3)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.full((3, 4), float(rank))).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((2, 4), 1.5))
    dist.destroy_process_group()
    open(f"{folder}/{rank}", "w").write(os.uname().machine)

if __name__ == "__main__":
    import sys
    mp.spawn(run, args=(sys.argv[1],), nprocs=2)
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix for POWER with SPECS in it."""
    plan = make_plan(load_settings(), POWER).restrict(SPECS)
    return prefix_of(plan, SPECS, tmp_path_factory.mktemp("debs"))


def run(prefix: Path, *arguments: str) -> str:
    """What python prints; what it says on standard error when it is told to be verbose."""
    done = ok(run_emulated(prefix, POWER, "python", *arguments))
    return done.stdout + ("-v" in arguments) * done.stderr


def test_the_numbers_are_right(prefix: Path) -> None:
    code = (
        "import numpy as n, scipy.linalg as s, torch; a = n.random.default_rng(1).random((99, 99));"
        "want = n.linalg.solve(a, a.T); lu = s.lu_solve(s.lu_factor(a), a.T);"
        "here = torch.linalg.solve(torch.from_numpy(a), torch.from_numpy(a.T.copy())).numpy();"
        "assert n.allclose(want, lu) and n.allclose(want, here); print(n.abs(a @ want - a.T).max())"
    )
    assert float(run(prefix, "-c", code)) < 1e-9


def test_a_model_learns_the_digits(prefix: Path) -> None:
    code = (
        "from sklearn.datasets import load_digits; from sklearn.linear_model import SGDClassifier;"
        "x, y = load_digits(return_X_y=True);"
        "print(SGDClassifier(random_state=0).fit(x[:1200], y[:1200]).score(x[1200:], y[1200:]))"
    )
    assert float(run(prefix, "-c", code)) > 0.85


def test_two_ranks_of_gloo(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    run(prefix, str(tmp_path / "ranks.py"), str(tmp_path))
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["ppc64le", "ppc64le"]


def test_torch_says_what_it_has(prefix: Path) -> None:
    code = (
        "import torch.distributed as d; print(d.is_gloo_available(), d.is_mpi_available());"
        "d.init_process_group('mpi')"
    )
    with pytest.raises(AssertionError, match="doesn't have MPI built in"):
        run(prefix, "-c", code)


def test_the_default_store_works(prefix: Path) -> None:
    code = (
        "import os, torch.distributed as d; os.environ['GLOO_SOCKET_IFNAME'] = 'lo';"
        "d.init_process_group('gloo', 'tcp://127.0.0.1:29712', rank=0, world_size=1);"
        "print(d.get_world_size())"
    )
    assert run(prefix, "-c", code).strip() == "1"


def test_no_module_is_compiled_under_emulation(prefix: Path) -> None:
    """Every module of the packages of this table came with bytecode that python takes."""
    site = prefix / "lib/python3.13/site-packages"
    for name in ("numpy", "scipy", "sklearn", "torch"):
        modules = list((site / name).rglob("*.py"))
        assert len(modules) > 50
        without = [
            path
            for path in modules
            if not (path.parent / "__pycache__" / f"{path.stem}.cpython-313.pyc").is_file()
        ]
        assert without == []
    lines = run(prefix, "-v", "-c", "import numpy").splitlines()
    numpy = [line for line in lines if "code object from" in line and "/numpy/" in line]
    assert len(numpy) > 50
    assert [line for line in numpy if ".pyc" not in line] == []
