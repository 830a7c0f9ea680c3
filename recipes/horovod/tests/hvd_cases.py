"""Run by ddlrun: every case of some modules on every rank.

Usage: hvd_cases.py RESULTS torch|tensorflow MODULE...

Rank r writes one line to RESULTS/r for each case that it begins and one when it has ended, so that
the case in which a rank hangs is known: `MODE.CASE begun`, `MODE.CASE passed`, `MODE.CASE failed`.
A case named in HVD_ONLY (words, separated by commas) runs alone.
"""

from __future__ import annotations

import importlib
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
        lines.write(f"{name} begun\n")
        lines.flush()
        try:
            function(frame)
        except Exception:
            print(f"[{RANK}] {name}: {traceback.format_exc()}", file=sys.stderr, flush=True)
            lines.write(f"{name} failed\n")
            return False
        lines.write(f"{name} passed\n")
        return True


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
        own = module.endswith(("_torch", "_tensorflow", "_keras", "_optimizer"))
        for frame in frames[:1] if own else frames:
            for function in CASES[already:]:
                if not only or function.__name__ in only:
                    fine &= run(frame, function, Path(folder) / str(RANK))
    hvd.shutdown()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
