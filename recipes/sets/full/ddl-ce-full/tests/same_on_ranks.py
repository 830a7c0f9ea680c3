"""Run a program on one rank and on two, and compare the arrays that it saves.

    python same_on_ranks.py PROGRAM.py

Exits non-zero where a run fails or the arrays differ by more than rounding.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def saved(program: str, ranks: int, folder: Path) -> np.ndarray:
    """The array that the program saves on some ranks of this host."""
    target = folder / f"{ranks}.npy"
    command = ["ddlrun", "-H", f"localhost:{ranks}", sys.executable, program, str(target)]
    subprocess.run(command, check=True, timeout=300)
    return np.load(target)


def main(program: str) -> None:
    """Compare."""
    with tempfile.TemporaryDirectory() as name:
        one, two = (saved(program, ranks, Path(name)) for ranks in (1, 2))
    assert np.isfinite(one).all(), "the numbers are not finite"
    assert np.ptp(one) > 0, "the program learnt nothing"
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)
    print(f"{program}: {one.size} numbers are the same on 1 rank and on 2")


if __name__ == "__main__":
    main(sys.argv[1])
