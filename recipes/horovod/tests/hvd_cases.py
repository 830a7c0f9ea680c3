"""Run by ddlrun: every case of some modules on every rank.

Usage: hvd_cases.py RESULTS torch|tensorflow MODULE...

Rank r writes to RESULTS/r a line when it begins a case and one when it has ended it, so that the
case in which a rank hangs is known: [MODE.CASE, "begun" | "passed" | what failed], as JSON.
Only the cases named in HVD_ONLY run if it is set (words, separated by commas).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

from hvd_frames import FRAMES, Frame
from hvd_harness import CASES, RANK, SIZE, Case


def run(frame: Frame, function: Case, report: Path) -> bool:
    frame.case = function.__name__
    name = f"{frame.mode}.{frame.case}"
    with report.open("a") as lines:
        print(json.dumps([name, "begun"]), file=lines, flush=True)
        try:
            function(frame)
            outcome = "passed"
        except Exception:
            outcome = traceback.format_exc()
        print(json.dumps([name, outcome]), file=lines, flush=True)
    return outcome == "passed"


def main() -> int:
    folder, framework, *modules = sys.argv[1:]
    frames = [make() for make in FRAMES[framework]]
    hvd = frames[0].hvd
    import hvd_sets

    hvd.init(process_sets=hvd_sets.static(hvd))
    assert (hvd.rank(), hvd.size()) == (RANK, SIZE), (hvd.rank(), hvd.size())
    only = [word for word in os.environ.get("HVD_ONLY", "").split(",") if word]
    fine = True
    for module in modules:
        already = len(CASES)
        importlib.import_module(module)
        # Cases of a framework's own API run once; those of operations in every mode of it.
        own = module.endswith(("_torch", "_tensorflow", "_keras", "_optimizer", "_training"))
        for frame in frames[:1] if own else frames:
            for function in CASES[already:]:
                if not only or function.__name__ in only:
                    fine &= run(frame, function, Path(folder) / str(RANK))
    hvd.shutdown()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
