"""`recipes/wheels/wheels.yaml`: the packages made from wheels."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from ddlce.repackaged import Table, TableEntry


class WheelEntry(TableEntry):
    """One package. All that is not said here comes from the wheel's metadata.

    Attributes:
        pypi: the name on PyPI, where the conda name is another.
        version: the locked one to take, where several are: a build for CUDA and one without.
        distribution: the name in the installed metadata, where the wheel is a build of another
            distribution (tensorflow-cpu of tensorflow) and others require that by its name.
        license: SPDX expression, where the metadata has none or a wrong one.
        license_files: texts in `recipes/wheels/`, where the wheel has none inside.
        homepage: where the metadata has none.
        prefer_others: solvers take another build of the package where one will do.
        symbolic: libraries in site-packages that prefer their own functions, whatever else is
            loaded.
        links: folder in site-packages → folder in the prefix that it is a link to.
    """

    CORRECTIONS = (*TableEntry.CORRECTIONS, "license", "distribution", "links", "symbolic")
    CORRECTS = "corrects the wheel's metadata"

    pypi: str | None = None
    version: str = ""
    distribution: str = ""
    license: str = ""
    license_files: list[str] = Field(default_factory=list)
    homepage: str = ""
    prefer_others: bool = False
    symbolic: list[str] = Field(default_factory=list)
    links: dict[str, str] = Field(default_factory=dict)


class WheelsManifest(Table):
    """The manifest: conda name to entry.

    Attributes:
        cuda: the CUDA whose packages those of a set stand on, "13.0"; "" for those for CPUs.
        set: another set whose packages those of a set stand on too; "" for none.
        wheels: the packages; `name:` with nothing after it takes everything from the metadata.
    """

    KIND = "wheels"
    GUIDE = "Wheels"

    cuda: str = Field(default="", pattern=r"^(\d+\.\d+)?$")
    set: str = ""
    wheels: dict[str, WheelEntry]

    @field_validator("wheels", mode="before")
    @classmethod
    def _filled(cls, wheels: Any) -> Any:
        if wheels is None:
            return {}
        if not isinstance(wheels, dict):
            return wheels
        return {name: {} if entry is None else entry for name, entry in wheels.items()}
