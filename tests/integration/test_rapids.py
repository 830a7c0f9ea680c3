"""RAPIDS, solved and installed of what is built: as far as it goes without a driver."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ddlce.plan import make_plan
from ddlce.settings import load_settings
from ddlce.smoke import clean_environment
from support.run import run
from support.storeprefix import prefix_of

# A channel, a package cache and a prefix of some 5 GB, as links where the file system can.
pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(1800)]

#: The packages of an environment that has them, and pip, which checks them.
PACKAGES = ("cudf", "cuml", "pip")

#: Each of NVIDIA's libraries that RAPIDS loads, and where from.
MAPPED = """
import json, re, cudf, cuml
paths = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
names = re.compile(r"lib(cu(da|dart|blas|blasLt|fft|rand|solver|sparse)|nccl|nvJitLink)[.]so")
print(json.dumps(sorted(path for path in paths if names.search(path))))
"""

#: A table and a model, each of which asks for the driver.
USES = {
    "cudf": "import cudf; print('imported'); cudf.DataFrame({'a': [1, 2]})",
    "cuml": (
        "import cuml, numpy as n; print('imported'); "
        "from cuml.linear_model import LinearRegression as Model; "
        "Model().fit(n.ones((4, 2), 'f4'), n.ones(4, 'f4'))"
    ),
}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with cudf and cuml."""
    plan = make_plan(load_settings(), extra="rapids").restrict(PACKAGES)
    top = tmp_path_factory.mktemp("rapids")
    return prefix_of(plan, PACKAGES, top, f"--set rapids {' '.join(PACKAGES)}")


def python(prefix: Path, *words: str) -> tuple[int, str, str]:
    """Run Python there; its status, output and errors."""
    done = run(
        [str(prefix / "bin/python"), *words],
        env={**clean_environment(prefix, os.environ), "HOME": str(prefix.parent)},
        cwd=prefix.parent,
        timeout=900,
    )
    return done.returncode, done.stdout, done.stderr


def test_its_packages_fit_each_other(prefix: Path) -> None:
    status, said, errors = python(prefix, "-m", "pip", "check")
    assert status == 0, said + errors


def test_libraries_of_nvidia_are_there_once(prefix: Path) -> None:
    """All who need one load the environment's, from its lib."""
    status, said, errors = python(prefix, "-c", MAPPED)
    assert status == 0, errors
    paths = [Path(path) for path in json.loads(said)]
    assert all(path.parent == (prefix / "lib").resolve() for path in paths), paths
    names = [path.name.split(".so")[0] for path in paths]
    assert len(names) == len(set(names)), names
    assert {"libcublas", "libcusolver", "libnccl", "libnvJitLink"} <= set(names)


@pytest.mark.parametrize("name", USES)
def test_without_a_driver_it_is_imported_and_says_so_when_it_is_used(
    prefix: Path, name: str
) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")
    status, said, errors = python(prefix, "-c", USES[name])
    assert said == "imported\n", errors
    assert status == 1
    assert "driver" in errors.splitlines()[-1], errors
