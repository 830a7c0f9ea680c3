"""Python requirements become conda match specs that allow the same releases."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from rattler import Version as CondaVersion
from rattler import VersionSpec

from ddlce.errors import InputError
from ddlce.model.source import WheelMetadata
from ddlce.model.target import Target
from ddlce.wheels.depends import (
    KnownPackage,
    conda_dependencies,
    conda_version,
    conda_version_spec,
    depends_on_python,
)

PARTS = st.lists(st.integers(0, 12), min_size=1, max_size=3)
RELEASES = PARTS.map(lambda parts: ".".join(map(str, parts)))
SUFFIXES = st.sampled_from(["", "", "", "a1", "b2", "rc1", ".post1", ".dev0"])
VERSIONS = st.builds(lambda release, suffix: release + suffix, RELEASES, SUFFIXES)


@st.composite
def specifiers(draw: st.DrawFn) -> str:
    operator = draw(st.sampled_from(["==", "!=", ">=", "<=", "<", ">", "~=", "==.*", "!=.*"]))
    if operator.endswith(".*"):
        return f"{operator[:2]}{draw(RELEASES)}.*"
    if operator == "~=":
        parts = draw(st.lists(st.integers(0, 12), min_size=2, max_size=3))
        return "~=" + ".".join(map(str, parts))
    return operator + draw(RELEASES)


@given(st.lists(specifiers(), min_size=1, max_size=2), VERSIONS)
def test_a_translated_specifier_allows_what_pep_440_allows(specs: list[str], text: str) -> None:
    python = SpecifierSet(",".join(specs))
    version = Version(text)
    # `1.0.post1` and `1.0.0.post1` are one release to PEP 440; nobody publishes the second
    # where specifiers say the first, and conda has no way to say both.
    assume(version.post is None or not any("0" in s or ">" in s for s in specs))
    # A prefix pattern `==1.0.*` takes `1.0a1`; conda reads that as `1.0a.*`'s sibling.
    assume(not version.is_prerelease or not any(s.endswith(".*") or s[:2] == "~=" for s in specs))
    # PEP 440 pads `==1.0.*` with zeros against `1`; conda does not.
    longest = max(s.count(".") for s in specs) + 1
    padded = ".".join(map(str, [*version.release, *[0] * (longest - len(version.release))]))
    conda = padded + text[len(version.base_version) :]
    expected = python.contains(version, prereleases=True)
    assert VersionSpec(conda_version_spec(python)).matches(CondaVersion(conda)) == expected


@pytest.mark.parametrize(
    ("pep440", "conda"),
    [
        ("", ""),
        (">=1.2", ">=1.2"),
        ("~=1.4.2", ">=1.4.2,1.4.*"),
        ("~=0.1", ">=0.1,0.*"),
        ("~=1!2.3", ">=1!2.3,1!2.*"),
        ("<2.0", "<2dev0"),
        ("<2.10", "<2.10dev0"),
        ("<2.0rc1", "<2.0rc1"),
        (">1.0", ">1.0,!=1.0.post.*"),
        (">=1.7.4,!=1.8,!=1.8.1,<3.0.0", ">=1.7.4,<3dev0,!=1.8,!=1.8.1"),
        ("==1.2.*", "1.2.*"),
        ("!=3.0.*", "!=3.0.*"),
        ("===1.0", "==1.0"),
        ("==2.13.0+cpu", "==2.13.0"),
        (">=1.0-1", ">=1.0.post1"),
    ],
)
def test_a_specifier_becomes_a_match_spec(pep440: str, conda: str) -> None:
    assert conda_version_spec(SpecifierSet(pep440)) == conda


def test_pre_releases_of_an_upper_bound_stay_out() -> None:
    spec = VersionSpec(conda_version_spec(SpecifierSet("<2.0")))
    for version in ("2.0a1", "2.0.0rc1", "2a1", "2.0.dev1", "2.0"):
        assert not spec.matches(CondaVersion(version)), version
    assert spec.matches(CondaVersion("1.99"))


def test_the_local_part_is_left_out() -> None:
    assert conda_version("2.13.0+cpu") == "2.13.0"


def wheel(*requirements: str, python: str = ">=3.9") -> WheelMetadata:
    return WheelMetadata(
        name="demo",
        version="1.0",
        tags=["py3-none-any"],
        pure=True,
        requires_python=python,
        requires_dist=list(requirements),
    )


OURS = {
    "torch": KnownPackage("pytorch", "2.13.0+cpu"),
    "typing-extensions": KnownPackage("typing_extensions", "4.1"),
    "tomli": KnownPackage("tomli", "2.0"),
    "colorama": KnownPackage("colorama", ""),
    "a": KnownPackage("a", "1.0"),
}


def translate(*requirements: str, drop: tuple[str, ...] = ()) -> list[str]:
    return conda_dependencies(wheel(*requirements), Target("linux-64", "3.11"), drop, OURS)


def test_names_are_conda_s_and_spelling_does_not_matter() -> None:
    assert translate("Typing_Extensions>=4", "torch") == ["pytorch", "typing_extensions >=4"]


def test_markers_are_the_target_s() -> None:
    assert translate(
        'tomli; python_version < "3.11"',
        'colorama; sys_platform == "win32"',
        'a>=1; platform_machine == "x86_64"',
        'torch; extra == "ml"',
    ) == ["a >=1"]


def test_a_requirement_can_be_dropped() -> None:
    assert translate("torch", "a", drop=("Torch",)) == ["a"]


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("unheard-of>=2", "demo 1.0 requires 'unheard-of>=2', and no package is made"),
        ("a[fast]", "extras cannot become a conda dependency"),
        ("a @ https://x.org/a.whl", "a direct address cannot"),
        ("a>=2", "demo 1.0 requires 'a>=2', but 1.0 is locked"),
    ],
)
def test_what_cannot_be_satisfied_is_named(requirement: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        translate(requirement)
    assert message in caught.value.message
    assert caught.value.hint


def test_dropping_what_is_not_required_is_an_error() -> None:
    with pytest.raises(InputError, match="does not require torch"):
        translate("a", drop=("torch",))


def test_a_pure_wheel_is_pinned_only_where_its_needs_vary() -> None:
    assert depends_on_python(wheel('tomli; python_version < "3.13"'), Target("linux-64", "3.11"))
    assert not depends_on_python(wheel('tomli; python_version < "3.9"'), Target("linux-64", "3.11"))
    assert not depends_on_python(wheel("a"), Target("linux-64", "3.11"))
