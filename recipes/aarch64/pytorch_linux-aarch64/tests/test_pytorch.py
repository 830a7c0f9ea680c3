"""PyTorch without its part for CUDA: it computes, learns and says what it has not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def refused(action: Callable[[], object], *words: str) -> None:
    """It raises an error that Python can catch, with one of the words."""
    try:
        action()
    except (AssertionError, AttributeError, NotImplementedError, RuntimeError) as error:
        assert any(word in str(error) for word in words), error
        return
    raise AssertionError(f"no error with {words}")


def check_what_it_is() -> None:
    assert torch.__version__ == "2.13.0+cpu" and torch.version.cuda is None
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    assert not torch.backends.cuda.is_built() and not dist.is_nccl_available()
    refused(lambda: torch.ones(1, device="cuda"), "CUDA")
    refused(lambda: torch.ones(1).cuda(), "CUDA")
    refused(lambda: torch._C._cuda_clearCublasWorkspaces(), "for CPUs")
    refused(lambda: torch._C._distributed_c10d.ProcessGroupNCCL.Options(), "for CPUs")


def check_numbers() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert (x @ x.T).sum() == 83
    a = torch.eye(8, dtype=torch.float64) * 2 + 1
    assert torch.allclose(
        a @ torch.linalg.solve(a, torch.ones(8, dtype=torch.float64)), torch.ones(8).double()
    )
    assert torch.allclose(torch.fft.ifft(torch.fft.fft(x)).real, x)
    for kind in (torch.float16, torch.bfloat16, torch.int8):
        assert torch.ones(9, dtype=kind).sum() == 9


def check_learning() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = torch.randn(8, 1, 8, 8), torch.tensor([0, 1] * 4)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2, losses
    query = torch.randn(1, 2, 4, 8, requires_grad=True)
    nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    assert query.grad is not None and query.grad.isfinite().all()


def check_the_rest() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(4).sum()
    assert any(event.key == "aten::sum" for event in profile.key_averages())
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        assert tensor.sum() == 4
        dist.destroy_process_group()


def check_libraries() -> None:
    """Nothing of NVIDIA's for GPUs is loaded."""
    maps = Path("/proc/self/maps").read_text()
    found = {Path(line.split()[-1]).name for line in maps.splitlines() if ".so" in line}
    assert "libtorch_nocuda.so" in found and "libtorch_cuda.so" not in found
    assert not [name for name in found if name.startswith(("libcu", "libnccl", "libnvrtc"))], found


if __name__ == "__main__":
    check_what_it_is()
    check_numbers()
    check_learning()
    check_the_rest()
    check_libraries()
