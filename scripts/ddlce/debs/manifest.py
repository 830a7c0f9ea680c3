"""`recipes/debs/debs.yaml`: the packages made from Debian's binary packages."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ddlce import yamltext
from ddlce.errors import InputError

#: Fields that change what Debian made, each of which wants its reason in `why`.
CORRECTIONS = (
    *("add", "drop", "exclude", "ignore_needed", "imports", "pip_check", "patches", "version"),
    *("without", "instead_of_recipe"),
)


class DebEntry(BaseModel):
    """One package. All that is not said here comes from the Debian packages' own metadata.

    Attributes:
        debs: the Debian packages that it is made of; by default the one of its own name. The
            first gives version, summary and homepage.
        license: SPDX expression; Debian's metadata has none that a program can read.
        license_from: Debian packages whose licence text serves, where its own have a link only.
        why: the reason for each correction below.
        version: where Debian's is not upstream's.
        add: run dependencies (conda match specs) that the metadata leaves out.
        drop: Python requirements (PyPI names) that do not apply here.
        constrains: run constraints (conda match specs).
        ignore_needed: sonames that need no package, because they are optional at run time.
        without: soname → its symbols (globs); the library is not loaded, and what is left of it
            in the files resolves to nothing.
        exclude: files (globs, as installed in the prefix) that are left out.
        move: folder as in the Debian package → folder in the prefix, both with a slash at the end.
        patches: in recipes/debs/, applied in the prefix's site-packages.
        imports: names to import in the test instead of all top-level ones.
        commands: shell commands to run in the test.
        test_requires: packages (conda match specs) that the commands need.
        pip_check: whether `pip check` holds with this package in the environment.
        run_exports: how closely a package built on this one must match it: `x.x` keeps
            major and minor version.
        build_prefix: stands before the build string, to tell variants apart (`cpu_`).
        instead_of_recipe: takes the place of the hand-written recipe on this platform.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    debs: list[str] = []
    license: str
    license_from: list[str] = []
    why: str = ""
    version: str = ""
    add: list[str] = []
    drop: list[str] = []
    constrains: list[str] = []
    ignore_needed: list[str] = []
    without: dict[str, list[str]] = {}
    exclude: list[str] = []
    move: dict[str, str] = {}
    patches: list[str] = []
    imports: list[str] | None = None
    commands: list[str] = []
    test_requires: list[str] = []
    pip_check: bool = True
    run_exports: str = ""
    build_prefix: str = ""
    instead_of_recipe: bool = False

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        corrected = [name for name in CORRECTIONS if name in self.model_fields_set]
        if corrected and not self.why:
            raise ValueError(f"'{corrected[0]}' changes what Debian made: say why in 'why'")
        return self


class DebsManifest(BaseModel):
    """The manifest.

    Attributes:
        subdir: the platform that the packages are for.
        python: its Python, "3.13".
        compiler: Debian packages of a Python of the same minor version for the build platform,
            with what it needs to run: it compiles the bytecode.
        debs: conda name → entry.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    subdir: str
    python: str
    compiler: list[str]
    debs: dict[str, DebEntry]

    @classmethod
    def load(cls, path: Path) -> DebsManifest:
        """Read the manifest.

        Raises:
            InputError: absent, not YAML, or a wrong entry; names the file, entry and field.
        """
        try:
            return cls.model_validate(yamltext.load(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise InputError(f"{path}: there is no such debs manifest") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{path}:{mark.line + 1}" if mark else str(path)
            problem = getattr(error, "problem", error)
            raise InputError(f"{where}: not valid YAML: {problem}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ": ".join(str(part) for part in first["loc"])
            raise InputError(
                f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}",
                "the fields are described in docs/packager-guide.md, Debian packages",
            ) from error
