"""Packages of research on the ranks of a job: each program must end with one rank's numbers.

    ddlrun -H localhost:2 python -m ddl_ce_smoke.research.transformer weights.npy

A program is a module with `train() -> np.ndarray`. It downloads nothing.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

#: Rounding: the ranks add in another order.
RELATIVE, ABSOLUTE = 1e-4, 1e-6


@dataclass(frozen=True)
class Program:
    """One of the programs.

    Attributes:
        title: for the report.
        module: in this package.
        needs: the distributions that it imports, by their names on PyPI.
        spans_hosts: whether it finds the ranks of other hosts.
        names_another: whether it asks for another backend of torch.distributed, for which ddl then
            stands in (`ddlrun -instead_of`).
    """

    title: str
    module: str
    needs: tuple[str, ...]
    spans_hosts: bool = True
    names_another: bool = False

    def missing(self) -> list[str]:
        """The distributions that this environment has not."""
        return [name for name in self.needs if not _is_installed(name)]


_TRAINER = ("transformers", "accelerate")
_JAX = ("jax", "jaxlib", "ddl-jax")

PROGRAMS = (
    Program("Trainer with LoRA", "transformer", (*_TRAINER, "peft", "datasets")),
    Program("Lightning", "lightning_module", ("lightning",)),
    Program("Trainer, unedited", "unedited_trainer", _TRAINER, names_another=True),
    Program("accelerate, unedited", "unedited_accelerate", ("accelerate",), names_another=True),
    Program("Lightning, unedited", "unedited_lightning", ("lightning",), names_another=True),
    Program("DeepSpeed", "zero_stages", ("deepspeed",)),
    Program("XGBoost", "boosted_trees", ("xgboost",), spans_hosts=False),
    Program("LightGBM", "boosted_leaves", ("lightgbm",), spans_hosts=False),
    Program("JAX", "jax_processes", _JAX),
    Program("JAX, a mesh", "mesh_transformer", _JAX),
    Program("Flax and optax", "flax_model", (*_JAX, "flax", "optax")),
)


def difference(wanted: Sequence[float], found: Sequence[float]) -> str:
    """How the numbers of several ranks differ from one rank's, beyond rounding; "" if they don't.

    Args:
        wanted: one rank's.
        found: several ranks'.
    """
    import numpy as np

    one, several = np.asarray(wanted), np.asarray(found)
    if one.shape != several.shape:
        return f"{several.size} numbers, where one rank has {one.size}"
    if not np.isfinite(one).all() or np.ptp(one) == 0:
        return "the program learnt nothing"
    wrong = ~np.isclose(several, one, rtol=RELATIVE, atol=ABSOLUTE)
    if not wrong.any():
        return ""
    first = int(wrong.argmax())
    return (
        f"{wrong.sum()} of {one.size} numbers differ from one rank's, first at index {first}: "
        f"expected {one[first]:g}, got {several[first]:g}"
    )


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
