"""`recipes/nvidia/cudaNNN.yaml`: the packages made from NVIDIA's wheels, of one CUDA."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ddlce.repackaged import Table, TableEntry

Part = Literal["all", "runtime", "development"]


class NvidiaEntry(TableEntry):
    """One package. All that is not said here comes from the wheel's metadata.

    Attributes:
        pypi: the wheel's name on PyPI.
        part: `runtime`, its libraries and metadata; `development`, all else and links for linkers;
            or `all`.
        exports: the package that is needed by what is built on this one; for `development`.
        libraries_in_place: they stay in site-packages/nvidia, where the wheel has them.
        license: SPDX expression, where it is not the table's.
        license_files: texts inside the wheel, where its metadata name none.
        script: shell commands that end the build.
    """

    CORRECTIONS = (*TableEntry.CORRECTIONS, "libraries_in_place", "script")
    CORRECTS = "corrects the wheel's metadata"

    pypi: str
    part: Part
    exports: str = ""
    libraries_in_place: bool = False
    license: str = ""
    license_files: list[str] = Field(default_factory=list)
    script: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if (self.part == "development") != bool(self.exports):
            raise ValueError("'exports' names the runtime package of a development package")
        return self


class NvidiaManifest(Table):
    """The manifest.

    Attributes:
        cuda: the version of CUDA, "13.0".
        license: SPDX expression of what has no other.
        installer: the script beside the table that installs a wheel, and what it is made of.
        variants: versions that are others for this CUDA than conda_build_config.yaml says.
        without: recipes that use a variant key, and yet have no build for this CUDA → why.
        packages: conda name → entry.
    """

    KIND = "CUDA"
    GUIDE = "CUDA"

    cuda: str = Field(pattern=r"^\d+\.\d+$")
    license: str
    installer: list[str] = Field(default=["install_nvidia.py"], min_length=1)
    variants: dict[str, str] = Field(default_factory=dict)
    without: dict[str, str] = Field(default_factory=dict)
    packages: dict[str, NvidiaEntry]
