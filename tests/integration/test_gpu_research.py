"""The packages of research in the release for GPUs, on a simulated CUDA."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ddlce.smoke import clean_environment
from support.cudatorch import launch_torch, simulate_release
from support.releases import installed
from support.run import ok, run

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(1200)]

PROGRAM = Path(__file__).parent / "programs" / "research_simulated.py"
ENV = "ddl-ce-full-gpu"


@pytest.fixture(scope="module")
def prefix() -> Path:
    return installed(ENV, f"ddlce all {ENV}")


@pytest.fixture(scope="module")
def simulated(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return simulate_release(prefix, tmp_path_factory.mktemp("release"))


def test_what_is_in_it_without_a_driver(prefix: Path) -> None:
    names = "torch, transformers, peft, lightning, xgboost, jax, jax_cuda13_plugin, ddl, ddl_torch"
    command = [prefix / "bin/python", "-c", f"import {names}\nassert jax.devices()"]
    environ = {**clean_environment(prefix, os.environ), "JAX_PLATFORMS": "cpu"}
    ok(run([str(word) for word in command], env=environ))
    ok(run([str(prefix / "bin/python"), "-m", "pip", "check"], env=environ))


@pytest.mark.parametrize("program", ["trainer", "adapter", "lightning"])
def test_two_gpus_learn_what_one_cpu_learns(
    prefix: Path, simulated: dict[str, str], tmp_path: Path, program: str
) -> None:
    alone, both = tmp_path / "alone.npy", tmp_path / "both.npy"
    python = [str(prefix / "bin/python"), str(PROGRAM), program, "cpu", str(alone)]
    ok(run(python, env=clean_environment(prefix, os.environ)))
    quickly = {**simulated, "CUDASIM_DELAY": "0"}
    words = (PROGRAM, program, "cuda", both)
    ok(launch_torch(prefix, 2, quickly, *words, options="-bind_gpus -instead_of nccl"))
    np.testing.assert_allclose(np.load(both), np.load(alone), rtol=1e-4, atol=1e-6)
