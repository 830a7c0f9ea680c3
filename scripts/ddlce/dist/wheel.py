"""The wheel of a tree's `ddlce`: what pip and uv install."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from os import environ
from pathlib import Path

from ddlce.errors import InputError, WorkError
from ddlce.files import explain_os_errors, link_or_copy, make_folder
from ddlce.programs import own_python

#: 1980, the oldest time that a zip archive can say.
EPOCH = "315532800"


def write_wheel(tree: Path, folder: Path) -> Path:
    """Write it into a folder; the same files give the same bytes.

    Raises:
        InputError: the tree has no pyproject.toml.
        WorkError: pip could not make it.
        MachineError: the folder cannot be written.
    """
    if not (tree / "pyproject.toml").is_file():
        raise InputError(f"{tree} has no pyproject.toml", "name DDL-CE's source tree: DDLCE_REPO")
    with explain_os_errors(folder), tempfile.TemporaryDirectory() as made:
        make_folder(folder)
        source = Path(made, "source")
        source.mkdir()
        for name in ("pyproject.toml", "LICENSE"):
            shutil.copyfile(tree / name, source / name)
        ignored = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
        shutil.copytree(tree / "scripts" / "ddlce", source / "scripts" / "ddlce", ignore=ignored)
        for path in source.rglob("*"):  # a wheel keeps the modes, which are here the umask's
            path.chmod(0o755 if path.is_dir() else 0o644)
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", made]
        done = subprocess.run(
            own_python("-m", "pip", "wheel", "--quiet", *options, str(source)),
            env={**environ, "SOURCE_DATE_EPOCH": EPOCH, "PIP_CONFIG_FILE": "/dev/null"},
            cwd=made,
            umask=0o022,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise WorkError(
                f"pip could not make the wheel of {tree}: {done.stderr.strip()[-500:]}",
                "use the ddlce of the source tree, whose .venv has pip and setuptools",
            )
        (wheel,) = Path(made).glob("*.whl")
        link_or_copy(wheel, folder / wheel.name)
    return folder / wheel.name
