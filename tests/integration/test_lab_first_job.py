"""A researcher's first job on a cluster: the guide's commands, in a real Slurm of eight hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.namespaces import wait_until
from bench.lab.network import bring_up
from bench.lab.slurm import Slurm, slurm_in, why_not
from ddlce.settings import load_settings
from support.lab import needs_lab

pytestmark = [
    pytest.mark.built,
    needs_lab,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

#: The example, and a digest of each rank's weights at its end.
TRAIN = """
import hashlib, sys
from ddl_ce_examples import torch_checkpoint
model = torch_checkpoint.main()
found = hashlib.sha256()
for value in model.state_dict().values():
    found.update(value.numpy().tobytes())
sys.stdout.write(f"weights {found.hexdigest()}\\n")
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with bring_up(parse_layout("racks-2x4")) as lab, slurm_in(lab) as found:
        (found.folder / "train.py").write_text(TRAIN)
        yield found


def said(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_training_is_preempted_requeued_and_finishes(slurm: Slurm) -> None:
    modules = load_settings().root / "modulefiles/lua"
    words = ["-script", "slurm", "-N", "8", "-np", "8", "-time", "60", "-signal", "120"]
    words += ["-output", "job.sh", "python", "train.py", "saved"]
    ddlrun = built() / "bin" / "ddlrun"
    module = ("env", f"MODULEPATH={modules}")
    done = slurm.run(*module, ddlrun, *words)
    assert done.returncode == 0, done.stderr
    out = slurm.folder / "training.out"
    sbatch = ("sbatch", "--parsable", "--exclusive", "-o", str(out), "job.sh")
    submitted = slurm.run(*module, *sbatch)
    assert submitted.returncode == 0, submitted.stderr
    number = int(submitted.stdout)
    assert wait_until(lambda: "epoch 2/" in said(out), 240, 0.2), said(out)

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
