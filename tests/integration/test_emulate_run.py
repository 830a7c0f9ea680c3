"""Programs of linux-ppc64le run here, and the programs that they start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddlce.emulate import emulated, ensure_sysroot
from ddlce.platforms import PLATFORMS
from ddlce.settings import load_settings
from support.run import ok, run

POWER = "linux-ppc64le"
COMPILER = "powerpc64le-linux-gnu-gcc"

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, PLATFORMS[POWER].emulators)), reason="no qemu-user on this machine"
)

#: Says what it runs on, then starts itself: by its own name, as multiprocessing and MPI do.
PROGRAM = """
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
  struct utsname name;
  uname(&name);
  printf("%s %s\\n", count > 1 ? words[1] : "parent", name.machine);
  fflush(stdout);
  if (count > 1) return 3;
  for (int child = 0; child < 2; ++child)
    if (fork() == 0) return execl(words[0], words[0], child ? "second" : "first", NULL);
  int status, sum = 0;
  while (wait(&status) > 0) sum += WEXITSTATUS(status);
  return sum;
}
"""


@pytest.fixture(scope="module")
def sysroot() -> Path:
    return ensure_sysroot(load_settings(), POWER)


def cli(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ddlce", "emulate", *arguments]
    env = {**os.environ, **environ}
    return run(command, env=env)


def test_a_program_of_the_platform_runs(sysroot: Path) -> None:
    done = ok(cli(str(sysroot / "lib64/ld64.so.2"), "--version"))
    assert done.stdout.startswith("ld.so")


def test_a_native_program_starts_one_of_the_platform(sysroot: Path) -> None:
    done = cli("--", "sh", "-c", f"{sysroot}/lib64/ld64.so.2 --version; exit 7")
    assert done.returncode == 7
    assert done.stdout.startswith("ld.so")


def test_the_machine_learns_nothing(sysroot: Path) -> None:
    registered = Path("/proc/sys/fs/binfmt_misc")
    before = sorted(path.name for path in registered.glob("*"))
    assert cli(str(sysroot / "lib64/ld64.so.2"), "--version").returncode == 0
    assert sorted(path.name for path in registered.glob("*")) == before


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER} on this machine")
def test_a_program_of_the_platform_starts_itself(sysroot: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text(PROGRAM)
    subprocess.run([COMPILER, "-o", program, source], check=True)
    done = cli(str(program))
    assert sorted(done.stdout.splitlines()) == ["first ppc64le", "parent ppc64le", "second ppc64le"]
    assert done.returncode == 6, done.stderr


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER} on this machine")
def test_a_library_that_the_prefix_lacks_is_missing(sysroot: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text("int main(void) { return 0; }")
    command = [COMPILER, "-o", str(program), str(source), "-Wl,--no-as-needed", "-lgcc_s"]
    subprocess.run(command, check=True)
    done = cli(str(program))
    assert done.returncode == 127
    assert "libgcc_s.so.1: cannot open shared object file" in done.stderr


def test_conda_sees_the_glibc_of_the_platform(sysroot: Path) -> None:
    said = cli(str(sysroot / "lib64/ld64.so.2"), "--version").stdout.splitlines()[0]
    version = cli("printenv", "CONDA_OVERRIDE_GLIBC").stdout.strip()
    assert version
    assert said.endswith(f" {version}.")


def test_the_caller_keeps_its_user(sysroot: Path) -> None:
    done = cli("id", "-u")
    assert done.stdout.strip() == str(os.getuid())


def test_a_command_that_is_not_there(sysroot: Path) -> None:
    done = cli("no-such-program")
    assert done.returncode == 2
    assert "no-such-program: No such file or directory" in done.stderr


def test_a_machine_without_namespaces_says_so(sysroot: Path) -> None:
    inner = "echo 0 >/proc/sys/user/max_user_namespaces && exec $*"
    script = f"{sys.executable} -m ddlce emulate true"
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", inner, "sh", script]
    done = run(command)
    assert done.returncode == 3, done.stderr
    assert "this machine allows no user namespaces: unshare" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_holds_no_shell(sysroot: Path) -> None:
    argv = emulated(["printf", "%s", "$HOME;'"], POWER, sysroot)
    done = run(argv, check=True)
    assert done.stdout == "$HOME;'"
