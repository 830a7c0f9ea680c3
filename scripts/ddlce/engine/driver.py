"""The machine's NVIDIA driver, as conda's clients see it (CEP 30: `__cuda`)."""

from __future__ import annotations

from rattler import VirtualPackage, VirtualPackageOverrides


def driver_cuda() -> str:
    """The newest CUDA that the driver runs, "13.0"; "" where there is no driver.

    `CONDA_OVERRIDE_CUDA` speaks for a machine that is not this one, as for conda's clients.
    """
    found = VirtualPackage.detect(VirtualPackageOverrides.from_env())
    generic = (package.into_generic() for package in found)
    return next((str(p.version) for p in generic if p.name.normalized == "__cuda"), "")
