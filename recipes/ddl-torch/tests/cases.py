"""Run by ddlrun: every case on every rank, against an oracle and against gloo.

Usage: cases.py RESULTS; rank r writes the names of the cases that it passed to RESULTS/r.
"""

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

assert "ddl_torch._backend" not in sys.modules, "import torch must not load MPI"

import cases_checkpoint  # noqa: E402, F401
import cases_ddp  # noqa: E402, F401
import cases_fsdp  # noqa: E402, F401
import cases_functional  # noqa: E402, F401
import cases_groups  # noqa: E402, F401
import cases_mesh  # noqa: E402, F401
import cases_move  # noqa: E402, F401
import cases_reduce  # noqa: E402, F401
import cases_types  # noqa: E402, F401
import cases_work  # noqa: E402, F401
from harness import CASES, RANK  # noqa: E402


def main() -> None:
    passed = []
    try:
        for function in CASES:
            function()
            passed.append(function.__name__)
    finally:
        (Path(sys.argv[1]) / str(RANK)).write_text("\n".join(passed))
    dist.destroy_process_group()


if __name__ == "__main__":
    dist.init_process_group("ddl", timeout=timedelta(seconds=300))
    torch.set_num_threads(1)
    main()
