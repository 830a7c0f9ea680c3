"""The README's command lines run as they stand there, for somebody whose home is empty.

A line runs here on what `make` built, or `ELSEWHERE` names the test that has its command.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddlce.settings import load_settings
from ddlce.trees import remove_tree
from support.documents import FENCE, REPO
from support.modulesystems import require, run_shell
from support.run import Ran, ok, run

pytestmark = pytest.mark.built

README = (REPO / "README.md").read_text()
TESTS = REPO / "tests"

#: From these words on, lines are for those who have the source tree.
MAKERS = "**A centre's software team**"

#: A line that wants another machine, or changes this one, or takes minutes → where its command
#: is tested, and the words by which it is found there.
ELSEWHERE = {
    "curl -O https://ddl.example.org/ddlce.pyz": ("integration/test_dist.py", "ddlce.pyz"),
    "python3.11 ddlce.pyz env create ddl-ce --from https://ddl.example.org --root DIR": (
        *("integration/test_dist.py", '"env", "create", "mini", "--from"'),
    ),
    "python3.11 ddlce.pyz module ddl-ce --root DIR": (
        *("integration/test_dist.py", '"module", "mini"'),
    ),
    "sh ddl-ce-2026.12-linux-64.run --root DIR": (
        *("integration/test_bundle_built.py", '"/bin/sh", bundle.path, "--root"'),
    ),
    "ddlrun -H node1:4,node2:4 python train.py": ("integration/test_lab_hosts.py", '"-H"'),
    "ddlce env clone mine": ("integration/test_env_clone.py", '"env", "clone", "mine"'),
    "module load ddl-ce-full": ("integration/test_module_load.py", "module load"),
    "ddlrun -H localhost:2 python -m ddl_ce_smoke.research.transformer weights.npy": (
        *("integration/test_lab_research.py", "transformer"),
    ),
    "ddlce fetch --out /media/stick": ("integration/test_fetch_folder.py", '"fetch", "--out"'),
    "ddlce fetch --from /media/stick": ("integration/test_fetch_folder.py", '"fetch", "--from"'),
    "ddlce all --root /opt/ddl-ce": ("integration/test_candidate.py", '"all", "toys"'),
    "ddlce smoke ddl-ce --root /opt/ddl-ce --report report/": (
        *("integration/test_smoke_built.py", '"--report"'),
    ),
    "ddlce serve": ("support/serveprocess.py", '"serve"'),
    "ddlce index": ("integration/test_build.py", '"index"'),
}

#: `make` comes before these tests, and `make test` runs them.
MADE = ("make", "make test")

#: The program that the README's reader has: a sum over the ranks.
TRAIN = """
import ddl, numpy
ddl.init()
print(ddl.rank(), "of", ddl.size(), int(ddl.allreduce(numpy.ones(1, numpy.float32))[0]))
"""


def lines(text: str) -> list[str]:
    """The command lines of a text, without what is said of them."""
    blocks = [block for kind, block in FENCE.findall(text) if kind == "console"]
    found = re.findall(r"^\$ (.*)$", "\n".join(blocks), re.MULTILINE)
    return [re.sub(r"\s+#.*", "", line) for line in found]


def here(text: str) -> list[str]:
    """The lines that this file runs, each once."""
    return [line for line in dict.fromkeys(lines(text)) if line not in (*ELSEWHERE, *MADE)]


USERS, _, MAKING = README.partition(MAKERS)
LOADING = [line for line in here(USERS) if line.startswith("module ")]
USING = [line for line in here(USERS) if line not in LOADING]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home, and the reader's program in it."""
    (tmp_path / "train.py").write_text(TRAIN)
    yield tmp_path
    for path in tmp_path.iterdir():
        remove_tree(path) if path.is_dir() else path.unlink()


def as_user(home: Path, line: str) -> Ran:
    """A line in a new shell, after the lines that load the module."""
    settings = load_settings()
    system, shell = require("lmod", "bash")
    loading = [it.replace("/opt/ddl-ce", str(settings.root)) for it in LOADING]
    steps = ["set -e", *loading, f"cd '{home}'", line]
    return run_shell(system, shell, home / "none", steps, {"HOME": str(home)})


@pytest.mark.parametrize("line", USING)
def test_a_user_s_line(home: Path, line: str) -> None:
    done = ok(as_user(home, line))
    if line.endswith("train.py"):
        ranks = int((re.findall(r"localhost:(\d)", line) or ["1"])[0])
        said = sorted(re.sub(r"^\[.*?\] ", "", row) for row in done.stdout.splitlines())
        assert said == [f"{rank} of {ranks} {ranks}" for rank in range(ranks)]
    if line.endswith("ddl_ce_smoke.train"):
        _, _, shown = README.partition(f"$ {line}\n")
        said = done.stdout.splitlines()
        for row in shown.splitlines()[:2]:  # the title and the columns; the numbers are a machine's
            assert row in said


@pytest.mark.parametrize("line", here(MAKING))
def test_a_line_in_the_tree(home: Path, line: str) -> None:
    """With the cache that `make` filled, as `ddlce build` finds what is built already."""
    settings = load_settings()
    done = run(
        ["bash", "-c", line],
        cwd=REPO,
        env={
            **{"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            **{"DDLCE_CACHE": str(settings.cache), "DDLCE_REPO": str(REPO)},
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_lines_that_do_not_run_here_are_tested() -> None:
    assert sorted({*ELSEWHERE, *MADE} - set(lines(README))) == []
    for line, (file, words) in ELSEWHERE.items():
        assert words in (TESTS / file).read_text(), line


def test_there_are_lines_to_run() -> None:
    assert LOADING == ["module use /opt/ddl-ce/modulefiles/lua", "module load ddl-ce"]
    assert len(USING) >= 4
    assert len(here(MAKING)) >= 2
