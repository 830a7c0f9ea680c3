"""Notebooks and kernels, run by Jupyter's own client in an environment of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.run import run
from support.tools import once, pip

REQUIREMENTS = Path(__file__).with_name("notebook-packages.txt")

#: Runs the cells that come as JSON on stdin, and prints the notebook.
RUN = """
import json, sys
import nbclient, nbformat
cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
client = nbclient.NotebookClient(notebook, timeout=120, kernel_name=sys.argv[1], allow_errors=True)
client.execute()
print(json.dumps(notebook))
"""


def notebook_wheels() -> Path:
    """A folder with the wheels of ipykernel, nbclient and what they need; or skip with the reason.

    They are downloaded once.
    """

    def make(folder: Path) -> None:
        words = ("--only-binary=:all:", "--dest", folder, "-r", REQUIREMENTS)
        pip(sys.executable, "download", *words)

    return once(f"notebook-{sys.version_info.major}.{sys.version_info.minor}", make)


def install_jupyter(python: Path) -> None:
    """Install ipykernel and nbclient into the environment of an interpreter, with its own pip."""
    command: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--no-index"]
    subprocess.run([*command, "-r", REQUIREMENTS, "--find-links", notebook_wheels()], check=True)


def bare_environ(home: Path) -> dict[str, str]:
    """Variables of a Jupyter server that nobody has activated anything for."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("CONDA", "VIRTUAL_ENV"))}
    return kept | {"PATH": "/usr/bin:/bin", "HOME": str(home)}


def run_cells(python: Path, kernel: str, cells: list[str], home: Path) -> list[dict[str, Any]]:
    """Run a notebook with these cells; the cells with their outputs.

    Args:
        python: of an environment with nbclient.
        home: whose data folder has the kernel.
    """
    done = run(
        [python, "-c", RUN, kernel],
        input=json.dumps(cells),
        env=bare_environ(home),
        cwd=home,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
    return found


def text_of(cell: dict[str, Any], kind: str = "stdout") -> str:
    """What a cell printed to one of its streams."""
    outputs = [output for output in cell["outputs"] if output.get("name") == kind]
    return "".join(output["text"] for output in outputs)
