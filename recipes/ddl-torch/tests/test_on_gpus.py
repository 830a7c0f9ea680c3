"""The backend on CUDA tensors: needs a GPU, a torch with CUDA and the CUDA variant of ddl."""

import pytest
import torch
from ddl import _core
from rank_cases import Run


def why_not() -> str:
    if not _core.cuda_library():
        return "this ddl was built without CUDA"
    return "" if torch.cuda.is_available() else "torch sees no GPU"


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
@pytest.mark.parametrize("hosts", [0, 2])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_operations_on_gpus(ddlrun: Run, ranks: int, hosts: int) -> None:
    result = ddlrun(ranks, "on_gpus.py", env={"DDL_FAKE_HOSTS": str(hosts)} if hosts else None)
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout.count("all well") == ranks
