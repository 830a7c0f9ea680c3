"""Kernels of overlays and clones of the built release in Jupyter, and ranks from a cell."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.env.layout import ORIGIN
from ddlce.trees import remove_tree
from support.minienv import Site
from support.notebooks import (
    REQUIREMENTS,
    bare_environ,
    install_jupyter,
    notebook_wheels,
    run_cells,
    text_of,
)
from support.run import run

pytestmark = pytest.mark.built

#: A cell that prints what the kernel's environment says.
#: Python ends PATH with them.
COMPILERS = "x86_64-conda-linux-gnu/gcc/bin"

ENVIRON = "import os, sys; print([sys.prefix, dict(os.environ)])"


@dataclass(frozen=True)
class User:
    """Somebody with a home, overlays and clones of the built release."""

    home: Path
    release: Path

    @property
    def overlay(self) -> Path:
        return self.home / "mine"

    @property
    def python(self) -> Path:
        return self.overlay / "bin" / "python"

    @property
    def kernels(self) -> Path:
        return self.home / ".local/share/jupyter/kernels"

    def ddlce(self, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        return run(
            [sys.executable, "-m", "ddlce", "env", *words],
            env=os.environ | {"HOME": str(self.home), "COLUMNS": "200"} | env,
            cwd=self.home,
        )

    def ok(self, *words: str | Path, **env: str) -> str:
        done = self.ddlce(*words, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, *words: str | Path) -> str:
        done = self.ddlce(*words)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def someone(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with the overlay `mine`, ipykernel in it, and the kernel `mine`."""
    user = User(tmp_path_factory.mktemp("home"), prefix)
    user.ok("overlay", user.overlay, "--release", prefix)
    install_jupyter(user.python)
    user.ok("kernel", "--overlay", user.overlay)
    yield user
    remove_tree(user.home)


def test_pip_of_the_release_keeps_to_its_packages(someone: User) -> None:
    """The program `pip` of the overlay, and packages with compiled code from outside."""
    done = run([someone.overlay / "bin" / "pip", "install", "--no-index", "numpy<2"])
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "The user requested numpy<2" in said
    assert "The user requested (constraint) numpy==" in said
    assert someone.ok("check", someone.overlay).endswith(": ok\n")


def test_the_kernel_of_an_overlay_runs_in_it(someone: User) -> None:
    first, second = run_cells(
        someone.python,
        "mine",
        [ENVIRON, "import torch, comm, shutil; print(torch.__file__, shutil.which('mpiexec'))"],
        someone.home,
    )
    where, variables = ast.literal_eval(text_of(first))
    release = someone.release
    assert where == variables["VIRTUAL_ENV"] == str(someone.overlay)
    path = f"{someone.overlay}/bin:{release}/bin:/usr/bin:/bin:{release}/{COMPILERS}"
    assert variables["PATH"] == path
    assert variables["CONDA_PREFIX"] == str(release)
    assert variables["MANPATH"] == f"{release}/share/man:"
    assert variables["CONDA_PKGS_DIRS"].startswith(f"{someone.home}/.cache/ddl-ce/conda-pkgs,")
    torch = f"{release}/lib/python3.11/site-packages/torch/__init__.py"
    assert text_of(second) == f"{torch} {release}/bin/mpiexec\n"


def test_the_kernel_of_a_clone_runs_in_it(someone: User, tmp_path: Path) -> None:
    clone = someone.home / "Copy"
    someone.ok("clone", clone, "--from", someone.release)
    try:
        said = someone.fails("kernel", "--clone", clone)
        assert said == (
            f"error: {clone} has no ipykernel\nhint:  {clone}/bin/python -m pip install ipykernel\n"
        )
        install_jupyter(clone / "bin" / "python")
        someone.ok("kernel", "--clone", clone)
        [cell] = run_cells(clone / "bin" / "python", "copy", [ENVIRON], someone.home)
        where, variables = ast.literal_eval(text_of(cell))
        assert where == variables["CONDA_PREFIX"] == str(clone)
        assert variables["PATH"] == f"{clone}/bin:/usr/bin:/bin:{clone}/{COMPILERS}"
        spec = json.loads((someone.kernels / "copy" / "kernel.json").read_text())
        assert spec["display_name"].startswith("Copy (clone of ddl-ce ")
    finally:
        remove_tree(clone)


def test_the_kernel_of_a_release_that_has_ipykernel(someone: User, site: Site) -> None:
    """As a site's own manifest may ask for it; the built release has none."""
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    packages = site.current / "lib/python3.11/site-packages"
    packages.chmod(0o755)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target"]
    wheels: list[str | Path] = ["--find-links", notebook_wheels(), "-r", REQUIREMENTS]
    subprocess.run([*command, packages, *wheels], check=True)
    said = site.ok("env", "kernel", "--release", "mini", "--prefix", someone.home / ".local")
    assert said.startswith(f"{someone.kernels}/mini: mini 2026.11\n")
    [cell] = run_cells(someone.python, "mini", [ENVIRON], someone.home)
    where, variables = ast.literal_eval(text_of(cell))
    assert where == variables["CONDA_PREFIX"] == str(site.current)
    assert variables["MINI_GREETING"] == "hello"
    path = f"{site.current}/bin:/usr/bin:/bin:{someone.release}/{COMPILERS}"
    assert variables["PATH"] == path


def test_without_ipykernel(someone: User) -> None:
    said = someone.fails("kernel", "--release", someone.release)
    assert said == (
        f"error: {someone.release} has no ipykernel\n"
        "hint:  make an overlay and install it there: ddlce env overlay NAME\n"
    )
    other = someone.home / "other"
    someone.ok("overlay", other, "--release", someone.release)
    said = someone.fails("kernel", "--overlay", other)
    assert said == f"error: {other} has no ipykernel\nhint:  {other}/bin/pip install ipykernel\n"
    assert not (someone.kernels / "other").exists()


def test_another_s_kernel_stays(someone: User) -> None:
    theirs = someone.kernels / "theirs" / "kernel.json"
    theirs.parent.mkdir()
    theirs.write_text("{}")
    said = someone.fails("kernel", "theirs", "--overlay", someone.overlay)
    assert said.startswith(
        f"error: the kernel theirs in {someone.kernels} is not that of {someone.overlay}\n"
    )
    assert theirs.read_text() == "{}"
    someone.ok("kernel", "theirs", "--overlay", someone.overlay, "--force")
    assert json.loads(theirs.read_text())["argv"][0] == str(someone.python)
    someone.ok("kernel", "theirs", "--overlay", someone.overlay)  # now it is its own
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o644
    assert [path.name for path in theirs.parent.iterdir()] == ["kernel.json"]


def test_a_link_or_a_file_in_the_kernel_s_place(someone: User) -> None:
    (someone.kernels / "linked").symlink_to(someone.home)
    (someone.kernels / "file").touch()
    for name, kind in (("linked", "a symbolic link"), ("file", "no folder")):
        said = someone.fails("kernel", name, "--overlay", someone.overlay, "--force")
        assert said.startswith(f"error: {someone.kernels}/{name} is {kind}\n")
    assert not (someone.home / "kernel.json").exists()


def test_the_places_of_kernels(someone: User, tmp_path: Path) -> None:
    kernel = ("kernel", "--overlay", someone.overlay)
    someone.ok(*kernel, "--prefix", tmp_path / "p")
    assert (tmp_path / "p/share/jupyter/kernels/mine/kernel.json").is_file()
    someone.ok(*kernel, JUPYTER_DATA_DIR=str(tmp_path / "d"))
    assert (tmp_path / "d/kernels/mine/kernel.json").is_file()
    someone.ok(*kernel, XDG_DATA_HOME=str(tmp_path / "x"))
    assert (tmp_path / "x/jupyter/kernels/mine/kernel.json").is_file()
    someone.ok("kernel", "active", "--prefix", tmp_path, VIRTUAL_ENV=str(someone.overlay))
    spec = json.loads((tmp_path / "share/jupyter/kernels/active/kernel.json").read_text())
    assert spec["argv"][0] == str(someone.python)


def test_wrong_words(someone: User) -> None:
    overlay = ("--overlay", someone.overlay)
    assert someone.fails("kernel", "my kernel", *overlay).startswith(
        "error: 'my kernel' is not a name for a kernel\n"
    )
    assert someone.fails("kernel", *overlay, "--clone", "x").startswith(
        "error: --overlay and --clone exclude each other\n"
    )
    assert someone.fails("kernel", "--overlay", "nowhere").startswith(
        "error: there is no overlay at "
    )
    assert someone.fails("kernel", "--clone", "nowhere").startswith(
        "error: there is no environment nowhere "
    )


def test_the_kernel_of_an_overlay_whose_release_is_gone(user: Site) -> None:
    user.ok("env", "overlay", "mine")
    marker = user.clones / "mine" / "ddl-ce.overlay"
    marker.write_text(marker.read_text().replace(user.current.name, "2025.01-00000000"))
    said = user.fails(2, "env", "kernel", "--overlay", "mine")
    assert said.startswith(f"error: the release of the overlay {user.clones}/mine is gone: ")
    assert not (user.current.parent / "2025.01-00000000" / ORIGIN).exists()


# --- ranks from a cell

RUN = """
from ddl import notebook
def shared(factor):
    import ddl, numpy
    print("sums up")
    return ddl.rank(), float(ddl.allreduce(numpy.ones(1)).item() * factor)
notebook.run(shared, 0.5, ranks=3)
"""
FAIL = """
def fail():
    import ddl
    if ddl.rank() == 1:
        raise ValueError("loss is nan")
    ddl.barrier()
notebook.run(fail, ranks=2)
"""


def test_ranks_from_a_cell(someone: User) -> None:
    """Functions of the notebook itself, on the kernel's release, and an exception of one rank."""
    good, bad = run_cells(someone.python, "mine", [RUN, FAIL], someone.home)
    [result] = [o for o in good["outputs"] if o["output_type"] == "execute_result"]
    assert result["data"]["text/plain"] == "[(0, 1.5), (1, 1.5), (2, 1.5)]"
    assert sorted(text_of(good).splitlines()) == [f"[{n}@localhost] sums up" for n in range(3)]
    [error] = [o for o in bad["outputs"] if o["output_type"] == "error"]
    assert error["ename"] == "RankError"
    assert error["evalue"].startswith("rank 1 raised ValueError: loss is nan\n")
    assert 'raise ValueError("loss is nan")' in error["evalue"]
    assert "[1@localhost]" in text_of(bad, "stderr")


#: Starts ranks that wait, and has Jupyter end them as a person would, by the word in sys.argv.
#: After an error a kernel aborts the cells in its queue, and the next one may come too early.
END = """
import re, sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="mine")
code = '''
from ddl import notebook
import time
def wait():
    import os, time
    print("up", os.getpid(), flush=True)
    time.sleep(600)
notebook.run(wait, ranks=2)
'''
asked = client.execute(code, stop_on_error=False)
found, seen = [], ""
while len(found) < 2:
    message = client.get_iopub_msg(timeout=120)
    if message["msg_type"] == "error":
        sys.exit(str(message["content"]))
    seen += message["content"].get("text", "") if message["msg_type"] == "stream" else ""
    found = re.findall(r" up (\\d+)\\n", seen)
if sys.argv[1] == "interrupt":
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=120)
    while reply["parent_header"].get("msg_id") != asked:
        reply = client.get_shell_msg(timeout=120)
    print(reply["content"].get("ename"), *found, flush=True)
    client.execute_interactive("print('still here')", timeout=120)
else:
    print("killed", *found, flush=True)
manager.shutdown_kernel(now=True)
"""


@pytest.mark.parametrize(("how", "said"), [("interrupt", "KeyboardInterrupt"), ("kill", "killed")])
def test_jupyter_ends_ranks(someone: User, how: str, said: str) -> None:
    temporary = someone.home / f"tmp-{how}"
    temporary.mkdir()
    done = run(
        [someone.python, "-c", END, how],
        env=bare_environ(someone.home) | {"TMPDIR": str(temporary)},
        cwd=someone.home,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    word, *ranks = done.stdout.splitlines()[0].split()
    assert (word, len(ranks)) == (said, 2)
    deadline = time.monotonic() + 30
    while any(Path("/proc", rank).exists() for rank in ranks):
        assert time.monotonic() < deadline, "ranks outlive their kernel"
        time.sleep(0.1)
    if how == "interrupt":
        assert done.stdout.splitlines()[1:] == ["still here"]
        assert list(temporary.iterdir()) == []


def test_an_ipykernel_that_is_broken(user: Site) -> None:
    user.ok("env", "overlay", "mine")
    site = user.clones / "mine" / "lib/python3.11/site-packages/ipykernel"
    site.mkdir()
    (site / "__init__.py").write_text("raise ImportError('no traitlets')\n")
    said = user.fails(1, "env", "kernel", "--overlay", "mine")
    begin = f"error: the ipykernel in {user.clones}/mine does not work: ImportError: no traitlets\n"
    assert said.startswith(begin)
    (user.clones / "mine" / "bin" / "python").unlink()
    said = user.fails(3, "env", "kernel", "--overlay", "mine")
    assert said.startswith(f"error: cannot run {user.clones}/mine/bin/python: No such file")
