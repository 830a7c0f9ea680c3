"""Compiles the start program, and puts it in the place of other programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import run

from debian import copy

SOURCE = Path(__file__).with_name("start.c")

#: The folder in the prefix that has the runtime and all that is for linux-64.
HOST = "x86_64-conda-linux-gnu"

#: As it is compiled: alone, small, the same bytes on any machine.
COMPILE = (
    "-Os",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-pie",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
)
LINK = ("-static", "-no-pie", "-s", "--build-id=none", "-z", "noseparate-code", "-z", "noexecstack")

#: Compiles start.c with these definitions into a program of this name.
Compile = Callable[[Sequence[str], Path], None]


class Starter:
    """The start program, compiled once for each place where it stands.

    Args:
        folder: of the programs that it starts, below the prefix: `HOST/gcc`.
        host: what begins the names of those in the prefix's `bin`, before a dash.
        definitions: more of start.c's own, as `-DUSERS`.
        work: a folder for what is compiled.
    """

    def __init__(
        self,
        compile_: Compile,
        folder: str,
        host: str,
        work: Path,
        definitions: Sequence[str] = (),
    ) -> None:
        self._compile, self._folder, self._work = compile_, folder, work
        self._definitions = (f'-DTRIPLE="{host}"', *definitions)
        self._made: dict[tuple[int, str], Path] = {}

    def install(self, prefix: Path, path: str) -> None:
        """Put it at a path below the prefix."""
        inside = path.startswith(f"{self._folder}/")
        below = path.removeprefix(f"{self._folder}/") if inside else path
        key = (below.count("/"), "" if inside else f"/{self._folder}")
        if key not in self._made:
            up, down = key
            self._made[key] = self._work / f"start{len(self._made)}"
            where = (f"-DUP={up}", f'-DDOWN="{down}"')
            self._compile((*where, *self._definitions), self._made[key])
        copy(self._made[key], prefix / path)


def by_compiler(compiler: Path) -> Compile:
    """By the package's compiler, as a program of its own."""

    def compile_(definitions: Sequence[str], program: Path) -> None:
        link = ["-nostdlib", "-static", "-no-pie", "-s", "-Wl,--build-id=none"]
        link += ["-Wl,-z,noseparate-code", "-Wl,-z,noexecstack"]
        run([compiler, *COMPILE, *definitions, *link, SOURCE, "-o", program], check=True)

    return compile_
