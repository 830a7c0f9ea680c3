"""What a modulefile can say; how it is said stands in `lua` and `tcl` and nowhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import PurePath

#: Stands for the user's home inside a value; no environment variable can hold a NUL itself.
HOME = "\0"


class ModuleWriter(ABC):
    """Builds the text of one modulefile, statement by statement.

    Values are the user's or a package's text: each subclass quotes them so that its language
    reads back the same bytes. `HOME` in a value becomes the home of the user who loads.

    What a load changes, an unload restores: a variable that still has the value it was given
    gets back the value it had before, and one that the user has changed since is left alone.
    When several modules push the same variable, unload them in the reverse order.
    """

    #: The module system's name, for people.
    system: str
    #: The folder under `modulefiles/`.
    folder: str
    #: What the file's name ends with.
    suffix: str
    #: The file beside it that names the default version.
    default_file: str
    #: Its own commands that put elements before and after those of a variable.
    path_editors: tuple[str, str]

    def __init__(self) -> None:
        self._blocks: list[str] = [self.header()]

    def text(self) -> str:
        """The modulefile."""
        return "".join(self._blocks)

    def add(self, block: str) -> None:
        """Append a statement."""
        self._blocks.append(block.rstrip("\n") + "\n")

    def _call(self, function: str, *values: str, bare: Sequence[str] = ()) -> None:
        self.add(self.call(function, [*bare, *map(self.quote, values)]))

    @abstractmethod
    def call(self, function: str, arguments: Iterable[str]) -> str:
        """A call of a command, or of a procedure of the header's; expressions as arguments."""

    @abstractmethod
    def header(self) -> str:
        """How the file begins: its magic line and the procedures that the statements call."""

    @abstractmethod
    def quote(self, value: str) -> str:
        """An expression of the language that evaluates to `value`."""

    @abstractmethod
    def comment(self, text: str) -> None:
        """Say, in one line, why the next statement is there."""

    @abstractmethod
    def help(self, text: str) -> None:
        """What `module help` shows."""

    @abstractmethod
    def whatis(self, text: str) -> None:
        """One line of `module whatis`, which `module keyword` searches."""

    @abstractmethod
    def extensions(self, packages: Sequence[tuple[str, str]]) -> None:
        """The (name, version) pairs that are inside, for `module spider` and for `provide`."""

    def family(self, name: str) -> None:
        """At most one loaded module is of this family."""
        self._call("family", name)

    def conflict(self, names: Sequence[str]) -> None:
        """Refuse to load beside any of these modules."""
        self._call("conflict", *names)

    @abstractmethod
    def require(self, path: PurePath, message: str) -> None:
        """Refuse to load where a file is not there; unloading goes on working."""

    @abstractmethod
    def refuse_other_conda(self, prefix: PurePath, message: str) -> None:
        """Refuse to load while a conda environment other than `prefix` is active."""

    @abstractmethod
    def refuse_while_set(self, name: str, message: str) -> None:
        """Refuse to load while a variable is set and not empty."""

    def pushenv(self, name: str, value: str) -> None:
        """Set a variable."""
        self._call("push", name, value)

    def conda_level(self, prefix: PurePath, name: str) -> None:
        """Be the first level of conda's stack of environments (`CONDA_SHLVL` 1).

        Source: conda 24.7, `conda/activate.py`.
        """
        self._call("conda_level", str(prefix), name)

    def unless_env(self, name: str, value: str) -> None:
        """Set a variable only if the user has not set it."""
        self._call("push_unless_set", name, value)

    def prepend_path(
        self, name: str, elements: Sequence[str], delim: str = ":", *, tail: bool = False
    ) -> None:
        """Put elements before those of a variable.

        Args:
            elements: in the order in which they are to stand.
            delim: one character.
            tail: where the variable was not set, end it with an empty element, which stands
                for the system's own default (as `man` reads MANPATH).
        """
        bare, values = self.path_editors[:1], delim.join(elements)
        self._call("edit_path", name, values, delim, delim if tail else "", bare=bare)

    def append_path(self, name: str, elements: Sequence[str], delim: str = ":") -> None:
        """Put elements after those of a variable."""
        bare, values = self.path_editors[1:], delim.join(elements)
        self._call("edit_path", name, values, delim, "", bare=bare)

    @classmethod
    @abstractmethod
    def default_version(cls, name: str, version: str) -> str:
        """The text of `default_file`: `name` alone means `name/version`."""
