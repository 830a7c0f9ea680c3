"""Large Model Support: train models that need more memory than the GPU has.

    import lms

    lms.enable(limit="12GiB")        # or lms.enable(): all that the card has

or, for a part of a program, `with lms.LMS(limit="12GiB"): ...`. Nothing else changes. Tensors that
backward needs are moved to the host and back, as few as the limit demands, beside computing. The
first iteration of each kind is slow: it swaps everything and is recorded for the plan.

Call it in the thread that trains; `torch.cuda.set_enabled_lms` and its kin, of IBM's LMS, are there
for scripts that were written for it.
"""

from __future__ import annotations

from lms import ibm
from lms.devices.simulated import SimulatedDevice, SimulatedOutOfMemory, Speed
from lms.dry_run import plan
from lms.errors import HostMemoryError, InplaceError, LimitError, LMSError, NoPlanError
from lms.hooks.compiled_graphs import offload_compiled
from lms.plot import plot
from lms.report import Report
from lms.session import (
    LMS,
    current,
    disable,
    enable,
    keep_parameters,
    page_optimizer,
    page_parameters,
    recompute,
    report,
)

__all__ = [
    "LMS",
    "HostMemoryError",
    "InplaceError",
    "LMSError",
    "LimitError",
    "NoPlanError",
    "Report",
    "SimulatedDevice",
    "SimulatedOutOfMemory",
    "Speed",
    "current",
    "disable",
    "enable",
    "keep_parameters",
    "offload_compiled",
    "page_optimizer",
    "page_parameters",
    "plan",
    "plot",
    "recompute",
    "report",
]
__version__ = "0.1.0"

ibm.install()
