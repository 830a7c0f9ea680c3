"""The environment on systems with an older C library than the build machine's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ddlce.settings import load_settings
from ddlce.trees import remove_tree
from support.pip import Unavailable, pip_prefix
from support.userlands import LMOD, Userland, userland

pytestmark = [
    pytest.mark.built,
    pytest.mark.timeout(900),  # the first makes the old systems
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root"),
    pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap and debootstrap"),
]

REPO = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs" / "compiled"
NAMES = ("debian-11", "glibc-2.28")
SETTINGS = load_settings()

#: For pip: compile what is there, and ask for nothing.
OFFLINE = ("--no-index", "--no-build-isolation", "--no-binary=:all:", "--no-deps")

#: Calls what was compiled.
CALLS = (
    "import compiled_c, compiled_cxx; assert compiled_c.power(2, 10) == 1024; "
    "print(compiled_cxx.words(7), compiled_cxx.words(-1))"
)


#: Threads and an exception of C++, on the environment's libraries.
PROGRAM = """
#include <iostream>
#include <stdexcept>
#include <thread>
int main() {
  int sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < 7; ++i) sum += 2 * i;
  std::thread([&] { sum *= 1; }).join();
  try {
    throw std::runtime_error("caught ");
  } catch (const std::exception& error) {
    std::cout << error.what() << sum << std::endl;
  }
}
"""


@dataclass
class Centre:
    """A root of environments on an old system.

    Attributes:
        system: where it is.
        folder: what only the old system writes.
        prefix: the environment that commands are run with.
        variables: more of those that they see.
    """

    system: Userland
    folder: Path
    prefix: Path
    variables: dict[str, str] = field(default_factory=dict)

    def ok(self, *command: str | Path) -> str:
        """Run a program of the prefix, by its name, or of the system, by its path."""
        program = str(command[0])
        if "/" not in program:
            program = str(self.prefix / "bin" / program)
        readable = [REPO, SETTINGS.channel, SETTINGS.root]
        if not self.prefix.is_relative_to(self.folder):
            readable.append(self.prefix)
        done = self.system.run(
            [program, *command[1:]],
            writable=[self.folder],
            readable=[*filter(Path.exists, readable), *([LMOD] if LMOD.exists() else [])],
            variables={
                "PATH": f"{self.prefix}/bin:/usr/bin:/bin",
                "DDLCE_REPO": str(REPO),
                "DDLCE_CACHE": str(self.folder / "cache"),
                "CONDA_ENVS_PATH": str(self.folder / "clones"),
                **self.variables,
            },
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


@pytest.fixture
def old(request: pytest.FixtureRequest, prefix: Path, tmp_path: Path) -> Iterator[Centre]:
    """The release of this machine, seen from the old system that the test names."""
    yield Centre(userland(request.param), tmp_path, prefix)
    for made in ("site", "clones"):
        if (tmp_path / made).exists():
            remove_tree(tmp_path / made)


def test_a_program_of_this_machine_does_not_start_there(prefix: Path, tmp_path: Path) -> None:
    """The proof that the old systems are old."""
    system = userland("glibc-2.28")
    said = system.run(["/usr/bin/ldd", "--version"], [tmp_path]).stdout
    assert said.startswith("ldd (Debian GLIBC 2.31")  # a shell script; the library says another
    asked = "import os; print(os.confstr('CS_GNU_LIBC_VERSION'))"
    assert system.run(["/usr/bin/python3", "-c", asked], [tmp_path]).stdout == "glibc 2.28\n"
    shutil.copy(shutil.which("python3", path="/usr/bin") or "", tmp_path / "python3")
    done = system.run([tmp_path / "python3", "--version"], [tmp_path])
    assert done.returncode != 0
    assert "version `GLIBC_2." in done.stderr


@pytest.mark.parametrize("old", NAMES[-1:], indirect=True)
def test_the_frameworks_and_two_ranks(old: Centre) -> None:
    modules = "ssl, ctypes, lzma, sqlite3, readline, curses, bz2, uuid, torch, tensorflow, ddl"
    asked = f"import os, {modules}; print(os.confstr('CS_GNU_LIBC_VERSION'))"
    assert old.ok("python", "-c", asked) == f"glibc {old.system.glibc}\n"
    said = old.ok("ddlrun", "-H", "localhost:2", "python", "-m", "ddl_ce_smoke.train")
    assert "2 ranks" in said, said


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("old", NAMES, indirect=True)
def test_a_centre_on_an_old_system(old: Centre) -> None:
    """Install, verify, load, prove, clone and compile, all of it there and without a network."""
    site = old.folder / "site"
    lock = REPO / "envs" / "locks" / "ddl-ce.linux-64.lock"
    options = ("--root", site, "--json")
    channel = ("--lock", lock, "--channel", SETTINGS.channel.as_uri(), "--offline")
    made = json.loads(old.ok("ddlce", "env", "create", "ddl-ce", *channel, *options))
    old.prefix, old.variables = Path(made["prefix"]), {"DDLCE_ROOT": str(site)}
    assert old.prefix.is_relative_to(site)
    old.ok("ddlce", "env", "verify", "ddl-ce")

    old.ok("ddlce", "module", "ddl-ce")
    if LMOD.exists():
        # What of Lmod is compiled is the machine's, and only for modulefiles in Tcl.
        script = (
            f"export LMOD_FAST_TCL_INTERP=no; . {LMOD}/lmod/init/bash && "
            f"module use {site}/modulefiles/lua && module load ddl-ce && "
            "command -v ddlrun && python -c 'import sys; print(sys.prefix)'"
        )
        assert old.ok("/bin/bash", "-c", script).split()[-2:] == [
            str(old.prefix / "bin" / "ddlrun"),
            str(old.prefix),
        ]

    report = old.folder / "report"
    old.ok("ddlce", "smoke", "ddl-ce", "--ranks", "1,2", "--report", report)
    parts = json.loads((report / "report.json").read_text())["parts"]
    assert [part["outcome"] for part in parts] == ["passed"] * 4

    clone = json.loads(old.ok("ddlce", "env", "clone", "mine", "--json"))["prefix"]
    old.prefix = Path(clone)
    compiles(old)


@pytest.mark.parametrize("old", NAMES, indirect=True)
def test_our_compilers_make_the_same_bytes_there(old: Centre) -> None:
    """Bytes depend on the compilers' packages alone, not on the machine that they run on."""
    (old.folder / "program.cpp").write_text(PROGRAM)
    compiler = old.prefix / "bin" / "x86_64-conda-linux-gnu-g++"
    source, object_ = old.folder / "program.cpp", old.folder / "program.o"
    here, there = old.folder / "here", old.folder / "there"
    compile_ = ("-std=c++20", "-O2", "-fopenmp", "-c", source, "-o", object_)
    link = ("-fopenmp", object_, "-o")
    for options in (compile_, (*link, here)):
        subprocess.run([compiler, *options], check=True, env={"PATH": "/nonexistent"})
    compiled = object_.read_bytes()
    old.ok(compiler, *compile_)
    old.ok(compiler, *link, there)
    assert compiled == object_.read_bytes()
    assert here.read_bytes() == there.read_bytes()
    assert old.ok(there) == "caught 42\n"


@pytest.mark.parametrize("old", NAMES, indirect=True)
def test_a_program_without_threads(old: Centre) -> None:
    """Nothing but libstdc++ asks for glibc's functions of threads; so it is in ninja."""
    source, program = old.folder / "program.cpp", old.folder / "program"
    source.write_text(
        '#include <iostream>\nint main() { std::cout << "no thread" << std::endl; }\n'
    )
    compiler = old.prefix / "bin" / "x86_64-conda-linux-gnu-g++"
    old.ok(compiler, "-O2", source, "-o", program)
    assert old.ok(program) == "no thread\n"
    assert old.ok("ninja", "--version")


@pytest.mark.slow
@pytest.mark.parametrize("old", NAMES[-1:], indirect=True)
def test_what_our_compilers_make_here_runs_there(old: Centre, compilers: Path) -> None:
    """On this machine, whose own C library is newer."""
    sources = shutil.copytree(PROGRAMS, old.folder / "compiled")
    made = old.folder / "made"
    compile_here(compilers, f"python -m pip install {' '.join(OFFLINE)} --target {made} {sources}")
    old.prefix, old.variables = compilers, {"PYTHONPATH": str(made)}
    assert old.ok("python", "-c", CALLS) == "number 7 below zero\n"


@pytest.mark.slow
@pytest.mark.parametrize("old", NAMES[-1:], indirect=True)
def test_what_nvcc_makes_with_our_compilers_runs_there(old: Centre, compilers: Path) -> None:
    """CUDA's runtime, and an exception in C++."""
    try:
        cuda = next(pip_prefix("nvcc").glob("lib/python3*/site-packages/nvidia/cu13"))
    except Unavailable as error:
        pytest.skip(str(error))
    program = old.folder / "device"
    options = f'-ccbin "$CXX" -L{cuda}/lib {PROGRAMS}/device.cu -o {program}'
    # As in a recipe: files of the machine are refused.
    compile_here(compilers, f"CONDA_BUILD_STATE=BUILD {cuda}/bin/nvcc {options}")
    assert old.ok(program).startswith("no device: CUDA driver version is insufficient")


@pytest.fixture(scope="module")
def compilers(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A clone of the release with the channel's compilers."""
    folder = tmp_path_factory.mktemp("compilers")
    here = {**os.environ, "DDLCE_CACHE": str(folder / "cache")}
    names = ("gcc_linux-64", "gxx_linux-64")
    for command in (
        ("clone", folder / "mine"),
        ("install", folder / "mine", *names, "--channel", SETTINGS.channel.as_uri()),
    ):
        subprocess.run([prefix / "bin" / "ddlce", "env", *command], check=True, env=here)
    yield folder / "mine"
    remove_tree(folder / "mine")


def compile_here(clone: Path, command: str) -> None:
    """Run a command of the shell with the compilers of a clone."""
    script = f"""
        export CONDA_PREFIX={clone} PATH={clone}/bin:$PATH
        for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do . "$file"; done
        {command}
    """
    subprocess.run(["bash", "-ec", script], check=True)


def compiles(old: Centre) -> None:
    """A user's own code, by the old system's compiler."""
    sources = shutil.copytree(PROGRAMS, old.folder / "compiled")
    old.ok("python", "-m", "pip", "install", *OFFLINE, sources)
    assert old.ok("python", "-c", CALLS) == "number 7 below zero\n"

    program = old.folder / "reduce"
    old.ok("mpicc", sources / "reduce.c", "-o", program)
    # UCX says there, on the same stream, that no /sys is mounted.
    assert "sum 3" in old.ok("mpiexec", "-n", "3", program).splitlines()

    build = old.folder / "extension"
    build.mkdir()
    said = old.ok("python", sources / "torch_extension.py", build)
    assert said.splitlines()[-1] == "caught one dimension, please"
