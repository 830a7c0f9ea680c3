"""`recipes/wheels/wheels.yaml`: the packages made from wheels."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ddlce import yamltext
from ddlce.errors import InputError

#: Fields that correct a wheel's metadata, each of which wants its reason in `why`.
CORRECTIONS = (
    *("add", "drop", "exclude", "ignore_needed", "license", "imports", "pip_check"),
    "distribution",
)


class WheelEntry(BaseModel):
    """One package. All that is not said here comes from the wheel's metadata.

    Attributes:
        pypi: the name on PyPI, where the conda name is another.
        distribution: the name in the installed metadata, where the wheel is a build of another
            distribution (tensorflow-cpu of tensorflow) and others require that by its name.
        why: the reason for each correction below.
        add: run dependencies (conda match specs) that the metadata leaves out.
        drop: requirements (PyPI names) that do not apply here.
        constrains: run constraints (conda match specs).
        ignore_needed: sonames that need no package, because they are optional at run time.
        license: SPDX expression, where the metadata has none or a wrong one.
        license_files: texts in `recipes/wheels/`, where the wheel has none inside.
        homepage: where the metadata has none.
        exclude: files of the wheel (globs) that are not installed, such as compiled tests.
        imports: names to import in the test instead of all top-level ones; none, if the test is
            in `commands` alone.
        commands: shell commands to run in the test.
        test_requires: packages (conda match specs) that the commands need.
        pip_check: whether `pip check` holds with this package in the environment.
        run_exports: how closely a package built on this one must match it: `x.x` keeps
            major and minor version.
        build_prefix: stands before the build string, to tell variants apart (`cpu_`).
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    pypi: str | None = None
    distribution: str = ""
    why: str = ""
    add: list[str] = []
    drop: list[str] = []
    constrains: list[str] = []
    ignore_needed: list[str] = []
    exclude: list[str] = []
    license: str = ""
    license_files: list[str] = []
    homepage: str = ""
    imports: list[str] | None = None
    commands: list[str] = []
    test_requires: list[str] = []
    pip_check: bool = True
    run_exports: str = ""
    build_prefix: str = ""

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        corrected = [name for name in CORRECTIONS if name in self.model_fields_set]
        if corrected and not self.why:
            raise ValueError(f"'{corrected[0]}' corrects the wheel's metadata: say why in 'why'")
        return self


class WheelsManifest(BaseModel):
    """The manifest: conda name to entry.

    Attributes:
        wheels: the packages; `name:` with nothing after it takes everything from the metadata.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    wheels: dict[str, WheelEntry]

    @classmethod
    def load(cls, path: Path) -> WheelsManifest:
        """Read the manifest.

        Raises:
            InputError: absent, not YAML, or a wrong entry; names the file, entry and field.
        """
        try:
            data = yamltext.load(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{path}: there is no such wheels manifest") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{path}:{mark.line + 1}" if mark else str(path)
            raise InputError(
                f"{where}: not valid YAML: {getattr(error, 'problem', error)}"
            ) from error
        if isinstance(data, dict) and isinstance(data.get("wheels"), dict):
            data["wheels"] = {k: {} if v is None else v for k, v in data["wheels"].items()}
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ": ".join(str(part) for part in first["loc"])
            raise InputError(
                f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}",
                "the fields are described in docs/packager-guide.md, Wheels",
            ) from error
