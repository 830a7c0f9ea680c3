"""Random programs under Large Model Support: the bits of in-core within the limit, or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.suites import run_suite

pytestmark = [pytest.mark.built]

#: The files with random programs, and how many a run of each draws.
FILES = {
    "test_recompute_operations.py": 25,
    "test_random_models.py": 40,
    "test_random_storages.py": 150,
}
IN_ONE_RUN = sum(FILES.values())


def run_programs(prefix: Path, folder: Path, runs: range) -> None:
    """Each run draws other programs; a failure names the run, which draws the same ones again."""
    for seed in runs:
        run_suite(
            prefix,
            "lms-torch/tests",
            folder / str(seed),
            *(*FILES, "-k", "test_random_programs or test_random_models"),
            f"--hypothesis-seed={seed}",
            variables={"OMP_NUM_THREADS": "1"},
        )


@pytest.mark.timeout(1800)
def test_a_thousand_programs(prefix: Path, tmp_path: Path) -> None:
    run_programs(prefix, tmp_path, range(1, 1000 // IN_ONE_RUN + 2))


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_ten_thousand_programs(prefix: Path, tmp_path: Path) -> None:
    run_programs(prefix, tmp_path, range(6, 10_000 // IN_ONE_RUN + 7))
