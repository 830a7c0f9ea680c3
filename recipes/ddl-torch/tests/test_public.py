"""Programs in the shape that their users have: nothing in them is for ddl, only the launcher is.

Each ends with the numbers that it has on Gloo. docs/user/pytorch.md has the table.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PUBLIC = Path(__file__).with_name("public")
DDLRUN = str(Path(sys.executable).with_name("ddlrun"))
DOCS = Path(__file__).parents[3] / "docs" / "user" / "pytorch.md"


@dataclass(frozen=True)
class Program:
    """A program of the folder `public`.

    Attributes:
        name: of the file.
        is_named: whether it names a backend, so that it needs -instead_of.
        packages: what it imports beside torch.
        is_quick: whether `make test` has the time for it.
    """

    name: str
    is_named: bool = True
    packages: tuple[str, ...] = ()
    is_quick: bool = False


PROGRAMS = (
    Program("gpt", is_quick=True),
    Program("default_backend", is_named=False, is_quick=True),
    Program("unnamed", is_named=False, is_quick=True),
    Program("imagenet"),
    Program("collectives_tutorial", is_quick=True),
    Program("evaluation"),
    Program("fsdp2", is_named=False),
    Program("tensor_parallel", is_named=False),
    Program("fsdp_and_tp", is_named=False),
    Program("hsdp", is_named=False),
    Program("pipeline"),
    Program("zero_redundancy"),
    Program("join"),
    Program("hooks"),
    Program("local_sgd"),
    Program("unequal_lists"),
    Program("accelerate_nlp", packages=("accelerate",)),
    Program("accelerate_tests", packages=("accelerate",)),
    Program("trainer", packages=("transformers", "accelerate")),
    Program("trainer_lora", packages=("transformers", "accelerate", "peft")),
    Program("deepspeed_zero", packages=("deepspeed",)),
    Program("trl_sft", packages=("trl", "transformers", "datasets", "peft")),
    Program("timm_train", packages=("timm",)),
    Program("lightning_ddp", packages=("lightning",)),
    Program("lightning_fabric", packages=("lightning",)),
    Program("metrics", packages=("torchmetrics",)),
    Program("ignite_digits", packages=("ignite",)),
    Program("keras_torch", packages=("keras",)),
)


def numbers(program: Path, backend: str, *options: str, **variables: str) -> list[float]:
    """The numbers of two ranks, whose process group was the backend's."""
    paths = {"PYTHONPATH": str(PUBLIC), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [DDLRUN, "-H", "localhost:2", "-timeout", "280", *options, sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | paths | variables,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    lines = [line.partition("numbers of ")[2] for line in result.stdout.splitlines()]
    (line,) = [line for line in lines if line]
    name, _, values = line.partition(" ")
    assert name == backend
    found: list[float] = json.loads(values)
    return found


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=program.name, marks=() if program.is_quick else pytest.mark.slow)
        for program in PROGRAMS
    ],
)
def test_a_program_has_the_numbers_that_it_has_on_gloo(program: Program, tmp_path: Path) -> None:
    missing = [name for name in program.packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    source = PUBLIC / f"{program.name}.py"
    # Without a GPU, Gloo is what its user would write instead of NCCL.
    on_gloo = tmp_path / source.name
    on_gloo.write_text(source.read_text().replace('"nccl"', '"gloo"'))
    wanted = numbers(on_gloo, "gloo", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    options = ("-instead_of", "gloo,nccl") if program.is_named else ()
    found = numbers(source, "ddl", *options)
    assert len(set(wanted)) > 1  # it has learnt something
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-7)


def test_every_program_is_in_the_table() -> None:
    table = [line for line in DOCS.read_text().splitlines() if line.startswith("| ")]
    for program in PROGRAMS:
        (row,) = [line for line in table if f"`{program.name}`" in line]
        assert ("-instead_of" in row) == program.is_named, row
    files = {file.stem for file in PUBLIC.glob("*.py")} - {"numbers_of"}
    assert files == {program.name for program in PROGRAMS}
