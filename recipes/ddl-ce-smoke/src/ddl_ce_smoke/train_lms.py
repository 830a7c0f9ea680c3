"""Trains a network on handwritten digits under Large Model Support, with half of its memory.

    ddlrun -H localhost:1 python -m ddl_ce_smoke.train_lms

On a GPU if there is one, and on the simulated device of `lms` otherwise: real numbers, a meter of
bytes, a clock of its own. The weights must be those of training without LMS, to the bit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext

import lms
import torch
from torch import nn

from ddl_ce_smoke import digits
from ddl_ce_smoke.findings import Finding, report_findings

STEPS, ROWS = 6, 1024
# PyTorch's allocator takes 2 MiB of a GPU at a time: few to the half of the saved tensors. A CPU,
# maybe an emulated one, is no faster than it is.
LAYERS, WIDTH = (24, 128) if torch.cuda.is_available() else (12, 64)
SHARE = 0.5
#: The bytes that are taken at a time: by PyTorch of a GPU, else as `lms` counts them.
PIECE = 2 << 20 if torch.cuda.is_available() else 512


def limit_for(demand: int) -> int:
    """The share of what training asks for, in whole pieces: less than one serves no allocation."""
    return math.ceil(SHARE * demand / PIECE) * PIECE


def network() -> nn.Sequential:
    """A model so deep that the tensors saved for backward are most of its memory."""
    torch.manual_seed(digits.SEED)
    hidden = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), *hidden, nn.Linear(WIDTH, 10))


def train(limit: int | None) -> tuple[nn.Module, int, lms.Report | None]:
    """The trained model, bytes in use at the highest, and LMS's report."""
    on_gpu = torch.cuda.is_available()
    device = None if on_gpu else lms.SimulatedDevice()
    where = torch.device("cuda" if on_gpu else "cpu")
    model = network().to(where)
    data, _ = digits.load()
    images, labels = data.images[:ROWS].to(where), data.labels[:ROWS].to(where)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    under = lms.LMS(limit, smallest="64KiB", device=device) if limit else nullcontext()
    with device or nullcontext(), under as support:
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        report = support.report() if support else None
    return model, device.highest if device else torch.cuda.max_memory_reserved(), report


def check() -> list[Finding]:
    """Training without LMS and with it, compared."""
    plain, demand, _ = train(None)
    limit = limit_for(demand)
    under, peak, report = train(limit)
    assert report is not None
    same = all(map(torch.equal, plain.parameters(), under.parameters()))
    return [
        Finding(
            "weights as without",
            "" if same else "the weights differ from those without LMS",
            "identical",
        ),
        Finding(
            "below the limit",
            "" if peak <= limit else f"{peak} bytes, {peak - limit} too many",
            f"{peak / 2**20:.1f} MiB at the highest, where it was {demand / 2**20:.1f} MiB",
        ),
        Finding(
            "as planned",
            "" if report.moved and not report.missed else f"not as planned:\n{report}",
            f"{len(report.swapped)} storages swapped, {report.moved / 2**20:.1f} MiB",
        ),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on one rank. Exit status 1 if it did not come out right."""
    return report_findings(check, "train_lms", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
