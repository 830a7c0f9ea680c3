"""Root file systems of old systems, for programs of an environment to run in.

`debian-13` is Debian 13 as debootstrap makes it, without any further package. `debian-11` is Debian
11 with what a login node has. `glibc-2.28` is the same with a C library that
offers what 2.28 offers: in each of its files the names of younger symbol versions are changed, so
that a program that needs one does not start, as on RHEL 8. No registry has a real glibc 2.28. Its
code is therefore that of 2.31.

Both run below a filter that lets system calls through which Linux 4.18, RHEL 8's kernel, has.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.locks import locked
from support.glibcnames import pretend
from support.modulesystems import UNPACKED
from support.run import run

SUITE, KEYRING = "bullseye", "/usr/share/keyrings/debian-archive-keyring.gpg"
BARE = "trixie"

#: A machine's compiler and Python, Lmod's interpreter, and what a login node has anyway.
PACKAGES = (
    "g++",
    "make",
    "python3",
    "lua5.3",
    "lua-posix",
    "lua-term",
    "lua-filesystem",
    "procps",
    "patch",
)

#: Where Debian has Lmod.
LMOD = Path("/usr/share/lmod")

#: In the order of x86-64's table, the first system call that Linux 4.18 does not have.
AFTER_4_18 = 335


@dataclass(frozen=True)
class Userland:
    """A root file system.

    Attributes:
        name: `debian-13`, `debian-11` or `glibc-2.28`.
        glibc: the release that its C library says it is.
        root: the folder.
    """

    name: str
    glibc: str
    root: Path

    def run(
        self,
        command: Sequence[str | Path],
        writable: Sequence[Path],
        readable: Sequence[Path] = (),
        variables: Mapping[str, str] | None = None,
        timeout: float = 1200,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it, with no network, as root, from an empty home.

        Args:
            command: the program by its path in the root, and its arguments.
            writable: folders of the machine that are seen at their own paths.
            readable: the same, without writing.
            variables: the environment beside PATH, HOME and LANG.
            timeout: in seconds.
        """
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        environment |= variables or {}
        with tempfile.TemporaryFile() as kernel:
            kernel.write(system_calls_below(AFTER_4_18))
            kernel.seek(0)
            return run(
                [
                    *(
                        "bwrap",
                        "--die-with-parent",
                        "--unshare-pid",
                        "--unshare-ipc",
                        "--unshare-net",
                    ),
                    *("--unshare-uts", "--hostname", "old", "--seccomp", str(kernel.fileno())),
                    *self._binds(writable, readable),
                    *("--clearenv", *_setenv(environment), "--chdir", "/root", "--", *command),
                ],
                pass_fds=(kernel.fileno(),),
                timeout=timeout,
            )

    def _binds(self, writable: Sequence[Path], readable: Sequence[Path]) -> Iterator[str]:
        # An empty root with the parts of this one: where other folders are bound must be writable.
        for entry in sorted(self.root.iterdir()):
            if entry.is_symlink():
                yield from ("--symlink", str(entry.readlink()), f"/{entry.name}")
            elif entry.name in ("bin", "etc", "lib", "lib64", "opt", "sbin", "usr", "var"):
                yield from ("--ro-bind", str(entry), f"/{entry.name}")
        yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/root")
        for folder in readable:
            yield from ("--ro-bind", str(folder), str(folder))
        for folder in writable:
            yield from ("--bind", str(folder), str(folder))


def _setenv(variables: Mapping[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        yield from ("--setenv", name, value)


def system_calls_below(first: int) -> bytes:
    """A seccomp filter (Linux, Documentation/userspace-api/seccomp_filter.rst).

    Args:
        first: the number of the first system call that answers ENOSYS, as on an older kernel.
    """
    load, jump_above, result = 0x20, 0x25, 0x06  # BPF_LD|W|ABS, BPF_JMP|JGT|K, BPF_RET|K
    enosys, allow = 0x00050000 | 38, 0x7FFF0000
    steps = [(load, 0, 0, 0), (jump_above, 0, 1, first - 1), (result, 0, 0, enosys)]
    return b"".join(struct.pack("<HBBI", *step) for step in [*steps, (result, 0, 0, allow)])


@functools.cache
def userland(name: str) -> Userland:
    """The root file system, made where it is not there yet; the test is skipped where it cannot.

    Raises:
        RuntimeError: debootstrap failed; its last words.
    """
    if name == "debian-13":
        return Userland(name, "2.41", _kept(name, lambda target: debootstrap(target, BARE, ())))
    first = Userland("debian-11", "2.31", _kept("debian-11", _debian_11))
    if name == first.name:
        return first
    return Userland(name, "2.28", _kept(name, functools.partial(_pretending, first.root)))


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    files = (Path(__file__), Path(__file__).with_name("glibcnames.py"))
    code = b"".join(file.read_bytes() for file in files)
    return kept(f"{name}-{hashlib.sha256(code).hexdigest()[:10]}", make)


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills once on this machine, for all tests."""
    target = UNPACKED / "userlands" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_suffix(".lock")):
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(target)
    return target


def debootstrap(target: Path, suite: str, packages: Sequence[str]) -> None:
    """Make a small Debian with further packages; the test is skipped where the mirror has none.

    Raises:
        RuntimeError: debootstrap failed; its last words.
    """
    with tempfile.TemporaryDirectory() as folder:
        # In a name space of its own: what it mounts goes with it, however it ends.
        done = run(
            [
                *("unshare", "--mount", "debootstrap", "--variant=minbase", f"--keyring={KEYRING}"),
                *([f"--include={','.join(packages)}"] if packages else []),
                *(f"--cache-dir={folder}", suite, target),
                mirror(),
            ],
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        )
    if "Failed getting release file" in done.stdout + done.stderr:
        pytest.skip(f"this machine's Debian mirror has no {suite} any more")
    if done.returncode:
        raise RuntimeError(f"debootstrap {suite}: {(done.stdout + done.stderr)[-2000:]}")
    shutil.rmtree(target / "var/cache/apt")


def old_host(target: Path, suite: str, packages: Sequence[str]) -> None:
    """Make a small Debian that calls itself `old`."""
    debootstrap(target, suite, packages)
    (target / "etc/hosts").write_text("127.0.0.1 localhost old\n")


def _debian_11(target: Path) -> None:
    old_host(target, SUITE, PACKAGES)
    # Debian 11's Lmod is older than modulefiles need: the machine's is seen there.
    (target / LMOD.relative_to("/")).mkdir()


def _pretending(original: Path, target: Path) -> None:
    # Not shutil: it follows no device files.
    subprocess.run(["cp", "-a", original, target], check=True)
    pretend(target, "2.31", "2.28")


def mirror() -> str:
    """Where this machine's apt gets Debian from."""
    said = subprocess.check_output(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)"], text=True
    )
    rows = [line.split() for line in said.splitlines()]
    return next(uri for release, part, uri in rows if "-" not in release and part == "main")
