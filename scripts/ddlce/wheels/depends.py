"""From Python's requirements (PEP 508, PEP 440) to conda's match specs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ddlce.errors import InputError
from ddlce.model.source import WheelMetadata
from ddlce.model.target import Target
from ddlce.platforms import get_platform

#: Pythons for which a pure wheel's requirements are compared with the distribution's.
OTHER_PYTHONS = tuple(f"3.{minor}" for minor in range(8, 16))


@dataclass(frozen=True)
class KnownPackage:
    """A package that a requirement may mean.

    Attributes:
        name: its conda name.
        version: the locked one; "" where no wheel is locked.
    """

    name: str
    version: str


def marker_environment(target: Target) -> dict[str, str]:
    """The environment that markers are evaluated in: the target's, never this process's."""
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": f"{target.python}.0",
        "os_name": "posix",
        "platform_machine": get_platform(target.subdir).machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": "linux",
    }


def applying(
    requirements: Iterable[str], environment: Mapping[str, str], extra: str = ""
) -> list[Requirement]:
    """The requirements whose markers hold.

    Args:
        requirements: of a wheel's metadata.
        environment: the target's, as `marker_environment` makes it.
        extra: an extra of the wheel that is wanted, too; "" for none.
    """
    there = {**environment, "extra": extra}
    parsed = [Requirement(text) for text in requirements]
    return [r for r in parsed if r.marker is None or r.marker.evaluate(there)]


def depends_on_python(wheel: WheelMetadata, target: Target) -> bool:
    """Whether another Python that the wheel allows would need other packages.

    If so, a `noarch: python` package made for one Python must not be installed for another.
    """
    allowed = SpecifierSet(wheel.requires_python)

    def needed(version: str) -> set[str]:
        environment = marker_environment(replace(target, python=version))
        return set(map(str, applying(wheel.requires_dist, environment)))

    others = (other for other in OTHER_PYTHONS if allowed.contains(f"{other}.99"))
    return any(needed(other) != needed(target.python) for other in others)


def conda_dependencies(
    wheel: WheelMetadata,
    target: Target,
    drop: Iterable[str],
    ours: Mapping[str, KnownPackage],
) -> list[str]:
    """Match specs for a wheel's requirements, sorted.

    Args:
        drop: requirements (PyPI names) to leave out.
        ours: the packages made from wheels, by canonical PyPI name.

    Raises:
        InputError: a requirement that we cannot satisfy; names the wheel and the requirement.
    """
    dropped = {canonicalize_name(name) for name in drop}
    needed = applying(wheel.requires_dist, marker_environment(target))
    unused = dropped - {canonicalize_name(r.name) for r in needed}
    if unused:
        raise InputError(
            f"{wheel.name} {wheel.version} does not require {', '.join(sorted(unused))}",
            "remove it from 'drop' in wheels.yaml",
        )
    specs: set[str] = set()
    for requirement in needed:
        if canonicalize_name(requirement.name) in dropped:
            continue
        where = f"{wheel.name} {wheel.version} requires '{requirement}'"
        if requirement.url or requirement.extras:
            kind = "a direct address" if requirement.url else "extras"
            raise InputError(
                f"{where}: {kind} cannot become a conda dependency",
                "put it under 'drop' in wheels.yaml, and what it stands for under 'add'",
            )
        package = ours.get(canonicalize_name(requirement.name))
        if package is None:
            raise InputError(
                f"{where}, and no package is made from {requirement.name}",
                f"ddlce sources add pypi:{requirement.name}, and give it a line in wheels.yaml",
            )
        if package.version and not requirement.specifier.contains(package.version, True):
            raise InputError(
                f"{where}, but {package.version} is locked",
                f"lock one that fits: ddlce sources add pypi:{requirement.name}==VERSION",
            )
        specs.add(f"{package.name} {conda_version_spec(requirement.specifier)}".strip())
    return sorted(specs)


def conda_version_spec(specifiers: SpecifierSet) -> str:
    """A PEP 440 specifier set as a conda version spec that allows the same releases.

    Examples: `~=1.4.2` → `>=1.4.2,1.4.*`; `<2.0` → `<2dev0` (PEP 440 keeps pre-releases of
    2.0 out, conda would let them in); `===1` → `==1`.
    """
    ordered = sorted(specifiers, key=lambda s: (_ORDER.index(s.operator), s.version))
    return ",".join(_conda_spec(specifier) for specifier in ordered)


_ORDER = ("===", "==", "~=", ">=", ">", "<", "<=", "!=")


def _conda_spec(specifier: Specifier) -> str:
    operator, text = specifier.operator, specifier.version
    if operator == "===":
        return f"=={conda_version(text)}"
    if text.endswith(".*"):
        prefix = f"{conda_version(text[:-2])}.*"
        return prefix if operator == "==" else f"!={prefix}"
    version = Version(text)
    plain = conda_version(text)
    if operator == "~=":
        release = ".".join(map(str, version.release[:-1]))
        epoch = f"{version.epoch}!" if version.epoch else ""
        return f">={plain},{epoch}{release}.*"
    if operator == "<" and not version.is_prerelease:
        # `2.0` has the pre-release `2.0a1` and also `2a1`: cut the zeros, then go below all.
        return "<" + re.sub(r"(\.0)+$", "", plain) + "dev0"
    if operator == ">" and version.post is None:
        return f">{plain},!={plain}.post.*"  # a post-release of 1.0 is not `>1.0`
    return f"{operator}{plain}"


def conda_version(text: str) -> str:
    """A PEP 440 version as conda writes it: normalised, without the local part (`+cpu`)."""
    return str(Version(text)).partition("+")[0]
