"""A researcher's first job on a cluster: the guide's commands, in a real Slurm of eight hosts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.namespaces import wait_until
from bench.lab.network import bring_up
from bench.lab.slurm import Slurm, slurm_in
from ddlce.settings import load_settings
from integration.lab import needs_slurm
from support.run import ok
from support.stagedenv import image_for, install_small_release, prefix_of

pytestmark = [pytest.mark.built, pytest.mark.timeout(900), needs_slurm]

#: The example, and a digest of each rank's weights at its end.
TRAIN = """
import hashlib, sys
from ddl_ce_examples import torch_checkpoint
model = torch_checkpoint.main()
found = hashlib.sha256()
for value in model.state_dict().values():
    found.update(value.numpy().tobytes())
sys.stdout.write(f"weights {found.hexdigest()} in {sys.prefix}\\n")
"""

#: What the training needs: the whole release is too large for eight disks of this machine's memory.
SPECS = ("ddl-torch", "scikit-learn")
DISK_MB = 1600


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    layout = parse_layout("racks-2x4")
    with bring_up(layout, disk_mb=DISK_MB) as lab, slurm_in(lab) as found:
        (found.folder / "train.py").write_text(TRAIN)
        yield found


def said(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def preempted(slurm: Slurm, name: str, modules: Path, prefix: Path, *words: str) -> str:
    """What a training says that the guide's script runs, and that an urgent job interrupts."""
    options = ["-script", "slurm", "-N", "8", "-np", "8", "-time", "60", "-signal", "120", *words]
    options += ["-output", f"{name}.sh", "python", "train.py", f"saved-{name}"]
    module = ("env", f"MODULEPATH={modules}")
    ok(slurm.run(*module, prefix / "bin" / "ddlrun", *options))
    out = slurm.folder / f"{name}.out"
    sbatch = ("sbatch", "--parsable", "--exclusive", "-o", str(out), f"{name}.sh")
    submitted = ok(slurm.run(*module, *sbatch))
    number = int(submitted.stdout)
    assert wait_until(lambda: "epoch 2/" in said(out), 400, 0.2), said(out)

    urgent = slurm.submit("#!/bin/bash\nsleep 1\n", "-N8", "--exclusive", "-p", "urgent")
    assert slurm.wait(urgent, 120)["JobState"] == "COMPLETED"
    assert f"ddl.checkpoint: job {number} was requeued" in said(out)
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")
    facts = slurm.wait(number, 400)
    text = said(out)
    assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", "1"), text
    epochs = [int(found) for found in re.findall(r"epoch (\d+)/15", text)]
    assert epochs == list(range(1, 16)), "each epoch is trained once"
    assert float(re.findall(r"test accuracy: ([\d.]+)", text)[0]) > 0.9
    weights = re.findall(r"weights (\w{64})", text)
    assert (len(weights), len(set(weights))) == (8, 1), text
    return text


def test_a_training_is_preempted_requeued_and_finishes(slurm: Slurm) -> None:
    text = preempted(slurm, "shared", load_settings().root / "modulefiles/lua", built())
    assert text.count(f" in {built().resolve()}\n") == 8


@pytest.mark.slow
def test_a_training_from_the_hosts_own_disks(slurm: Slurm, tmp_path: Path) -> None:
    """The same, staged: the second start finds the copies of the first."""
    site = install_small_release(tmp_path, SPECS)
    site.ok("module", "stage")
    place = slurm.lab.disk / "ddl-ce"
    image = image_for(site, place)
    [examples] = built().glob("lib/python*/site-packages/ddl_ce_examples")
    copy = slurm.folder / examples.name  # as a user copies them; their package needs TensorFlow
    copy.mkdir()
    for name in ("__init__.py", "digits.py", "torch_checkpoint.py"):
        shutil.copy(examples / name, copy)
    modules = site.root / "modulefiles" / "lua"
    text = preempted(slurm, "staged", modules, prefix_of(site), f"-stage={image}", "-v")
    assert text.count(f" in {place}/") == 8, text
    assert re.findall(r"on 8 hosts in [\d.]+ s: unpacked on (\d)", text) == ["8", "0"]
