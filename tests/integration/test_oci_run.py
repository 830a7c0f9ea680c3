"""A release's container image, run by the programs that sites have: podman and Apptainer."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.platforms import BUILD_PLATFORM
from support.apptainer import apptainer
from support.emptysystem import empty_system
from support.minienv import Site
from support.ocibase import base_of, small_base
from support.run import Ran, ok, run

DEFINITION = Path(__file__).parents[2] / "docs" / "kubernetes" / "Apptainerfile"

#: Two ranks, which exchange data in the container's shared memory.
TRAIN = ("ddlrun", "-H", "localhost:2", "python", "-m", "ddl_ce_smoke.train")

#: podman's own limits are above those of a machine that is in a container itself.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
ALONE = ("--rm", "--network", "none", *LIMITS)

pytestmark = [
    pytest.mark.skipif(BUILD_PLATFORM != "linux-64", reason="the base is of this machine's files"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@dataclass(frozen=True)
class Podman:
    """podman with a store of its own.

    Attributes:
        folder: of all that it writes.
    """

    folder: Path

    def run(self, *words: str | Path) -> Ran:
        """Run `podman WORDS`."""
        place = ("--root", self.folder / "store", "--runroot", self.folder / "run")
        how = ("--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
        return run(["podman", *place, *how, *words], env={**os.environ, "HOME": str(self.folder)})

    def start(self, image: str, *command: str) -> Ran:
        """Run a command in a new container, without a network."""
        return self.run("run", *ALONE, image, *command)


@pytest.fixture
def podman() -> Iterator[Podman]:
    if missing := [name for name in ("podman", "runc") if not shutil.which(name)]:
        pytest.skip(f"needs {missing[0]}: apt-get install podman runc")
    # podman takes no long path.
    made = Podman(Path(tempfile.mkdtemp(prefix="podman-", dir="/tmp")))
    done = made.run("run", *ALONE, "--rootfs", f"{empty_system().root}:O", "/bin/true")
    if done.returncode:
        pytest.skip(f"podman runs nothing here: {done.stderr.strip().splitlines()[-1]}")
    yield made
    made.run("system", "reset", "--force")
    shutil.rmtree(made.folder, ignore_errors=True)


def image_of(user: Site, base: Path, out: Path) -> str:
    """Write the small release's image; its prefix in it."""
    said = user.ok("image", "oci", "mini", "--base", f"{base}:1", "--out", out, "--json")
    return str(json.loads(said)["prefix"])


def test_podman_runs_a_small_release(user: Site, podman: Podman, tmp_path: Path) -> None:
    base = small_base(tmp_path / "base")
    prefix = image_of(user, base, tmp_path / "image")
    image = f"oci:{tmp_path}/image:2026.11"
    # The mini channel's Python is this machine's, whose library it finds at its old place alone.
    script = f"LD_LIBRARY_PATH={prefix}/lib minimod && echo $MINI_GREETING $CONDA_PREFIX"
    done = ok(podman.start(image, "sh", "-c", script))
    module = f"{prefix}/lib/python3.11/site-packages/minimod/__init__.py"
    assert done.stdout.splitlines() == [module, f"hello {prefix}"]


@pytest.mark.built
@pytest.mark.slow
def test_ranks_train_in_a_container_of_podman(podman: Podman, prefix: Path) -> None:
    """With podman's own limits (64 MiB of /dev/shm), and the release at its own path."""
    root = prefix.parents[2]
    words = ["-v", f"{root}:{root}:ro", "-e", f"PATH={prefix}/bin:/usr/bin:/bin"]
    done = ok(podman.run("run", *ALONE, *words, "--rootfs", empty_system().root, *TRAIN))
    assert "2 ranks" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap and debootstrap")
def test_apptainer_builds_and_runs_a_small_release(user: Site, tmp_path: Path) -> None:
    """By our definition, but for its test: the small release has no smoke suite."""
    program = apptainer(tmp_path)
    base = base_of(empty_system().root, tmp_path / "base")
    prefix = image_of(user, base, tmp_path / "image")
    words = ("build", "--notest", "--build-arg", "IMAGE=image", "ddl-ce.sif")
    ok(program.run(*words, shutil.copy(DEFINITION, tmp_path)))
    # As a user has it: root's privileges may be more than this machine gives.
    asked = ("sh", "-c", "echo $MINI_GREETING $CONDA_PREFIX")
    done = program.run("run", "--no-privs", "ddl-ce.sif", *asked)
    assert (done.returncode, done.stdout) == (0, f"hello {prefix}\n"), done.stderr
