"""Unmodified PyTorch on the simulated CUDA, with the backend ddl and Large Model Support."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.cudatorch import launch_on_gpus
from support.run import ok
from support.run import run as run_program

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(1800)]

REPO = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"

Result = subprocess.CompletedProcess[str]

TRAIN = """
import torch
from torch import nn

def train(device):
    torch.manual_seed(0)
    layers = [nn.Linear(30, 40), nn.LayerNorm(40), nn.GELU(), nn.Linear(40, 10)]
    model = nn.Sequential(*layers).to(device)
    data, labels = torch.randn(4, 30), torch.arange(4)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.to(device)), labels.to(device)).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]

assert torch.version.cuda and torch.cuda.device_count() == 2
assert all(map(torch.equal, train("cpu"), train("cuda")))
"""

STREAMS = """
import torch
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    made = torch.ones(1000, device="cuda")
{wait}
assert (made + 1).sum().item() == 2000
"""

#: What is taken out of Large Model Support's code for CUDA devices.
WAITS = {
    "a copy out waits for the computing": "        self._wait_for_computing(self._out)\n",
    "a copy back waits for the memory": "        self._wait_for_computing(self._back)\n",
    "the computing waits for a copy": "            stream.wait_event(self._done)\n",
}


def run(
    prefix: Path, simulated_torch: dict[str, str], *words: str | Path, first: Path | None = None
) -> Result:
    """Run the environment's Python; `first` is a folder whose modules go before all others."""
    variables = dict(simulated_torch)
    if first:
        variables["PYTHONPATH"] = f"{first}:{variables['PYTHONPATH']}"
    return run_program(
        [str(word) for word in (prefix / "bin" / "python", *words)],
        env={**clean_environment(prefix, os.environ), **variables},
    )


def test_training_has_the_bits_of_the_cpu(prefix: Path, simulated_torch: dict[str, str]) -> None:
    ok(run(prefix, simulated_torch, "-c", TRAIN))


def test_a_missing_wait_is_found(prefix: Path, simulated_torch: dict[str, str]) -> None:
    done = run(prefix, simulated_torch, "-c", STREAMS.format(wait=""))
    assert done.returncode == -6
    assert "cudasim: a race for 4000 bytes of GPU 0: aten::add in the default stream" in done.stderr
    there = "torch.cuda.current_stream().wait_stream(side)"
    done = ok(run(prefix, simulated_torch, "-c", STREAMS.format(wait=there)))


@pytest.mark.parametrize(("ranks", "hosts"), [(1, 0), (2, 0), (2, 2)])
def test_the_backend_on_gpus(
    prefix: Path, simulated_torch: dict[str, str], tmp_path: Path, ranks: int, hosts: int
) -> None:
    more = {"DDL_FAKE_HOSTS": str(hosts)} if hosts else {}
    done = ok(launch_on_gpus(prefix, ranks, {**simulated_torch, **more}, tmp_path))
    assert done.stdout.count("all well") == ranks


def test_large_model_support(prefix: Path, simulated_torch: dict[str, str]) -> None:
    """The bits of a run without it, and never more reserved than the limit."""
    done = ok(run(prefix, simulated_torch, PROGRAMS / "lms_simulated.py", "0.8", "0.5"))
    assert done.stdout == "all well\n"


def test_large_model_support_on_several_streams(
    prefix: Path, simulated_torch: dict[str, str]
) -> None:
    """A branch on a stream each: copies wait for both, and both for copies."""
    done = ok(run(prefix, simulated_torch, PROGRAMS / "lms_streams_simulated.py", "0.8", "0.5"))
    assert done.stdout == "all well\n"


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_taken_out_of_it_is_found(
    prefix: Path, simulated_torch: dict[str, str], tmp_path: Path, wait: str
) -> None:
    (installed,) = prefix.glob("lib/python3*/site-packages/lms")
    code = shutil.copytree(installed, tmp_path / "lms") / "devices" / "cuda.py"
    text = code.read_text()
    assert text.count(WAITS[wait]) == 1
    code.chmod(0o644)
    code.write_text(text.replace(WAITS[wait], ""))
    program = PROGRAMS / "lms_simulated.py"
    done = run(prefix, simulated_torch, program, "0.5", first=tmp_path)
    assert done.returncode == -6, done.stderr[-4000:]
    assert "cudasim: a race for" in done.stderr
