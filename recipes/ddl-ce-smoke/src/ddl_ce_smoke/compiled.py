"""Compiles a model with `torch.compile`, by the compiler that it finds, and compares the numbers.

ddlrun -H localhost:1 python -m ddl_ce_smoke.compiled
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler

from ddl_ce_smoke import digits
from ddl_ce_smoke.findings import Finding, report_findings


def check() -> list[Finding]:
    """The gradients of a compiled model, and those of the model itself."""
    torch.manual_seed(digits.SEED)
    model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))
    x = torch.randn(16, 64)
    model(x).square().mean().backward()
    plain = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    # Nothing that was compiled before: an empty cache.
    with tempfile.TemporaryDirectory(prefix="ddl-ce-smoke-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        torch.compile(model)(x).square().mean().backward()
        libraries = [*Path(folder).rglob("*.so")]
    pairs = zip(model.parameters(), plain, strict=True)
    close = all(torch.allclose(p.grad, g, atol=1e-6) for p, g in pairs)  # type: ignore[arg-type]
    return [
        Finding(
            "gradients as without",
            "" if close else "the gradients differ from those of the model that is not compiled",
            f"{len(libraries)} kernels by {get_cpp_compiler()}",
        ),
        Finding(
            "kernels are compiled", "" if libraries else "no kernel was compiled", "an empty cache"
        ),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on one rank. Exit status 1 if it did not come out right."""
    return report_findings(check, "compiled", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
