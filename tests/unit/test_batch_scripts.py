"""shellcheck finds nothing in the scripts of `ddlrun -script`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.run import run

SOURCE = Path(__file__).parents[2] / "recipes/ddl/src/python"
SHELLCHECK = Path(sys.executable).with_name("shellcheck")

ALL = (
    *("-N", "18", "-gpus", "6", "-cores", "7", "-time", "90", "-queue", "batch"),
    *("-account", "abc123", "-name", "train-2"),
)
WORDS = ["a b", "it's", "$HOME", "`x`", "$(x)", "new\nline", '"', "\\", "*", "-x", "#", ""]


def check(path: Path) -> str:
    command = [str(SHELLCHECK), str(path)]
    return run(command).stdout


@pytest.mark.parametrize("system", ["slurm", "lsf", "pbs"])
@pytest.mark.parametrize("module", ["none", "ddl-ce/2026.11"])
@pytest.mark.parametrize("words", [["train.py"], WORDS], ids=["plain", "odd"])
def test_shellcheck_finds_nothing(
    system: str, module: str, words: list[str], tmp_path: Path
) -> None:
    signal = [] if system == "pbs" else ["-signal", "300"]
    path, overlay = tmp_path / "job.sh", tmp_path / "it's mine"
    (overlay / "bin").mkdir(parents=True)
    (overlay / "bin" / "activate").write_text("")
    options = ["-script", system, *ALL, "-module", module, *signal, "-output", str(path)]
    options += ["-overlay", str(overlay)]
    subprocess.run(
        [sys.executable, "-m", "ddl.launch.cli", *options, "python", *words],
        env={"PYTHONPATH": str(SOURCE)},
        check=True,
    )
    assert check(path) == ""
    path.write_text(path.read_text() + "echo $PATH\n")
    assert "SC2086" in check(path) or "SC2317" in check(path)
