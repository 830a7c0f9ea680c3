"""The modulefiles of the environment that `make` has built, with real Python inside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from ddlce.modulefile.install import Written, write_modulefiles
from ddlce.settings import load_settings
from support.modulesystems import read_snap, require, run_shell, snap

pytestmark = pytest.mark.built

#: Where Python finds itself and its packages, as JSON.
WHERE = (
    "import json, sys, torch, ddl; print(json.dumps([sys.prefix, torch.__file__, ddl.__file__]))"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Written:
    layout = Layout(load_settings().root)
    prefix = layout.current("ddl-ce")
    if prefix is None:
        pytest.skip(f"no ddl-ce environment under {layout.root}; `make` builds it")
    return write_modulefiles(prefix, layout, tmp_path_factory.mktemp("modules"))


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(name, marks=pytest.mark.slow) for name in ("zsh", "tcsh"))]
)
@pytest.mark.parametrize("system", ["lmod", "environment-modules"])
def test_the_built_environment(built: Written, tmp_path: Path, system: str, shell: str) -> None:
    found, program = require(system, shell)
    before, loaded, after = (tmp_path / name for name in ("before", "loaded", "after"))
    steps = [
        *(snap(before), f"module load ddl-ce/{built.version}", snap(loaded)),
        *(f"python -c '{WHERE}'", "which ddlrun", "ddlrun --help > /dev/null"),
        *("module unload ddl-ce", snap(after)),
    ]
    done = run_shell(found, program, built.trees[found.writer], steps, {})
    lines = done.stdout.splitlines()
    where = json.loads(next(line for line in lines if line.startswith("[")))
    assert all(path.startswith(str(built.prefix)) for path in where), done.stderr
    assert f"{built.prefix}/bin/ddlrun" in lines
    assert read_snap(loaded)["CONDA_PREFIX"] == str(built.prefix)
    assert read_snap(after) == read_snap(before), done.stderr
