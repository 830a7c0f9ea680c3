"""Lists in the documents are those of the code: fields of tables, parts of tests, pages."""

from __future__ import annotations

import re

import pytest

from ddlce.debs.manifest import DebEntry
from ddlce.model.envlock import EnvLock
from ddlce.nvidia.manifest import NvidiaEntry
from ddlce.repackaged import TableEntry
from ddlce.wheels.manifest import WheelEntry
from support.documents import REPO
from support.parts import NAMES

GUIDE = (REPO / "docs/packager-guide.md").read_text()


def below(text: str, title: str) -> str:
    """What stands below a heading of the second level."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_column(text: str) -> list[str]:
    """The names in code spans of the first column of a text's tables."""
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("entry", [WheelEntry, DebEntry, NvidiaEntry])
def test_fields_of_a_table(entry: type[TableEntry]) -> None:
    """Each field that only these tables have, and no other name; the wheels' list is whole."""
    title = {WheelEntry: "Wheels", DebEntry: "Debian packages", NvidiaEntry: "CUDA"}[entry]
    text = below(GUIDE, title).partition("\n### ")[0].partition("cuda128.yaml")[0]
    named, fields = set(first_column(text)), set(entry.model_fields)
    own = fields if entry is WheelEntry else fields - set(TableEntry.model_fields)
    assert named - fields == set()
    assert own - named == set()


def test_corrections_that_demand_a_reason() -> None:
    row = re.findall(r"^\| `why` \| the reason; demanded with (.*) \|$", GUIDE, re.MULTILINE)[0]
    assert set(re.findall(r"`(\w+)`", row)) == set(WheelEntry.CORRECTIONS)


def test_parts_of_the_tests() -> None:
    page = (REPO / "CONTRIBUTING.md").read_text()
    assert sorted(first_column(below(page, "Set up and test"))) == sorted(NAMES)


def test_environments_of_the_site_guide() -> None:
    page = below((REPO / "docs/site-guide.md").read_text(), "Build")
    named = re.findall(r"^\| `([\w-]+)`", page.partition("| made by |")[2], re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (REPO / "envs").glob("*.yaml"))


@pytest.mark.parametrize(
    ("guide", "folder"), [("CONTRIBUTING.md", "docs/howto"), ("docs/user-guide.md", "docs/user")]
)
def test_a_guide_names_each_page(guide: str, folder: str) -> None:
    text = (REPO / guide).read_text()
    pages = [path.name for path in (REPO / folder).glob("*.md")]
    assert [name for name in pages if f"{folder.rpartition('/')[2]}/{name}" not in text] == []


def test_options_and_variables_of_libddl() -> None:
    """All words of DDL_OPTIONS, and all variables but the knobs of tests."""
    page = below((REPO / "docs/user/ranks.md").read_text(), "Options and variables")
    lib = REPO / "recipes/ddl/src/lib"
    text = "".join(path.read_text() for path in sorted(lib.glob("**/*.cc")))
    words = set(re.findall(r'^      \{"(-\w+)",', text, re.MULTILINE))
    read = set(re.findall(r'getenv\("(DDL_\w+)"\)', text))
    knobs = set(re.findall(r"`(DDL_\w+)=", (lib.parent / "README.md").read_text()))
    assert len(words) > 9
    assert len(knobs) > 3
    named = {name.split()[0] for name in first_column(page)}
    assert {name for name in named if name.startswith("-")} == words
    assert read - knobs - named == {"DDL_OPTIONS"}


def test_what_the_environment_for_power_has_not() -> None:
    """As the page of modules says, in the sentence below its table."""
    page = " ".join((REPO / "docs/user/start.md").read_text().split())
    assert "On POWER, `ddl-ce` has PyTorch 2.6 for CPUs." in page
    assert "TensorFlow, the examples and `ddlce` are not in it" in page
    lock = EnvLock.load(REPO / "envs/locks/ddl-ce.linux-ppc64le.lock")
    versions = {package.name: package.version for package in lock.packages}
    assert versions["pytorch"].startswith("2.6.")
    assert versions.keys() & {"tensorflow", "ddl-ce-examples", "ddlce"} == set()
